import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from rl_zoo3.utils import get_wrapper_class
from scipy import stats
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from support.constant_env import ConstantEnv
from support.evaluation_envs import FixedLevel

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.wrappers import NoisyObservationWrapper
from sb3_camp.wrappers.observation_noise import ObservationNoise

IMAGE = spaces.Box(0, 255, (84, 84, 1), np.uint8)
VECTOR = spaces.Box(-1, 1, (4,), np.float32)


def constant_vector_env(sigma=0.3):
    return NoisyObservationWrapper(ConstantEnv(VECTOR, np.full(4, 0.5, np.float32)), sigma)


def constant_image_env(value, sigma):
    return NoisyObservationWrapper(ConstantEnv(IMAGE, np.full(IMAGE.shape, value, np.uint8)), sigma)


def rollout(env, seed, n_steps=20):
    observations = [env.reset(seed=seed)[0]]
    for step in range(n_steps):
        observation, _, terminated, truncated, _ = env.step(step % 2)
        observations.append(observation)
        if terminated or truncated:
            observations.append(env.reset()[0])
    return np.array(observations)


def test_noise_is_gaussian_and_fresh_at_every_step():
    env = constant_vector_env(sigma=0.3)
    env.reset(seed=0)
    noise = np.array([env.step(0)[0] for _ in range(2000)]) - 0.5
    assert abs(noise.std() / 0.3 - 1) < 0.03
    assert abs(noise.mean()) < 4 * 0.3 / np.sqrt(noise.size)
    assert stats.kstest(noise.ravel() / 0.3, "norm").pvalue > 0.001
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.05
    # between the components of one observation
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.08
    assert len(np.unique(noise, axis=0)) == 2000


def test_noise_is_fresh_at_every_reset():
    env = constant_vector_env(sigma=0.3)
    env.reset(seed=0)
    noise = np.array([env.reset()[0] for _ in range(2000)]) - 0.5
    assert abs(noise.std() / 0.3 - 1) < 0.03
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.05
    assert len(np.unique(noise, axis=0)) == 2000


class SelfReseeding(ConstantEnv):
    """Seeds its generator anew at each reset, as environments with fixed levels do."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7, options=options)


@pytest.mark.parametrize(
    "make", [SelfReseeding, lambda *arguments: FixedLevel(ConstantEnv(*arguments))], ids=["itself", "wrapper-inside"]
)
def test_noise_does_not_repeat_where_the_environment_is_seeded_anew_at_each_reset(make):
    space = spaces.Box(-1, 1, (64,), np.float32)
    env = NoisyObservationWrapper(make(space, np.zeros(64, np.float32)), 0.3)
    starts = [env.reset(seed=3)[0]]
    for _ in range(199):
        env.step(0)
        starts.append(env.reset()[0])
    noise = np.array(starts)
    assert len(np.unique(noise, axis=0)) == 200
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.05
    np.testing.assert_array_equal(env.reset(seed=3)[0], starts[0])
    assert env.n_noise_seedings == 2


def test_noise_neither_draws_from_the_generator_of_the_environment_nor_replaces_it():
    env = NoisyObservationWrapper(gym.make("CartPole-v1"), 0.3)
    clean = gym.make("CartPole-v1")
    for seed in (5, None, None):
        env.reset(seed=seed)
        clean.reset(seed=seed)
        np.testing.assert_array_equal(env.unwrapped.state, clean.unwrapped.state)
    noise = constant_vector_env(1.0).reset(seed=5)[0] - 0.5
    assert np.abs(noise - np.random.default_rng(5).standard_normal(4, dtype=np.float32)).min() > 1e-4


def test_without_a_seed_wrappers_do_not_share_their_noise_even_if_copied_before_use():
    env = constant_vector_env()
    wrappers = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env)), constant_vector_env()]
    assert len(np.unique([wrapper.reset()[0] for wrapper in wrappers], axis=0)) == 4
    assert env.n_noise_seedings == 0


def test_sigma_zero_leaves_the_values():
    clean, noisy = gym.make("CartPole-v1"), NoisyObservationWrapper(gym.make("CartPole-v1"), 0.0)
    np.testing.assert_array_equal(rollout(clean, 3), rollout(noisy, 3))
    image = constant_image_env(200, 0.0)
    np.testing.assert_array_equal(image.reset()[0], np.full(IMAGE.shape, 200, np.uint8))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_observations_become_unbounded_float32(dtype):
    env = NoisyObservationWrapper(ConstantEnv(spaces.Box(0, 1, (3,), dtype), np.ones(3, dtype)), 5.0)
    assert env.observation_space == spaces.Box(-np.inf, np.inf, (3,), np.float32)
    for observation in rollout(env, 0):
        assert env.observation_space.contains(observation)


def test_the_observation_of_the_environment_is_not_changed():
    class Shared(ConstantEnv):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.constant, {}

    clean = np.full(4, 0.5, np.float32)
    env = NoisyObservationWrapper(Shared(VECTOR, clean), 1.0)
    env.reset(seed=0)
    np.testing.assert_array_equal(clean, 0.5)


class SelfSeededEnv(ConstantEnv):
    """Keeps a generator of its own, and never seeds ``np_random``."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.own = np.random.default_rng(seed)
        self.t = 0
        return self.own.standard_normal(4, dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        return self.own.standard_normal(4, dtype=np.float32), 1.0, self.t >= 10, False, {}


def make_highway():
    import highway_env

    gym.register_envs(highway_env)
    return gym.make("highway-fast-v0")


def make_freeway():
    import ale_py

    gym.register_envs(ale_py)
    return gym.make("ALE/Freeway-v5")


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("CartPole-v1"),
        make_highway,
        make_freeway,
        lambda: SelfSeededEnv(VECTOR, None),
    ],
    ids=["cartpole", "highway", "atari", "self-seeded"],
)
def test_reset_seed_reproduces_the_noise_whatever_the_global_generator(make):
    env = NoisyObservationWrapper(make(), 0.7)
    np.random.seed(0)
    first = rollout(env, 3)
    np.random.seed(1)
    state = np.random.get_state()
    np.testing.assert_array_equal(rollout(env, 3), first)
    assert not np.array_equal(rollout(env, 4)[0], first[0])
    # and a second environment, made later
    np.testing.assert_array_equal(rollout(NoisyObservationWrapper(make(), 0.7), 3), first)
    after = np.random.get_state()
    assert state[2] == after[2] and np.array_equal(state[1], after[1])


def test_noise_does_not_repeat_the_stream_of_an_environment_that_seeds_itself():
    clean = rollout(SelfSeededEnv(VECTOR, None), 3, 500)
    noise = rollout(NoisyObservationWrapper(SelfSeededEnv(VECTOR, None), 1.0), 3, 500) - clean
    assert abs(np.corrcoef(noise.ravel(), clean.ravel())[0, 1]) < 0.08


@pytest.mark.parametrize("seed", [None, 5])
def test_forked_workers_draw_different_noise(seed):
    env = SubprocVecEnv([constant_vector_env] * 4, start_method="fork")
    env.seed(seed)
    observations = [env.reset()]
    for _ in range(3):
        observations.append(env.step(np.zeros(4, dtype=int))[0])
    env.close()
    for per_step in observations:
        assert len(np.unique(per_step, axis=0)) == 4


def test_images_are_rounded_and_clipped_on_their_way_to_the_replay_buffer():
    sigma = 12.75
    env = DummyVecEnv([lambda: constant_image_env(0, sigma), lambda: constant_image_env(255, sigma)])
    assert env.observation_space == IMAGE
    model = DQN("CnnPolicy", env, buffer_size=40, learning_starts=1000, seed=0)
    model.learn(40)
    stored = model.replay_buffer.observations[:20, :, 0]  # (step, env, height, width)
    assert stored.dtype == np.uint8
    for pixels, distance in ((stored[:, 0], stored[:, 0]), (stored[:, 1], 255 - stored[:, 1].astype(int))):
        # The law of max(0, round(N(0, sigma^2))): never near the other end, as wrapped values would be
        assert distance.max() < 7 * sigma
        k = np.arange(1, 100)
        mean = (k * (stats.norm.cdf((k + 0.5) / sigma) - stats.norm.cdf((k - 0.5) / sigma))).sum()
        assert abs(distance.mean() - mean) < 5 * sigma / np.sqrt(pixels.size)
        assert abs((distance == 0).mean() - stats.norm.cdf(0.5 / sigma)) < 5 * 0.5 / np.sqrt(pixels.size)


def test_noise_on_mid_grey_keeps_the_mean_and_adds_the_rounding_variance():
    pixels = rollout(constant_image_env(128, 3.0), 0).astype(float)
    assert abs(pixels.mean() - 128) < 5 * 3 / np.sqrt(pixels.size)
    assert pixels.std() == pytest.approx(np.sqrt(9 + 1 / 12), rel=0.01)


def test_unquantized_images_are_float_pixel_values():
    env = NoisyObservationWrapper(ConstantEnv(IMAGE, np.full(IMAGE.shape, 255, np.uint8)), 12.75, quantize=False)
    assert env.observation_space == spaces.Box(-np.inf, np.inf, IMAGE.shape, np.float32)
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert abs(observation.mean() - 255) < 1 and abs(observation.std() / 12.75 - 1) < 0.05


def first_conv_input(model, observation):
    inputs = []
    conv = next(module for module in model.policy.modules() if isinstance(module, th.nn.Conv2d))
    hook = conv.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model.predict(observation, deterministic=True)
    hook.remove()
    return inputs[0]


@pytest.mark.parametrize("algorithm", [DQN, PPO, CAMPDQN])
@pytest.mark.parametrize("as_dict", [False, True])
def test_image_policies_still_see_an_image(algorithm, as_dict):
    space, white = IMAGE, np.full(IMAGE.shape, 255, np.uint8)
    if as_dict:
        space, white = spaces.Dict(camera=IMAGE, speed=VECTOR), {"camera": white, "speed": np.zeros(4, np.float32)}
    kwargs = {"n_steps": 8, "batch_size": 8} if algorithm is PPO else {"buffer_size": 8}
    policy = "MultiInputPolicy" if as_dict else "CnnPolicy"

    def make(sigma):
        return NoisyObservationWrapper(ConstantEnv(space, white), sigma)

    model = algorithm(policy, make(0.0), **kwargs)
    pixels = first_conv_input(model, make(0.0).reset()[0])
    assert pixels.shape == (1, 1, 84, 84)
    assert th.all(pixels == 1.0)
    noisy = first_conv_input(model, make(25.5).reset(seed=0)[0])
    assert noisy.max() == 1.0 and 0.9 < noisy.mean() < 0.98


def test_dict_entries_are_noised_except_the_clean_ones():
    space = spaces.Dict(
        camera=IMAGE, position=spaces.Box(-1, 1, (2,), np.float64), lap=spaces.Discrete(3), map=spaces.Box(0, 1, (2,))
    )
    clean = {
        "camera": np.zeros(IMAGE.shape, np.uint8),
        "position": np.zeros(2),
        "lap": np.int64(2),
        "map": np.ones(2, np.float32),
    }
    env = NoisyObservationWrapper(ConstantEnv(space, clean), 2.0, clean_keys=["lap", "map"])
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.observation_space["position"] == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert observation["lap"] == 2
    np.testing.assert_array_equal(observation["map"], 1)
    assert np.all(observation["position"] != 0) and observation["camera"].max() > 0


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (VECTOR, {"sigma": -0.1}, "sigma must be a finite number"),
        (VECTOR, {"sigma": np.nan}, "sigma must be a finite number"),
        (VECTOR, {"sigma": np.inf}, "sigma must be a finite number"),
        (VECTOR, {"sigma": "0.4"}, "sigma must be a finite number"),
        (VECTOR, {"clean_keys": ["a"]}, "no named entries"),
        (spaces.Discrete(3), {}, "needs a Box"),
        (spaces.MultiBinary(3), {}, "needs a Box"),
        (spaces.Tuple((VECTOR, VECTOR)), {}, "needs a Box"),
        (spaces.Box(0, 10, (3,), np.int64), {}, "not pixels"),
        (spaces.Box(0, 1, (3,), np.uint8), {}, "not pixels"),
        (spaces.Dict(a=VECTOR, b=spaces.Dict(c=VECTOR)), {}, "entry 'b'"),
        (spaces.Dict(a=VECTOR, b=spaces.Discrete(2)), {}, "clean_keys"),
        (spaces.Dict(a=VECTOR, b=VECTOR), {"clean_keys": ["c"]}, "has the entries"),
        (spaces.Dict(a=VECTOR), {"clean_keys": "a"}, "list of names"),
        (spaces.Dict(a=VECTOR), {"clean_keys": ["a"]}, "nothing would be noised"),
    ],
)
def test_what_cannot_carry_the_noise_is_refused_at_construction(space, kwargs, message):
    with pytest.raises(InputError, match=message) as error:
        NoisyObservationWrapper(ConstantEnv(space, None), **{"sigma": 0.1, **kwargs})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make", [lambda: constant_vector_env(), lambda: constant_image_env(128, 12.75)], ids=["float", "image"]
)
def test_environment_checkers_pass_in_silence(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb3_check_env(make())
    gymnasium_check_env(make(), skip_render_check=True)


def test_spec_rebuilds_the_same_stack():
    env = NoisyObservationWrapper(gym.make("CartPole-v1"), 0.4)
    for spec in (env.spec, gym.envs.registration.EnvSpec.from_json(env.spec.to_json())):
        rebuilt = gym.make(spec)
        assert str(rebuilt) == str(env)
        assert rebuilt.get_wrapper_attr("sigma") == 0.4
        np.testing.assert_array_equal(rollout(rebuilt, 1), rollout(env, 1))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_like_the_original(copied):
    env = NoisyObservationWrapper(gym.make("CartPole-v1"), 0.4)
    env.reset(seed=0)
    twin = copied(env)
    np.testing.assert_array_equal(env.step(1)[0], twin.step(1)[0])


def test_zoo_applies_the_wrapper_by_its_import_path():
    wrap = get_wrapper_class({"env_wrapper": [{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.4}}]})
    env = wrap(gym.make("CartPole-v1"))
    assert isinstance(env, NoisyObservationWrapper) and env.sigma == 0.4


def test_frame_stack_outside_repeats_one_draw_per_frame():
    env = gym.wrappers.FrameStackObservation(constant_vector_env(), 3, padding_type="reset")
    first, _ = env.reset(seed=1)
    assert len(np.unique(first, axis=0)) == 1
    second = env.step(0)[0]
    np.testing.assert_array_equal(second[:2], first[1:])
    assert np.all(second[2] != first[2])


def finer_than_a_shifted_sum(values, shift):
    """
    The share of small values with digits that the sum of the shift and a noise near minus the shift cannot have in single
    precision: what a network could be made to compute, to see past the noise.
    """
    grid = np.spacing(np.float32(shift)) / 2
    small = values[np.abs(values) < shift / 2].astype(np.float64)
    return np.mean(small / grid != np.rint(small / grid))


@pytest.mark.parametrize("sigma", [0.1, 1.0, [0.3, 1.0]])
def test_the_last_digits_do_not_tell_what_lies_under_the_noise(sigma):
    space = spaces.Box(-10, 10, (2,), np.float32)
    noise = ObservationNoise(space, sigma)
    rng = np.random.default_rng(0)
    for clean in (0.0, 0.125, 0.3, 1 / 3, 1e-4):
        values = noise(np.full((20000, 2), clean, np.float32), rng)[:, 1]
        assert values.dtype == np.float32
        step = 2.0 ** np.floor(np.log2(np.atleast_1d(sigma)[-1])) / 1024
        multiples = values.astype(np.float64) / step
        np.testing.assert_array_equal(multiples, np.rint(multiples))
        assert finer_than_a_shifted_sum(values, 0.125) == 0
        # Each multiple is as likely to be odd as even, wherever the clean value lies (5 standard errors)
        assert abs(np.mean(multiples % 2) - 0.5) < 5 * 0.5 / np.sqrt(20000)
    # What single precision alone would show
    plain = rng.standard_normal(20000, dtype=np.float32)
    assert finer_than_a_shifted_sum(plain, 0.125) > 0.5 and finer_than_a_shifted_sum(plain + np.float32(0.125), 0.125) == 0
