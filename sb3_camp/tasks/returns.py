"""What is known beforehand of the returns of tasks, as a certificate needs it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# Of the tasks of this package: the lowest return that an episode can have, and the settings that may change it
_OURS: dict[str, tuple[float, tuple[str, ...]]] = {
    "camp/CartPole1-v0": (0.0, ()),
    "camp/CartPole5-v0": (0.0, ()),
    "camp/Highway-v0": (0.0, ("config",)),
    "camp/Pong1r-v0": (-1.0, ("game", "first_point_ends")),
    "camp/Freeway-v0": (0.0, ("game", "first_point_ends")),
    "camp/BankHeist-v0": (0.0, ("game", "first_point_ends")),
}


class _Rewards(NamedTuple):
    """
    :param lowest: Lowest reward of a step, 0 if none is negative
    :param most_steps: Step limit of the registration
    :param harmless: Settings that change neither; those of other versions of Gymnasium may
    """

    lowest: float
    most_steps: int
    harmless: tuple[str, ...] = ("render_mode",)


# Of Gymnasium's environments, by their documentation and source (gymnasium/envs/classic_control, limits in envs/__init__)
_GYMNASIUMS = {
    # 1 for each step (with sutton_barto_reward, -1 for the last)
    "CartPole-v0": _Rewards(0.0, 200),
    "CartPole-v1": _Rewards(0.0, 500),
    # -(theta^2 + 0.1 theta_dt^2 + 0.001 torque^2) with |theta| <= pi, |theta_dt| <= 8, |torque| <= 2: -16.2736044, but part
    # of it is computed in single precision
    "Pendulum-v1": _Rewards(-16.27361, 200, ("render_mode", "g")),
    # -1 for each step
    "MountainCar-v0": _Rewards(-1.0, 200, ("render_mode", "goal_velocity")),
    # -1 for each step, 0 for the one that reaches the goal
    "Acrobot-v1": _Rewards(-1.0, 500),
}


def lowest_return(env_id: str, env_kwargs: Mapping[str, Any]) -> float | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :param env_kwargs: Settings that were given
    :return: the lowest return that an episode can have, whatever the actions; None if the environment is neither a task of
        this package nor one of the environments of Gymnasium that are known here, or if settings were given that may change it
    """
    if env_id in _GYMNASIUMS:
        rewards = _GYMNASIUMS[env_id]
        return rewards.lowest * rewards.most_steps if set(env_kwargs) <= set(rewards.harmless) else None
    lowest, settings = _OURS.get(env_id, (None, ()))
    return None if any(setting in env_kwargs for setting in settings) else lowest


def is_gymnasiums(env_id: str) -> bool:
    """
    :param env_id: Id of an environment
    :return: whether it is one of the ids of Gymnasium whose lowest return is known here
    """
    return env_id in _GYMNASIUMS
