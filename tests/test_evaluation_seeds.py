"""Every episode has a seed of its own, which reaches the env and its noise, whatever stands between them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from support.evaluation_envs import AlwaysZero, FixedLevel, FixedLevelCartPole, noisy_cartpoles, recorded

from sb3_camp.certification.independence import EPISODES_PER_ENV
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EpisodeRecorder, EpisodeSeeder, EvaluationEnv, play_episodes
from sb3_camp.evaluation.episode_plan import n_seeds, plan_chunks
from sb3_camp.wrappers import NoisyObservationWrapper


class TiltPolicy:
    """Pushes CartPole to where it leans."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (observation[:, 2] > 0).astype(int), None


class KeepsItsSeed(gym.Env):
    """Plays, until it gets another seed, the level of the last one: it ends after seed % 5 + 1 steps and earns the seed."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    level = -1

    def reset(self, *, seed=None, options=None):
        self.level = self.level if seed is None else seed
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        ends = self.t == self.level % 5 + 1
        return np.zeros(1, np.float32), float(self.level) * ends, ends, False, {}


class TwoLivesThatKeepTheSeed(KeepsItsSeed):
    """Loses a life at its second step; the game is over at the third or fourth."""

    def __init__(self):
        self.ale = self

    def lives(self):
        return 2 - (self.t >= 2)

    def step(self, action):
        self.t += 1
        ends = self.t == 3 + self.level % 2
        return np.zeros(1, np.float32), float(self.level) * ends, ends, False, {}


gym.register("tests/KeepsItsSeed-v0", KeepsItsSeed, disable_env_checker=True)


def noisy(env):
    return NoisyObservationWrapper(env, 0.4)


# The seeds of the episodes


@pytest.mark.parametrize("vec_env", ["dummy", pytest.param("subproc", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("n_envs", "n_episodes"), [(1, 7), (3, 14), (4, 4)])
def test_an_env_that_keeps_its_seed_plays_a_level_of_its_own_in_every_episode(vec_env, n_envs, n_episodes):
    environment = EvaluationEnv("tests/KeepsItsSeed-v0", vec_env=vec_env).with_noise(0.1)
    with environment.opened(n_envs) as env:
        for seed in (2**30, 5):  # a second call seeds anew
            returns = play_episodes(AlwaysZero(), env, n_episodes, seed=seed).returns
            shares = [(n_episodes + i) // n_envs for i in range(n_envs)]
            expected = [seed + i + n_envs * k for k in range(max(shares)) for i in range(n_envs) if k < shares[i]]
            assert returns.tolist() == expected


def test_a_lost_life_takes_no_seed():
    env = DummyVecEnv([lambda: recorded(TwoLivesThatKeepTheSeed(), lambda env: EpisodicLifeEnv(noisy(env)))] * 2)
    assert play_episodes(AlwaysZero(), env, 8, seed=100).returns.tolist() == list(range(100, 108))


@pytest.mark.parametrize(("n_episodes", "n_envs"), [(1, 1), (10_000, 64), (100, 8), (1601, 64), (7, 7), (3001, 20)])
def test_chunks_share_no_seed_and_leave_none_out(n_episodes, n_envs):
    seeds = []
    for seed in (0, 1, 2**40):
        chunks = plan_chunks(n_episodes, n_envs, seed)
        assert sum(chunk.n_episodes for chunk in chunks) == n_episodes
        assert all(1 <= chunk.n_episodes <= EPISODES_PER_ENV * n_envs for chunk in chunks)
        own = []
        for n, first in chunks:
            own += [first + i + n_envs * k for i in range(n_envs) for k in range(-(-n // n_envs))]
        assert sorted(own) == list(range(chunks[0].seed, chunks[-1].seed + n_seeds(chunks[-1].n_episodes, n_envs)))
        seeds += own
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 2**30 and max(seeds) < 2**31


def test_the_longest_evaluation_keeps_within_its_seeds():
    for n_envs in (1, 64, 10**6):
        (*_, last) = plan_chunks(10**7, n_envs, 0)
        assert 2**29 + last.seed + n_seeds(last.n_episodes, n_envs) - plan_chunks(1, 1, 0)[0].seed < 2**30


# The seed of an episode reaches its noise


class DropsSeed(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(options=options)


class DropsLaterSeeds(gym.Wrapper):
    n = 0

    def reset(self, *, seed=None, options=None):
        self.n += 1
        return self.env.reset(seed=seed if self.n == 1 else None, options=options)


class ReplacesLaterSeeds(gym.Wrapper):
    n = 0

    def reset(self, *, seed=None, options=None):
        self.n += 1
        return self.env.reset(seed=seed if self.n == 1 else 7, options=options)


class SeedsAfterTheReset(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        self.env.reset(seed=seed, options=options)
        return self.env.reset(seed=7, options=options)


class SeedsAtAStep(gym.Wrapper):
    t = 0

    def step(self, action):
        self.t += 1
        if self.t == 5:
            self.env.reset(seed=7)
        return self.env.step(action)


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (FixedLevel, "seeds it again"),
        (DropsSeed, "does not pass on the seed"),
        (DropsLaterSeeds, "does not pass on the seed"),
        (ReplacesLaterSeeds, "seeds it again"),
        (SeedsAfterTheReset, "seeds it again"),
        (SeedsAtAStep, "seeds it again"),
    ],
)
def test_seed_that_does_not_reach_the_noise_is_an_error(wrapper, message, vec_env_cls):
    def make():
        return recorded(gym.make("CartPole-v1"), lambda env: wrapper(noisy(env)))

    env = vec_env_cls([make] * 2)
    with pytest.raises(InputError, match=message):
        play_episodes(AlwaysZero(), env, 4, seed=0)
    env.close()


def test_wrapper_between_env_and_noise_may_choose_the_levels():
    for wrapper in (FixedLevel, DropsSeed):
        env = DummyVecEnv([lambda wrap=wrapper: recorded(gym.make("CartPole-v1"), lambda one: noisy(wrap(one)))])
        assert play_episodes(TiltPolicy(), env, 20, seed=0).returns.std() > 1


def test_episodes_that_nobody_seeds_are_an_error():
    unseeded = DummyVecEnv([lambda: noisy(EpisodeRecorder(gym.make("CartPole-v1")))])
    with pytest.raises(InputError, match="wrap each in an EpisodeSeeder"):
        play_episodes(AlwaysZero(), unseeded, 2, seed=0)
    noise_outside = DummyVecEnv([lambda: noisy(recorded(gym.make("CartPole-v1")))])
    with pytest.raises(InputError, match="outside of the smoothing noise"):
        play_episodes(AlwaysZero(), noise_outside, 2, seed=0)
    with pytest.raises(InputError, match="no EpisodeRecorder"):
        EpisodeSeeder(gym.make("CartPole-v1"))


# The distribution of the episodes


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_episodes_are_independent_and_reproducible(vec_env_cls):
    env = noisy_cartpoles(8, vec_env_cls)
    policies = [AlwaysZero() for _ in range(3)]
    first, again, other = (play_episodes(p, env, 40, seed=s) for p, s in zip(policies, (0, 0, 1000), strict=True))
    env.close()
    assert len(np.unique(policies[0].first_observations, axis=0)) == len(policies[0].first_observations) >= 40
    assert len({tuple(first.returns[i::8]) for i in range(8)}) >= 6  # two may agree by chance, at ten steps each
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(policies[0].first_observations, policies[1].first_observations)
    assert not np.array_equal(first[0], other[0])


def test_law_of_the_returns_does_not_depend_on_the_number_of_envs():
    one = play_episodes(TiltPolicy(), noisy_cartpoles(1), 1000, seed=0).returns
    many = play_episodes(TiltPolicy(), noisy_cartpoles(16), 1000, seed=10_000).returns
    assert stats.ks_2samp(one, many).pvalue > 0.01


def test_sampled_actions_are_reproducible():
    env = noisy_cartpoles(3)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8)
    first, again = (play_episodes(model, env, 12, seed=5, deterministic=False)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, play_episodes(model, env, 12, seed=5)[0])


def fixed_level(make):
    return DummyVecEnv([lambda: recorded(make(), noisy)] * 3)


@pytest.mark.parametrize(
    "make", [FixedLevelCartPole, lambda: FixedLevel(gym.make("CartPole-v1"))], ids=["itself", "wrapper-inside"]
)
def test_episodes_on_a_fixed_level_have_different_noise(make):
    policy = AlwaysZero()
    play_episodes(policy, fixed_level(make), 60, seed=0)
    assert len(np.unique(policy.first_observations, axis=0)) == len(policy.first_observations) >= 60
    # All start in one state, so it is only by their noise that the episodes of a policy that reacts to it differ
    returns, _, _ = play_episodes(TiltPolicy(), fixed_level(make), 60, seed=0)
    assert len(set(returns)) > 10
    assert returns.std() > 3


def test_noise_may_be_seeded_more_than_once_by_the_first_reset():
    class StartsTwice(gym.Wrapper):
        def reset(self, **kwargs):  # as the no-ops at the start of Atari games do if a game is over at them
            self.env.reset(**kwargs)
            return self.env.reset(**kwargs)

    env = DummyVecEnv([lambda: recorded(gym.make("CartPole-v1"), lambda env: StartsTwice(noisy(env)))])
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 5, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert min(lengths) > 5


@pytest.mark.slow
def test_seeds_per_episode_leave_the_distribution_of_the_returns_as_it_is():
    policy = TiltPolicy()
    seeded_once = DummyVecEnv([lambda: noisy(gym.make("CartPole-v1"))] * 16)
    seeded_once.seed(50_000)
    expected = evaluate_policy(policy, seeded_once, 1600, return_episode_rewards=True, warn=False)[0]
    environment = EvaluationEnv("CartPole-v1").with_noise(0.4)
    with environment.opened(16) as env:
        returns = play_episodes(policy, env, 1600, seed=2**30).returns
    assert stats.ks_2samp(expected, returns).pvalue > 0.01
    assert abs(stats.ttest_ind(expected, returns, equal_var=False).statistic) < 3


def test_envs_with_neighbouring_seeds_share_no_episode_where_another_player_seeds_them():
    with EvaluationEnv("CartPole-v1").with_noise(0.2).opened(4) as env:
        env.seed(5)
        starts = [*env.reset()]
        while len(starts) < 40:
            observations, _, dones, _ = env.step(np.zeros(4, dtype=int))
            starts += [*observations[dones]]
    assert len(np.unique(np.round(starts, 6), axis=0)) == len(starts)
