"""Counting the raw rewards of episodes where no other wrapper can change them."""

import math
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

from sb3_camp.errors import InputError
from sb3_camp.wrappers.chain import wrapper_chain

N_CLOSED = "n_closed_episodes"
"""Key that every ``info`` of an :class:`EpisodeRecorder` has: how many closed episodes wait to be taken."""


class Episode(NamedTuple):
    """
    :param total_reward: Sum of the raw rewards, in double precision
    :param total_size: Sum of their absolute values
    :param length: Number of raw steps
    :param min_reward: Lowest raw reward of a single step, infinite if there was no step
    """

    total_reward: float = 0.0
    total_size: float = 0.0
    length: int = 0
    min_reward: float = math.inf

    def followed_by(self, other: "Episode") -> "Episode":
        """
        :param other: What comes after it
        :return: both as one
        """
        return Episode(
            self.total_reward + other.total_reward,
            self.total_size + other.total_size,
            self.length + other.length,
            min(self.min_reward, other.min_reward),
        )

    def rounded_return(self) -> float:
        """
        :return: the sum of the rewards without the rounding errors of the additions: to 12 digits of ``total_size``, so that
            three times 0.1 is 0.3, and a lowest possible return is not missed by 1e-16
        """
        if not 0 < self.total_size < math.inf:
            return self.total_reward
        return round(self.total_reward, 12 - math.ceil(math.log10(self.total_size)))


class EpisodeRecorder(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Counts reward and steps from each reset of the environment to the next, whatever the wrappers outside make of them: reward
    wrappers of any kind, skipped frames, steps that are hidden in their resets, time limits, lost lives.

    It belongs around the environment that defines the task, directly outside of ``Monitor`` if there is one.

    :param env: The environment
    :raises InputError: (a ValueError) if an ``EpisodicLifeEnv`` is inside, which hides whether a reset is one
    """

    def __init__(self, env: gym.Env) -> None:
        if any(isinstance(wrapper, EpisodicLifeEnv) for wrapper in wrapper_chain(env)):
            raise InputError(
                "EpisodicLifeEnv is part of the environment itself, so each life counts as an episode, but the lives of "
                "one game are not independent: take it out, or put it into env_wrapper"
            )
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._episode = Episode()
        self._closed: list[Episode] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self._closed.append(self._episode)
        self._episode = Episode()
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        value = float(reward)
        self._episode = self._episode.followed_by(Episode(value, abs(value), 1, value))
        info[N_CLOSED] = len(self._closed)
        return observation, reward, terminated, truncated, info

    def take_closed_episodes(self, more_than: int = 0) -> list[Episode]:
        """
        :param more_than: Leave them where they are if they are not more than that
        :return: the episodes that resets have closed since they were last taken, the oldest first; what was before the first
            reset of all is an episode without steps
        """
        if len(self._closed) <= more_than:
            return []
        closed, self._closed = self._closed, []
        return closed
