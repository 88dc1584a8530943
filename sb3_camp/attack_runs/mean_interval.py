"""How well a mean return is known."""

import math

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
METHOD = "bootstrap BCa, 9999 resamples; Clopper-Pearson where there are two different returns, none where all are the same"
"""What :func:`mean_interval` computes, in the words of ``attack.json``."""

_N_RESAMPLES = 9999
_RESAMPLED_AT_ONCE = 1_000_000


def mean_return(returns: np.ndarray) -> float:
    """
    :param returns: Returns of episodes, shape (n,), n >= 1
    :return: their mean, never beyond them by rounding, so that it is the return itself where all are the same
    """
    lowest, highest = float(returns.min()), float(returns.max())
    unit = max(abs(lowest), abs(highest)) or 1.0  # so that the sum does not overflow
    return min(max(unit * (math.fsum(returns / unit) / returns.size), lowest), highest)


def mean_interval(returns: np.ndarray) -> tuple[float, float] | None:
    """
    A confidence interval for the expected return at the level :data:`CONFIDENCE`.

    Returns are skewed and have bounds that nobody declared, so it is the bias-corrected and accelerated bootstrap interval
    (Efron, "Better Bootstrap Confidence Intervals", 1987): not symmetric, and never beyond the returns that were seen. It is
    approximate, good for some tens of episodes and more. Where only two different returns were seen, such as 0 and 1, it is
    the exact interval for how often the higher one comes (Clopper and Pearson, 1934). Where all returns are the same, they
    tell nothing about how far a rare other one could move the mean, and there is none. The same returns give the same
    interval.

    :param returns: Returns of independent episodes, shape (n,)
    :return: lower and upper end; None where all returns are the same, or for a single episode
    """
    lowest, highest = float(returns.min()), float(returns.max())
    if lowest == highest:
        return None
    n_highest = int((returns == highest).sum())
    if n_highest + int((returns == lowest).sum()) == returns.size:
        share = stats.binomtest(n_highest, returns.size).proportion_ci(CONFIDENCE, method="exact")
        return _between(lowest, highest, share.low), _between(lowest, highest, share.high)
    # The interval does not depend on unit and origin, but its sums of cubes overflow, or lose their digits, in some
    largest = max(abs(lowest), abs(highest))
    origin = lowest / largest
    unit = highest / largest - origin
    interval = stats.bootstrap(
        ((returns / largest - origin) / unit,),
        np.mean,
        n_resamples=_N_RESAMPLES,
        batch=max(1, _RESAMPLED_AT_ONCE // returns.size),
        confidence_level=CONFIDENCE,
        method="BCa",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    low, high = ((float(end) * unit + origin) * largest for end in (interval.low, interval.high))
    return max(low, lowest), min(high, highest)


def _between(lowest: float, highest: float, share: float) -> float:
    return min(max((1 - share) * lowest + share * highest, lowest), highest)
