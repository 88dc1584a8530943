"""EnvPool's Highway, where it is installed: the game of highway-env without traffic, as a vector environment to train in."""

import numpy as np
import pytest
from stable_baselines3 import PPO

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native
from sb3_camp.tasks.highway import make_highway, make_highway_vec
from sb3_camp.vec_env import native_vec_env

pytest.importorskip("envpool")
TASK = "camp/Highway-v0"


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_without_traffic_both_are_the_same_step_by_step(lane):
    config = {"vehicles_count": 0, "initial_lane_id": lane}
    single, envs = make_highway(0.0, config), make_highway_vec(1, 0.0, config)
    own, _ = single.reset(seed=0)
    others, _ = envs.reset(seed=0)
    rng = np.random.default_rng(lane)
    for _ in range(30):
        # Positions differ by where each has begun; presence, position across, both speeds are compared
        assert np.allclose(np.delete(own, 1), np.delete(others[0], 1), rtol=0, atol=1e-5)
        action = int(rng.integers(5))
        own, reward, terminated, truncated, _ = single.step(action)
        others, rewards, terminations, truncations, _ = envs.step(np.array([action]))
        assert abs(reward - rewards[0]) < 1e-5
        assert (terminated, truncated) == (bool(terminations[0]), bool(truncations[0]))
    assert truncated and not terminated


def test_crashes_end_episodes_and_some_envs_are_reset():
    env = native_vec_env(TASK, 64, seed=0, env_kwargs={"sigma": 0.0})
    observations, n_crashes = env.reset(), 0
    assert observations.shape == (64, 25)
    for _ in range(40):
        observations, rewards, dones, infos = env.step(np.full(64, 3))
        for i in np.flatnonzero(dones):
            crashed = bool(infos[i]["crashed"])
            assert infos[i]["TimeLimit.truncated"] is not crashed
            assert infos[i]["episode"]["l"] == 30 or crashed
            assert not np.array_equal(infos[i]["terminal_observation"], observations[i])
            n_crashes += crashed
        assert np.all((rewards >= 0) & (rewards <= 1))
    assert n_crashes > 20


def test_the_seed_decides_traffic_and_noise():
    def play(seed):
        env = native_vec_env(TASK, 4, seed=seed, env_kwargs={"sigma": 0.1})
        return np.stack([env.reset(), *(env.step(np.array([0, 1, 3, 4]))[0] for _ in range(40))])

    assert np.array_equal(play(5), play(5))
    assert not np.isclose(play(5), play(6)).all(axis=-1).any()


def test_ppo_trains_in_it():
    PPO("MlpPolicy", native_vec_env(TASK, 16, seed=0), n_steps=8, batch_size=32, n_epochs=1, device="cpu").learn(256)


def test_evaluations_stay_in_highway_env():
    environment = EvaluationEnv(TASK)
    assert not has_known_native(environment)
    with pytest.raises(NotNative), opened_native(environment, 2):
        pass


@pytest.mark.parametrize("config", [{"observation": {"absolute": True}}, {"action": {"type": "ContinuousAction"}}])
def test_settings_that_envpool_lacks_are_refused(config):
    with pytest.raises(InputError, match="default observation and action"):
        make_highway_vec(2, 0.0, config)
