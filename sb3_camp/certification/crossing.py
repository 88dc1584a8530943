"""
The probability that the order statistics of independent uniforms all stay above a boundary.

With the order statistics U_(1) <= ... <= U_(m) of m uniforms and bounds b_1 <= ... <= b_m, U_(k) >= b_k is the same as
M(b_k) >= m - k + 1 for the number M(t) of uniforms in (t, 1]. Seen from 1 downwards, M is a Poisson process of rate m under
the condition that it ends at m. So: carry the distribution of M from bound to bound, from the last to the first, take out
what breaks one, and condition at the end (Moscovich, Nadler & Spiegelman, 2016, for the direct steps).

The distance to the boundary, D = M(b_k) - (m - k + 1), changes by a Poisson number less 1 from one bound to the next. It falls
by at most 1, so a boundary is always broken at D = -1 exactly. Where the bounds are evenly spaced, this gives a whole block of
steps in closed form: from D, the boundary is broken for the first time after i steps with the probability
(D + 1) / i * P(N_i = i - D - 1), where N_i is a Poisson number of mean i * spacing (J. H. B. Kemperman, The Passage Problem
for a Stationary Markov Chain, 1961; M. Dwass, The total progeny in a branching process, 1969).
"""

import math
from functools import cache

import numpy as np
from scipy import fft
from scipy.special import gammaln, xlogy

# Between two knots, relative to their distance from the nearer end. It costs 0.04 % of the level of the Berk-Jones band at
# alpha = 0.05.
_DISTANCE = 0.05
# So many steps can be made at once; fewer are made one by one.
_BLOCK_SIZES = (1024, 512, 256, 128, 64, 32)
# How many standard deviations of a Poisson number are kept, plus some for a small mean, whose tail is heavier.
_SPREAD, _SPREAD_OF_FEW = 9, 12
# The same within a block, where the mean distance to the boundary may change by one of them: what is left out there is a part
# of what breaks the boundary.
_SPREAD_OF_BLOCK, _DRIFT_OF_BLOCK = 8, 1
# More than the rounding error that one step, and one block by Fourier transform, can add to the probability.
_ROUNDING_OF_STEP, _ROUNDING_OF_BLOCK = 1e-14, 1e-13


def knots(m: int) -> np.ndarray:
    """
    :param m: number of uniforms
    :return: counts from 1 to m, int, ascending: all near both ends, then ever fewer, in proportion to the distance from the
        ends; some 300 of a million
    """
    lower, step = [1], 1
    while lower[-1] + step <= m // 2:
        lower.append(lower[-1] + step)
        step = max(1, int(_DISTANCE * lower[-1] * (m - lower[-1]) / m))
        step -= step % _BLOCK_SIZES[-1] if step > _BLOCK_SIZES[-1] else 0  # single steps of a rest would cost most
    return np.unique([*lower, *(m + 1 - np.array(lower))])


def holding_probability(m: int, knots: np.ndarray, bounds: np.ndarray) -> float:
    """
    P(U_(k) >= b_k for all k), where b_k is linear in k from knot to knot.

    States too unlikely to matter are dropped; that, and the allowance for rounding, make the result too small if anything.

    :param m: number of uniforms, at least 2
    :param knots: counts k, int, ascending from 1 to m
    :param bounds: the bound of each knot, ascending, in (0, 1)
    :return: the probability, up to 1e-10 below it for any usual m; may be slightly negative where it is next to 0
    """
    ends = np.append(m * bounds, m)  # in units of the mean distance of two uniforms; nothing is left of (1, 1]
    counts = np.append(knots, m + 1)
    # How far below the boundary the number of uniforms in [0, b_k] may lie; more is too unlikely, whatever was broken. The
    # constant covers the ends, where a binomial number is not like a normal one.
    variances = ends * (1 - ends / m)
    middle = (ends[:-1] < m / 2) & (m / 2 < ends[1:])
    variances = np.where(middle, m / 4, np.maximum(variances[:-1], variances[1:]))
    distances = np.maximum(counts[:-1] - ends[:-1], counts[1:] - ends[1:])
    widths = np.minimum(distances + 8 * np.sqrt(variances) + 20, counts[1:]).astype(int)
    n_steps = np.diff(counts)
    spacings = np.diff(ends) / n_steps
    kernels, kernel_sizes = _poisson(spacings)
    state = np.ones(1)  # state[D] = P(M = m - k + 1 + D, and no bound from k to m broken)
    error = 0.0
    for low in reversed(range(len(knots))):
        width, missing = int(widths[low]), int(n_steps[low])
        for block_size in _block_sizes(m, float(spacings[low])):
            n_blocks, missing = divmod(missing, block_size)
            if n_blocks:
                block = _Block(block_size, float(spacings[low]))
                for _ in range(n_blocks):
                    state = block.advance(state, width)
                error += n_blocks * _ROUNDING_OF_BLOCK
        kernel = kernels[low, : kernel_sizes[low]]
        for _ in range(missing):
            state = np.convolve(state, kernel)[1 : 1 + width]
        error += missing * _ROUNDING_OF_STEP
    # What is left of the condition: no uniform in [0, b_1], and m of them in all.
    return float(state[0]) * math.exp(-float(ends[0]) - _log_poisson_at_mean(m)) - error


def _block_sizes(m: int, spacing: float) -> list[int]:
    """Those whose closed form is accurate, and no larger ones than cost least."""
    return [n for n in _BLOCK_SIZES if n**2 <= m / 2 and math.sqrt(n) * abs(spacing - 1) <= _DRIFT_OF_BLOCK]


def _log_poisson_at_mean(m: int) -> float:
    """The logarithm of P(N = m) of a Poisson number of mean m."""
    if m < 100:
        return m * math.log(m) - m - math.lgamma(m + 1)
    return -0.5 * math.log(2 * math.pi * m) - 1 / (12 * m) + 1 / (360 * m**3) - 1 / (1260 * m**5)


class _Block:
    """
    :param n: number of steps
    :param spacing: mean of the Poisson number of each
    """

    def __init__(self, n: int, spacing: float) -> None:
        self._n = n
        # P(N_i = i + d) for another spacing than 1 has a factor that depends on i and one that depends on d.
        steps = np.arange(1, n)
        self._of_step = np.exp(steps * (math.log(spacing) + 1 - spacing))
        self._of_distance = spacing ** np.arange(1, _near(n) + 1)
        self._kernel = _poisson(np.array([n * spacing]))[0][0]
        self._size = 0

    def advance(self, state: np.ndarray, width: int) -> np.ndarray:
        """The state n steps later, up to D = width - 1."""
        length = len(state) + len(self._kernel) - 1
        if not length <= self._size <= 1.3 * length:
            self._size = fft.next_fast_len(length, real=True)
            self._transformed = fft.rfft(self._kernel, self._size)
        free = fft.irfft(fft.rfft(state, self._size) * self._transformed, self._size)[self._n : min(length, self._n + width)]
        first_break, afterwards = _unit_block(self._n)
        near = state[: len(self._of_distance)]
        broken = (first_break[:, : len(near)] @ (near / self._of_distance[: len(near)])) * self._of_step
        broken = (afterwards @ (broken * self._of_step[::-1])) * self._of_distance
        size = min(len(broken), len(free))
        free[:size] -= broken[:size]
        return free


def _near(n: int) -> int:
    """Farther from the boundary than this, it is not broken within n steps."""
    return int(_SPREAD_OF_BLOCK * math.sqrt(n) + _SPREAD_OF_FEW)


@cache
def _unit_block(n: int) -> tuple[np.ndarray, np.ndarray]:
    """
    For n steps of spacing 1: the chance to break the boundary for the first time after i steps from D, shape (i, D); and the
    chance to be at D after n steps from D = -1 after i, shape (D, i). i is from 1 to n - 1, D from 0 on. A state that breaks
    the boundary with step n needs none: it ends at D = -1, which is left out.
    """
    steps, distances = np.arange(1, n)[:, np.newaxis], np.arange(1, _near(n) + 1)
    at_steps = np.exp(steps * np.log(steps) - steps - gammaln(steps + 1))  # P(N_i = i)
    below = at_steps * np.cumprod(np.maximum(0, steps - distances + 1) / steps, axis=1)  # P(N_i = i - d)
    above = at_steps * np.cumprod(steps / (steps + distances), axis=1)  # P(N_i = i + d)
    return distances / steps * below, np.ascontiguousarray(above[::-1].T)


def _poisson(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(N = 0), P(N = 1), ... of Poisson numbers N, a row for each mean, and how many of them matter."""
    sizes = (means + _SPREAD * np.sqrt(means) + _SPREAD_OF_FEW).astype(int)
    k, means = np.arange(sizes.max()), means[:, np.newaxis]
    probability = np.exp(xlogy(k, means) - means - gammaln(k + 1))
    # Takes out the rounding error of the exponent, which all have in common
    return probability / probability.sum(axis=1, keepdims=True), sizes
