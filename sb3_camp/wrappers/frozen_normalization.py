"""Normalising observations by statistics that do not change, as Stable-Baselines3's VecNormalize does outside of training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_camp.errors import InputError

Numbers = Sequence[Any]
"""Nested lists of numbers, as JSON holds them."""


class FrozenNormalizeObservation(gym.ObservationWrapper, gym.utils.RecordConstructorArgs):
    """
    Shows clip((observation - mean) / sqrt(var + epsilon)), entry by entry, as ``VecNormalize`` does with ``training=False``.

    A fixed function, so a certificate holds with it on either side of the smoothing noise. Outside of the noise it is part of
    the policy, and sigma and radius are in the units of the sensors. Inside of the noise sigma and radius are in standard
    deviations.

    :param env: The environment to wrap
    :param mean: Means, in the shape of the observation; for a Dict a mapping of the entries that are normalised
    :param var: Variances, like ``mean``
    :param epsilon: Added to the variances
    :param clip_obs: Largest absolute value that is shown
    :raises InputError: (a ValueError) if the statistics do not fit the observation space
    """

    def __init__(
        self,
        env: gym.Env,
        mean: Numbers | Mapping[str, Numbers],
        var: Numbers | Mapping[str, Numbers],
        epsilon: float = 1e-8,
        clip_obs: float = 10.0,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, mean=mean, var=var, epsilon=epsilon, clip_obs=clip_obs)
        gym.ObservationWrapper.__init__(self, env)
        self.clip_obs = float(clip_obs)
        space = env.observation_space
        self._of_entry: dict[str | None, tuple[np.ndarray, np.ndarray]] = {}
        if isinstance(space, spaces.Dict):
            if not (
                isinstance(mean, Mapping) and isinstance(var, Mapping) and mean.keys() == var.keys() <= space.spaces.keys()
            ):
                raise InputError(f"the statistics of a normaliser must name entries of the observation: {list(space.spaces)}")
            for key in mean:
                self._add(key, space.spaces[key], mean[key], var[key], epsilon)
            entries = {key: self._normal_space(entry) if key in mean else entry for key, entry in space.spaces.items()}
            self.observation_space = spaces.Dict(entries)
        else:
            self._add(None, space, mean, var, epsilon)
            self.observation_space = self._normal_space(space)

    def _add(self, key: str | None, space: spaces.Space, mean: Any, var: Any, epsilon: float) -> None:
        means, variances = np.asarray(mean, dtype=np.float64), np.asarray(var, dtype=np.float64)
        if not isinstance(space, spaces.Box) or not means.shape == variances.shape == space.shape:
            what = "the observation" if key is None else f"the entry {key!r}"
            shapes = f"means of shape {means.shape} and variances of shape {variances.shape}"
            raise InputError(f"a normaliser with {shapes} does not fit {what}, which is {space}{_stacked(means, space)}")
        if not (np.all(np.isfinite(means)) and np.all(np.isfinite(variances) & (variances >= 0))):
            raise InputError("the statistics of a normaliser must be finite, and its variances at least 0")
        self._of_entry[key] = means, np.sqrt(variances + epsilon)

    def _normal_space(self, space: spaces.Space) -> spaces.Box:
        return spaces.Box(-self.clip_obs, self.clip_obs, space.shape, np.float32)

    def statistics(self, key: str | None) -> tuple[np.ndarray, np.ndarray] | None:
        """
        :param key: Entry of a Dict observation, None for an observation that is none
        :return: what is subtracted and what is divided by, float64, in its shape; None if it is left alone
        """
        return self._of_entry.get(key)

    def observation(self, observation: Any) -> Any:
        if None in self._of_entry:
            return self._normalised(observation, *self._of_entry[None])
        changed = {key: self._normalised(observation[key], *own) for key, own in self._of_entry.items() if key is not None}
        return {**observation, **changed}

    def _normalised(self, values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        return np.clip((values - mean) / deviation, -self.clip_obs, self.clip_obs).astype(np.float32)


def _stacked(means: np.ndarray, space: spaces.Space) -> str:
    """What to do about statistics of stacked frames, where these may be some."""
    n_frames, rest = divmod(means.size, math.prod(space.shape or (0,)) or means.size + 1)
    if rest or n_frames < 2:
        return ""
    return (
        f": these may be the statistics of {n_frames} stacked frames (VecNormalize around VecFrameStack), which cannot be "
        "placed: in training, normalise each frame and then stack, as the zoo does (VecFrameStack around VecNormalize)"
    )
