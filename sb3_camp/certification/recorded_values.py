"""What ``evaluate --record`` has stored of the episodes besides their returns: read, never repaired."""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sb3_camp.errors import InputError
from sb3_camp.runs.recorded_key import RecordedKey, parse_keys

ENTRIES = ("record", "recorded", "recorded_boolean")
"""Entries of an evaluation file."""


@dataclass(frozen=True, eq=False)
class RecordedValues:
    """
    :param key: What was recorded
    :param values: Its value in each episode, nan where the episode had none, float64, shape (n,)
    :param is_event: Whether it can only be 1 (it happened) or 0 (it did not)
    """

    key: RecordedKey
    values: np.ndarray
    is_event: bool


def read_recorded(path: Path, data: Mapping[str, np.ndarray], n_episodes: int, most: float) -> list[RecordedValues]:
    """
    :param path: An evaluation file, for messages
    :param data: Its entries
    :param n_episodes: Number n of its episodes
    :param most: The largest value that there may be
    :return: what was recorded, empty if nothing
    :raises InputError: if it is damaged
    """
    if "record" not in data:
        for name in ENTRIES:
            if name in data:
                raise InputError(f"{path}: holds {name}, but no record, which names it: evaluate again")
        return []
    try:
        words = json.loads(data["record"].item())
        keys = parse_keys(words, "record") if isinstance(words, list) and all(isinstance(one, str) for one in words) else []
    except (ValueError, RecursionError, TypeError) as error:
        raise InputError(f"{path}: record is not a list of keys: {' '.join(str(error).split())}") from None
    values, booleans = (data.get(name, np.empty(0)) for name in ENTRIES[1:])
    if not keys or values.shape != (len(keys), n_episodes) or booleans.shape != (len(keys),):
        raise InputError(f"{path}: record {reprlib.repr(str(data['record']))} does not fit what is recorded")
    if values.dtype.kind != "f" or booleans.dtype.kind != "b":
        raise InputError(f"{path}: recorded must hold numbers, and recorded_boolean booleans")
    found = []
    for key, row, boolean in zip(keys, values.astype(np.float64), booleans.tolist(), strict=True):
        is_event = key.reduction == "any" or (boolean and key.reduction != "sum")
        bad = np.flatnonzero(~(np.isnan(row) | ((row == 0) | (row == 1) if is_event else np.abs(row) <= most)))
        if bad.size:
            raise InputError(f"{path}: recorded {key.name} of episode {bad[0]} is {row[bad[0]]}")
        found.append(RecordedValues(key, row, is_event))
    return found
