"""Smoothing noise and frame stack for Gymnasium's vector environments: twins of the wrappers for single ones."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorObservationWrapper, VectorWrapper
from gymnasium.vector.utils import batch_space

from sb3_camp.errors import InputError
from sb3_camp.wrappers.observation_noise import ObservationNoise, Sigma, noise_generator

__all__ = ["FrameStackObservation", "NoisyObservationWrapper", "resets_at_next_step"]


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

    def __init__(self, env: VectorEnv, sigma: Sigma, quantize: bool = True, clean_keys: Sequence[str] = ()) -> None:
        noise = ObservationNoise(env.single_observation_space, sigma, quantize, clean_keys)
        gym.utils.RecordConstructorArgs.__init__(
            self, sigma=noise.given_sigma, quantize=noise.quantize, clean_keys=list(clean_keys)
        )
        VectorObservationWrapper.__init__(self, env)
        self.noise = noise
        self.single_observation_space = noise.space
        self.observation_space = batch_space(noise.space, self.num_envs)
        self._rng: np.random.Generator | None = None
        self._n_seedings = 0
        self._last: Any = None

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the observation; 1 where each entry has one of its own."""
        return self.noise.sigma

    @property
    def sensor_sigma(self) -> Any:
        """Standard deviation of each entry, as nested lists or a mapping of these; None where all have the same."""
        return self.noise.sensor_sigma

    @property
    def clean_keys(self) -> tuple[str, ...]:
        """What has no noise: entries of a Dict observation, and ``"[i]"`` or ``"key[i]"`` where a single sigma is 0."""
        return self.noise.clean_keys

    @property
    def n_noise_seedings(self) -> int:
        """How many resets seeded the noise."""
        return self._n_seedings

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
            self._n_seedings += 1
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


class FrameStackObservation(VectorWrapper, gym.utils.RecordConstructorArgs):
    """
    Twin of Gymnasium's wrapper of this name (with ``padding_type="reset"``) for vector environments: the last frames of each
    environment, the oldest first. After a reset all of them are the one frame that there is.

    :param env: The vector environment to wrap, with observations in a Box of shape (\\*frame), in autoreset mode next-step. A
        ``reset`` with ``reset_mask`` in its options leaves the frames of the others
    :param stack_size: Number of frames
    :raises InputError: (a ValueError) if it resets in another mode, if its observations are in no Box, or if ``stack_size`` is
        not a positive whole number
    """

    def __init__(self, env: VectorEnv, stack_size: int) -> None:
        if isinstance(stack_size, bool) or not isinstance(stack_size, int | np.integer) or stack_size < 1:
            raise InputError(
                f"FrameStackObservation: stack_size must be a whole number that is at least 1, not {stack_size!r}."
            )
        frame = env.single_observation_space
        if not isinstance(frame, spaces.Box) or not resets_at_next_step(env):
            raise InputError(f"FrameStackObservation: {env} must observe a Box and reset at the next step.")
        gym.utils.RecordConstructorArgs.__init__(self, stack_size=stack_size)
        VectorWrapper.__init__(self, env)
        self.single_observation_space = batch_space(frame, stack_size)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.stack_size = int(stack_size)
        self._frames = np.empty(0)
        self._ended = np.zeros(self.num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        # Read before the call, as above
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        frame, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        first = np.repeat(frame[:, np.newaxis], self.stack_size, axis=1)
        self._frames = first if mask.all() else np.where(mask.reshape(-1, *(1,) * frame.ndim), first, self._frames)
        self._ended = self._ended & ~mask
        return self._frames, infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        frame, rewards, terminations, truncations, infos = self.env.step(actions)
        # A new array, as those that were handed out must not change
        self._frames = np.concatenate([self._frames[:, 1:], frame[:, np.newaxis]], axis=1)
        self._frames[self._ended] = frame[self._ended][:, np.newaxis]
        self._ended = np.logical_or(terminations, truncations)
        return self._frames, rewards, terminations, truncations, infos


def resets_at_next_step(env: VectorEnv) -> bool:
    """
    :param env: A vector environment
    :return: whether the step after the last one of an episode takes no action, but resets (Gymnasium's ``NEXT_STEP``)
    """
    mode = env.metadata.get("autoreset_mode")
    return getattr(mode, "value", mode) == "NextStep"
