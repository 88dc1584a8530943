"""
Lower confidence bands on P(return >= C), simultaneous over every threshold C.

All methods see the returns of m independent episodes only through counts: how many of them are at least C, ties included. They
turn a count n into a lower confidence bound on the probability, which holds for all thresholds together with probability at
least 1 - alpha.
"""

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaincinv, gammaln, ndtri

from sb3_camp.errors import InputError

METHODS = ("berk-jones", "dkw", "clopper-pearson")

# Up to this many episodes the Berk-Jones band tests every count; beyond, a grid of counts that is ten times finer than their
# standard deviation: nothing is lost to the eye, and the level of a million episodes takes seconds, not an hour.
_ALL_COUNTS_UP_TO = 100_000
_GRID_STEP = 0.1
# Where alpha itself comes near the rounding error of 1 - alpha, the union bound (always valid) takes over.
_SMALLEST_EXACT_ALPHA = 1e-8
_SMALLEST_ALPHA_IN_ALLOWANCES = 100
# SciPy's quantiles of the Beta laws end in nan where the level is below about 1e-100.
_SMALLEST_ALPHA = 1e-50
# The exponents of the Poisson probabilities reach m log m, so their rounding errors are in proportion to it.
_ROUNDING = 1e-15


def lower_band(counts: ArrayLike, m: int, alpha: float, method: str, n_thresholds: int | None = None) -> np.ndarray:
    """
    Lower confidence bounds on P(return >= C), all of them valid together with probability at least 1 - alpha.

    - ``"berk-jones"``: the exact band of one-sided Berk-Jones type (Berk & Jones, 1979; Moscovich, Nadler & Spiegelman, 2016):
      a Clopper-Pearson bound for every count, each at the level of :func:`berk_jones_level`.
    - ``"dkw"``: the band of the paper, n / m - sqrt(ln(2 / alpha) / (2 m)) (Dvoretzky, Kiefer & Wolfowitz, 1956).
    - ``"clopper-pearson"``: exact binomial bounds (Clopper & Pearson, 1934) at alpha / n_thresholds (Bonferroni). Valid only
      if the thresholds were fixed before the returns were seen.

    :param counts: how many of the m returns are >= C, for each threshold C; integers from 0 to m, any shape
    :param m: number of independent episodes
    :param alpha: the band fails somewhere with at most this probability, in (0, 1)
    :param method: one of ``METHODS``
    :param n_thresholds: number of thresholds that share alpha, for ``"clopper-pearson"`` only
    :return: float64 array of the shape of counts, in [0, 1)
    :raises InputError: for an unknown method, an alpha outside (0, 1) or below 1e-50, m < 1, or n_thresholds missing or out of
        place
    """
    _check(m, alpha, method, n_thresholds)
    counts = np.asarray(counts)
    if method == "dkw":
        return np.maximum(0.0, counts / m - math.sqrt(math.log(2 / alpha) / (2 * m)))
    if method == "clopper-pearson":
        assert n_thresholds is not None
        return _clopper_pearson(counts, m, alpha / n_thresholds)
    tested = np.concatenate(([0], _tested_counts(m)))
    bounds = _clopper_pearson(tested, m, berk_jones_level(m, alpha))
    # A count between two tested ones has the bound of the lower: more returns at or above C never lower the bound.
    return bounds[np.searchsorted(tested, counts, side="right") - 1]


def largest_ratio(m: int, alpha: float, method: str, n_thresholds: int | None = None) -> float:
    """
    The radius, in units of sigma, at which even m perfect episodes certify no more than probability 1/2.

    That is Phi^-1 of the highest value of the band; nothing but more episodes (or a larger alpha) raises it.

    :param m: number of independent episodes
    :param alpha: the band fails somewhere with at most this probability, in (0, 1)
    :param method: one of ``METHODS``
    :param n_thresholds: number of thresholds that share alpha, for ``"clopper-pearson"`` only
    :return: R / sigma; 0 where the band never exceeds 1/2
    :raises InputError: as :func:`lower_band`
    """
    return max(0.0, float(ndtri(lower_band(m, m, alpha, method, n_thresholds))))


@lru_cache(maxsize=1024)
def berk_jones_level(m: int, alpha: float) -> float:
    """
    The level a' at which m Clopper-Pearson bounds hold together with probability 1 - alpha.

    With the order statistics U_(1) <= ... <= U_(m) of independent uniforms, all of U_(k) >= quantile(a') of Beta(k, m - k + 1)
    hold together with probability 1 - alpha. The level is rounded down (in the ninth digit, for a usual alpha), never up.
    Beyond 100,000 episodes only a fine grid of counts k is tested, the level is the exact one for that grid, and a count
    between has the bound of the next lower one. For an alpha below 1e-8 (1.4e-6 at a million episodes) the level is alpha / m
    (union bound). Takes about a second at m = 10,000 and 20 seconds from 100,000 on; results are kept.

    :param m: number of independent episodes, at least 1
    :param alpha: joint failure probability, in (0, 1)
    :return: a', between alpha / m and alpha
    :raises InputError: for m < 1 or an alpha outside (0, 1) or below 1e-50
    """
    _check(m, alpha, "berk-jones", None)
    if m == 1:
        return float(alpha)
    if alpha < max(_SMALLEST_EXACT_ALPHA, _SMALLEST_ALPHA_IN_ALLOWANCES * _allowance(m)):
        return alpha / m
    counts = _tested_counts(m)
    wanted = math.log(-math.log1p(-alpha))

    # log(-log(probability)) is nearly a straight line in log(level): the root finder needs few steps.
    @cache
    def excess(log_level: float) -> float:
        holds = _holding_probability(m, counts, _clopper_pearson(counts, m, math.exp(log_level)))
        return math.log(-math.log(max(holds, 1e-300))) - wanted

    if excess(math.log(alpha / m)) >= 0:  # by rounding only
        return alpha / m
    tolerance = 1e-9
    return max(alpha / m, math.exp(brentq(excess, math.log(alpha / m), math.log(alpha), xtol=tolerance) - 2 * tolerance))


def _holding_probability(m: int, counts: np.ndarray, bounds: np.ndarray) -> float:
    """
    P(U_(k) >= bound of k, for all k in counts), for the order statistics of m independent uniforms.

    U_(k) >= b is the same as N(b) < k for the number N(t) of uniforms in [0, t], and N is a Poisson process of rate m on
    [0, 1] under the condition N(1) = m. So: carry the law of N from bound to bound, dropping the states that break one, and
    condition at the end. States and jumps too unlikely to matter are dropped too; that, and the allowance for rounding, make
    the result too small if anything, which is the safe side.

    :param m: number of uniforms
    :param counts: the tested k, ascending integers
    :param bounds: the bound of each, ascending, in (0, 1)
    """
    mean = m * bounds
    # Binomial quantiles far below 1e-15; the constant covers the ends, where the binomial is not like a normal.
    lowest = np.maximum(0, mean - 8 * np.sqrt(mean * (1 - bounds)) - 20).astype(int)
    jumps = np.diff(mean, prepend=0.0)
    state, first = np.ones(1), 0  # state[i] = P(N = first + i, no bound broken so far)
    for block in np.array_split(np.arange(len(counts)), math.ceil(len(counts) / 512)):
        sizes = np.arange(int(jumps[block].max() + 9 * np.sqrt(jumps[block].max()) + 12))
        kernels = _poisson_pmf(sizes, jumps[block, None])
        for kernel, k, low in zip(kernels, counts[block].tolist(), lowest[block].tolist(), strict=True):
            low = max(first, low)
            state = np.convolve(state, kernel)[low - first : k - first]
            first = low
    still_to_come = m - first - np.arange(len(state))
    probability = state @ _poisson_pmf(still_to_come, m - mean[-1]) / _poisson_pmf(np.array(m), m)
    return float(probability) - _allowance(m)


def _allowance(m: int) -> float:
    """More than the rounding error of :func:`_holding_probability`."""
    return _ROUNDING * m * math.log(m)


def _poisson_pmf(k: np.ndarray, mean: ArrayLike) -> np.ndarray:
    return np.exp(k * np.log(mean) - mean - gammaln(k + 1))


def _tested_counts(m: int) -> np.ndarray:
    """Ascending counts from 1 to m: all of them, or for a very large m a grid in proportion to their standard deviation."""
    if m <= _ALL_COUNTS_UP_TO:
        return np.arange(1, m + 1)
    # k = m sin^2(angle): equal steps of the angle are equal fractions of sqrt(k (m - k) / m).
    angles = np.linspace(0, math.pi / 2, math.ceil(math.pi * math.sqrt(m) / _GRID_STEP))
    return np.unique(np.clip(np.round(m * np.sin(angles) ** 2), 1, m).astype(int))


def _clopper_pearson(counts: np.ndarray, m: int, level: float) -> np.ndarray:
    """One-sided lower confidence bound on a probability after counts successes in m trials, each at its own risk of level."""
    successes = np.maximum(counts, 1)
    return np.where(counts > 0, betaincinv(successes, m - successes + 1, level), 0.0)


def _check(m: int, alpha: float, method: str, n_thresholds: int | None) -> None:
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: choose one of {', '.join(METHODS)}")
    if m < 1:
        raise InputError(f"a band needs at least one episode, got {m}")
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    if alpha < _SMALLEST_ALPHA:
        raise InputError(f"alpha must be at least {_SMALLEST_ALPHA:g}, got {alpha}")
    if method != "clopper-pearson":
        if n_thresholds is not None:
            raise InputError(f"n_thresholds is for the method clopper-pearson only, not for {method}")
    elif n_thresholds is None or n_thresholds < 1:
        raise InputError(f"clopper-pearson needs the number of thresholds (n_thresholds), at least 1, got {n_thresholds}")
