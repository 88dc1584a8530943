"""Smoothing noise for Gymnasium's vector environments."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorObservationWrapper
from gymnasium.vector.utils import batch_space

from sb3_camp.wrappers.observation_noise import ObservationNoise, noise_generator

__all__ = ["NoisyObservationWrapper"]


class NoisyObservationWrapper(VectorObservationWrapper, gym.utils.RecordConstructorArgs):
    """
    Twin of :class:`sb3_camp.wrappers.NoisyObservationWrapper` for vector environments (``gym.make_vec``): fresh noise
    N(0, sigma^2 I), independent across steps and environments, on every batch of observations.

    The noise has a generator of its own, as its twin has. ``reset(seed=...)`` seeds it, to a stream that differs from those of
    the environments.

    :param env: The vector environment to wrap (autoreset mode next-step or disabled, as for all of Gymnasium's)
    :param sigma: Standard deviation of the noise, in the units of the observation
    :param quantize: Round and clip noisy images back to uint8
    :param clean_keys: Entries of a Dict observation to pass on without noise
    :raises InputError: (a ValueError) if sigma is not finite and >= 0, or if the observation space cannot carry the noise
    """

    def __init__(self, env: VectorEnv, sigma: float, quantize: bool = True, clean_keys: Sequence[str] = ()) -> None:
        noise = ObservationNoise(env.single_observation_space, sigma, quantize, clean_keys)
        gym.utils.RecordConstructorArgs.__init__(
            self, sigma=noise.sigma, quantize=noise.quantize, clean_keys=list(noise.clean_keys)
        )
        VectorObservationWrapper.__init__(self, env)
        self.noise = noise
        self.single_observation_space = noise.space
        self.observation_space = batch_space(noise.space, self.num_envs)
        self._rng: np.random.Generator | None = None
        self._last: Any = None

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the observation."""
        return self.noise.sigma

    @property
    def clean_keys(self) -> tuple[str, ...]:
        """Entries of a Dict observation that are passed on without noise."""
        return self.noise.clean_keys

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """
        :param seed: Seed of the noise and of the environments, or one seed per environment; the noise keeps its stream if
            none is given for one of the environments
        :param options: Options of the environments. With ``reset_mask``, the observations of environments that are not reset
            keep the noise they have.
        """
        if seed is not None and (isinstance(seed, int) or None not in seed):
            self._rng = noise_generator(seed)  # type: ignore[arg-type]
        previous = self._last
        # Read before the call: Gymnasium's environments take the mask out of the options
        mask = (options or {}).get("reset_mask")
        clean, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        noisy = self.observations(clean)
        if mask is not None and previous is not None:
            noisy = self._last = self._merge(mask, noisy, previous)
        return noisy, infos

    def observations(self, observations: Any) -> Any:
        if self._rng is None:  # made only now, so that processes that were forked before do not share it
            self._rng = np.random.default_rng()
        self._last = self.noise(observations, self._rng)
        return self._last

    def _merge(self, mask: np.ndarray, new: Any, old: Any) -> Any:
        """Rows of ``new`` where the mask (n_envs,) is set, of ``old`` elsewhere."""
        if isinstance(new, dict):
            return {key: new[key] if key in self.noise.clean_keys else self._merge(mask, new[key], old[key]) for key in new}
        return np.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
