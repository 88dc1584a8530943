"""The probability that order statistics of uniforms stay above a boundary, by two recursions that the package does not use."""

import numpy as np
from scipy import stats


def failure_by_last_crossing(bounds: np.ndarray) -> float:
    """
    P(some U_(k) < bounds[k - 1]) by splitting at the last k that fails, in O(m^2).

    There U_(k) < b_k <= U_(k+1), so exactly k points lie in [0, b_k] and the other m - k are uniform on the rest. With
    safe[j] = P(no failure after j, given exactly j points in [0, b_j]):
    1 - safe[j] = sum over k > j of P(exactly k points in [0, b_k], given those j) * safe[k].
    """
    m = len(bounds)
    bounds = np.concatenate(([0.0], bounds))
    safe = np.ones(m + 1)
    for j in range(m - 1, -1, -1):
        later = np.arange(j + 1, m + 1)
        share = (bounds[later] - bounds[j]) / (1 - bounds[j])
        safe[j] = 1 - stats.binom.pmf(later - j, m - j, share) @ safe[later]
    return 1 - safe[0]


def holding_step_by_step(m: int, bounds: np.ndarray) -> float:
    """From the first bound to the last, the number of uniforms below it, as a Poisson process with a condition at the end."""
    ends = m * bounds
    state = np.ones(1)  # from 0 uniforms on
    for k, step in enumerate(np.diff(ends, prepend=0.0), 1):
        state = np.convolve(state, stats.poisson.pmf(np.arange(30), step))[:k]
    left = m - np.arange(len(state))
    return float(state @ np.exp(stats.poisson.logpmf(left, m - ends[-1]) - stats.poisson.logpmf(m, m)))


def beta_quantiles(m: int, level: float, counts: np.ndarray | None = None) -> np.ndarray:
    k = np.arange(1, m + 1) if counts is None else counts
    return stats.beta.ppf(level, k, m - k + 1)
