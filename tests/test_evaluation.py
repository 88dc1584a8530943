import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import AtariWrapper, EpisodicLifeEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from support.evaluation_envs import AlwaysZero, TwoLivesEnv, recorded
from support.policies import CountingPolicy, RandomLengthEnv, StepEcho

from sb3_camp.evaluation import play_episodes


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
    env = DummyVecEnv([lambda rank=rank: recorded(wrap(RankEnv(rank))) for rank in range(4)])
    n_calls = []
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 10, seed=0, on_episode=n_calls.append)
    # By turns: all first episodes, all second ones, and a third of the last two envs
    np.testing.assert_array_equal(returns, [0, 1, 2, 3, 10, 11, 12, 13, 22, 23])
    assert returns.dtype == np.float64 and lengths.dtype == np.int64 and lengths.min() >= 1
    assert len(n_calls) == 10 and np.bincount(n_calls).tolist() == [2, 2, 3, 3]


def test_short_episodes_are_not_over_represented():
    env = DummyVecEnv([lambda: recorded(RandomLengthEnv())] * 16)
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
    env = make_vec_env("BreakoutNoFrameskip-v4", 2, wrapper_class=lambda env: recorded(env, AtariWrapper))
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
    env = DummyVecEnv([lambda: recorded(TwoLivesEnv(), EpisodicLifeEnv)])
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
    env = DummyVecEnv([lambda: recorded(EndlessLivesEnv(), lambda env: wrap(EpisodicLifeEnv(TimeLimit(env, 20))))])
    returns, lengths, _ = play_episodes(AlwaysZero(), env, 3, seed=0)
    # With those that are hidden in resets: the first one and that after the lost life
    np.testing.assert_array_equal(lengths, 20)
    np.testing.assert_array_equal(returns, lengths * [1, 2, 3])


def test_recurrent_states_are_kept_and_reset_per_env():
    returns, lengths, _ = play_episodes(CountingPolicy(), DummyVecEnv([lambda: recorded(StepEcho())] * 3), 20, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert len(set(lengths)) > 1
