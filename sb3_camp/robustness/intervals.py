"""How well a mean return is known."""

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
METHOD = "bootstrap BCa, 9999 resamples"
"""What :func:`mean_interval` computes, in the words of ``attack.json``."""

_N_RESAMPLES = 9999
_RESAMPLED_AT_ONCE = 1_000_000


def mean_interval(returns: np.ndarray) -> tuple[float, float] | None:
    """
    A confidence interval for the expected return at the level :data:`CONFIDENCE`.

    Returns are skewed and have bounds that nobody declared, so it is the bias-corrected and accelerated bootstrap interval
    (Efron, "Better Bootstrap Confidence Intervals", 1987): not symmetric, and never beyond the returns that were seen. It is
    approximate, good for some tens of episodes and more. The same returns give the same interval.

    :param returns: Returns of independent episodes, shape (n,)
    :return: lower and upper end; both are the return itself where all are the same; None for a single episode
    """
    if returns.size < 2:
        return None
    if np.ptp(returns) == 0:
        return float(returns.mean()), float(returns.mean())
    interval = stats.bootstrap(
        (returns,),
        np.mean,
        n_resamples=_N_RESAMPLES,
        batch=max(1, _RESAMPLED_AT_ONCE // returns.size),
        confidence_level=CONFIDENCE,
        method="BCa",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)
