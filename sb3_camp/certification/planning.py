"""How many episodes a certificate needs, and looks at it that were planned beforehand."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sb3_camp.certification.return_band import ReturnBand, ratios_of, threshold_counts
from sb3_camp.errors import InputError

MOST_EPISODES = 10_000_000
# Numbers of episodes that are this close, relatively, are not told apart.
_PRECISION = 0.01


class Plan(NamedTuple):
    """
    What episodes with the distribution of the pilot's would certify at a radius.

    :param n_episodes: how many certify the target (to about 2 %), None where no number up to the limit does
    :param ceiling: what ever more of them come near, but do not reach
    :param certified: what the pilot itself certifies
    """

    n_episodes: int | None
    ceiling: float
    certified: float


class Look(NamedTuple):
    """
    :param n_episodes: number of episodes played by then, those of earlier looks included
    :param alpha: what to certify them at
    """

    n_episodes: int
    alpha: float


def plan_episodes(
    returns: ArrayLike,
    sigma: float,
    target: float,
    radius: float,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
    most: int = MOST_EPISODES,
) -> Plan:
    """
    How many episodes would certify ``target`` at ``radius``, if their returns were distributed as those of a pilot.

    Of m episodes, a share as large as the pilot's is taken to return at least c, for each c (rounded down). The ceiling is the
    certificate of the pilot's shares themselves, A + sum_i (r_i - r_{i-1}) * Phi(Phi^-1(n_i / n) - radius / sigma).

    It is a forecast, not a bound: the pilot is a sample, and so are the episodes to come. Of evaluations of exactly this size
    some three in four certify the target, of those a third larger nearly all (if the pilot is large; measured on a few
    distributions). The episodes must be fresh: the pilot's may be among them only if looks were planned
    (:func:`planned_looks`). ``alpha``, ``method``, ``min_return`` and ``support`` are those of
    :func:`sb3_camp.certification.certified_return` for the evaluation that is planned.

    :param returns: returns of the independent episodes of the pilot, shape (n,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param target: the expected return to certify
    :param radius: at this l2 radius, in the units of the observations
    :param most: the largest number of episodes to think of
    :return: the plan
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, for a target that is not finite or not above
        ``min_return``, or ``most`` below 1
    """
    if not (math.isfinite(target) and target > min_return):
        raise InputError(f"target must be finite and above min_return={min_return}, got {target}")
    if most < 1:
        raise InputError(f"most, the largest number of episodes, must be at least 1, got {most}")
    ratio = float(ratios_of(radius, sigma))
    if math.isinf(ratio):
        raise InputError(f"nothing can be certified at the radius {radius} with sigma {sigma}")
    counts = threshold_counts(returns, method=method, min_return=min_return, support=support)

    def forecast(m: int) -> float:
        played = counts._replace(at_least=counts.at_least * m // counts.m, m=m)
        return ReturnBand.of_counts(played, alpha=alpha, method=method, forecast=True).expected_return(ratio)

    certified = ReturnBand.of_counts(counts, alpha=alpha, method=method).expected_return(ratio)
    ceiling = ReturnBand(min_return, counts.thresholds, counts.at_least / counts.m).expected_return(ratio)
    if ceiling <= target or forecast(most) < target:
        return Plan(None, ceiling, certified)
    low, high = 0, 1
    while high < most and forecast(high) < target:
        low, high = high, min(2 * high, most)
    while high - low > max(1, _PRECISION * high):
        middle = (low + high) // 2
        low, high = (low, middle) if forecast(middle) >= target else (middle, high)
    return Plan(high, ceiling, certified)


def planned_looks(first: int, most: int, n_looks: int, alpha: float = 0.05) -> list[Look]:
    """
    When to look at an evaluation that may stop early, and at which alpha, so that what is certified at all looks holds
    together.

    Certify at each look all the episodes played by then, with its alpha, and stop whenever you like: with confidence 1 -
    alpha, the certificates of all looks hold (union bound), also that of the look at which it was stopped, whatever made it
    stop. The looks must be fixed before the first episode. Each has the same share of alpha; the numbers of episodes rise by a
    constant factor.

    :param first: number of episodes at the first look, at least 1
    :param most: number of episodes at the last
    :param n_looks: number of looks, at least 1; 1 for the last alone
    :param alpha: any of the certificates is wrong with at most this probability, in (0, 1)
    :return: the looks, in their order
    :raises InputError: for an alpha outside (0, 1), or if the looks cannot all be at different numbers of episodes
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    if not (n_looks >= 1 and 1 <= first <= most and n_looks <= most - first + 1):
        raise InputError(
            f"{n_looks} looks from {first} to {most} episodes are not possible: each needs more than the one before"
        )
    if n_looks == 1:
        return [Look(most, alpha)]
    numbers = np.round(np.geomspace(first, most, n_looks)).astype(int)
    # Apart by at least 1, also where the factor is next to 1
    steps = np.arange(n_looks)
    numbers = np.minimum(np.maximum.accumulate(numbers - steps) + steps, most - steps[::-1])
    return [Look(int(number), alpha / n_looks) for number in numbers]
