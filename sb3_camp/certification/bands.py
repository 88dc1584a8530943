"""
Lower confidence bands on P(return >= C), simultaneous over every threshold C.

All methods see the returns of m independent episodes only through counts: how many of them are at least C, ties included. They
turn a count n into a lower confidence bound on the probability, which holds for all thresholds together with probability at
least 1 - alpha.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from sb3_camp.certification.band_checks import checked_bounds
from sb3_camp.certification.band_registry import BANDS, Band, band_of, register_band
from sb3_camp.certification.crossing import holding_probability, knots
from sb3_camp.errors import InputError

# Up to this many episodes the Berk-Jones band is a Clopper-Pearson bound at every count. Beyond, it is one at some hundred
# counts and straight between them, which costs 0.04 % of the level at alpha = 0.05, but takes a second for a million episodes.
_ALL_COUNTS_UP_TO = 10_000
# The relative error allowed below the wanted probability of failure.
_TOLERANCE, _TOLERANCE_BETWEEN_KNOTS = 1e-9, 5e-5
# For a smaller alpha, which comes near the rounding error of 1 - alpha, the union bound (always valid) takes over; a larger
# one is not worth the trouble: its level is at least that of this one.
_SMALLEST_EXACT_ALPHA, _LARGEST_EXACT_ALPHA = 1e-8, 0.999
# SciPy's quantiles of the Beta distributions end in nan where the level is below about 1e-100.
_SMALLEST_ALPHA = 1e-50
# More than the rounding error of each step of the recursion.
_ROUNDING = 1e-14
# The numbers of episodes whose levels are used to guess those of more.
_FEW = (1000, 4000)
_TOLERANCE_OF_GUESS = 1e-3
_MOST_STEPS = 60
# The largest number below 1. Rounded to 1, a bound would say that nothing can go wrong.
_BELOW_ONE = float(np.nextafter(1, 0))


def lower_band(counts: ArrayLike, m: int, alpha: float, method: str, n_thresholds: int | None = None) -> np.ndarray:
    """
    Lower confidence bounds on P(return >= C), all of them valid together with probability at least 1 - alpha.

    - ``"berk-jones"``: the exact band of one-sided Berk-Jones type (Berk & Jones, 1979; Moscovich, Nadler & Spiegelman, 2016):
      a Clopper-Pearson bound for every count, each at the level of :func:`berk_jones_level`; beyond 10,000 episodes for some
      hundred counts, and straight between them.
    - ``"dkw"``: the band of the paper, n / m - sqrt(ln(2 / alpha) / (2 m)) (Dvoretzky, Kiefer & Wolfowitz, 1956).
    - ``"clopper-pearson"``: exact binomial bounds (Clopper & Pearson, 1934) at alpha / n_thresholds (Bonferroni). Valid only
      if the thresholds were fixed before the returns were seen.
    - What was added with :func:`sb3_camp.certification.register_band`; of these, whether they hold is computed first.

    :param counts: how many of the m returns are >= C, for each threshold C; integers from 0 to m, any shape
    :param m: number of independent episodes
    :param alpha: the band fails somewhere with at most this probability, in (0, 1)
    :param method: name of a band, one of :data:`METHODS` or of those that were added
    :param n_thresholds: number of thresholds that share alpha, for pointwise bands (``"clopper-pearson"``) only
    :return: float64 array of the shape of counts, in [0, 1)
    :raises InputError: for an unknown method, an alpha outside (0, 1) or below 1e-50, m < 1, n_thresholds missing or out of
        place, or a band that does not hold
    """
    band = _checked(m, alpha, method, n_thresholds)
    counts = np.asarray(counts)
    if method in METHODS:
        return np.asarray(band.function(counts, m, alpha / (n_thresholds or 1)))
    return checked_bounds(method, band, m, alpha, n_thresholds)[counts]


def forecast_band(counts: ArrayLike, m: int, alpha: float, method: str, n_thresholds: int | None = None) -> np.ndarray:
    """
    About the bounds of :func:`lower_band`, for forecasts: fast for any number of episodes, not checked, and no certificate.

    :param counts: see :func:`lower_band`, like the others
    :return: float64 array of the shape of counts
    :raises InputError: as :func:`lower_band`
    """
    band = _checked(m, alpha, method, n_thresholds)
    function = band.function if band.forecast is None else band.forecast
    return np.asarray(function(np.asarray(counts), m, alpha / (n_thresholds or 1)), dtype=np.float64)


def largest_ratio(m: int, alpha: float, method: str, n_thresholds: int | None = None, *, forecast: bool = False) -> float:
    """
    The radius, in units of sigma, at which even m perfect episodes certify no more than probability 1/2.

    That is Phi^-1 of the highest value of the band; nothing but more episodes (or a larger alpha) raises it.

    :param m: number of independent episodes
    :param alpha: the band fails somewhere with at most this probability, in (0, 1)
    :param method: see :func:`lower_band`
    :param n_thresholds: see :func:`lower_band`
    :param forecast: about the same, as :func:`forecast_band` does it
    :return: R / sigma; 0 where the band never exceeds 1/2
    :raises InputError: as :func:`lower_band`
    """
    highest = (forecast_band if forecast else lower_band)(m, m, alpha, method, n_thresholds)
    return max(0.0, float(ndtri(highest)))


@lru_cache(maxsize=1024)
def berk_jones_level(m: int, alpha: float) -> float:
    """
    The level a' at which m Clopper-Pearson bounds hold together with probability 1 - alpha.

    With the order statistics U_(1) <= ... <= U_(m) of independent uniforms, all of U_(k) >= quantile(a') of Beta(k, m - k + 1)
    hold together with probability 1 - alpha. The level is rounded down, never up: the probability was computed for the very
    level that is returned, and is at least 1 - alpha. Up to 10,000 episodes it is exact to nine digits.

    Beyond, the quantiles are taken at some hundred counts k (all of those near 1 and near m), and the level is that of the
    band which is straight between them; to four digits for that band, and 0.04 % (alpha = 0.05) below that of the band of all
    quantiles, as these are convex in k. For an alpha below 1e-8 the level is alpha / m (union bound), for one above 0.999 that
    of 0.999. Takes about a second for 10,000 or a million episodes, less in between.
    Results are kept.

    :param m: number of independent episodes, at least 1
    :param alpha: joint failure probability, in (0, 1)
    :return: a', between alpha / m and alpha
    :raises InputError: for m < 1 or an alpha outside (0, 1) or below 1e-50
    """
    _check(m, alpha)
    if m == 1:
        return float(alpha)
    if alpha < _SMALLEST_EXACT_ALPHA:
        return alpha / m
    wanted = min(alpha, _LARGEST_EXACT_ALPHA)
    counts = _tested_counts(m)
    tolerance = (_TOLERANCE if len(counts) == m else _TOLERANCE_BETWEEN_KNOTS) + min(m, _ALL_COUNTS_UP_TO) * _ROUNDING / wanted
    x, slope = _guess(m, wanted)
    x, _ = _solve(lambda x: _log_failure(counts, math.exp(x)), wanted, m, x, slope, tolerance)
    return max(alpha / m, math.exp(x))


def forecast_level(m: int, alpha: float) -> float:
    """
    The level of :func:`berk_jones_level` to about 1 %, on either side: for forecasts, at no cost to speak of.

    :param m: number of episodes, at least 1
    :param alpha: joint failure probability, in (0, 1)
    :return: about a'
    """
    # The logarithm of the level bends slowly with that of m.
    lower = math.floor(math.log(m, 4))
    below, above = (_forecast_anchor(4**power, alpha) for power in (lower, lower + 1))
    return below * (above / below) ** (math.log(m, 4) - lower)


@lru_cache(maxsize=1024)
def _forecast_anchor(m: int, alpha: float) -> float:
    if m <= max(_FEW) or alpha < _SMALLEST_EXACT_ALPHA:
        return berk_jones_level(m, alpha)
    return math.exp(_guess(m, min(alpha, _LARGEST_EXACT_ALPHA))[0])


def _guess(m: int, alpha: float) -> tuple[float, float]:
    """The logarithm of the level to begin with, and the slope of :func:`_log_failure` there."""
    few, more = _FEW
    x, slope = math.log(alpha / (1 + 5 * math.log(m))), 1.0
    if m <= more:
        return x, slope

    # For one level, the logarithm of the holding probability is all but linear in the logarithm of m.
    def extrapolated(x: float) -> float:
        level = math.exp(x)
        first, second = (math.exp(_log_failure(knots(n), level)) for n in _FEW)
        return math.log(first + (second - first) * math.log(m / few) / math.log(more / few))

    return _solve(extrapolated, alpha, m, x, slope, _TOLERANCE_OF_GUESS)


def _solve(
    log_failure: Callable[[float], float], alpha: float, m: int, x: float, slope: float, tolerance: float
) -> tuple[float, float]:
    """
    The x where log_failure reaches that of alpha, or a little before, and the slope there: by secants within a bracket.

    :return: x, either with a value of log_failure that does not exceed that of alpha, or that of the union bound
    """
    wanted = math.log(-math.log1p(-alpha))
    low, high = math.log(alpha / m), math.log(alpha)
    before: tuple[float, float] | None = None
    for _ in range(_MOST_STEPS):
        excess = log_failure(x) - wanted
        if before is not None and x != before[0]:
            slope = (excess - before[1]) / (x - before[0])
        if -tolerance <= excess <= 0:
            return x, slope
        low, high = (low, x) if excess > 0 else (x, high)
        before = x, excess
        aim = x - (excess + tolerance / 2) / slope if slope > 0 else low
        x = aim if low < aim < high else (low + high) / 2
    return low, slope


def _log_failure(counts: np.ndarray, level: float) -> float:
    """log(-log(P(all bounds of this level hold))), which is nearly a straight line in the logarithm of the level."""
    m = int(counts[-1])
    holds = holding_probability(m, counts, _clopper_pearson(counts, m, level))
    return math.log(-math.log(min(max(holds, 1e-300), 1 - _ROUNDING)))


def _tested_counts(m: int) -> np.ndarray:
    """The counts, ascending from 1 to m, whose bounds are of Clopper-Pearson type; between two of them, they are straight."""
    return np.arange(1, m + 1) if m <= _ALL_COUNTS_UP_TO else knots(m)


def _clopper_pearson(counts: np.ndarray, m: int, level: float) -> np.ndarray:
    """One-sided lower confidence bound on a probability after counts successes in m trials, each at its own risk of level."""
    successes = np.maximum(counts, 1)
    return np.where(counts > 0, np.minimum(betaincinv(successes, m - successes + 1, level), _BELOW_ONE), 0.0)


def _dkw(counts: np.ndarray, m: int, alpha: float) -> np.ndarray:
    return np.maximum(0.0, counts / m - math.sqrt(math.log(2 / alpha) / (2 * m)))


def _berk_jones(counts: np.ndarray, m: int, alpha: float) -> np.ndarray:
    tested = _tested_counts(m)
    bounds = _clopper_pearson(tested, m, berk_jones_level(m, alpha))
    return np.interp(counts, np.append(0, tested), np.append(0.0, bounds))


def _forecast_berk_jones(counts: np.ndarray, m: int, alpha: float) -> np.ndarray:
    return _clopper_pearson(counts, m, forecast_level(m, alpha))


def _check(m: int, alpha: float) -> None:
    if m < 1:
        raise InputError(f"a band needs at least one episode, got {m}")
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    if alpha < _SMALLEST_ALPHA:
        raise InputError(f"alpha must be at least {_SMALLEST_ALPHA:g}, got {alpha}")


def _checked(m: int, alpha: float, method: str, n_thresholds: int | None) -> Band:
    """The band, once it is clear that it can be asked."""
    band = band_of(method)
    _check(m, alpha)
    if not band.pointwise:
        if n_thresholds is not None:
            raise InputError(f"n_thresholds is for pointwise bands like clopper-pearson, not for {method}")
    elif n_thresholds is None or n_thresholds < 1:
        raise InputError(f"{method} needs the number of thresholds (n_thresholds), at least 1, got {n_thresholds}")
    return band


register_band("berk-jones", Band(_berk_jones, forecast=_forecast_berk_jones))
register_band("dkw", Band(_dkw))
register_band("clopper-pearson", Band(_clopper_pearson, pointwise=True))

METHODS = tuple(BANDS)
"""The bands of this package"""
