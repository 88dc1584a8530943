"""The vector environment of Highway plays the episodes of highway-env, number by number."""

import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation
from highway_env.envs.highway_env import HighwayEnvFast
from stable_baselines3 import PPO

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.native import has_known_native, opened_native
from sb3_camp.tasks import highway_vec
from sb3_camp.tasks.highway import _settings, make_highway_vec
from sb3_camp.vec_env import native_vec_env

TASK = "camp/Highway-v0"
CROWDED = {"vehicles_count": 30, "lanes_count": 2, "vehicles_density": 4, "duration": 8, "observation": {"vehicles_count": 8}}


class Watched(highway_vec.HighwayVectorEnv):
    """Counts lane changes that are given up, because somebody in front heads for the same lane."""

    n_given_up = 0

    def _give_up(self, changing, before, target):
        had = target.copy()
        super()._give_up(changing, before, target)
        self.n_given_up += np.sum(target != had)


def play_both(config, n_envs, n_steps, policy):
    """Each step of the vector environment, against one highway-env for each of its envs."""
    settings, rng = _settings(config), np.random.default_rng(0)
    envs = Watched(n_envs, settings)
    singles = [FlattenObservation(HighwayEnvFast(settings)) for _ in range(n_envs)]
    observations, _ = envs.reset(seed=5)
    for i, single in enumerate(singles):
        assert np.array_equal(single.reset(seed=5 + i)[0], observations[i])
    ended, n_crashes, n_changes = np.zeros(n_envs, dtype=bool), 0, 0
    for step in range(n_steps):
        actions = policy(step, rng, n_envs)
        targets = envs._target_lane.copy()
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        n_changes += np.sum(envs._target_lane[1:] != targets[1:])
        for i, single in enumerate(singles):
            if ended[i]:
                expected = (single.reset()[0], 0.0, False, False)
            else:
                *expected, info = single.step(int(actions[i]))
                assert (infos["crashed"][i], infos["speed"][i]) == (info["crashed"], info["speed"])
            assert np.array_equal(expected[0], observations[i])
            assert tuple(expected[1:]) == (rewards[i], terminations[i], truncations[i])
        ended = terminations | truncations
        n_crashes += terminations.sum()
    return n_crashes, n_changes, envs.n_given_up


def restless(step, rng, n_envs):
    return rng.integers(5, size=n_envs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "policy", "n_envs", "n_steps"),
    [
        ({}, restless, 2, 30),
        ({}, lambda step, rng, n: np.full(n, 4), 2, 31),
        (CROWDED, restless, 2, 25),
        ({"lanes_count": 5, "simulation_frequency": 15, "offroad_terminal": True, "initial_lane_id": 3}, restless, 2, 15),
        ({"lanes_count": 1, "vehicles_count": 3, "normalize_reward": False, "collision_reward": -3}, restless, 2, 40),
        ({"vehicles_count": 1, "simulation_frequency": 1, "duration": 400}, lambda step, rng, n: np.full(n, 3), 1, 345),
    ],
    ids=["random", "slower", "crowded", "lanes", "few", "beyond the end of the road"],
)
def test_episodes_are_those_of_highway_env(config, policy, n_envs, n_steps):
    play_both(config, n_envs, n_steps, policy)


def test_crashes_and_lane_changes_are_those_of_highway_env():
    n_crashes, n_changes, n_given_up = play_both(CROWDED, 2, 12, restless)
    assert n_crashes >= 2 and n_changes > 10 and n_given_up > 0


def test_some_envs_are_reset_and_the_others_stay():
    envs = highway_vec.HighwayVectorEnv(3, _settings(None))
    envs.reset(seed=[4, 5, 6])
    before = envs.step(np.array([3, 3, 3]))[0]
    after, _ = envs.reset(seed=[7, 8, 9], options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert np.array_equal(after[1], FlattenObservation(HighwayEnvFast(_settings(None))).reset(seed=8)[0])


def test_crashes_end_episodes_for_sb3():
    env = native_vec_env(TASK, 16, seed=0, env_kwargs={"sigma": 0.0})
    observations, n_crashes = env.reset(), 0
    for _ in range(40):
        observations, rewards, dones, infos = env.step(np.full(16, 3))
        for i in np.flatnonzero(dones):
            crashed = bool(infos[i]["crashed"])
            assert infos[i]["TimeLimit.truncated"] is not crashed
            assert infos[i]["episode"]["l"] == 30 or crashed
            assert not np.array_equal(infos[i]["terminal_observation"], observations[i])
            n_crashes += crashed
        assert np.all((rewards >= 0) & (rewards <= 1))
    assert n_crashes > 5


def test_ppo_trains_in_it():
    PPO("MlpPolicy", native_vec_env(TASK, 16, seed=0), n_steps=8, batch_size=32, n_epochs=1, device="cpu").learn(256)


def test_evaluations_play_it_with_the_noise_of_the_task():
    environment = EvaluationEnv(TASK, {"sigma": 0.5, "config": {"duration": 5}})
    assert has_known_native(environment)
    with opened_native(environment, 64) as envs:
        noisy, _ = envs.reset(seed=0)
        clean = envs.unwrapped._observations()
    assert abs((noisy - clean).std() - 0.5) < 0.05
    assert not has_known_native(EvaluationEnv(TASK, {"config": {"observation": {"order": "shuffled"}}}))
    assert not has_known_native(EvaluationEnv(TASK, {"max_episode_steps": 3}))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"observation": {"absolute": True}}, "default observation and action"),
        ({"action": {"type": "ContinuousAction"}}, "default observation and action"),
        ({"observation": {"vehicles_count": 1}}, "at least two vehicles"),
        ({"controlled_vehicles": 2}, "controlled_vehicles=1 only"),
        ({"other_vehicles_type": "highway_env.vehicle.behavior.LinearVehicle"}, "other_vehicles_type"),
    ],
)
def test_what_it_has_not_is_refused(config, reason):
    with pytest.raises(InputError, match=reason):
        make_highway_vec(2, 0.0, config)


def test_another_version_of_highway_env_is_played_one_by_one(monkeypatch):
    monkeypatch.setattr(highway_vec, "_VERSION", "1.11")
    with pytest.raises(InputError, match=r"follows highway-env 1\.11, installed is 1\."):
        make_highway_vec(2, 0.0)
    assert not has_known_native(EvaluationEnv(TASK))
