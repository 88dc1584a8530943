"""Which part of an observation an adversary can perturb, and what becomes of its space."""

from typing import cast

import numpy as np
from gymnasium import spaces

from sb3_camp.errors import InputError


def attacked_entry(space: spaces.Space, key: str | None) -> tuple[str | None, spaces.Box]:
    """
    :param space: Space of the environment's observations
    :param key: The entry that was asked for, of a Dict
    :return: the entry to attack (None if the space is no Dict) and its space
    :raises InputError: if there is none that can be perturbed, or several to choose from
    """
    if not isinstance(space, spaces.Dict):
        if key is not None:
            raise InputError(f"AdversarialObservationWrapper: key is {key!r}, but the observation is no Dict ({space}).")
        if not _is_attackable(space):
            raise InputError(
                "AdversarialObservationWrapper: only float Boxes and images (uint8 from 0 to 255) can be perturbed, the "
                f"observation space is {space}: encode it as a float Box first."
            )
        return None, cast(spaces.Box, space)
    attackable = [name for name, entry in space.spaces.items() if _is_attackable(entry)]
    if key is None and len(attackable) == 1:
        key = attackable[0]
    if key not in attackable:
        problem = "name the one to attack with key" if key is None and attackable else f"key is {key!r}"
        raise InputError(
            "AdversarialObservationWrapper: the entries of the observation that can be perturbed (float Boxes and images, "
            f"uint8 from 0 to 255) are {attackable}: {problem}."
        )
    return key, cast(spaces.Box, space[key])


def observed_entry(observed: spaces.Space, given: spaces.Space, key: str | None) -> spaces.Box:
    """
    :param observed: Space of the policy's observations
    :param given: Space of the environment's observations
    :param key: The entry that is attacked, None if the environment's space is no Dict
    :return: the space of what the policy observes there
    :raises InputError: if it has none of the same kind of numbers
    """
    entry, attacked = observed, given
    if key is not None and isinstance(given, spaces.Dict):
        attacked = given[key]
        if isinstance(observed, spaces.Dict) and observed.keys() == given.keys():
            entry = observed[key]
    if not isinstance(entry, spaces.Box) or _kind(entry) != _kind(attacked):
        raise InputError(
            f"AdversarialObservationWrapper: the model observes {observed}, the environment gives {given}: check model."
        )
    return entry


def received_space(space: spaces.Space, key: str | None) -> spaces.Space:
    """
    :param space: Space of the environment's observations
    :param key: The entry that is attacked, None if the space is no Dict
    :return: the space of the perturbed observations
    """
    if key is not None:
        entries = cast(spaces.Dict, space).spaces
        return spaces.Dict({**entries, key: received_space(entries[key], None)})
    return space if space.dtype == np.uint8 else spaces.Box(-np.inf, np.inf, space.shape, np.float32)


def _is_attackable(space: spaces.Space) -> bool:
    if not isinstance(space, spaces.Box):
        return False
    is_image = space.dtype == np.uint8 and np.all(space.low == 0) and np.all(space.high == 255)
    return bool(is_image or _kind(space) == "float")


def _kind(space: spaces.Space) -> str:
    assert space.dtype is not None
    return "float" if np.issubdtype(space.dtype, np.floating) else space.dtype.name
