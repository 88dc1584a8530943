"""The smoothing noise itself, for one observation or a batch: which spaces can carry it, and how it is added."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_camp.errors import InputError

# Mark the streams that are drawn only for noise or only for attacks. Without them, a generator made from a seed would repeat,
# draw for draw, the one that Gymnasium makes from the same seed for the environment's own randomness.
_NOISE_STREAM = 0x6E6F6973
_ATTACK_STREAM = 0x61747461


def noise_generator(seed: int | Sequence[int]) -> np.random.Generator:
    """
    A generator for noise whose stream differs from that of any environment that was given the same seed.

    :param seed: Non-negative integer, or several
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_NOISE_STREAM,)))


def attack_generator(seed: int) -> np.random.Generator:
    """
    A generator for random attacks whose stream differs from those of the environment and its noise with the same seed.

    :param seed: Non-negative integer
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_ATTACK_STREAM,)))


class ObservationNoise:
    """
    Adds independent N(0, sigma^2) to every number of an observation.

    The noise is drawn in single precision, the precision of the observations that come out.

    :param space: Space of the clean observations (of a single environment)
    :param sigma: Standard deviation, in the units of the observation (pixel values 0 to 255 for images)
    :param quantize: Clip and round noisy images back to uint8
    :param clean_keys: Entries of a Dict space that are passed through without noise
    :raises InputError: if sigma is not finite and >= 0, or if the space cannot carry Gaussian noise
    """

    def __init__(self, space: spaces.Space, sigma: float, quantize: bool = True, clean_keys: Sequence[str] = ()) -> None:
        self.sigma = _checked_sigma(sigma)
        self.quantize = quantize
        self.clean_keys = _checked_clean_keys(space, clean_keys)
        self.space = self._noisy_space(space)
        """Space of the noisy observations"""

    def __call__(self, observation: Any, rng: np.random.Generator) -> Any:
        """
        :param observation: A clean observation of the space, or a batch of them with one more dimension in front;
            it is not changed
        :param rng: Generator to draw from
        :return: A new observation (Dict: a new dict), float32, or uint8 for quantized images
        """
        if isinstance(self.space, spaces.Dict):
            return {
                key: observation[key] if key in self.clean_keys else self._noised(observation[key], entry, rng)
                for key, entry in self.space.spaces.items()
            }
        return self._noised(observation, self.space, rng)

    def _noised(self, observation: Any, noisy_space: spaces.Space, rng: np.random.Generator) -> np.ndarray:
        noisy = rng.standard_normal(np.shape(observation), dtype=np.float32)
        noisy *= np.float32(self.sigma)
        noisy += observation
        if noisy_space.dtype == np.uint8:
            np.rint(noisy, out=noisy)
            np.clip(noisy, 0, 255, out=noisy)
            return noisy.astype(np.uint8)
        return noisy

    def _noisy_space(self, space: spaces.Space) -> spaces.Space:
        if isinstance(space, spaces.Box):
            return self._noisy_box(space)
        if isinstance(space, spaces.Dict):
            return spaces.Dict(
                {
                    key: entry if key in self.clean_keys else self._noisy_entry(key, entry)
                    for key, entry in space.spaces.items()
                }
            )
        raise InputError(
            f"NoisyObservationWrapper: Gaussian noise needs a Box (or a Dict of them), the observation space is {space}: "
            "encode it as a float Box first."
        )

    def _noisy_entry(self, key: str, entry: spaces.Space) -> spaces.Box:
        if not isinstance(entry, spaces.Box):
            raise InputError(
                f"NoisyObservationWrapper: Gaussian noise needs a Box, the observation entry {key!r} is {entry}: "
                f"encode it as a float Box first, or name it in clean_keys if no adversary can touch it."
            )
        return self._noisy_box(entry, f"the observation entry {key!r}")

    def _noisy_box(self, box: spaces.Box, name: str = "the observation") -> spaces.Box:
        if np.issubdtype(box.dtype, np.floating):
            return spaces.Box(-np.inf, np.inf, box.shape, np.float32)
        if box.dtype == np.uint8 and np.all(box.low == 0) and np.all(box.high == 255):
            return box if self.quantize else spaces.Box(-np.inf, np.inf, box.shape, np.float32)
        raise InputError(
            f"NoisyObservationWrapper: {name} holds integers that are not pixels ({box}): only float and uint8 from 0 to 255 "
            "can carry Gaussian noise, convert it to a float Box first."
        )


def _checked_sigma(sigma: float) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, Real) or not math.isfinite(sigma) or sigma < 0:
        raise InputError(f"NoisyObservationWrapper: sigma must be a finite number >= 0, not {sigma!r}.")
    return float(sigma)


def _checked_clean_keys(space: spaces.Space, clean_keys: Sequence[str]) -> tuple[str, ...]:
    if isinstance(clean_keys, str):
        raise InputError(f"NoisyObservationWrapper: clean_keys must be a list of names, not the string {clean_keys!r}.")
    clean_keys = tuple(clean_keys)
    entries = space.spaces if isinstance(space, spaces.Dict) else {}
    unknown = [key for key in clean_keys if key not in entries]
    if unknown:
        raise InputError(
            f"NoisyObservationWrapper: clean_keys names {unknown}, the observation has "
            + (f"the entries {list(entries)}." if entries else f"no named entries ({space}).")
        )
    if isinstance(space, spaces.Dict) and len(set(clean_keys)) == len(entries):
        raise InputError("NoisyObservationWrapper: every entry of the observation is in clean_keys, nothing would be noised.")
    return clean_keys
