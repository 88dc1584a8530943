"""The smoothing noise itself, for one observation or a batch: which spaces can carry it, and how it is added."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_camp.errors import InputError
from sb3_camp.wrappers.pixel_noise import rounded_noise

# Mark the streams that are drawn only for noise or only for attacks. Without them, a generator made from a seed would repeat,
# draw for draw, the one that Gymnasium makes from the same seed for the environment's own randomness.
_NOISE_STREAM = 0x6E6F6973
_ATTACK_STREAM = 0x61747461
# Fine enough to change no policy, coarse enough to hide the last digits of double precision
_STEPS_PER_SIGMA = 2.0**-10


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


Sigma = float | Sequence[Any] | Mapping[str, Any]
"""
Standard deviation of the noise: one number for all entries of the observation, nested lists of numbers in its shape, or for a
Dict observation a mapping of its keys to either.
"""


def sigma_entries(sigma: Sigma, key: str = "", index: tuple[int, ...] = ()) -> tuple[list[Any], list[str]]:
    """
    :param sigma: Standard deviations
    :return: all that stand in it, and the names of the entries for which it is 0: keys of a mapping, ``"[i]"`` or ``"key[i]"``
    """
    if isinstance(sigma, Mapping):
        parts = {str(name): sigma_entries(value, str(name)) for name, value in sigma.items()}
        silent = [entry for name, (values, clean) in parts.items() for entry in (clean if any(values) else [name])]
    elif isinstance(sigma, Sequence) and not isinstance(sigma, str):
        parts = {str(i): sigma_entries(value, key, (*index, i)) for i, value in enumerate(sigma)}
        silent = [entry for _, clean in parts.values() for entry in clean]
    else:
        return [sigma], [f"{key}[{', '.join(map(str, index))}]"] if index and sigma == 0 else []
    return [value for values, _ in parts.values() for value in values], silent


def plain_sigma(sigma: Any) -> Any:
    """
    :param sigma: Standard deviations, numbers of any kind
    :return: the same as JSON can hold them
    """
    if isinstance(sigma, Mapping):
        return {str(key): plain_sigma(value) for key, value in sigma.items()}
    if isinstance(sigma, np.ndarray):
        return sigma.astype(np.float64).tolist()
    return [plain_sigma(value) for value in sigma] if isinstance(sigma, list | tuple) else float(sigma)


class ObservationNoise:
    """
    Adds independent N(0, sigma^2) to every number of an observation.

    Where each entry has a sigma of its own, the l2 norm of an attack is that of its perturbations divided by sigma, entry by
    entry, so that in this norm the noise has standard deviation 1.

    What comes out is rounded: pixels to whole numbers, other numbers to multiples of a power of two near sigma / 1024. A fixed
    function of the noisy observation, so a certificate stays valid, and the last digits of floating-point sums, which would
    tell the observation apart from its noise, are gone.

    :param space: Space of the clean observations (of a single environment)
    :param sigma: Standard deviation, in the units of the observation (pixel values 0 to 255 for images)
    :param quantize: Clip and round noisy images back to uint8
    :param clean_keys: Entries of a Dict space that are passed through without noise; so are those whose sigma is 0
    :raises InputError: if sigma is not finite and >= 0, if its shape is not that of the observation, or if the space cannot
        carry Gaussian noise
    """

    def __init__(self, space: spaces.Space, sigma: Sigma, quantize: bool = True, clean_keys: Sequence[str] = ()) -> None:
        self.quantize = quantize
        self._clean_keys = _checked_clean_keys(space, clean_keys)
        self.sensor_sigma: Any = None
        """Standard deviation of each entry, as nested lists or a mapping of these; None where all have the same."""
        self._scales: dict[str | None, np.ndarray] = {}
        self._clean_numbers: list[str] = []
        if isinstance(sigma, Sequence | Mapping | np.ndarray) and not isinstance(sigma, str):
            self.sigma = 1.0
            self._set_sensor_sigma(space, sigma)
        else:
            self.sigma = _checked_sigma(sigma)
        self.space = self._noisy_space(space)
        """Space of the noisy observations"""

    @property
    def clean_keys(self) -> tuple[str, ...]:
        """
        What has no noise, so that a certificate does not cover it: entries of a Dict, and ``"[i]"`` or ``"key[i]"`` where a
        sigma is 0.
        """
        return (*self._clean_keys, *self._clean_numbers)

    def become(self, sigma: float) -> None:
        """
        Add noise of another standard deviation from now on.

        :param sigma: The same for all entries that had noise so far
        """
        self.sigma = _checked_sigma(sigma)
        self.sensor_sigma, self._scales, self._clean_numbers = None, {}, []

    @property
    def given_sigma(self) -> Any:
        """The argument ``sigma``, as JSON can hold it."""
        return self.sigma if self.sensor_sigma is None else self.sensor_sigma

    def __call__(self, observation: Any, rng: np.random.Generator) -> Any:
        """
        :param observation: A clean observation of the space, or a batch of them with one more dimension in front;
            it is not changed
        :param rng: Generator to draw from
        :return: A new observation (Dict: a new dict), float32, or uint8 for quantized images
        """
        if isinstance(self.space, spaces.Dict):
            return {
                key: observation[key] if key in self._clean_keys else self._noised(observation[key], entry, rng, key)
                for key, entry in self.space.spaces.items()
            }
        return self._noised(observation, self.space, rng)

    def _noised(
        self, observation: Any, noisy_space: spaces.Space, rng: np.random.Generator, key: str | None = None
    ) -> np.ndarray:
        scale = self._scales.get(key, self.sigma)
        if noisy_space.dtype == np.uint8:
            pixels = np.asarray(observation)
            if np.ndim(scale) == 0 and pixels.dtype == np.uint8:
                moved = rounded_noise(float(scale), pixels.shape, rng)
                moved += pixels
                return moved.clip(0, 255, out=moved).astype(np.uint8)
            noisy = rng.standard_normal(pixels.shape, dtype=np.float32)
            noisy *= scale
            noisy += pixels
            np.rint(noisy, out=noisy)
            np.clip(noisy, 0, 255, out=noisy)
            return noisy.astype(np.uint8)
        return _on_grid(observation, scale, rng).astype(np.float32)

    def _set_sensor_sigma(self, space: spaces.Space, given: Any) -> None:
        if isinstance(space, spaces.Dict) != isinstance(given, Mapping):
            kind = "a mapping of keys" if isinstance(space, spaces.Dict) else "a list in the shape of the observation"
            raise InputError(f"NoisyObservationWrapper: sigma must be a number or {kind}, the observation space is {space}.")
        try:
            self.sensor_sigma = plain_sigma(given)
        except (TypeError, ValueError):
            raise InputError(f"NoisyObservationWrapper: sigma must hold numbers, not {given!r}.") from None
        values, silent = sigma_entries(self.sensor_sigma)
        if not any(values):
            raise InputError("NoisyObservationWrapper: every sigma is 0, nothing would be noised.")
        if not isinstance(space, spaces.Dict):
            self._clean_numbers = silent
            self._scales[None] = _checked_scale(self.sensor_sigma, space, "the observation")
            return
        if {*self.sensor_sigma, *self._clean_keys} != space.spaces.keys():
            text = ", ".join(map(repr, sorted({*self.sensor_sigma, *self._clean_keys} ^ space.spaces.keys())))
            raise InputError(f"NoisyObservationWrapper: sigma and clean_keys must name each entry of the observation: {text}.")
        whole = [name for name in silent if name in space.spaces]
        self._clean_keys = _checked_clean_keys(space, list(dict.fromkeys([*self._clean_keys, *whole])))
        self._clean_numbers = [name for name in silent if name not in space.spaces]
        for key, value in self.sensor_sigma.items():
            if key not in self._clean_keys:
                self._scales[key] = _checked_scale(value, space.spaces[key], f"the observation entry {key!r}")

    def _noisy_space(self, space: spaces.Space) -> spaces.Space:
        if isinstance(space, spaces.Box):
            return self._noisy_box(space)
        if isinstance(space, spaces.Dict):
            return spaces.Dict(
                {
                    key: entry if key in self._clean_keys else self._noisy_entry(key, entry)
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


def _on_grid(observation: Any, scale: float | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """
    The observation with noise, rounded to whole multiples of a power of two near sigma / 1024.

    Floating-point numbers are denser near 0. Without the rounding, the last digits of a sum tell whether it is noise alone, or
    a value to which noise was added, and a network can be made that reads them: it would see past the noise.
    """
    noisy = np.asarray(observation, dtype=np.float64)
    noise = rng.standard_normal(noisy.shape)
    if not np.any(scale):
        return noisy
    steps = np.exp2(np.floor(np.log2(np.where(scale > 0, scale, 1.0)))) * _STEPS_PER_SIGMA
    return np.where(scale > 0, np.rint((noisy + noise * scale) / steps) * steps, noisy)


def _checked_sigma(sigma: Any) -> float:
    if isinstance(sigma, bool) or not isinstance(sigma, Real) or not math.isfinite(sigma) or sigma < 0:
        raise InputError(f"NoisyObservationWrapper: sigma must be a finite number >= 0, not {sigma!r}.")
    return float(sigma)


def _checked_scale(sigma: Any, space: spaces.Space, name: str) -> np.ndarray:
    """Standard deviations of an entry: one for all of it, or in its shape."""
    try:
        scale = np.asarray(sigma, dtype=np.float64)
    except ValueError:
        raise InputError(f"NoisyObservationWrapper: the sigma of {name} must be lists of one shape, not {sigma!r}.") from None
    if scale.ndim > 0 and scale.shape != space.shape:
        raise InputError(f"NoisyObservationWrapper: sigma has the shape {scale.shape}, {name} has {space.shape}.")
    if not np.all(np.isfinite(scale) & (scale >= 0)):
        raise InputError(f"NoisyObservationWrapper: each sigma of {name} must be finite and >= 0.")
    return scale


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
