"""
Lower bounds on the expected return under any attack on the observations within an l2 budget (paper, Eq. robustness_bound).

The returns must come from independent episodes of one fixed policy that acts on observations with fresh N(0, sigma^2 I) noise.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from sb3_camp.certification.bands import lower_band
from sb3_camp.errors import InputError

# How far, relative and absolute, a return may lie from a support point and still be that point after rounding.
_SUPPORT_RTOL, _SUPPORT_ATOL = 1e-9, 1e-12


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

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param radii: l2 radii in the units of the observations, any shape
    :param alpha: the certificate is wrong with at most this probability, in (0, 1)
    :param method: ``"berk-jones"``, ``"dkw"`` (the paper's) or ``"clopper-pearson"`` (needs ``support``)
    :param min_return: a return that no episode can fall below, known beforehand (not the lowest one seen)
    :param support: for ``"clopper-pearson"``: all the returns that are possible, known before the episodes were played;
        those above ``min_return`` are the thresholds that share alpha
    :return: float64 array of the shape of radii
    :raises InputError: for input that cannot be used: empty or non-finite returns, a return below ``min_return`` or outside
        the support, a sigma that is not finite and positive, negative radii, alpha outside (0, 1), an unknown method
    """
    radii = np.asarray(radii, dtype=np.float64)
    if not np.all(radii >= 0):
        raise InputError(f"radii must be numbers >= 0, got {radii[~(radii >= 0)][0]}")
    bound = _bound(returns, sigma, alpha, method, min_return, support)
    return np.array([bound(radius) for radius in radii.ravel()], dtype=np.float64).reshape(radii.shape)


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
    1e-9 sigma further out it is below.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param target: the expected return to keep
    :param alpha: see :func:`certified_return`
    :param method: see :func:`certified_return`
    :param min_return: see :func:`certified_return`
    :param support: see :func:`certified_return`
    :return: radius in the units of the observations; nan where the certified return is below ``target`` already at radius 0,
        inf where ``target`` is not above ``min_return``
    :raises InputError: as :func:`certified_return`, and for a target that is nan
    """
    if math.isnan(target):
        raise InputError("target must be a number, got nan")
    bound = _bound(returns, sigma, alpha, method, min_return, support)
    if target <= min_return:
        return math.inf
    if bound(0.0) < target:
        return math.nan
    # Bisection over radius / sigma. At 64 every probability has underflown to 0, which leaves min_return, below the target.
    low, high = 0.0, 64.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if bound(middle * sigma) >= target:
            low = middle
        else:
            high = middle
    return low * sigma


def _bound(
    returns: ArrayLike, sigma: float, alpha: float, method: str, min_return: float, support: ArrayLike | None
) -> Callable[[float], float]:
    """The certified return as a function of one radius."""
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma, the standard deviation of the noise, must be finite and positive, got {sigma}")
    if not math.isfinite(min_return):
        raise InputError(f"min_return must be finite, got {min_return}")
    values = _finite_vector(returns, "returns")
    thresholds = None
    if method == "clopper-pearson":
        if support is None:
            raise InputError("clopper-pearson needs support, the returns that are possible; without it, use berk-jones")
        points = np.unique(_finite_vector(support, "support"))
        _check_not_below(points, min_return, "support")
        values = _snap(values, points)
        thresholds = points[points > min_return]
    elif support is not None:
        raise InputError(f"support is for the method clopper-pearson only, not for {method}")
    _check_not_below(values, min_return, "returns")

    distinct, tally = np.unique(values, return_counts=True)
    at_least = np.cumsum(tally[::-1])[::-1]  # returns >= each distinct one, ties included
    n_thresholds = None if thresholds is None else max(1, len(thresholds))
    probability = lower_band(at_least, len(values), alpha, method, n_thresholds)
    # Of returns with the same bound only the highest needs a term: the distances of the others add up to it. Support points
    # between two returns need none either: they have the bound of the return above.
    highest = np.append(np.flatnonzero(np.diff(probability)), len(distinct) - 1)
    steps = np.diff(distinct[highest], prepend=min_return)
    quantiles = ndtri(probability[highest])

    def bound(radius: float) -> float:
        # One radius at a time: a matrix of returns x radii would not fit in memory.
        return float(min_return + steps @ ndtr(quantiles - radius / sigma))

    return bound


def _finite_vector(numbers: ArrayLike, name: str) -> np.ndarray:
    try:
        vector = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    if vector.ndim != 1 or vector.size == 0:
        raise InputError(f"{name} must be a non-empty one-dimensional array, got shape {vector.shape}")
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise InputError(f"{name}[{bad[0]}] is {vector[bad[0]]}: all of {name} must be finite")
    return vector


def _check_not_below(values: np.ndarray, min_return: float, name: str) -> None:
    lowest = values.min()
    if lowest < min_return:
        raise InputError(
            f"{name} holds {lowest}, below min_return={min_return}: pass min_return, the lowest return an episode can have"
        )


def _snap(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Each value's nearest support point, which must be the same but for rounding."""
    above = np.minimum(np.searchsorted(points, values), len(points) - 1)
    below = np.maximum(above - 1, 0)
    nearest = np.where(values - points[below] <= points[above] - values, points[below], points[above])
    off = np.flatnonzero(~np.isclose(values, nearest, rtol=_SUPPORT_RTOL, atol=_SUPPORT_ATOL))
    if off.size:
        raise InputError(f"returns[{off[0]}] is {values[off[0]]}, which is not in support: list every return that is possible")
    return nearest
