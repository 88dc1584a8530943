"""The lower confidence band on P(return >= c) as a function of c, which everything is certified from."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.bands import forecast_band, lower_band
from sb3_camp.errors import InputError

# How far, relative and absolute, a return may lie below a declared threshold and still reach it: a rounding error.
_SUPPORT_RTOL, _SUPPORT_ATOL = 1e-9, 1e-12
# Returns are added up as quarters, so that the distance of two of them cannot overflow.
_QUARTER = 0.25


class ThresholdCounts(NamedTuple):
    """
    :param min_return: a return that no episode can fall below
    :param thresholds: distinct, ascending, above ``min_return``, float64, shape (k,)
    :param at_least: how many episodes returned at least each of them, int, shape (k,)
    :param m: number of episodes
    :param n_thresholds: number of declared thresholds, for pointwise bands (``"clopper-pearson"``) only
    """

    min_return: float
    thresholds: np.ndarray
    at_least: np.ndarray
    m: int
    n_thresholds: int | None


@dataclass(frozen=True, eq=False)
class ReturnBand:
    """
    Lower bounds on P(return >= c) for all c together, and what follows for episodes under attack.

    Policy smoothing (Kumar, Levine & Feizi, 2022): an event of probability p has at least the probability Phi(Phi^-1(p) -
    ratio) under every attack of l2 norm at most ratio * sigma over the episode. "The return is at least c" is such an event
    for each c. The distribution with exactly these probabilities is the worst that an attack can make of the band. Each method
    gives a quantity of that distribution; as each of them only falls if the return does, it bounds the quantity of the true
    one from below. All of them hold together, for all ratios, with the confidence of the band.

    :param min_return: a return that no episode can fall below
    :param returns: the thresholds c at which the bound changes, ascending, above ``min_return``, float64, shape (k,)
    :param probability: lower confidence bounds on P(return >= each of them), falling, in [0, 1), float64, shape (k,)
    """

    min_return: float
    returns: np.ndarray
    probability: np.ndarray

    @classmethod
    def of_counts(cls, counts: ThresholdCounts, *, alpha: float, method: str, forecast: bool = False) -> "ReturnBand":
        """
        :param counts: how many episodes reached each threshold
        :param alpha: see :func:`return_band`
        :param method: see :func:`return_band`
        :param forecast: about the same, but fast: to plan episodes, never to certify any
        :return: the band
        """
        probability = (forecast_band if forecast else lower_band)(
            counts.at_least, counts.m, alpha, method, counts.n_thresholds
        )
        # Of thresholds with the same bound the highest is enough, and one without a bound above 0 says nothing.
        changes = probability > np.append(probability[1:], 0.0)
        return cls(counts.min_return, counts.thresholds[changes], probability[changes])

    def under_attack(self, ratio: float) -> np.ndarray:
        """
        :param ratio: l2 radius of the attack divided by sigma, at least 0
        :return: lower bounds on P(return >= each of ``returns``) under attack, shape (k,)
        """
        return ndtr(self._quantiles - ratio)

    def expected_return(self, ratio: float) -> float:
        """
        A + sum_i (r_i - r_{i-1}) * Phi(Phi^-1(P(r_i)) - ratio): the Wang transform of the distribution, with parameter ratio.

        :param ratio: see :meth:`under_attack`
        :return: a lower bound on the expected return
        """
        return self._sum(self.under_attack(ratio))

    def reach_probability(self, threshold: float, ratio: float) -> float:
        """
        :param threshold: a return
        :param ratio: see :meth:`under_attack`
        :return: a lower bound on the probability of a return of at least ``threshold``
        """
        if threshold <= self.min_return:
            return 1.0
        index = int(np.searchsorted(self.returns, threshold))
        return float(ndtr(self._quantiles[index] - ratio)) if index < len(self.returns) else 0.0

    def quantile(self, q: float, ratio: float) -> float:
        """
        :param q: share of the episodes that may return less, in (0, 1)
        :param ratio: see :meth:`under_attack`
        :return: the largest return that is reached with probability at least 1 - q
        """
        enough = np.flatnonzero(self._missing(ratio) <= q)
        return float(self.returns[enough[-1]]) if enough.size else float(self.min_return)

    def cvar(self, q: float, ratio: float) -> float:
        """
        A + sum_i (r_i - r_{i-1}) * max(0, 1 - (1 - Phi(Phi^-1(P(r_i)) - ratio)) / q)

        :param q: share of the episodes, in (0, 1]
        :param ratio: see :meth:`under_attack`
        :return: a lower bound on the mean return of the worst share q of the episodes
        """
        return self._sum(np.maximum(0.0, q - self._missing(ratio)) / q)

    @cached_property
    def _quantiles(self) -> np.ndarray:
        return ndtri(self.probability)

    def _missing(self, ratio: float) -> np.ndarray:
        """1 - under_attack, without its rounding error where that is near 1."""
        return ndtr(ratio - self._quantiles)

    def _sum(self, weights: np.ndarray) -> float:
        steps = np.diff(_QUARTER * self.returns, prepend=_QUARTER * self.min_return)
        return float((_QUARTER * self.min_return + steps @ weights) / _QUARTER)


def return_band(
    returns: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> ReturnBand:
    """
    :param returns: returns of m independent episodes of one fixed policy, shape (m,)
    :param alpha: the band is above the truth somewhere with at most this probability, in (0, 1)
    :param method: ``"berk-jones"``, ``"dkw"`` (the paper's), ``"clopper-pearson"`` (needs ``support``) or one that was added
        with :func:`sb3_camp.certification.register_band`
    :param min_return: a return that no episode can fall below, known beforehand (not the lowest one seen)
    :param support: for ``"clopper-pearson"``: the thresholds to spend alpha on, in equal shares, fixed before the episodes
        were played. A return counts as the highest of them that it reaches (to 1e-9 of its size) or as ``min_return``: the
        bound holds whatever returns there are, and loses least where these are the returns that are possible. Those at
        ``min_return`` cost nothing
    :return: the band
    :raises InputError: for input that cannot be used: empty or non-finite returns, a return or a threshold below
        ``min_return``, alpha outside (0, 1), an unknown method
    """
    counts = threshold_counts(returns, method=method, min_return=min_return, support=support)
    return ReturnBand.of_counts(counts, alpha=alpha, method=method)


def threshold_counts(
    returns: ArrayLike, *, method: str = "berk-jones", min_return: float = 0.0, support: ArrayLike | None = None
) -> ThresholdCounts:
    """
    What a band is computed from.

    :param returns: see :func:`return_band`
    :param method: see :func:`return_band`
    :param min_return: see :func:`return_band`
    :param support: see :func:`return_band`
    :return: the distinct returns, or the declared thresholds that were reached, above ``min_return``, with their counts
    :raises InputError: as :func:`return_band`
    """
    if not math.isfinite(min_return):
        raise InputError(f"min_return must be finite, got {min_return}")
    values = _finite_vector(returns, "returns")
    _check_not_below(values, min_return, "returns")
    n_thresholds = None
    if band_of(method).pointwise:
        if support is None:
            raise InputError(f"{method} needs support, thresholds that were fixed beforehand; without it, use berk-jones")
        points = np.unique(_finite_vector(support, "support"))
        _check_not_below(points, min_return, "support")
        points = points[points > min_return]
        n_thresholds = max(1, len(points))
        values = _floor(values, points, min_return)
    elif support is not None:
        raise InputError(f"support is for pointwise bands like clopper-pearson, not for {method}")
    distinct, tally = np.unique(values, return_counts=True)
    at_least = np.cumsum(tally[::-1])[::-1]  # ties included
    above = distinct > min_return
    return ThresholdCounts(min_return, distinct[above], at_least[above], len(values), n_thresholds)


def ratios_of(radii: ArrayLike, sigma: float) -> np.ndarray:
    """
    :param radii: l2 radii in the units of the observations, any shape
    :param sigma: standard deviation of the noise on the observations, in their units
    :return: radii / sigma, float64, of the same shape
    :raises InputError: for a sigma that is not finite and positive, or a radius that is not a number >= 0
    """
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma, the standard deviation of the noise, must be finite and positive, got {sigma}")
    radii = np.asarray(radii, dtype=np.float64)
    if not np.all(radii >= 0):
        raise InputError(f"radii must be numbers >= 0, got {radii[~(radii >= 0)][0]}")
    with np.errstate(over="ignore"):  # an infinite ratio is as good
        return radii / sigma


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


def _floor(values: np.ndarray, points: np.ndarray, lowest: float) -> np.ndarray:
    """The highest point that each value reaches, ``lowest`` where it reaches none."""
    points = np.append(lowest, points)
    reached = np.searchsorted(points, values, side="right") - 1
    above = np.minimum(reached + 1, len(points) - 1)
    off_by_rounding = np.isclose(
        _QUARTER * values, _QUARTER * points[above], rtol=_SUPPORT_RTOL, atol=_QUARTER * _SUPPORT_ATOL
    )
    return points[np.where(off_by_rounding, above, reached)]
