"""The norms in which perturbations are bounded."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch as th

from sb3_camp.attacks.ball import Ball, LinfBall
from sb3_camp.errors import InputError
from sb3_camp.threat_models import THREATS


@dataclass(frozen=True)
class Norm:
    """
    The norm of a perturbation.

    :param order: "l2" or "linf"
    :param scale: What each entry is divided by, as a tuple of the flattened frame: the sigma of each sensor, where each has
        its own; one number for all; None for 1. Entries whose scale is 0 may not be moved
    """

    order: Literal["l2", "linf"] = "l2"
    scale: tuple[float, ...] | None = None

    @classmethod
    def of(cls, threat: str, sensor_sigma: np.ndarray | None = None) -> "Norm":
        """
        :param threat: A threat model
        :param sensor_sigma: Standard deviation of each entry of a frame, or one for all; None where the norm is in the units
            of the observation
        :raises InputError: if there is no such threat model
        """
        if threat not in THREATS:
            raise InputError(f"the threat models are {', '.join(THREATS)}; there is no {threat!r}")
        scale = None if sensor_sigma is None else tuple(np.asarray(sensor_sigma, dtype=np.float64).ravel().tolist())
        return cls("linf" if threat == "step-linf" else "l2", scale)

    def ball(self, clean: th.Tensor, radius: th.Tensor) -> Ball:
        """
        :param clean: Clean frames, flattened, (N, D), float32 or uint8
        :param radius: (N,) float64
        :return: the balls around them
        """
        scale = None
        if self.scale is not None:
            scale = th.tensor(self.scale, dtype=th.float64, device=clean.device)
            if clean.dtype == th.uint8 and len(scale) > 1:
                raise InputError("images can be attacked only where all pixels have the same sigma")
        return (LinfBall if self.order == "linf" else Ball)(clean, radius, scale)


L2 = Norm()
"""The l2 norm in the units of the observation"""
