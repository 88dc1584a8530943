"""The confidence bands by name: those of this package, and whatever is added to them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.errors import InputError


@dataclass(frozen=True)
class Band:
    """
    A lower confidence band on P(return >= C), as a function of how many of m independent episodes returned at least C.

    :param function: ``function(counts, m, alpha)``: for integer ``counts`` from 0 to ``m``, shape (k,), lower bounds in
        [0, 1), shape (k,), which depend on nothing else
    :param pointwise: Whether a bound of risk alpha holds for one threshold alone. The user must then declare the thresholds
        before the episodes are played (``support``); each is given an equal share of alpha. Otherwise the bounds hold for all
        thresholds together, whatever they are
    :param forecast: The same about as well, but fast for any m: for the planning of evaluations, never for a certificate.
        None for ``function``
    """

    function: Callable[[np.ndarray, int, float], ArrayLike]
    pointwise: bool = False
    forecast: Callable[[np.ndarray, int, float], ArrayLike] | None = None


BANDS: dict[str, Band] = {}
"""The bands by name"""


def register_band(name: str, band: Band) -> None:
    """
    Add a band: for ``certified_return(method=name)``, ``certify --method name`` and whatever else asks for a method.

    What it gives is checked wherever it is used, for that number of episodes and alpha: see
    :func:`sb3_camp.certification.band_checks.checked_bounds`.

    :param name: Its name, which the certificate states
    :param band: The band
    :raises InputError: if another band has this name
    """
    if BANDS.get(name, band) != band:
        raise InputError(f"there is a band {name!r} already: choose another name")
    BANDS[name] = band


def band_of(method: str) -> Band:
    """
    :param method: The name of a band
    :return: the band
    :raises InputError: if there is none of this name
    """
    if method not in BANDS:
        raise InputError(
            f"unknown method {method!r}: choose one of {', '.join(BANDS)}, or install the package that registers this band"
        )
    return BANDS[method]
