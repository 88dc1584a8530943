"""Programs that train the agents of a variant in place of the zoo."""

import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import Cell

from sb3_camp.certification.rounded_text import exact

PROGRAMS = Path(__file__).resolve().parents[1]
"""Where those that come with the studies are"""


def is_program(name: str) -> bool:
    """
    :param name: Name of a module
    :return: whether it is in :data:`PROGRAMS`, or can be imported
    """
    if (PROGRAMS / f"{name}.py").is_file():
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def training_by_program(variant: Mapping[str, Any], cell: Cell, device: str) -> str:
    """
    :param variant: A variant with a program, which takes some of the zoo's options and leaves a run folder like the zoo's
    :param cell: What to train
    :param device: PyTorch's
    :return: the command that trains it into ``cells/NAME/train``, as arguments of the Python interpreter
    """
    words = ["-m", variant["program"], "--env", cell.task, "-f", f"cells/{cell.name}/train", "--seed", str(cell.seed)]
    words += ["--device", device]
    for key, value in variant.get("params", {}).items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    given = [f"{key}:{value!r}" for key, value in variant.get("env_kwargs", {}).items()]
    return shlex.join([*words, "--env-kwargs", f"sigma:{exact(cell.sigma)}", *given])
