"""Counting the raw rewards of episodes where no other wrapper can change them."""

import math
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.exact_sums import exact_sum, rounded_sum
from sb3_camp.evaluation.records import Kept, Unrecordable, kept_of_both, kept_of_step
from sb3_camp.runs.recorded_key import RecordedKey
from sb3_camp.wrappers.chain import wrapper_chain

N_CLOSED = "n_closed_episodes"
"""Key that every ``info`` of an :class:`EpisodeRecorder` has: how many closed episodes wait to be taken."""

RETURN_SO_FAR = "return_so_far"
"""Key that every ``info`` of an :class:`EpisodeRecorder` has: the sum of the raw rewards since the last reset."""


class Episode(NamedTuple):
    """
    :param total_reward: Sum of the raw rewards, in double precision
    :param total_size: Sum of their absolute values
    :param length: Number of raw steps
    :param min_reward: Lowest raw reward of a single step, infinite if there was no step
    :param lost_reward: What the additions rounded off ``total_reward``
    :param recorded: What was kept of each recorded key of ``info``, None where no step had it; empty if none is recorded
    """

    total_reward: float = 0.0
    total_size: float = 0.0
    length: int = 0
    min_reward: float = math.inf
    lost_reward: float = 0.0
    recorded: tuple[Kept | None, ...] = ()

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
            kept_of_both(self.recorded, other.recorded),
        )

    def rounded_return(self) -> float:
        """
        :return: the sum of the rewards, see :func:`sb3_camp.evaluation.exact_sums.rounded_sum`
        """
        return rounded_sum(self.total_reward, self.lost_reward, self.total_size)


class EpisodeRecorder(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Counts reward and steps from each reset of the environment to the next, whatever the wrappers outside make of them: reward
    wrappers of any kind, skipped frames, steps that are hidden in their resets, time limits, lost lives.

    It belongs around the environment that defines the task, directly outside of ``Monitor`` if there is one.

    :param env: The environment
    :param keys: Keys of ``info`` to record besides. What wrappers outside of the recorder put into ``info`` is not seen
    :raises InputError: (a ValueError) if an ``EpisodicLifeEnv`` is inside, which hides whether a reset is one
    """

    def __init__(self, env: gym.Env, keys: Sequence[RecordedKey] = ()) -> None:
        if any(isinstance(wrapper, EpisodicLifeEnv) for wrapper in wrapper_chain(env)):
            raise InputError(
                "EpisodicLifeEnv is part of the environment itself, so each life counts as an episode, but the lives of "
                "one game are not independent: take it out, or put it into env_wrapper"
            )
        gym.utils.RecordConstructorArgs.__init__(self, keys=keys)
        gym.Wrapper.__init__(self, env)
        self._keys = list(keys)
        self._record_fault: str | None = None
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
        try:
            value = float(reward)
        except (TypeError, ValueError):
            raise InputError(f"the reward of a step is {reprlib.repr(reward)}, not a number") from None
        recorded = self._recorded(info) if self._keys else ()
        self._episode = self._episode.followed_by(Episode(value, abs(value), 1, value, recorded=recorded))
        info[N_CLOSED], info[RETURN_SO_FAR] = len(self._closed), self._episode.total_reward
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

    def record_fault(self) -> str | None:
        """
        :return: why a value could not be recorded, None if all could so far
        """
        return self._record_fault

    def _recorded(self, info: dict[str, Any]) -> tuple[Kept | None, ...]:
        try:
            return kept_of_step(self._keys, info)
        except Unrecordable as error:  # which would end the process of an env without a word to the others
            self._record_fault = self._record_fault or str(error)
            return (None,) * len(self._keys)
