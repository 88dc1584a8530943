"""ale-py's vector environment shows the frames of a single game, in episodes as the Atari tasks define them."""

import gymnasium as gym
import numpy as np
import pytest
from ale_py import AtariEnv
from gymnasium.wrappers import AtariPreprocessing
from stable_baselines3 import PPO

import sb3_camp  # noqa: F401
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native, step_limit
from sb3_camp.tasks import atari_vec
from sb3_camp.tasks.atari import _UnseenAtariEnv, make_atari_vec
from sb3_camp.tasks.atari_vec import AtariFrames
from sb3_camp.vec_env import native_vec_env

TASK = "camp/Pong1r-v0"


class Noops:
    """Draws a number of idle frames that is known beforehand."""

    def __init__(self, number):
        self.number = number

    def integers(self, low, high):
        assert (low, high) == (1, 31)
        return self.number


def single(n_noops=1, game="pong"):
    env = AtariPreprocessing(AtariEnv(game=game, difficulty=0, frameskip=1, repeat_action_probability=0.0))
    env.reset(seed=0)
    env.unwrapped._np_random = Noops(n_noops)
    return env


def test_frames_points_and_ends_are_those_of_a_single_game():
    envs = AtariFrames(1, "pong", 0.0, 108_000)
    observations, infos = envs.reset(seed=3)
    env = single(int(infos["episode_frame_number"][0]))
    assert np.array_equal(env.reset()[0], observations[0])
    rng, points = np.random.default_rng(0), []
    for _ in range(150):
        action = int(rng.integers(6))
        observations, rewards, terminations, truncations, _ = envs.step(np.array([action]))
        picture, reward, terminated, truncated, _ = env.step(action)
        assert np.array_equal(picture, observations[0])
        assert (reward, terminated, truncated) == (rewards[0], terminations[0], truncations[0])
        points.append(reward)
    assert any(points)


def test_idle_frames_at_the_start_are_from_1_to_30_and_differ():
    envs = AtariFrames(8, "pong", 0.25, 108_000)
    envs.reset(seed=0)
    counts = np.concatenate([envs.reset()[1]["episode_frame_number"] for _ in range(20)])
    assert counts.min() >= 1 and counts.max() <= 30 and {1, 2} & set(counts) and {29, 30} & set(counts)
    assert abs(counts.mean() - 15.5) < 3


def test_games_that_would_begin_without_an_idle_frame_begin_again(monkeypatch):
    monkeypatch.setattr(atari_vec, "_MOST_IDLE_FRAMES", 1)
    envs = AtariFrames(8, "pong", 0.25, 108_000, max_episode_steps=1)
    assert set(envs.reset(seed=0)[1]["episode_frame_number"]) == {1}
    envs.step(np.zeros(8, dtype=int))
    assert set(envs.step(np.zeros(8, dtype=int))[-1]["episode_frame_number"]) == {1}


def test_repeated_actions_are_passed_on():
    """Games that always repeat the action before never take another one than the first, which is to do nothing."""
    envs = AtariFrames(2, "pong", 1.0, 108_000)
    envs.reset(seed=[5, 5])
    for _ in range(40):
        observations, *_ = envs.step(np.array([2, 3]))
    assert np.array_equal(*observations)


def test_seeds_decide_and_0_is_one():
    def frames(seed):
        envs = AtariFrames(2, "pong", 0.25, 108_000)
        return np.stack([envs.reset(seed=seed)[0], *(envs.step(np.array([2, 2]))[0] for _ in range(60))])

    assert np.array_equal(frames(0), frames(0))
    assert np.array_equal(frames(0)[:, 1], frames([9, 1])[:, 1])
    assert not np.array_equal(frames(0)[:, 0], frames(0)[:, 1])
    assert not np.array_equal(frames(0), frames(7))


def test_episodes_end_with_a_point_or_at_a_limit_and_begin_at_the_next_step():
    envs = AtariFrames(3, "pong", 0.25, 108_000, first_point_ends=True)
    envs.reset(seed=0)
    for _ in range(400):
        _, rewards, terminations, truncations, _ = envs.step(np.array([0, 2, 3]))
        assert np.array_equal(terminations, rewards != 0) and not truncations.any()
        if terminations.any():
            break
    _, rewards, again, _, infos = envs.step(np.array([0, 2, 3]))
    began = infos["episode_frame_number"] <= 30
    assert np.array_equal(began, terminations) and not rewards[began].any() and not again[began].any()
    for limits in (dict(max_frames=108_000, max_episode_steps=7), dict(max_frames=7 * 4)):
        envs = AtariFrames(1, "pong", 0.25, **limits)
        n_idle = envs.reset(seed=1)[1]["episode_frame_number"][0]
        n_steps = 7 if "max_episode_steps" in limits else max(1, -(-(28 - n_idle) // 4))
        ends = [envs.step(np.array([0]))[2:4] for _ in range(n_steps)]
        assert [bool(end[1][0]) for end in ends] == [False] * (n_steps - 1) + [True] and not any(end[0][0] for end in ends)


def test_some_games_are_reset_and_the_others_stay():
    envs = AtariFrames(3, "pong", 0.25, 108_000)
    envs.reset(seed=0)
    for _ in range(20):
        before, *_ = envs.step(np.array([2, 2, 2]))
    after, later = envs.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(before[[0, 2]], after[[0, 2]]) and not np.array_equal(before[1], after[1])
    assert (later["episode_frame_number"] <= 30).tolist() == [False, True, False]


def test_noise_then_stack_as_in_the_task():
    envs = make_atari_vec(4, "pong", 20.0, 3, 0.25, 0)
    assert envs.single_observation_space == gym.make(TASK, n_stack=3).observation_space
    first, _ = envs.reset(seed=0)
    assert np.array_equal(first[:, 0], first[:, 2])  # one noisy frame fills the stack
    second, *_ = envs.step(np.array([0, 0, 0, 0]))
    assert np.array_equal(second[:, :2], first[:, 1:]) and not np.array_equal(second[:, 2], first[:, 2])
    flat = (second[:, 2].astype(float) - np.median(second[:, 2, 20:70, 20:60])).reshape(4, 84, 84)[:, 30:60, 20:60]
    assert 15 < np.median(np.abs(flat)) / 0.6745 < 25


def test_evaluations_play_it_on_demand():
    environment = EvaluationEnv(TASK)
    assert not has_known_native(environment) and step_limit(environment) == np.inf
    with opened_native(environment, 2) as envs:
        assert envs.reset(seed=0)[0].shape == (2, 4, 84, 84)
    with pytest.raises(NotNative, match="difficulty 0 only, not 1"), opened_native(EvaluationEnv("camp/Freeway-v0"), 2):
        pass
    with pytest.raises(InputError, match="ale-py has none"):
        make_atari_vec(1, "no_game", 1.0, 1, 0.0, 0)


@pytest.mark.slow
def test_ppo_trains_in_it():
    env = native_vec_env(TASK, 4, seed=0)
    PPO("CnnPolicy", env, n_steps=4, batch_size=16, n_epochs=1, device="cpu").learn(32)


def test_the_picture_that_nobody_sees_changes_nothing():
    seen, unseen = (
        AtariPreprocessing(kind(game="freeway", difficulty=1, frameskip=1, repeat_action_probability=0.25))
        for kind in (AtariEnv, _UnseenAtariEnv)
    )
    assert np.array_equal(seen.reset(seed=2)[0], unseen.reset(seed=2)[0])
    for action in np.random.default_rng(0).integers(3, size=40):
        assert np.array_equal(seen.step(action)[0], unseen.step(action)[0])
