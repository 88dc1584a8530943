"""
Whether a band that was added to those of this package holds, for the number of episodes and the alpha that it is used with.

As a band sees the returns through counts only, that can be computed: no simulation, and no trust in whoever wrote it.
"""

from functools import lru_cache

import numpy as np
from scipy.special import betainc

from sb3_camp.certification.band_registry import Band
from sb3_camp.certification.crossing import holding_probability
from sb3_camp.errors import InputError

# Relative: more than the rounding error of the probabilities, much less than any two alphas that somebody would tell apart
_TOLERANCE = 1e-6
# It takes half a second for 10,000 and half a minute for these
_MOST_EPISODES = 100_000


@lru_cache(maxsize=4)
def checked_bounds(name: str, band: Band, m: int, alpha: float, n_thresholds: int | None) -> np.ndarray:
    """
    The bounds of a band for all counts from 0 to m, after these checks:

    - they are numbers in [0, 1) that never fall as the count rises, none above the share that was seen, count / m, and none
      above 0 for a count of 0;
    - they hold with probability at least 1 - alpha. For a band on all thresholds that is the probability that the order
      statistics U_(k) of m uniforms are at least the bound of count k, for all k together (a return with ties only holds more
      often); for a pointwise band, P(Binomial(m, bound of k) >= k) <= alpha / n_thresholds for each k.

    :param name: Its name, for the message
    :param band: The band
    :param m: number of independent episodes, at least 1
    :param alpha: in (0, 1)
    :param n_thresholds: number of thresholds that share alpha, for a pointwise band
    :return: float64, shape (m + 1,), not to be written to
    :raises InputError: if it fails one of them, or for so many episodes that this cannot be computed
    """
    if m > _MOST_EPISODES:
        raise InputError(
            f"{_prefix(name)}that it holds cannot be computed for more than {_MOST_EPISODES:,} episodes, got {m:,}"
        )
    level = alpha if n_thresholds is None else alpha / n_thresholds
    counts = np.arange(m + 1)
    try:
        bounds = np.array(band.function(counts, m, level), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{_prefix(name)}{error}") from error
    _check_shape(name, bounds, m)
    failure = _largest_single_failure(bounds) if band.pointwise else _joint_failure(bounds)
    if not failure <= level * (1 + _TOLERANCE):
        raise InputError(
            f"{_prefix(name)}its bounds are wrong with probability {failure:.6g}, with {m} episodes and alpha {level:g}"
        )
    bounds.flags.writeable = False
    return bounds


def _prefix(name: str) -> str:
    return f"the band {name!r} cannot be used: "


def _check_shape(name: str, bounds: np.ndarray, m: int) -> None:
    if bounds.shape != (m + 1,):
        raise InputError(f"{_prefix(name)}for {m + 1} counts it gives bounds of shape {bounds.shape}")
    shares = np.arange(m + 1) / m
    for wrong, why in (
        (~((bounds >= 0) & (bounds < 1)), "not a probability below 1"),
        (np.diff(bounds, prepend=0.0) < 0, "below that of a smaller count"),
        (bounds > shares, "above the share of the episodes that was seen"),
    ):
        if wrong.any():
            count = int(wrong.argmax())
            raise InputError(f"{_prefix(name)}its bound for {count} of {m} episodes is {bounds[count]:g}, which is {why}")


def _largest_single_failure(bounds: np.ndarray) -> float:
    """The largest P(Binomial(m, bound of k) >= k), which is what the bound of one threshold can fail with."""
    m = len(bounds) - 1
    counts = np.arange(1, m + 1)
    return float(betainc(counts, m - counts + 1, bounds[1:]).max())


def _joint_failure(bounds: np.ndarray) -> float:
    """The probability that the order statistics of uniforms are below any of the bounds."""
    m = len(bounds) - 1
    if m == 1:
        return float(bounds[1])
    return 1 - holding_probability(m, np.arange(1, m + 1), bounds[1:])
