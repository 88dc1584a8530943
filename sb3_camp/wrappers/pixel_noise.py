"""Gaussian noise for pixels, rounded to whole numbers: drawn as such, which takes less time than drawing normals."""

import math
from functools import lru_cache

import numpy as np

# A pixel moved so far is black or white, whatever it was
_LARGEST = 255
_CELLS = 2**16
_SIGN = _CELLS // 2
_WITHOUT_SIGN = _SIGN - 1
_UNDECIDED = np.iinfo(np.int16).max


def rounded_noise(sigma: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """
    Independent draws of N(0, sigma^2), rounded to the nearest whole number and clipped to -255 to 255.

    Added to a whole pixel value, and clipped to 0 to 255, this is what rounding and clipping the pixel with the noise gives:
    the rounding moves with a whole number. The draws invert the distribution function in double precision, tails included:
    the sign and the first 15 binary digits of the probability select the value from a table, and where they leave two values
    or more open (about one draw in 600 at sigma 12.75), 53 further digits decide.

    :param sigma: Standard deviation in pixel values, finite and >= 0
    :param shape: Shape of the result
    :param rng: Generator to draw from
    :return: int16 array of that shape
    """
    tails, table = _tails_and_table(sigma)
    cells = rng.integers(0, _CELLS, math.prod(shape), dtype=np.uint16)
    noise = table.take(cells)
    (open_draws,) = (noise == _UNDECIDED).nonzero()
    if open_draws.size:
        cell = cells[open_draws]
        # In (0, 1] beyond the start of the cell: at 0 the tail would be infinite
        probability = ((cell & _WITHOUT_SIGN) + 1 - rng.random(open_draws.size)) / _CELLS
        size = _magnitude(tails, probability)
        noise[open_draws] = np.negative(size, out=size, where=cell >= _SIGN)
    return noise.reshape(shape)


def _magnitude(tails: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """
    :param tails: As below
    :param probability: Of as much noise or more, in (0, 0.5]
    :return: the rounded noise, 0 to 255
    """
    return _LARGEST - tails.searchsorted(probability)


@lru_cache(maxsize=16)
def _tails_and_table(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """
    :return: probabilities that the rounded noise is at least 255, 254, ... 1; and for each of the 2^16 cells the rounded
        noise, or a mark where it is not the same in all of the cell
    """
    scale = math.sqrt(2) * sigma
    # erfc, as a difference from 1 would lose the digits of the tails
    tails = np.array([0.5 * math.erfc((k - 0.5) / scale) if scale else 0.0 for k in range(_LARGEST, 0, -1)])
    ends = np.arange(_SIGN + 1) / _CELLS
    least = _magnitude(tails, ends[1:])
    most = _LARGEST - tails.searchsorted(ends[:-1], side="right")
    half = np.where(least == most, least, _UNDECIDED)
    table = np.concatenate([half, np.where(half == _UNDECIDED, half, -half)]).astype(np.int16)
    for shared in (tails, table):
        shared.flags.writeable = False
    return tails, table
