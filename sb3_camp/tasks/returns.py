"""What is known beforehand of the returns of the tasks, as a certificate needs it."""

from collections.abc import Mapping
from typing import Any

# Lowest return that an episode can have, and the settings that may change it
_LOWEST: dict[str, tuple[float, tuple[str, ...]]] = {
    "camp/CartPole1-v0": (0.0, ()),
    "camp/CartPole5-v0": (0.0, ()),
    "camp/Highway-v0": (0.0, ("config",)),
    "camp/Pong1r-v0": (-1.0, ("game", "first_point_ends")),
    "camp/Freeway-v0": (0.0, ("game", "first_point_ends")),
    "camp/BankHeist-v0": (0.0, ("game", "first_point_ends")),
}


def lowest_return(env_id: str, env_kwargs: Mapping[str, Any]) -> float | None:
    """
    :param env_id: Id of an environment, as Gymnasium registers it
    :param env_kwargs: Settings that were given
    :return: the lowest return that an episode of this task can have; None if it is no task of this package, or if settings
        were given that may change it
    """
    lowest, settings = _LOWEST.get(env_id, (None, ()))
    return None if any(setting in env_kwargs for setting in settings) else lowest
