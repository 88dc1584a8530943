"""Threat models: in which norm perturbations are bounded, and whether at each step or over a whole episode."""

from typing import Literal, get_args

Threat = Literal["episode-l2", "step-l2", "step-linf"]
"""
``episode-l2``: the square root of the sum of squares of all that is added in an episode is at most the budget. This is what
certificates speak of. ``step-l2`` and ``step-linf``: the norm of what is added to each single observation is at most epsilon.
"""

THREATS: tuple[Threat, ...] = get_args(Threat)

_BOUND = {
    "episode-l2": "l2 norm of the attack on an episode",
    "step-l2": "l2 norm of the attack on each observation",
    "step-linf": "l-infinity norm of the attack on each observation",
}


def is_per_step(threat: str) -> bool:
    """
    :param threat: A threat model
    :return: whether it bounds each observation, and nothing else
    """
    return threat != "episode-l2"


def size_name(threat: str) -> str:
    """
    :param threat: A threat model
    :return: what its number is called
    """
    return "epsilon" if is_per_step(threat) else "budget"


def bound_text(threat: str) -> str:
    """
    :param threat: A threat model
    :return: what is bounded, in words
    """
    return _BOUND[threat]
