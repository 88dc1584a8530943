"""Returns are sums of the raw rewards, whatever the wrappers outside of the recorder do."""

from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeReward, TimeLimit, TransformReward
from rl_zoo3.wrappers import DelayedRewardWrapper, FrameSkip, TruncatedOnSuccessWrapper
from stable_baselines3.common.atari_wrappers import ClipRewardEnv, EpisodicLifeEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize
from support.evaluation_envs import AlwaysZero, CountedEnv, TwoLivesEnv, recorded

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EpisodeRecorder, EvaluationEnv, play_episodes
from sb3_camp.evaluation.recorder import Episode, exact_sum


class ShapesAndTruncates(gym.Wrapper):
    """Makes up its own rewards, its own info and its own ends."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 3 * reward - 7, terminated, truncated or info["is_success"], {}


class StartsWithSteps(gym.Wrapper):
    """Acts five times before it shows the first observation, and starts over if that ends an episode."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        for _ in range(5):
            observation, _, terminated, _, info = self.env.step(0)
            if terminated:
                observation, info = self.env.reset()
        return observation, info


class ThreeTrials(gym.Wrapper):
    """One episode of it is three of the env."""

    def reset(self, **kwargs):
        self.trial = 1
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated and self.trial < 3:
            self.trial += 1
            observation, _ = self.env.reset()
            terminated = False
        return observation, reward, terminated, truncated, info


OUTSIDE = {
    "nothing": lambda env: env,
    "time limit": lambda env: TimeLimit(env, 10),
    "clip": lambda env: TimeLimit(ClipRewardEnv(env), 10),
    "normalize": lambda env: TimeLimit(NormalizeReward(env), 10),
    "transform": lambda env: TimeLimit(TransformReward(env, lambda reward: 100 - reward), 10),
    "offset at success": lambda env: TruncatedOnSuccessWrapper(env, reward_offset=100.0),
    "delayed": lambda env: TimeLimit(DelayedRewardWrapper(env, delay=4), 10),
    "frame skip": lambda env: TimeLimit(FrameSkip(env, skip=3), 4),
    "own info": ShapesAndTruncates,
    "hidden steps": lambda env: TimeLimit(StartsWithSteps(env), 10),
}
OUTERMOST = {
    "nothing": lambda env: env,
    "monitor": VecMonitor,
    "normalize": lambda env: VecNormalize(env, norm_obs=False, clip_reward=0.1),
    "stack": lambda env: VecFrameStack(env, 2),
}


def counted_envs(wrap, monitored=True, n_envs=3):
    inner = Monitor if monitored else lambda env: env
    return DummyVecEnv([lambda: recorded(inner(CountedEnv()), wrap)] * n_envs)


def own_accounts(env):
    """The rewards of the episodes of each env by its own account."""
    return [env_i.unwrapped.closed[1:] for env_i in env.unwrapped.envs]


def check_by_turns(episodes, accounts):
    n_envs = len(accounts)
    for k, (total, length, lowest) in enumerate(zip(*episodes, strict=True)):
        rewards = accounts[k % n_envs][k // n_envs]
        assert (length, lowest) == (len(rewards), min(rewards))
        assert total == pytest.approx(sum(rewards), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("outermost", OUTERMOST)
@pytest.mark.parametrize("outside", [name for name in OUTSIDE if name != "hidden steps"])
def test_returns_are_those_that_the_environment_itself_counts(outside, outermost):
    env = OUTERMOST[outermost](counted_envs(OUTSIDE[outside], monitored=outermost != "stack"))
    episodes = play_episodes(AlwaysZero(), env, 12, seed=0)
    check_by_turns(episodes, own_accounts(env))
    assert len(set(episodes.returns)) > 6
    limit = {"nothing": None, "offset at success": None, "own info": None, "frame skip": 12}.get(outside, 10)
    assert limit is None or max(episodes.lengths) == limit


def test_steps_hidden_in_a_reset_count_and_games_that_it_throws_away_do_not():
    env = counted_envs(OUTSIDE["hidden steps"])
    episodes = play_episodes(AlwaysZero(), env, 30, seed=0)
    assert min(episodes.lengths) > 1
    # What was thrown away is shorter than the five hidden steps; and then they have less to show
    for i, account in enumerate(own_accounts(env)):
        shown = [rewards for rewards in account if rewards]
        remaining = iter(shown)
        for total in episodes.returns[i::3]:
            assert any(sum(rewards) == pytest.approx(total, rel=1e-12, abs=1e-12) for rewards in remaining)


def test_sums_are_in_double_precision_and_round():
    class Tenths(CountedEnv):
        def step(self, action):
            observation, _, _, _, info = super().step(action)
            self.rewards[-1] = -0.1
            return observation, -0.1, False, len(self.rewards) == 1000, info

    assert sum([-0.1] * 1000) != -100
    returns, _, min_rewards = play_episodes(AlwaysZero(), DummyVecEnv([lambda: recorded(Tenths())]), 2, seed=0)
    np.testing.assert_array_equal(returns, -100)
    np.testing.assert_array_equal(min_rewards, -0.1)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.1] * 3, 0.3),
        ([-0.1] * 10 + [1.0], 0.0),
        ([3e-9] * 7, 2.1e-8),
        ([1e6, 1e-3], 1000000.001),
        ([2.0] * 400, 800.0),
        ([0.0], 0.0),
        ([1.0, float("-inf")], float("-inf")),
        ([1e13, -1e13, 60.0], 60.0),  # not 100, its nearest multiple
        ([1e13, 1.0, -1e13], 1.0),
        ([1e16, 1.0, -1e16], 1.0),
        ([1e13, -1e13 - 0.00390625], -0.00390625),  # nor 0
        ([1e300, 3.5, -1e300, 1e-5], 3.50001),
        ([0.3, -0.1, -0.2], 0.0),
        ([1 / 3] * 3, 1.0),
        ([1 / 7, 1 / 11], 1 / 7 + 1 / 11),
    ],
)
def test_rounding_errors_of_additions_are_rounded_away_at_the_size_of_the_rewards(rewards, expected):
    episode = Episode()
    for reward in rewards:
        episode = episode.followed_by(Episode(reward, abs(reward), 1, reward))
    assert episode.rounded_return() == expected
    assert episode.min_reward == min(rewards) and episode.length == len(rewards)


@pytest.mark.parametrize("seed", range(20))
def test_no_return_is_rounded_up_by_more_than_the_documented_bound(seed):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=200) * 10.0 ** rng.integers(-6, 14, 200)
    rewards[:100] = -rewards[100:] * rng.choice([1, 1 + 1e-15], 100)
    episode, arrays = Episode(), (np.zeros(1), np.zeros(1))
    for reward in rewards.tolist():
        episode = episode.followed_by(Episode(reward, abs(reward), 1, reward))
        total, lost = exact_sum(arrays[0], np.array([reward]))
        arrays = total, arrays[1] + lost
    exact = sum(map(Fraction, rewards.tolist()))
    assert abs(Fraction(episode.rounded_return()) - exact) <= Fraction(1e-12) * max(1, abs(exact))
    assert (episode.total_reward, episode.lost_reward) == (arrays[0][0], arrays[1][0])


def test_an_episode_of_several_games_has_the_rewards_of_all():
    env = counted_envs(ThreeTrials)
    episodes = play_episodes(AlwaysZero(), env, 6, seed=0)
    for k, (total, length, lowest) in enumerate(zip(*episodes, strict=True)):
        trials = own_accounts(env)[k % 3][3 * (k // 3) : 3 * (k // 3) + 3]
        rewards = [reward for trial in trials for reward in trial]
        assert (length, lowest) == (len(rewards), min(rewards))
        assert total == pytest.approx(sum(rewards), abs=1e-9)
    with pytest.raises(InputError, match="replaces the info"):
        play_episodes(AlwaysZero(), counted_envs(lambda env: ShapesAndTruncates(KeepsSuccess(ThreeTrials(env)))), 6, seed=0)


class KeepsSuccess(gym.Wrapper):
    """Never tells of success."""

    def step(self, action):
        return *self.env.step(action)[:-1], {"is_success": False}


def test_lost_lives_are_no_episodes_for_a_monitor_of_the_vector_env():
    env = VecMonitor(DummyVecEnv([lambda: recorded(Monitor(TwoLivesEnv()), lambda env: ClipRewardEnv(EpisodicLifeEnv(env)))]))
    returns, lengths, min_rewards = play_episodes(AlwaysZero(), env, 3, seed=0)
    np.testing.assert_array_equal(returns, [3, 6, 9])
    np.testing.assert_array_equal(lengths, 3)
    np.testing.assert_array_equal(min_rewards, [1, 2, 3])


class NeverResets(gym.Wrapper):
    """Cuts one run into episodes of a single step."""

    def reset(self, **kwargs):
        if not hasattr(self, "start"):
            self.start = self.env.reset(**kwargs)
        return self.start

    def step(self, action):
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, True, info


def test_episodes_that_go_on_where_the_last_one_ended_are_an_error():
    env = counted_envs(NeverResets)
    for _ in range(2):  # also where it is the first reset that does nothing
        with pytest.raises(InputError, match="keeps a reset from the env"):
            play_episodes(AlwaysZero(), env, 6, seed=0)


def test_rewards_that_nobody_records_are_an_error():
    with pytest.raises(InputError, match="EpisodeRecorder"):
        play_episodes(AlwaysZero(), make_vec_env("CartPole-v1", 2), 2, seed=0)


def test_lives_inside_of_the_recorder_are_an_error():
    with pytest.raises(InputError, match="lives of one game are not independent"):
        EpisodeRecorder(Monitor(EpisodicLifeEnv(TwoLivesEnv())))


def test_recorder_leaves_everything_as_it_is():
    plain, recorded = gym.make("CartPole-v1"), EpisodeRecorder(gym.make("CartPole-v1"))
    np.testing.assert_array_equal(plain.reset(seed=1)[0], recorded.reset(seed=1)[0])
    for _ in range(5):
        (one, *others), (other, *recorded_others) = plain.step(0), recorded.step(0)
        np.testing.assert_array_equal(one, other)
        assert others[:-1] == recorded_others[:-1]


@pytest.mark.parametrize("reward", [np.ones(2), "1 point", None])
def test_a_reward_that_is_no_number_is_an_error(reward):
    class Rewarded(CountedEnv):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    env = EpisodeRecorder(Rewarded())
    env.reset(seed=0)
    with pytest.raises(InputError, match="the reward of a step is "):
        env.step(0)


def test_observations_that_cannot_be_stacked_are_an_error():
    with (
        pytest.raises(InputError, match="frame_stack: "),
        EvaluationEnv("FrozenLake-v1", wrappers={"frame_stack": 4}).opened(1),
    ):
        pass
