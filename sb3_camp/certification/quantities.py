"""
What else the episodes of a certificate carry: probabilities, quantiles, the mean of the worst episodes, and costs.

All of them follow from one lower confidence band on P(return >= c), so they hold together with the certified return, for all
radii, thresholds and shares at once, with confidence 1 - alpha: none of them costs alpha again.
:func:`sb3_camp.certification.return_band.return_band` computes the band once for all.

The worst that an attack of norm R can make of the band is P_R(return >= c) = Phi(Phi^-1(P(c)) - R / sigma) for all c together
(Kumar, Levine & Feizi, *Policy Smoothing for Provably Robust Reinforcement Learning*, ICLR 2022): the distortion operator of
Wang (*A Class of Distortion Operators for Pricing Financial and Insurance Risks*, Journal of Risk and Insurance, 2000) with
parameter R / sigma.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.certification.bounds import certified_return
from sb3_camp.certification.return_band import ratios_of, return_band
from sb3_camp.errors import InputError


def certified_probability(
    returns: ArrayLike,
    sigma: float,
    threshold: float,
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> np.ndarray:
    """
    Certified probability that an episode returns at least ``threshold``, at each radius.

        P_R(return >= c) >= Phi(Phi^-1(P(c)) - R / sigma),    c = ``threshold``

    with the lower confidence band P; between two returns that were seen, it has its value at the upper one. 1 for a threshold
    up to ``min_return``.

    An event that should be rare has an upper bound: P_R(cost > c) is at most 1 less the certified probability that -cost is at
    least -c, for all c together. For a yes or no, see :func:`certified_cost`.

    The arguments after ``radii`` are those of :func:`sb3_camp.certification.certified_return`.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param threshold: the return to reach; finite
    :param radii: l2 radii in the units of the observations, any shape
    :return: float64 array of the shape of radii, in [0, 1]
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, and for a threshold that is not finite
    """
    if not math.isfinite(threshold):
        raise InputError(f"threshold must be finite, got {threshold}")
    ratios = ratios_of(radii, sigma)
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    return np.array([band.reach_probability(threshold, ratio) for ratio in ratios.ravel()]).reshape(ratios.shape)


def certified_quantile(
    returns: ArrayLike,
    sigma: float,
    q: float,
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> np.ndarray:
    """
    The largest return that is certified to be reached with probability at least 1 - q, at each radius.

        max {c: Phi(Phi^-1(P(c)) - R / sigma) >= 1 - q}

    It is one of the returns that were seen, or ``min_return``, which every episode reaches.

    The arguments after ``radii`` are those of :func:`sb3_camp.certification.certified_return`.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param q: share of the episodes that may return less, in (0, 1); 0.05: reached in 95 % of them
    :param radii: l2 radii in the units of the observations, any shape
    :return: float64 array of the shape of radii
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, and for a q outside (0, 1)
    """
    if not 0 < q < 1:
        raise InputError(f"q, the share of the episodes that may return less, must lie strictly between 0 and 1, got {q}")
    ratios = ratios_of(radii, sigma)
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    return np.array([band.quantile(q, ratio) for ratio in ratios.ravel()]).reshape(ratios.shape)


def certified_cvar(
    returns: ArrayLike,
    sigma: float,
    q: float,
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> np.ndarray:
    """
    Certified mean return of the worst share q of the episodes, at each radius (conditional value at risk, expected shortfall).

    The mean of the quantiles below q (Acerbi & Tasche, *On the coherence of expected shortfall*, Journal of Banking & Finance,
    2002), of the worst distribution that an attack can make of the band:

        A + sum_i (r_i - r_{i-1}) * max(0, 1 - (1 - Phi(Phi^-1(P(r_i)) - R / sigma)) / q),    r_0 = A = ``min_return``

    For q = 1 it is the certified return; it falls with q.

    The arguments after ``radii`` are those of :func:`sb3_camp.certification.certified_return`.

    :param returns: returns of m independent episodes, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param q: share of the episodes, in (0, 1]; 0.05: the mean of the worst twentieth
    :param radii: l2 radii in the units of the observations, any shape
    :return: float64 array of the shape of radii
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, and for a q outside (0, 1]
    """
    if not 0 < q <= 1:
        raise InputError(f"q, the share of the worst episodes, must be above 0 and at most 1, got {q}")
    ratios = ratios_of(radii, sigma)
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    return np.array([band.cvar(q, ratio) for ratio in ratios.ravel()]).reshape(ratios.shape)


def certified_cost(
    costs: ArrayLike,
    sigma: float,
    radii: ArrayLike,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    max_cost: float = 1.0,
    support: ArrayLike | None = None,
) -> np.ndarray:
    """
    Certified upper bound on the expected cost of an episode, at each radius: for what should be small.

    No attack of norm R brings the expected cost above it: less the certified return of the negative costs. For an event that
    happens (1) or not (0), it bounds the probability of the event; ``method="clopper-pearson"`` with ``support=[0, 1]`` is
    then the best, as a single test.

    ``alpha`` and ``method`` are those of :func:`sb3_camp.certification.certified_return`.

    :param costs: costs of m independent episodes, shape (m,); also booleans
    :param sigma: standard deviation of the noise on the observations, in their units
    :param radii: l2 radii in the units of the observations, any shape
    :param max_cost: a cost that no episode can exceed, known beforehand (not the highest one seen)
    :param support: for ``"clopper-pearson"``: the costs that share alpha, fixed beforehand. A cost counts as the lowest of
        them that it does not exceed, or as ``max_cost``
    :return: float64 array of the shape of radii, at most ``max_cost``
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, and for a cost above ``max_cost``
    """
    if not math.isfinite(max_cost):
        raise InputError(f"max_cost, the highest cost an episode can have, must be finite, got {max_cost}")
    negative = -_numbers(costs, "costs")
    if negative.size and not negative.min() >= -max_cost:
        bad = int(np.flatnonzero(~(negative >= -max_cost))[0])
        raise InputError(
            f"costs[{bad}] is {-negative[bad]:g}, not at most max_cost={max_cost:g}: pass the highest possible cost"
        )
    points = None if support is None else -_numbers(support, "support")
    return -certified_return(negative, sigma, radii, alpha=alpha, method=method, min_return=-max_cost, support=points)


def _numbers(values: ArrayLike, name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
