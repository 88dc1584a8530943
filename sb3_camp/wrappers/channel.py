"""What happens to frames between an adversary and the policy, as far as the adversary reckons with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th

from sb3_camp.errors import InputError


@dataclass(frozen=True)
class Channel:
    """
    Smoothing noise, and outside of it a frozen normaliser.

    :param sigma: Standard deviation of the noise: a number, or nested lists in the shape of a frame; 0 for none
    :param draws: K, over how many draws of the noise the attack averages (expectation over transformation: Athalye et al.,
        "Synthesizing Robust Adversarial Examples", ICML 2018); 0 for an attack as if there were no noise
    :param mean: Of the normaliser, nested lists in the shape of a frame; None if there is none
    :param deviation: What it divides by, likewise
    :param clip: The largest absolute value that it shows
    :raises InputError: if the number of draws is none, or if there is no noise to draw
    """

    sigma: Any = 0.0
    draws: int = 0
    mean: Any = None
    deviation: Any = None
    clip: float = math.inf

    def __post_init__(self) -> None:
        if self.draws < 0:
            raise InputError(f"the number of draws of the noise must be at least 0, not {self.draws}")
        if self.draws and not np.any(self.sigma):
            raise InputError("there is no noise whose draws an attack could average over: leave out --eot")

    def noise(self, rngs: Sequence[np.random.Generator], n_stack: int, frame_shape: tuple[int, ...]) -> np.ndarray | None:
        """
        :param rngs: Generators of the attack, one for each of N rows
        :param n_stack: Number of frames of a row
        :param frame_shape: Their shape
        :return: draws of the noise, float32 (N, K, n_stack, \\*frame_shape); None for an attack without
        """
        if not self.draws:
            return None
        shape = (self.draws, n_stack, *frame_shape)
        draws = np.stack([rng.standard_normal(shape, dtype=np.float32) for rng in rngs])
        return draws * np.asarray(self.sigma, dtype=np.float32)

    def normalised(self, stacks: th.Tensor) -> th.Tensor:
        """
        :param stacks: Frames, (..., \\*frame_shape)
        :return: what the normaliser shows of them, digit by digit as FrozenNormalizeObservation computes it
        """
        if self.mean is None:
            return stacks
        mean, deviation = (
            th.as_tensor(np.asarray(values, dtype=np.float64), device=stacks.device) for values in (self.mean, self.deviation)
        )
        return ((stacks.double() - mean) / deviation).clamp(-self.clip, self.clip).float()
