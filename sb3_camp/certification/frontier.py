"""The best of several evaluations at each radius: the noise of a deployment, like its checkpoint, is a choice."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.certification.bounds import certified_return
from sb3_camp.errors import InputError


class Frontier(NamedTuple):
    """
    Certified returns of K evaluations that hold together, and the best of them at each radius.

    :param curves: certified return of each evaluation at each radius, float64, shape (K, n_radii)
    :param certified_return: the highest of each radius, float64, shape (n_radii,)
    :param best: the evaluation that has it (the first of equals), int64, shape (n_radii,)
    """

    curves: np.ndarray
    certified_return: np.ndarray
    best: np.ndarray


def certified_frontier(
    returns: Sequence[ArrayLike],
    sigmas: Sequence[float],
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> Frontier:
    """
    Certify K evaluations together, and find the best of them at each radius.

    Each is certified at alpha / K, so with confidence 1 - alpha all K curves hold at once (union bound), whatever the
    evaluations have in common; hence so does the best of them, picked for any radius after the fact. What was evaluated
    (sigmas, checkpoints, seeds) must have been listed before the episodes were played, and all that was listed must be here.

    The radii are in the units of the observations, the same for all, so a smaller sigma stands for more sigmas of radius.

    :param returns: returns of independent episodes of each evaluation, K arrays of shape (m_k,)
    :param sigmas: standard deviation of the noise of each, in the units of the observations
    :param radii: l2 radii in these units, shape (n_radii,)
    :param alpha: any of the curves is wrong with at most this probability, in (0, 1)
    :param method: see :func:`sb3_camp.certification.certified_return`
    :param min_return: a return that no episode of any evaluation can fall below
    :param support: see :func:`sb3_camp.certification.certified_return`
    :return: the curves and the best of them
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, for no evaluation, not one sigma for each, or radii
        that are not one-dimensional
    """
    if not len(returns) or len(returns) != len(sigmas):
        raise InputError(
            f"a frontier needs at least one evaluation and one sigma for each, got {len(returns)} and {len(sigmas)}"
        )
    if np.ndim(radii) != 1:
        raise InputError(f"radii must be one-dimensional, got the shape {np.shape(radii)}")
    share = alpha / len(returns)
    curves = np.array(
        [
            certified_return(played, sigma, radii, alpha=share, method=method, min_return=min_return, support=support)
            for played, sigma in zip(returns, sigmas, strict=True)
        ]
    )
    best = curves.argmax(axis=0)
    return Frontier(curves, np.take_along_axis(curves, best[np.newaxis], axis=0)[0], best)
