"""
The tasks of the paper, and a harder Highway, as Gymnasium environments: noise and frame stack are part of each.

Their registration holds all settings (``gym.spec("camp/Freeway-v0").kwargs``), and each can be set with ``gym.make`` or the
zoo's ``--env-kwargs``: ``sigma`` in all of them, in the units of the observation, and ``n_stack`` where frames are stacked.
Sources: the CAMP paper, section "Experiments" and its appendix on hyper-parameters and settings.
"""

from typing import Any

import gymnasium as gym

from sb3_camp.tasks.registry import TASKS, Task, register_task
from sb3_camp.tasks.returns import lowest_return, register_lowest_return

__all__ = [
    "TASKS",
    "Task",
    "default_sigma",
    "is_image_task",
    "lowest_return",
    "register_lowest_return",
    "register_task",
    "register_tasks",
]

_ATARI: dict[str, Any] = {
    "entry_point": "sb3_camp.tasks.atari:make_atari",
    "vector_entry_point": "sb3_camp.tasks.atari:make_atari_vec",
}
_STICKY = 0.25  # probability to repeat an action, of the NoFrameskip-v0 ids; that of NoFrameskip-v4 is 0


def _cartpole(name: str, **kwargs: Any) -> Task:
    # 200 steps as CartPole-v0, which is the same environment as CartPole-v1 with another limit
    entry_point = f"sb3_camp.tasks.cartpole:make_{name}"
    return Task(
        dict(entry_point=entry_point, vector_entry_point=f"{entry_point}_vec", max_episode_steps=200, kwargs=kwargs),
        lowest_return=0.0,
        native_has_same_returns=True,  # the tests compare them
        n_native_episodes=100_000,
    )


def _atari(lowest_return: float, max_episode_steps: int | None, **kwargs: Any) -> Task:
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    settings = {"sigma": 12.75, "n_stack": 4, **kwargs}
    return Task({**_ATARI, **limit, "kwargs": settings}, lowest_return, ("game", "first_point_ends"), pixels=True)


def _highway(**kwargs: Any) -> Task:
    entry_point = "sb3_camp.tasks.highway:make_highway"
    return Task(
        dict(entry_point=entry_point, vector_entry_point=f"{entry_point}_vec", kwargs=kwargs),
        lowest_return=0.0,
        lowest_return_depends_on=("config",),  # rewards of a step are scaled to 0..1 whatever high_speed_reward is
        native_has_same_returns=True,
    )


# Entry points are strings, so that only the tasks that are made import what they need
_OWN = {
    "camp/CartPole1-v0": _cartpole("cartpole1", sigma=0.2),
    "camp/CartPole5-v0": _cartpole("cartpole5", sigma=0.2, n_stack=5),
    "camp/Highway-v0": _highway(sigma=0.4),
    # Not in the paper: there, braking always is the best that agents find
    "camp/HighwaySpeed-v0": _highway(sigma=0.1, high_speed_reward=2.0),
    "camp/Pong1r-v0": _atari(-1.0, None, game="pong", repeat_action_probability=_STICKY, difficulty=0, first_point_ends=True),
    "camp/Freeway-v0": _atari(0.0, 250, game="freeway", repeat_action_probability=_STICKY, difficulty=1),
    "camp/BankHeist-v0": _atari(0.0, 250, game="bank_heist", repeat_action_probability=0.0, difficulty=1),
}


# The task of an adversary, which takes its victim as an argument: no task of the paper, without a sigma of its own
_ADVERSARY = "camp/Adversary-v0"


def register_tasks() -> None:
    """
    Register the tasks of this package; ``import sb3_camp`` does it.

    What is registered with Gymnasium under one of the names already is kept.
    """
    for env_id, task in _OWN.items():
        register_task(env_id, task)
    if _ADVERSARY not in gym.registry:
        gym.register(_ADVERSARY, entry_point="sb3_camp.attack_runs.adversary_task:AdversaryEnv")


def default_sigma(env_id: str) -> float | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: the ``sigma`` that a task has unless told otherwise; None for whatever is no task, also if it is registered under
        the name of one
    """
    spec, task = gym.registry.get(env_id), TASKS.get(env_id)
    if task is None or spec is None or spec.entry_point != task.registration["entry_point"]:
        return None
    return float(spec.kwargs.get("sigma", task.registration["kwargs"]["sigma"]))


def is_image_task(env_id: str) -> bool:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: whether it is a task whose observations are images, with pixel values from 0 to 255
    """
    return env_id in TASKS and TASKS[env_id].pixels
