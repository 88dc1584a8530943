"""Checkpoints that other versions pickled: what takes the place of members that the installed packages cannot read."""

import inspect
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.save_util import json_to_data

from sb3_camp.errors import InputError
from sb3_camp.training_only import TRAINING_ONLY

Spaces = Callable[[], tuple[spaces.Space, spaces.Space]]
"""Returns observation and action space of the environment that the policy is to act in."""

_SPACES = ("observation_space", "action_space")


def unreadable_members(content: bytes) -> dict[str, Any]:
    """
    :param content: content of a checkpoint of SB3
    :return: the members of its settings that cannot be unpickled here and that acting may need, with what SB3 wrote about each
        in plain text; empty if the file is no checkpoint
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = json.loads(archive.read("data"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return {}
    unreadable = {}
    for name, content in members.items():
        if name in TRAINING_ONLY or not isinstance(content, Mapping) or ":serialized:" not in content:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                json_to_data(json.dumps({name: content}))
        except Exception:  # of every kind, for pickled data may raise anything
            unreadable[name] = {key: value for key, value in content.items() if key != ":serialized:"}
    return unreadable


def substitutes(
    path: Path, unreadable: Mapping[str, Any], algorithm: type[BaseAlgorithm], env_spaces: Spaces
) -> dict[str, Any]:
    """
    :param path: the checkpoint, for messages
    :param unreadable: what :func:`unreadable_members` returned
    :param algorithm: its class
    :param env_spaces: gives the spaces of the environment
    :return: for each member what takes its place: the space of the environment, the default of the algorithm, or None
    :raises InputError: if a space of the environment is not what the file says of its own in plain text, or if nothing can
        take the place of the policy's class
    """
    defaults = {name: one.default for name, one in inspect.signature(algorithm.__init__).parameters.items()}
    found: dict[str, Any] = {}
    own = dict(zip(_SPACES, env_spaces() if any(name in unreadable for name in _SPACES) else (None, None), strict=True))
    for name, described in unreadable.items():
        if name in _SPACES:
            _check_described(path, name, described, own[name])
            found[name] = own[name]
        elif name == "policy_class":
            raise InputError(f"{path}: the class of its policy cannot be unpickled by this Python: import what defines it")
        else:
            # What other versions kept and the installed one does not know of is nothing that it acts by
            default = defaults.get(name, inspect.Parameter.empty)
            found[name] = None if default is inspect.Parameter.empty else default
    return found


def _check_described(path: Path, name: str, described: Mapping[str, Any], space: spaces.Space | None) -> None:
    """SB3 writes the attributes of a space beside its pickle."""
    problem = None
    shape = described.get("_shape", described.get("shape"))
    if isinstance(shape, list) and space is not None and tuple(shape) != (space.shape or ()):
        problem = f"shape {tuple(shape)}"
    n = described.get("n")
    if n is not None and str(n) != str(getattr(space, "n", None)):
        problem = f"{n} actions"
    if problem is not None:
        raise InputError(
            f"{path}: the {name} of the policy has {problem}, that of the environment is {space}: check --env, --env-kwargs "
            "and --play-in"
        )
