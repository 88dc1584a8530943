"""Tasks: environments with their smoothing noise inside, and what is known of them beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sb3_camp.errors import InputError


@dataclass(frozen=True)
class Task:
    """
    :param registration: Arguments of ``gymnasium.register``: ``entry_point``, ``vector_entry_point``, ``max_episode_steps``.
        Entry points are strings, "module:function". Among the ``kwargs`` is ``sigma``, the standard deviation of the noise on
        each observation, by which ``--env-kwargs sigma:S`` and a search change it
    :param lowest_return: A return that no episode can fall below, whatever the actions; None if it is not known
    :param lowest_return_depends_on: Settings that may change it: for whoever changes them, it is not known
    :param pixels: Whether the observations are images, with values from 0 to 255
    :param native_has_same_returns: Whether the returns have the same distribution in the vector environment of
        ``vector_entry_point``, so that evaluations and attacks may be played there. Test it
    :param n_native_episodes: Number of episodes that ``evaluate`` plays there by default: about as many as a minute allows
    """

    registration: Mapping[str, Any]
    lowest_return: float | None = None
    lowest_return_depends_on: tuple[str, ...] = ()
    pixels: bool = False
    native_has_same_returns: bool = False
    n_native_episodes: int = 10_000


TASKS: dict[str, Task] = {}
"""The tasks by the id that Gymnasium registers them with"""

# Of Gymnasium's own: (entry_point, vector_entry_point), whose returns have the same distribution, and the number of episodes
_CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPole"
_SAME_RETURNS = {(f"{_CARTPOLE}Env", f"{_CARTPOLE}VectorEnv"): 100_000}


def register_task(env_id: str, task: Task) -> None:
    """
    Add a task, and register it with Gymnasium unless something is registered there under this id.

    ``evaluate``, ``certify`` and ``attack`` then know its noise and what is known of its returns.

    :param env_id: Its id, such as "my/Thermostat-v0"
    :param task: The task
    :raises InputError: if another task has this id, or if entry points or ``sigma`` are missing
    """
    if TASKS.get(env_id, task) != task:
        raise InputError(f"there is a task {env_id!r} already: choose another id")
    if not isinstance(task.registration.get("entry_point"), str):
        raise InputError(f"the task {env_id!r} needs an entry_point, as a string: module:function")
    if task.native_has_same_returns and "vector_entry_point" not in task.registration:
        raise InputError(f"the task {env_id!r} has no vector_entry_point whose returns could be the same")
    if "sigma" not in task.registration.get("kwargs", {}):
        raise InputError(f"the task {env_id!r} needs a sigma among its kwargs, the noise on its observations")
    TASKS[env_id] = task
    if env_id not in gym.registry:
        gym.register(env_id, **task.registration)


def n_native_episodes(env_id: str) -> int | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: the number of episodes that ``evaluate`` plays by default in its native vector environment; None if it has none
        whose returns are known to have the same distribution
    """
    spec = gym.spec(env_id)
    known = {
        (task.registration["entry_point"], task.registration["vector_entry_point"]): task.n_native_episodes
        for task in TASKS.values()
        if task.native_has_same_returns
    }
    return (known | _SAME_RETURNS).get((spec.entry_point, spec.vector_entry_point))
