"""The frame stack for vector environments, against Gymnasium's for single ones, and the vector environments of the tasks."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation
from support.counting_env import CountingEnv

from sb3_camp.errors import InputError
from sb3_camp.wrappers import vector

CARTPOLES = ["camp/CartPole1-v0", "camp/CartPole5-v0"]


class PictureEnv(CountingEnv):
    """Its number as a small picture."""

    observation_space = spaces.Box(0, 255, (3, 2), np.uint8)

    def _observation(self):
        return np.full((3, 2), self.number % 256, np.uint8)


@pytest.mark.parametrize("n_stack", [1, 2, 5])
@pytest.mark.parametrize("env_class", [CountingEnv, PictureEnv])
def test_stacks_are_those_of_gymnasium(env_class, n_stack):
    # Episodes shorter and longer than the stack, some ending together
    singles = [partial(env_class, length, truncates) for length, truncates in ((1, True), (2, False), (3, True), (7, False))]
    expected = SyncVectorEnv([lambda make=make: FrameStackObservation(make(), n_stack) for make in singles])
    stacked = vector.FrameStackObservation(SyncVectorEnv(singles), n_stack)
    assert stacked.single_observation_space == expected.single_observation_space
    assert stacked.observation_space == expected.observation_space
    kept = []
    for _ in range(2):
        np.testing.assert_array_equal(stacked.reset(seed=0)[0], expected.reset(seed=0)[0])
        for _ in range(40):
            steps = [envs.step(np.zeros(4, dtype=int)) for envs in (stacked, expected)]
            for value, other in zip(*(step[:4] for step in steps), strict=True):
                np.testing.assert_array_equal(value, other)
            assert steps[0][0].dtype == steps[1][0].dtype
            kept.append((steps[0][0], steps[0][0].copy()))
    for observations, copy in kept:  # what was handed out stays as it was
        np.testing.assert_array_equal(observations, copy)


@pytest.mark.parametrize("n_stack", [0, -1, 1.5, True, "2"])
def test_a_stack_of_no_frames_is_refused(n_stack):
    with pytest.raises(InputError, match="at least 1"):
        vector.FrameStackObservation(gym.make_vec("CartPole-v1", 2), n_stack)
    with pytest.raises(InputError, match="at least 1"):
        gym.make_vec("camp/CartPole5-v0", 2, n_stack=n_stack)


def test_envs_that_reset_in_another_mode_are_refused():
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        with pytest.raises(InputError, match="next step"):
            vector.FrameStackObservation(SyncVectorEnv([CountingEnv], autoreset_mode=mode), 2)


@pytest.mark.parametrize("env_id", CARTPOLES)
@pytest.mark.parametrize("mode", [None, "vector_entry_point", "sync", "async"])
def test_tasks_can_be_made_as_vector_environments_in_every_mode(env_id, mode):
    settings = {"sigma": 0.0, **({"n_stack": 3} if env_id == "camp/CartPole5-v0" else {})}
    envs = gym.make_vec(env_id, 3, vectorization_mode=mode, **settings)
    single = gym.make(env_id, **settings)
    assert envs.single_observation_space == single.observation_space
    assert envs.single_action_space == single.action_space
    observations, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observations)
    assert np.abs(observations).max() <= 0.05
    assert envs.observation_space.contains(envs.step(np.ones(3, dtype=int))[0])
    envs.close()


@pytest.mark.parametrize("env_id", CARTPOLES)
def test_noise_of_the_tasks_has_its_scale_and_is_drawn_once_a_frame(env_id):
    noisy, clean = (gym.make_vec(env_id, 400, **kwargs) for kwargs in ({}, {"sigma": 0.0}))
    observations = [[envs.reset(seed=0)[0], *(envs.step(np.full(400, t % 2))[0] for t in range(6))] for envs in (noisy, clean)]
    noise = np.subtract(*map(np.array, observations)).reshape(7, 400, -1, 4)
    assert noise[..., -1, :].std() == pytest.approx(0.2, rel=5 / np.sqrt(2 * 7 * 1600))
    np.testing.assert_allclose(noise[1:, :, :-1], noise[:-1, :, 1:], atol=1e-6)  # frames move, no env has ended
    np.testing.assert_array_equal(noise[0], np.broadcast_to(noise[0, :, :1], noise[0].shape))
    assert np.abs(np.corrcoef(noise[:, :, -1].reshape(7, -1)) - np.eye(7)).max() < 5 / np.sqrt(1600)


def test_vector_environments_of_the_tasks_take_what_gymnasiums_takes():
    envs = gym.make_vec("camp/CartPole1-v0", 2, sigma=0.0, max_episode_steps=7)
    envs.reset(seed=0)
    truncations = [envs.step(np.array([t % 2] * 2))[3].all() for t in range(7)]
    assert truncations == [False] * 6 + [True]
