"""Episodes in Gymnasium's vector environments: which of them count, and that their law is that of the single environments."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from scipy import stats
from stable_baselines3.common.evaluation import evaluate_policy
from support.policies import CountingPolicy, RandomLengthEnv, StepEcho
from support.vector_envs import TASKS, noisy

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.native import opened_native
from sb3_camp.wrappers import vector

POISON = 1e6


class KnownEpisodes(VectorEnv):
    """
    Env i plays episodes of the given lengths. A step earns 0.25, the last one the number of the episode more (env 2: 2,
    12, 22 ...), the step that resets earns POISON. Observes env, episode, steps so far, and whether the episode is over.
    """

    def __init__(self, lengths, truncates=False, autoreset_mode=AutoresetMode.NEXT_STEP):
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.num_envs = len(lengths)
        self.lengths, self.truncates = lengths, truncates
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = np.zeros(self.num_envs, dtype=int), np.zeros(self.num_envs, dtype=int)
        self.over = np.zeros(self.num_envs, dtype=bool)
        return self.observations(), {}

    def observations(self):
        return np.stack([np.arange(self.num_envs), self.episode, self.t, self.over], axis=1).astype(np.float32)

    def step(self, actions):
        resets = self.over
        self.t = np.where(resets, 0, self.t + 1)
        self.episode = self.episode + resets
        length = np.array([lengths[k % len(lengths)] for lengths, k in zip(self.lengths, self.episode, strict=True)])
        self.over = ~resets & (self.t == length)
        last = self.over * (np.arange(self.num_envs) + 10.0 * self.episode)
        ends = (np.zeros_like(self.over), self.over) if self.truncates else (self.over, np.zeros_like(self.over))
        return self.observations(), np.where(resets, POISON, 0.25 + last), *ends, {}


class Watched:
    """A policy that remembers what it has seen, and the observations and masks of the steps."""

    def __init__(self):
        self.starts, self.steps = [], []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.starts.extend(zip(observation.tolist(), episode_start.tolist(), strict=True))
        return np.zeros(len(observation), dtype=int), None

    def on_step(self, observations, counted):
        self.steps.extend(observations[counted].tolist())


class LinearPolicy:
    """Pushes CartPole, whose newest frame comes last, to where it leans."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (observation[:, -4:] @ np.array([0.1, 0.3, 3.0, 1.0], np.float32) > 0).astype(int), None


def play(environment, n_envs, n_episodes, seed, native, policy=None, **kwargs):
    opened, player = (opened_native, play_vector_episodes) if native else (EvaluationEnv.opened, play_episodes)
    with opened(environment, n_envs) as env:
        return player(policy or LinearPolicy(), env, n_episodes, seed=seed, **kwargs)


# Which episodes and steps count

LENGTHS = [[3, 1, 4], [1], [5, 9, 2], [6, 5]]


@pytest.mark.parametrize("truncates", [False, True])
def test_every_env_plays_its_fixed_share_and_the_reset_is_no_step(truncates):
    policy, calls = Watched(), []
    returns, lengths, min_rewards = play_vector_episodes(
        policy, KnownEpisodes(LENGTHS, truncates), 10, seed=0, on_episode=calls.append, on_step=policy.on_step
    )
    # By turns: all first episodes, all second ones, and the third of the last two envs
    np.testing.assert_array_equal(lengths, [3, 1, 5, 6, 1, 1, 9, 5, 2, 6])
    np.testing.assert_array_equal(returns, [0, 1, 2, 3, 10, 11, 12, 13, 22, 23] + 0.25 * lengths)
    assert (returns.dtype, lengths.dtype, min_rewards.dtype) == (np.float64, np.int64, np.float64)
    np.testing.assert_array_equal(min_rewards, np.where(lengths == 1, returns, 0.25))
    assert np.bincount(calls).tolist() == [2, 2, 3, 3]
    # Each step of these, once, at the observation that is acted on: never one of an episode that is over
    shares = enumerate([2, 2, 3, 3])
    expected = [[i, k, t, 0] for i, share in shares for k in range(share) for t in range(LENGTHS[i][k % len(LENGTHS[i])])]
    assert sorted(policy.steps) == sorted(expected)
    # The policy is told of every first observation, and of no other
    assert all(start == (observation[2] == 0) for observation, start in policy.starts)


@pytest.mark.parametrize(("n_episodes", "n_envs"), [(1, 1), (3, 3), (7, 5), (2, 5)])
def test_exactly_n_episodes(n_episodes, n_envs):
    env = KnownEpisodes([[i + 1] for i in range(n_envs)])
    lengths = play_vector_episodes(Watched(), env, n_episodes, seed=0).lengths
    order = [i for k in range(n_episodes) for i in range(n_envs) if k < (n_episodes + i) // n_envs]
    assert lengths.tolist() == [i + 1 for i in order]


def test_short_episodes_are_not_over_represented():
    env = SyncVectorEnv([RandomLengthEnv] * 16)
    returns = np.concatenate([play_vector_episodes(Watched(), env, 24, seed=100 * i)[0] for i in range(170)])
    assert abs(returns.mean() - 5) < 4 * np.sqrt(0.8) / 0.2 / np.sqrt(returns.size)


def test_recurrent_states_are_kept_and_reset_per_env():
    returns, lengths, _ = play_vector_episodes(CountingPolicy(), SyncVectorEnv([StepEcho] * 3), 20, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert len(set(lengths)) > 1


class Tenths(KnownEpisodes):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, np.full(len(rewards), -0.1), *rest


def test_rounding_errors_of_additions_are_rounded_away():
    assert sum([-0.1] * 10) != -1
    returns, _, lowest = play_vector_episodes(Watched(), Tenths([[10], [10]]), 4, seed=0)
    assert returns.tolist() == [-1] * 4 and lowest.tolist() == [-0.1] * 4


# What is refused


class EndsAtReset(KnownEpisodes):
    def step(self, actions):
        resets = self.over
        observations, rewards, terminations, *rest = super().step(actions)
        return observations, rewards, terminations | resets, *rest


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (KnownEpisodes([[3]], autoreset_mode=AutoresetMode.SAME_STEP), "NEXT_STEP"),
        (KnownEpisodes([[3]], autoreset_mode=AutoresetMode.DISABLED), "NEXT_STEP"),
        (EndsAtReset([[3]]), "ends an episode with its reset"),
        (KnownEpisodes([[3, 9]]), "after 8 steps"),
    ],
)
def test_envs_that_end_episodes_in_another_way_are_refused(env, message):
    with pytest.raises(InputError, match=message):
        play_vector_episodes(Watched(), env, 3, seed=0, step_limit=8)


class DropsSeed(VectorWrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(options=options)


class SeedsAgain(VectorWrapper):
    """Shows, from its fifth step on, what follows the first observation."""

    t = 0

    def step(self, actions):
        self.t += 1
        if self.t == 5:
            self.env.reset(seed=7)
        return self.env.step(actions)


@pytest.mark.parametrize(("wrapper", "message"), [(DropsSeed, "does not pass on the seed"), (SeedsAgain, "seeds it again")])
def test_noise_is_seeded_once(wrapper, message):
    env = wrapper(vector.NoisyObservationWrapper(gym.make_vec("CartPole-v1", 3), 0.2))
    with pytest.raises(InputError, match=message):
        play_vector_episodes(LinearPolicy(), env, 3, seed=0)


# The law of the returns


@pytest.mark.parametrize("env_id", TASKS)
@pytest.mark.parametrize("sigma", [0.25, 0.8])
def test_one_env_plays_the_very_episodes_of_the_single_environment(env_id, sigma):
    environment = noisy(env_id, sigma)
    native = play(environment, 1, 25, seed=11, native=True)
    with environment.single() as env:  # in an EpisodeSeeder
        single = play_vector_episodes(LinearPolicy(), SyncVectorEnv([lambda: env.env]), 25, seed=11)
    for values, expected in zip(native, single, strict=True):
        np.testing.assert_array_equal(values, expected)
    assert len(set(single.returns)) > 10
    assert sigma > 0.3 or (single.lengths == gym.spec(env_id).max_episode_steps).any()


@pytest.mark.parametrize("env_id", TASKS)
def test_returns_have_the_law_of_the_single_environments(env_id):
    sigma = {"camp/CartPole5-v0": 0.5}.get(env_id, 0.6)
    single = play(noisy(env_id, sigma), 16, 800, seed=0, native=False).returns
    many = play(noisy(env_id, sigma), 300, 3000, seed=10_000, native=True).returns
    assert 20 < single.mean() < 90
    assert stats.ks_2samp(single, many).pvalue > 0.01
    assert abs(stats.ttest_ind(single, many, equal_var=False).statistic) < 3


def test_rewards_of_the_other_kind_have_the_law_of_the_single_environments():
    environment = noisy("CartPole-v1", 0.6, sutton_barto_reward=True, max_episode_steps=30)
    single, many = (play(environment, n, 400, seed=0, native=native) for n, native in ((16, False), (100, True)))
    for one in (single, many):
        np.testing.assert_array_equal(one.returns, np.where(one.lengths < 30, -1, one.returns))
        assert set(one.returns) == {-1, 0} and one.lengths.max() == 30
    assert stats.fisher_exact([[(one.returns == 0).sum(), (one.returns < 0).sum()] for one in (single, many)]).pvalue > 0.01


@pytest.mark.parametrize(("env_id", "limit"), [("CartPole-v1", 500), *((task, 200) for task in TASKS[1:])])
def test_step_limit_is_that_of_the_registration(env_id, limit):
    without_noise = EvaluationEnv(env_id, env_kwargs={"sigma": 0.0} if env_id in TASKS[1:] else {})
    returns, lengths, _ = play(without_noise, 5, 15, seed=0, native=True)
    assert set(returns) == set(lengths) == {limit}


class Recorded(LinearPolicy):
    """Remembers the first observations of the episodes."""

    def __init__(self):
        self.firsts = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.firsts.extend(observation[episode_start])
        return super().predict(observation)


def test_noise_and_starts_differ_between_envs_and_episodes_and_are_reproducible():
    environment = noisy("camp/CartPole1-v0", 0.2)
    policies = [Recorded() for _ in range(3)]
    runs = [play(environment, 50, 200, seed, True, policy) for policy, seed in zip(policies, (0, 0, 1000), strict=True)]
    np.testing.assert_array_equal(runs[0].returns, runs[1].returns)
    assert not np.array_equal(runs[0].returns, runs[2].returns)
    firsts = np.array(policies[0].firsts)
    assert len(firsts) >= 200 and np.unique(firsts).size > 0.85 * firsts.size  # they are rounded to sigma / 2048 or so
    # uniform within 0.05, and noise of 0.2
    assert firsts.std() == pytest.approx(np.hypot(0.2, 0.1 / np.sqrt(12)), rel=5 / np.sqrt(2 * firsts.size))
    assert np.abs(np.corrcoef(firsts.T) - np.eye(4)).max() < 5 / np.sqrt(len(firsts))


def test_agrees_with_the_evaluation_of_stable_baselines3():
    environment = noisy("CartPole-v1", 0.8)
    with environment.opened(8) as env:
        env.seed(5)
        expected = evaluate_policy(LinearPolicy(), env, 400, return_episode_rewards=True, warn=False)[0]
    returns = play(environment, 64, 2000, seed=0, native=True).returns
    assert stats.ks_2samp(expected, returns).pvalue > 0.01


def test_the_same_episodes_as_in_a_vector_env_of_single_environments():
    single = SyncVectorEnv([partial(gym.make, "CartPole-v1", max_episode_steps=40)] * 1)
    native = gym.make_vec("CartPole-v1", 1, max_episode_steps=40)
    one, other = (
        play_vector_episodes(LinearPolicy(), vector.NoisyObservationWrapper(env, 0.8), 30, seed=4) for env in (single, native)
    )
    np.testing.assert_array_equal(one.returns, other.returns)
    assert len(set(one.returns)) > 5
