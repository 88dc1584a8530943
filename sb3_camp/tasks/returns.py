"""What is known beforehand of the returns of tasks, as a certificate needs it."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

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


class _Episode(NamedTuple):
    """
    :param most_steps: How many steps Gymnasium registers
    :param lowest_reward: A reward that no step can fall below, or 0
    :param harmless: Settings that change neither
    """

    most_steps: int
    lowest_reward: float
    harmless: Sequence[str] = ("render_mode",)


# Of Gymnasium's environments, by their documentation and source (gymnasium/envs/classic_control, limits in envs/__init__).
# Settings of other versions of Gymnasium may change them
_GYMNASIUMS = {
    # 1 for each step (with sutton_barto_reward, -1 for the last)
    "CartPole-v0": _Episode(200, 0.0),
    "CartPole-v1": _Episode(500, 0.0),
    # -(theta^2 + 0.1 theta_dt^2 + 0.001 torque^2) with |theta| <= pi, |theta_dt| <= 8, |torque| <= 2: -16.2736044, but part of
    # it is computed in single precision
    "Pendulum-v1": _Episode(200, -16.27361, ("render_mode", "g")),
    # -0.1 force^2, for forces in the action space, which all policies of SB3 keep to
    "MountainCarContinuous-v0": _Episode(999, -0.1000001, ("render_mode", "goal_velocity")),
    "MountainCar-v0": _Episode(200, -1.0, ("render_mode", "goal_velocity")),
    # 0 for the step that reaches the goal
    "Acrobot-v1": _Episode(500, -1.0),
}
for _id, _episode in _GYMNASIUMS.items():
    register_lowest_return(_id, _episode.most_steps * _episode.lowest_reward, _episode.harmless)


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


def registered_otherwise(env_id: str) -> str | None:
    """
    Whoever registers an id again, with more steps or another reward, has another environment, whose lowest return is not the
    one that is known of the id.

    :param env_id: Id of an environment, as Gymnasium registers it
    :return: what is registered under it, as JSON, if a lowest return is known of the task of this package or the environment
        of Gymnasium that has this id, but something else is registered; None otherwise
    """
    spec = gym.registry.get(env_id)
    if spec is None or env_id not in TASKS.keys() | _GYMNASIUMS.keys():
        return None
    expected = TASKS[env_id].registration if env_id in TASKS else {}
    is_own = spec.additional_wrappers == tuple(expected.get("additional_wrappers", ()))
    if expected:
        smoothed = {"sigma": None}
        is_own &= spec.entry_point == expected["entry_point"] and spec.max_episode_steps == expected.get("max_episode_steps")
        is_own &= {**spec.kwargs, **smoothed} == {**expected["kwargs"], **smoothed}
    else:
        is_own &= isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs.")
        is_own &= spec.max_episode_steps == _GYMNASIUMS[env_id].most_steps and not spec.kwargs
    if is_own:
        return None
    registered = {name: getattr(spec, name) for name in ("entry_point", "max_episode_steps", "kwargs", "additional_wrappers")}
    return json.dumps(registered, sort_keys=True, default=_name)


def registration_of(env_id: str) -> str:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: under what name an evaluation keeps what :func:`registered_otherwise` tells, among its versions
    """
    return f"registration of {env_id}"


def _name(value: Any) -> str:
    """Without an address in memory, so that it is the same in each run."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
