import gymnasium as gym
import numpy as np
import pytest
from evaluation_envs import AlwaysZero, FixedLevel, FixedLevelCartPole, TwoLivesEnv, noisy_cartpoles
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import AtariWrapper, EpisodicLifeEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EpisodeRecorder, play_episodes
from sb3_camp.evaluation.episode_plan import EPISODES_PER_ENV, plan_chunks
from sb3_camp.wrappers import NoisyObservationWrapper


class TiltPolicy:
    """Pushes CartPole to where it leans."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (observation[:, 2] > 0).astype(int), None


class RandomLengthEnv(gym.Env):
    """Ends at each step with probability 0.2; every step earns 1, so the return is the length, 5 in the mean."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}


class RankEnv(RandomLengthEnv):
    """Earns its number at the end of an episode, the first episode of env 3: 3, the second: 13, ..."""

    def __init__(self, rank):
        self.next_return = rank

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        reward = self.next_return if terminated else 0
        self.next_return += 10 * terminated
        return observation, reward, terminated, truncated, info


# Which episodes count


@pytest.mark.parametrize("monitored", [True, False])
def test_every_env_plays_its_fixed_share(monitored):
    wrap = Monitor if monitored else lambda env: env
    env = DummyVecEnv([lambda rank=rank: EpisodeRecorder(wrap(RankEnv(rank))) for rank in range(4)])
    n_calls = []
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 10, seed=0, on_episode=n_calls.append)
    # By turns: all first episodes, all second ones, and a third of the last two envs
    np.testing.assert_array_equal(returns, [0, 1, 2, 3, 10, 11, 12, 13, 22, 23])
    assert returns.dtype == np.float64 and lengths.dtype == np.int64 and lengths.min() >= 1
    assert len(n_calls) == 10 and np.bincount(n_calls).tolist() == [2, 2, 3, 3]


def test_short_episodes_are_not_over_represented():
    env = DummyVecEnv([lambda: EpisodeRecorder(RandomLengthEnv())] * 16)
    returns = np.concatenate([play_episodes(AlwaysZero(), env, 16, seed=100 * i)[0] for i in range(250)])
    standard_error = np.sqrt(0.8) / 0.2 / np.sqrt(returns.size)
    assert abs(returns.mean() - 5) < 4 * standard_error
    # The first 16 episodes to finish, in the same setting, would be far off
    rng = np.random.default_rng(0)
    lengths = rng.geometric(0.2, (250, 16, 16))
    finish = lengths.cumsum(axis=2).reshape(250, -1)
    first = np.take_along_axis(lengths.reshape(250, -1), finish.argsort(axis=1)[:, :16], axis=1)
    assert first.mean() < 5 - 10 * standard_error


def test_a_lost_life_does_not_end_an_episode():
    import ale_py

    gym.register_envs(ale_py)
    env = make_vec_env("BreakoutNoFrameskip-v4", 2, wrapper_class=lambda env: AtariWrapper(EpisodeRecorder(env)))
    model = PPO("CnnPolicy", env, n_steps=8, batch_size=8, seed=0)
    model.set_random_seed(3)
    env.seed(3)
    expected = evaluate_policy(model, env, 2, deterministic=False, return_episode_rewards=True)
    # It has left the env whose game was over first in the middle of the next one, which must not be continued
    returns, lengths, _ = play_episodes(model, env, 2, seed=3, deterministic=False)
    assert sorted(returns) == sorted(expected[0])
    assert sorted(lengths) == sorted(expected[1])
    assert min(lengths) > 300  # of raw frames: five lives, not one


def test_a_game_that_ends_in_the_reset_after_a_lost_life_counts():
    env = DummyVecEnv([lambda: EpisodicLifeEnv(EpisodeRecorder(TwoLivesEnv()))])
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 3, seed=0)
    np.testing.assert_array_equal(returns, [3, 6, 9])
    np.testing.assert_array_equal(lengths, [3, 3, 3])


class EndlessLivesEnv(TwoLivesEnv):
    """Loses a life at its second step and goes on without end."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


class StepsAfterReset(gym.Wrapper):
    """As FireResetEnv does it: acts once before it shows the first observation."""

    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        observation, *_, info = self.env.step(0)
        return observation, info


@pytest.mark.parametrize("wrap", [lambda env: env, StepsAfterReset])
def test_time_limit_inside_of_the_lives_ends_episodes(wrap):
    env = DummyVecEnv([lambda: wrap(EpisodicLifeEnv(TimeLimit(EpisodeRecorder(EndlessLivesEnv()), 20)))])
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 3, seed=0)
    # With those that are hidden in resets: the first one and that after the lost life
    np.testing.assert_array_equal(lengths, 20)
    np.testing.assert_array_equal(returns, lengths * [1, 2, 3])


class StepEcho(gym.Env):
    """Earns 1 for an action that equals the number of steps in the episode, modulo 3; episodes of 4 to 9 steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(4, 10))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = float(action == self.t % 3)
        self.t += 1
        return np.zeros(1, np.float32), reward, self.t == self.length, False, {}


class CountingPolicy:
    """A recurrent policy whose state is the number of steps in the episode."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        state = np.zeros(len(observation), dtype=int) if state is None else state
        state = np.where(episode_start, 0, state)
        return state % 3, state + 1


def test_recurrent_states_are_kept_and_reset_per_env():
    returns, lengths, _ = play_episodes(CountingPolicy(), DummyVecEnv([lambda: EpisodeRecorder(StepEcho())] * 3), 20, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert len(set(lengths)) > 1


# Seeds


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
    return DummyVecEnv([lambda: NoisyObservationWrapper(EpisodeRecorder(make()), 0.4)] * 3)


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


class DropsSeed(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(options=options)


@pytest.mark.parametrize(("wrapper", "message"), [(FixedLevel, "seeds it again"), (DropsSeed, "does not pass on the seed")])
def test_noise_that_a_wrapper_outside_seeds_itself_is_an_error(wrapper, message):
    def make():
        return wrapper(NoisyObservationWrapper(EpisodeRecorder(gym.make("CartPole-v1")), 0.4))

    with pytest.raises(InputError, match=message):
        play_episodes(AlwaysZero(), DummyVecEnv([make] * 2), 2, seed=0)


def test_noise_may_be_seeded_more_than_once_by_the_first_reset():
    class StartsTwice(gym.Wrapper):
        def reset(self, **kwargs):  # as the no-ops at the start of Atari games do if a game is over at them
            self.env.reset(**kwargs)
            return self.env.reset(**kwargs)

    env = DummyVecEnv([lambda: StartsTwice(NoisyObservationWrapper(EpisodeRecorder(gym.make("CartPole-v1")), 0.4))])
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 5, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert min(lengths) > 5


@pytest.mark.parametrize(("n_episodes", "n_envs"), [(1, 1), (10_000, 64), (100, 8), (1601, 64), (7, 7)])
def test_chunks_share_no_seed(n_episodes, n_envs):
    seeds = []
    for seed in (0, 1, 2**40):
        chunks = plan_chunks(n_episodes, n_envs, seed)
        assert sum(chunk.n_episodes for chunk in chunks) == n_episodes
        assert all(1 <= chunk.n_episodes <= EPISODES_PER_ENV * n_envs for chunk in chunks)
        seeds += [chunk.seed + i for chunk in chunks for i in range(n_envs)]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 2**30 and max(seeds) < 2**31
