"""
Lower bounds on the expected return under any attack on the observations within an l2 budget (paper, Eq. robustness_bound).

The returns must come from independent episodes of one fixed policy that acts on observations with fresh N(0, sigma^2 I) noise.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.certification.return_band import ratios_of, return_band
from sb3_camp.errors import InputError


def certified_return(
    returns: ArrayLike,
    sigma: float,
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> np.ndarray:
    """
    Certified expected return at each radius (paper, Eq. cdf_bound and robustness_bound).

    With confidence 1 - alpha, for all radii R together: no attack whose perturbations of the observations of one episode have
    l2 norm at most R (square root of the sum of squares over all steps) brings the expected return below

        A + sum_i (r_i - r_{i-1}) * Phi(Phi^-1(P(r_i)) - R / sigma),    r_0 = A = ``min_return``,

    over the distinct returns r_1 < r_2 < ..., where P(r) is the lower confidence band on P(return >= r) of
    :func:`sb3_camp.certification.bands.lower_band`. The paper's formula is the case A = 0. Radius 0 is a lower confidence
    bound on the expected return without an attack, so it lies below the sample mean.

    For several quantities from the same episodes, :func:`sb3_camp.certification.return_band.return_band` computes the band
    once.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param radii: l2 radii in the units of the observations, any shape
    :param alpha: the certificate is wrong with at most this probability, in (0, 1)
    :param method: ``"berk-jones"``, ``"dkw"`` (the paper's) or ``"clopper-pearson"`` (needs ``support``)
    :param min_return: a return that no episode can fall below, known beforehand (not the lowest one seen)
    :param support: for ``"clopper-pearson"``: the thresholds that share alpha, fixed before the episodes were played, for
        instance all the returns that are possible. A return counts as the highest of them that it reaches (see
        :func:`sb3_camp.certification.return_band.return_band`), so few of them are a coarser lower bound, and may be a higher
        one: "200 or not" costs one test
    :return: float64 array of the shape of radii
    :raises InputError: for input that cannot be used: empty or non-finite returns, a return or threshold below ``min_return``,
        a sigma that is not finite and positive, negative radii, alpha outside (0, 1), an unknown method
    """
    ratios = ratios_of(radii, sigma)
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    # One radius at a time: a matrix of returns x radii would not fit in memory.
    return np.array([band.expected_return(ratio) for ratio in ratios.ravel()], dtype=np.float64).reshape(ratios.shape)


def certified_radius(
    returns: ArrayLike,
    sigma: float,
    target: float,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> float:
    """
    The largest radius at which the certified return is at least ``target``.

    With confidence 1 - alpha, for all targets together. :func:`certified_return` at this radius is at least ``target``, and
    1e-9 sigma further out it is below. ``alpha``, ``method``, ``min_return`` and ``support`` are those of that function.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param target: the expected return to keep
    :return: radius in the units of the observations; nan where the certified return is below ``target`` already at radius 0,
        inf where ``target`` is not above ``min_return``
    :raises InputError: as :func:`certified_return`, and for a target that is nan
    """
    if math.isnan(target):
        raise InputError("target must be a number, got nan")
    ratios_of(0.0, sigma)  # refuses a sigma that cannot be used
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    if target <= min_return:
        return math.inf
    if band.expected_return(0.0) < target:
        return math.nan
    # Bisection over radius / sigma. At 64 every probability has underflown to 0, which leaves min_return, below the target.
    low, high = 0.0, 64.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if band.expected_return(middle * sigma / sigma) >= target:  # the ratio that certified_return will see
            low = middle
        else:
            high = middle
    return low * sigma
