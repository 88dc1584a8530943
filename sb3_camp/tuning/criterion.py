"""What a policy is judged by while it is trained or tuned: one number out of its certified curve."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.certification import certified_radius, certified_return
from sb3_camp.certification.return_band import ratios_of, return_band
from sb3_camp.errors import InputError

OBJECTIVES = ("value", "area")
_N_INTERVALS = 64


@dataclass(frozen=True)
class CertifiedCriterion:
    """
    The certified curve of some episodes, and the number in it that counts.

    :param objective: ``"value"``: the certified return at ``objective_radius``; ``"area"``: its mean over all radii from 0 to
        there, that is, the area under the certified curve divided by the radius (trapezoids on 64 equal steps)
    :param objective_radius: l2 radius, in the units of the observation
    :param alpha: see :func:`sb3_camp.certification.certified_return`
    :param method: see there
    :param min_return: see there
    :param support: see there
    :raises InputError: (a ValueError) for an unknown objective, or a radius that is negative or not finite
    """

    objective: str
    objective_radius: float
    alpha: float = 0.05
    method: str = "berk-jones"
    min_return: float = 0.0
    support: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective must be {' or '.join(map(repr, OBJECTIVES))}, not {self.objective!r}")
        if not (math.isfinite(self.objective_radius) and self.objective_radius >= 0):
            raise InputError(f"objective_radius must be a number that is at least 0, not {self.objective_radius}")

    def __call__(self, returns: ArrayLike, sigma: float) -> float:
        """
        :param returns: Returns of independent episodes of one policy, shape (m,)
        :param sigma: Standard deviation of the noise on the observations, in their units
        :return: the number that counts, in the units of the return
        :raises InputError: as :func:`sb3_camp.certification.certified_return`
        """
        if self.objective == "value" or self.objective_radius == 0:
            return float(self.curve(returns, sigma, [self.objective_radius])[0])
        curve = self.curve(returns, sigma, np.linspace(0, self.objective_radius, _N_INTERVALS + 1))
        return float((curve[:-1] + curve[1:]).mean() / 2)

    def curve(self, returns: ArrayLike, sigma: float, radii: ArrayLike) -> np.ndarray:
        """
        :param returns: As above
        :param sigma: As above
        :param radii: l2 radii, shape (r,)
        :return: certified return at each, float64, shape (r,)
        """
        return certified_return(returns, sigma, radii, **self._bound())

    def quantities(self, returns: ArrayLike, sigma: float, radii: ArrayLike, asked: Sequence[tuple[str, float]]) -> np.ndarray:
        """
        :param returns: As above
        :param sigma: As above
        :param radii: l2 radii, shape (r,)
        :param asked: q pairs of ``"probability"`` and a return, or of ``"quantile"`` or ``"cvar"`` and a share in (0, 1)
        :return: what is certified of each at each radius, from the band of the curve, float64, shape (q, r)
        :raises InputError: for a share outside (0, 1)
        """
        for kind, at in asked:
            if kind != "probability" and not 0 < at < 1:
                raise InputError(f"{kind}: a share of the episodes must lie strictly between 0 and 1, got {at:g}")
        band, ratios = return_band(returns, **self._bound()), ratios_of(radii, sigma).tolist()
        bounds = {"probability": band.reach_probability, "quantile": band.quantile, "cvar": band.cvar}
        values = [[bounds[kind](at, ratio) for ratio in ratios] for kind, at in asked]
        return np.array(values, dtype=np.float64).reshape(len(asked), len(ratios))

    def radii(self, returns: ArrayLike, sigma: float, targets: Sequence[float]) -> np.ndarray:
        """
        :param returns: As above
        :param sigma: As above
        :param targets: Expected returns to keep, t of them
        :return: certified radius of each, float64, shape (t,); nan where nothing is certified
        """
        return np.array([certified_radius(returns, sigma, target, **self._bound()) for target in targets], dtype=np.float64)

    def _bound(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "method": self.method, "min_return": self.min_return, "support": self.support}

    def description(self) -> dict[str, Any]:
        """
        :return: all that decides the number, by name
        """
        return asdict(self)
