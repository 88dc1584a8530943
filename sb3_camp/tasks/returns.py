"""What is known beforehand of the returns of tasks, as a certificate needs it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sb3_camp.errors import InputError
from sb3_camp.tasks.registry import TASKS


class _Lowest(NamedTuple):
    """
    :param value: A return that no episode can fall below
    :param harmless: Settings that do not change it
    """

    value: float
    harmless: frozenset[str]


_KNOWN: dict[str, _Lowest] = {}


def register_lowest_return(env_id: str, value: float, harmless: Sequence[str] = ("render_mode",)) -> None:
    """
    Tell ``certify`` what it would otherwise ask for with ``--min-return``, of an environment that is no task.

    :param env_id: Id of an environment, as Gymnasium registers it
    :param value: A return that no episode can fall below, whatever the actions: the lowest reward of a step (or 0) times the
        most steps of an episode. A certificate calls it known, and is wrong where it is too high
    :param harmless: Settings that do not change it; with any other, it counts as unknown
    :raises InputError: if the value is not finite, or another one is known of the environment
    """
    if not math.isfinite(value):
        raise InputError(f"the lowest return of {env_id} must be finite, not {value}")
    known = _Lowest(float(value), frozenset(harmless))
    if env_id in TASKS or _KNOWN.get(env_id, known) != known:
        raise InputError(f"the lowest return of {env_id} is known already")
    _KNOWN[env_id] = known


# Of Gymnasium's environments, by their documentation and source (gymnasium/envs/classic_control, limits in envs/__init__).
# Settings of other versions of Gymnasium may change them
# 1 for each step (with sutton_barto_reward, -1 for the last)
register_lowest_return("CartPole-v0", 0.0)
register_lowest_return("CartPole-v1", 0.0)
# -(theta^2 + 0.1 theta_dt^2 + 0.001 torque^2) with |theta| <= pi, |theta_dt| <= 8, |torque| <= 2: -16.2736044, but part of it
# is computed in single precision; 200 steps
register_lowest_return("Pendulum-v1", -16.27361 * 200, ("render_mode", "g"))
# -0.1 force^2 for each of 999 steps, for forces in the action space, which all policies of SB3 keep to
register_lowest_return("MountainCarContinuous-v0", -0.1000001 * 999, ("render_mode", "goal_velocity"))
# -1 for each of 200 steps
register_lowest_return("MountainCar-v0", -200.0, ("render_mode", "goal_velocity"))
# -1 for each of 500 steps, 0 for the one that reaches the goal
register_lowest_return("Acrobot-v1", -500.0)

_GYMNASIUMS = frozenset(_KNOWN)


def lowest_return(env_id: str, env_kwargs: Mapping[str, Any]) -> float | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :param env_kwargs: Settings that were given
    :return: the lowest return that an episode can have, whatever the actions; None if it is not known of the environment, or
        if settings were given that may change it
    """
    if env_id in TASKS:
        task = TASKS[env_id]
        return None if any(name in env_kwargs for name in task.lowest_return_depends_on) else task.lowest_return
    if env_id not in _KNOWN:
        return None
    value, harmless = _KNOWN[env_id]
    return value if set(env_kwargs) <= harmless else None


def is_gymnasiums(env_id: str) -> bool:
    """
    :param env_id: Id of an environment
    :return: whether it is one of the ids of Gymnasium whose lowest return is known here
    """
    return env_id in _GYMNASIUMS
