"""Counting the raw rewards of episodes where no other wrapper can change them."""

import math
from typing import Any, NamedTuple, SupportsFloat, TypeVar

import gymnasium as gym
import numpy as np
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

from sb3_camp.errors import InputError
from sb3_camp.wrappers.chain import wrapper_chain

N_CLOSED = "n_closed_episodes"
"""Key that every ``info`` of an :class:`EpisodeRecorder` has: how many closed episodes wait to be taken."""


_Number = TypeVar("_Number", float, np.ndarray)

# Half a unit in the last place: how far a number in double precision may be from the decimal that was meant.
_HALF_ULP = 2.0**-53
_LARGEST_ROUNDING = 1e-12


def exact_sum(a: _Number, b: _Number) -> tuple[_Number, _Number]:
    """
    :param a: A number or an array of them
    :param b: Another
    :return: their sum in double precision, and what it lacks of the exact one (Knuth's TwoSum); nan if the sum is not finite
    """
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


class Episode(NamedTuple):
    """
    :param total_reward: Sum of the raw rewards, in double precision
    :param total_size: Sum of their absolute values
    :param length: Number of raw steps
    :param min_reward: Lowest raw reward of a single step, infinite if there was no step
    :param lost_reward: What the additions rounded off ``total_reward``
    """

    total_reward: float = 0.0
    total_size: float = 0.0
    length: int = 0
    min_reward: float = math.inf
    lost_reward: float = 0.0

    def followed_by(self, other: "Episode") -> "Episode":
        """
        :param other: What comes after it
        :return: both as one
        """
        total, lost = exact_sum(self.total_reward, other.total_reward)
        return Episode(
            total,
            self.total_size + other.total_size,
            self.length + other.length,
            min(self.min_reward, other.min_reward),
            self.lost_reward + other.lost_reward + lost,
        )

    def rounded_return(self) -> float:
        """
        The sum of the rewards, without the rounding errors of the additions, however much of them cancels.

        It is rounded to 12 digits of ``total_size`` where the rewards, each of them off by half a unit in its last place, can
        mean that decimal: three times 0.1 is 0.3, and a lowest possible return is not missed by 1e-16. This changes it by at
        most 1e-12 (of itself, if it is above 1), so no certificate is too high by more.

        :return: the return
        """
        if not math.isfinite(self.total_reward) or not 0 < self.total_size < math.inf:
            return self.total_reward
        total = self.total_reward + self.lost_reward
        meant = round(total, 12 - math.ceil(math.log10(self.total_size)))
        off = min(2 * _HALF_ULP * self.total_size, _LARGEST_ROUNDING * max(1.0, abs(total)))
        return meant if abs(meant - total) <= off else total


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
        self.n_resets = 0
        """Number of resets so far"""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        self.n_resets += 1
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
