"""Sums of numbers in double precision, without the rounding errors of the additions."""

import math
from typing import TypeVar

import numpy as np

_Number = TypeVar("_Number", float, np.ndarray)

# Half a unit in the last place: how far a number in double precision may be from the decimal that was meant.
_HALF_ULP = 2.0**-53
_LARGEST_ROUNDING = 1e-12


def exact_sum(a: _Number, b: _Number) -> tuple[_Number, _Number]:
    """
    :param a: A number or an array of them
    :param b: Another
    :return: their sum in double precision, and what it lacks of the exact one (Knuth's TwoSum); nan if the sum is not finite
    """
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def rounded_sum(total: float, lost: float, size: float) -> float:
    """
    The sum of numbers without the rounding errors of the additions, however much of them cancels.

    It is rounded to 12 digits of ``size`` where the numbers, each of them off by half a unit in its last place, can mean that
    decimal: three times 0.1 is 0.3, and a lowest possible sum is not missed by 1e-16. This changes it by at most 1e-12 (of
    itself, if it is above 1), so no certificate is too high by more.

    :param total: Their sum in double precision
    :param lost: What it lacks of the exact one, see :func:`exact_sum`
    :param size: Sum of their absolute values
    :return: the sum
    """
    if not math.isfinite(total) or not 0 < size < math.inf:
        return total
    total += lost
    meant = round(total, 12 - math.ceil(math.log10(size)))
    off = min(2 * _HALF_ULP * size, _LARGEST_ROUNDING * max(1.0, abs(total)))
    return meant if abs(meant - total) <= off else total
