from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from support.constant_env import ConstantEnv
from support.evaluation_envs import FixedLevel

import sb3_camp.wrappers
from sb3_camp.errors import InputError
from sb3_camp.wrappers.vector import NoisyObservationWrapper

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (6, 6, 1), np.uint8)


def constant_envs(n_envs=3, space=VECTOR, observation=None, **kwargs):
    observation = np.full(4, 0.5, np.float32) if observation is None else observation
    return SyncVectorEnv([lambda: ConstantEnv(space, observation)] * n_envs, **kwargs)


def cartpoles(mode="vector_entry_point"):
    return gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode=mode)


def rollout(envs, seed, n_steps=30):
    observations = [envs.reset(seed=seed)[0]]
    for step in range(n_steps):
        observations.append(envs.step(np.full(envs.num_envs, step % 2))[0])
    return np.array(observations)


def test_noise_is_gaussian_and_fresh_in_every_env():
    envs = NoisyObservationWrapper(constant_envs(), 0.3)
    noise = rollout(envs, 0, 2000) - 0.5  # (step, env, component), over many resets
    for i in range(3):
        assert abs(noise[:, i].std() / 0.3 - 1) < 0.03
        assert abs(np.corrcoef(noise[:-1, i].ravel(), noise[1:, i].ravel())[0, 1]) < 0.05
        assert len(np.unique(noise[:, i], axis=0)) == 2001
    per_env = noise.transpose(1, 0, 2).reshape(3, -1)
    assert np.abs(np.corrcoef(per_env) - np.eye(3)).max() < 0.05


def test_noise_is_fresh_at_every_reset():
    envs = NoisyObservationWrapper(constant_envs(), 0.3)
    noise = np.array([envs.reset()[0] for _ in range(700)]) - 0.5
    assert abs(noise.std() / 0.3 - 1) < 0.03
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync", "async"])
def test_noise_is_added_to_the_clean_run_and_spaces_fit(mode):
    clean = rollout(cartpoles(mode), 7)
    envs = NoisyObservationWrapper(cartpoles(mode), 0.3)
    noisy = rollout(envs, 7)
    assert envs.single_observation_space == spaces.Box(-np.inf, np.inf, (4,), np.float32)
    assert all(envs.observation_space.contains(batch) for batch in noisy)
    noise = noisy - clean
    assert abs(noise.std() / 0.3 - 1) < 0.12
    np.testing.assert_array_equal(rollout(NoisyObservationWrapper(cartpoles(mode), 0.0), 7), clean)
    envs.close()


def test_noise_does_not_repeat_the_stream_of_the_environments():
    envs = NoisyObservationWrapper(constant_envs(), 1.0)
    noise = envs.reset(seed=7)[0] - 0.5
    for seed in (7, 8, 9, [7, 8, 9]):
        stream = np.random.default_rng(seed).standard_normal((3, 4), dtype=np.float32)
        assert np.abs(noise - stream).min() > 1e-4


@pytest.mark.parametrize("seed", [3, [3, 4, 5]])
def test_reset_seed_reproduces_the_noise_whatever_the_global_generator(seed):
    envs = NoisyObservationWrapper(cartpoles("sync"), 0.3)
    np.random.seed(0)
    first = rollout(envs, seed)
    np.random.seed(1)
    state = np.random.get_state()
    np.testing.assert_array_equal(rollout(envs, seed), first)
    assert not np.array_equal(rollout(envs, 11)[0], first[0])
    after = np.random.get_state()
    assert state[2] == after[2] and np.array_equal(state[1], after[1])


def test_without_a_seed_two_wrappers_differ():
    assert not np.array_equal(
        NoisyObservationWrapper(constant_envs(), 1.0).reset()[0], NoisyObservationWrapper(constant_envs(), 1.0).reset()[0]
    )
    # one env without a seed: the others may have theirs
    NoisyObservationWrapper(constant_envs(), 1.0).reset(seed=[1, None, 3])


def test_noise_does_not_repeat_where_the_environments_are_seeded_anew_at_each_reset():
    envs = SyncVectorEnv([lambda: FixedLevel(ConstantEnv(VECTOR, np.zeros(4, np.float32)))] * 8)
    noisy = NoisyObservationWrapper(envs, 0.3)
    noise = np.array([noisy.reset(seed=3)[0], *(noisy.reset()[0] for _ in range(199))])
    assert len(np.unique(noise.reshape(-1, 4), axis=0)) == 200 * 8
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.05


def test_images_are_rounded_and_clipped():
    envs = NoisyObservationWrapper(constant_envs(space=IMAGE, observation=np.full(IMAGE.shape, 255, np.uint8)), 12.75)
    assert envs.single_observation_space == IMAGE
    pixels = rollout(envs, 0)
    assert pixels.dtype == np.uint8 and pixels.min() > 255 - 7 * 12.75
    assert 0.4 < (pixels == 255).mean() < 0.6


def test_dict_entries_are_noised_except_the_clean_ones():
    space = spaces.Dict(position=VECTOR, lap=spaces.Discrete(3))
    observation = {"position": np.zeros(4, np.float32), "lap": np.int64(2)}
    envs = NoisyObservationWrapper(constant_envs(space=space, observation=observation), 1.0, clean_keys=["lap"])
    noisy, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(noisy)
    np.testing.assert_array_equal(noisy["lap"], [2, 2, 2])
    assert np.all(noisy["position"] != 0)


def test_envs_that_a_mask_leaves_alone_keep_their_observation():
    envs = NoisyObservationWrapper(
        SyncVectorEnv([partial(gym.make, "CartPole-v1")] * 3, autoreset_mode=AutoresetMode.DISABLED), 0.3
    )
    envs.reset(seed=0)
    before, *_ = envs.step(np.zeros(3, dtype=int))
    after, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert np.all(after[1] != before[1])


def test_clean_final_observations_never_reach_the_policy():
    with pytest.raises(ValueError, match="autoreset_mode"):
        NoisyObservationWrapper(constant_envs(autoreset_mode=AutoresetMode.SAME_STEP), 0.3)


@pytest.mark.parametrize(("space", "sigma"), [(VECTOR, -1), (VECTOR, np.nan), (spaces.Discrete(3), 0.1)])
def test_what_cannot_carry_the_noise_is_refused(space, sigma):
    with pytest.raises(InputError):
        NoisyObservationWrapper(constant_envs(space=space, observation=space.sample()), sigma)


@pytest.mark.parametrize("vector_env", [SyncVectorEnv, AsyncVectorEnv])
def test_single_env_wrapper_inside_a_vector_env_differs_per_env(vector_env):
    envs = gym.make_vec(
        "CartPole-v1",
        num_envs=3,
        vectorization_mode="sync" if vector_env is SyncVectorEnv else "async",
        wrappers=[partial(sb3_camp.wrappers.NoisyObservationWrapper, sigma=5.0)],
    )
    assert isinstance(envs, vector_env)
    observations, _ = envs.reset(seed=0)
    assert len(np.unique(observations, axis=0)) == 3
    envs.close()
