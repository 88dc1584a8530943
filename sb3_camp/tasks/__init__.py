"""
The tasks of the paper as Gymnasium environments: noise and frame stack are part of each.

Their registration holds all settings (``gym.spec("camp/Freeway-v0").kwargs``), and each can be set with ``gym.make`` or the
zoo's ``--env-kwargs``: ``sigma`` in all of them, in the units of the observation, and ``n_stack`` where frames are stacked.
Sources: the CAMP paper, section "Experiments" and its appendix on hyper-parameters and settings.
"""

from typing import Any

import gymnasium as gym

_ATARI: dict[str, Any] = {"entry_point": "sb3_camp.tasks.atari:make_atari"}
_STICKY = 0.25  # probability to repeat an action, of the NoFrameskip-v0 ids; that of NoFrameskip-v4 is 0

# Entry points are strings, so that only the tasks that are made import what they need
TASKS: dict[str, dict[str, Any]] = {
    # 200 steps as CartPole-v0, which is the same environment as CartPole-v1 with another limit
    "camp/CartPole1-v0": {
        "entry_point": "sb3_camp.tasks.cartpole:make_cartpole1",
        "vector_entry_point": "sb3_camp.tasks.cartpole:make_cartpole1_vec",
        "max_episode_steps": 200,
        "kwargs": {"sigma": 0.2},
    },
    "camp/CartPole5-v0": {
        "entry_point": "sb3_camp.tasks.cartpole:make_cartpole5",
        "vector_entry_point": "sb3_camp.tasks.cartpole:make_cartpole5_vec",
        "max_episode_steps": 200,
        "kwargs": {"sigma": 0.2, "n_stack": 5},
    },
    "camp/Highway-v0": {
        "entry_point": "sb3_camp.tasks.highway:make_highway",
        "vector_entry_point": "sb3_camp.tasks.highway:make_highway_vec",
        "kwargs": {"sigma": 0.4},
    },
    "camp/Pong1r-v0": {
        **_ATARI,
        "kwargs": {
            "game": "pong",
            "sigma": 12.75,
            "n_stack": 4,
            "repeat_action_probability": _STICKY,
            "difficulty": 0,
            "first_point_ends": True,
        },
    },
    "camp/Freeway-v0": {
        **_ATARI,
        "max_episode_steps": 250,
        "kwargs": {
            "game": "freeway",
            "sigma": 12.75,
            "n_stack": 4,
            "repeat_action_probability": _STICKY,
            "difficulty": 1,
        },
    },
    "camp/BankHeist-v0": {
        **_ATARI,
        "max_episode_steps": 250,
        "kwargs": {
            "game": "bank_heist",
            "sigma": 12.75,
            "n_stack": 4,
            "repeat_action_probability": 0.0,
            "difficulty": 1,
        },
    },
}


def register_tasks() -> None:
    """
    Register the tasks with Gymnasium; ``import sb3_camp`` does it.

    What is registered under one of the names already is kept.
    """
    for env_id, settings in TASKS.items():
        if env_id not in gym.registry:
            gym.register(env_id, **settings)


def default_sigma(env_id: str) -> float | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: the ``sigma`` that a task has unless told otherwise; None for whatever is no task of this package, also if it is
        registered under the name of one
    """
    spec = gym.registry.get(env_id)
    if env_id not in TASKS or spec is None or spec.entry_point != TASKS[env_id]["entry_point"]:
        return None
    return float(spec.kwargs.get("sigma", TASKS[env_id]["kwargs"]["sigma"]))


def is_image_task(env_id: str) -> bool:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :return: whether it is a task of this package whose observations are images, with pixel values from 0 to 255
    """
    return TASKS.get(env_id, {}).get("entry_point") == _ATARI["entry_point"]
