"""Looks that were planned for an evaluation, one of which ended it (``evaluate --until``)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError

ENTRIES = ("looks", "looks_alpha", "until")
"""Entries of an evaluation file."""


@dataclass(frozen=True)
class PlannedStop:
    """
    :param looks: Numbers of episodes at which the evaluation might stop, ascending, fixed before it began
    :param alpha: The alpha of all looks together by which it decided
    :param until: What it waited for, ``TARGET@RADIUS``
    """

    looks: list[int]
    alpha: float
    until: str


def read_planned_stop(path: Path, data: Mapping[str, np.ndarray], n_episodes: int) -> PlannedStop | None:
    """
    :param path: An evaluation file, for messages
    :param data: Its entries
    :param n_episodes: Number of its episodes
    :return: the looks that had been planned, None if there were none
    :raises InputError: if they are damaged, or if the evaluation did not end at one of them
    """
    there = [name for name in ENTRIES if name in data]
    if not there:
        return None
    if len(there) < len(ENTRIES):
        (missing, *_) = (name for name in ENTRIES if name not in data)
        raise InputError(
            f"{path}: holds {there[0]}, but no {missing}: the looks that were planned are damaged: evaluate again"
        )
    try:
        looks = json.loads(data["looks"].item())
    except (ValueError, RecursionError, TypeError):
        looks = None
    if not isinstance(looks, list) or not looks or not all(type(look) is int for look in looks):
        raise InputError(f"{path}: looks must be a JSON list of numbers of episodes")
    if looks[0] < 1 or any(later <= look for look, later in pairwise(looks)):
        raise InputError(f"{path}: looks must ascend")
    alpha, until = (data[name] for name in ENTRIES[1:])
    if alpha.shape != () or alpha.dtype.kind != "f" or not 0 < alpha < 1 or until.shape != () or until.dtype.kind != "U":
        raise InputError(f"{path}: looks need one looks_alpha in (0, 1) and one text until")
    if n_episodes not in looks:
        raise InputError(
            f"{path}: {n_episodes} episodes are none of the looks that were planned ({', '.join(map(str, looks))}): finish it "
            f"with {spelled('evaluate')} --resume"
        )
    return PlannedStop(looks, float(alpha), str(until))
