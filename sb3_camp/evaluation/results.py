"""The files of an evaluation: ``evaluations.npz`` in the zoo's format, and what is kept of one that was interrupted."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.episode_logs import EVALUATION_FORMAT, PARTIAL_EVALUATION_FORMAT
from sb3_camp.errors import InputError

Settings = dict[str, "str | int | float | bool"]
"""All that the numbers of an evaluation depend on, by name."""

# Settings that a file holds only if they are on
_SWITCHES = ("q_gap",)


def write_evaluation(path: Path, settings: Settings, returns: np.ndarray, lengths: np.ndarray, **facts: Any) -> None:
    """
    Write the finished evaluation, whole or not at all: ``timesteps`` (1,), ``results`` (1, n) and ``ep_lengths`` (1, n) as in
    the zoo's logs, and one entry for each setting and fact. It holds nothing pickled.

    :param path: The file, replaced if it exists
    :param settings: Settings of the evaluation
    :param returns: Returns of the episodes, shape (n,)
    :param lengths: Lengths of the episodes in steps, shape (n,)
    :param facts: Further entries, among them ``timesteps``, the steps that the model was trained for
    """
    facts["timesteps"] = np.array([facts["timesteps"]], dtype=np.int64)
    _write(path, format=EVALUATION_FORMAT, results=returns[np.newaxis], ep_lengths=lengths[np.newaxis], **settings, **facts)


def write_partial(
    path: Path, settings: Settings, returns: np.ndarray, lengths: np.ndarray, n_chunks: int, **more: np.ndarray
) -> None:
    """Keep the episodes of the first ``n_chunks`` chunks and more arrays, see :func:`read_partial` and :func:`read_more`."""
    _write(path, format=PARTIAL_EVALUATION_FORMAT, returns=returns, lengths=lengths, n_chunks=n_chunks, **settings, **more)


def read_partial(path: Path, settings: Settings) -> tuple[np.ndarray, np.ndarray, int]:
    """
    :param path: File of an interrupted evaluation
    :param settings: Settings of the evaluation that is to be resumed
    :return: returns, lengths and the number of chunks that have been played
    :raises InputError: if the file cannot be read or was made with other settings
    """
    content = _read(path)
    _check_settings(path, content, settings)
    return content["returns"], content["lengths"], int(content["n_chunks"])


def read_more(path: Path, name: str) -> np.ndarray:
    """
    :param path: File of an interrupted evaluation
    :param name: Name of an array that was given to :func:`write_partial`
    :return: the array
    :raises InputError: if the file cannot be read or lacks it
    """
    content = _read(path)
    if name not in content:
        raise InputError(f"{path}: cannot be resumed, it holds no {name}: leave out --resume to start over")
    return content[name]


def check_finished(path: Path, settings: Settings) -> int:
    """
    :param path: A finished evaluation
    :param settings: Settings of the evaluation that is to be resumed
    :return: number of episodes in the file
    :raises InputError: if the file cannot be read or was made with other settings
    """
    content = _read(path)
    _check_settings(path, content, settings)
    return int(content["results"].size)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return dict(content)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: cannot be read ({' '.join(str(error).split())}): delete it, or leave out --resume"
        ) from error


def _check_settings(path: Path, content: dict[str, np.ndarray], settings: Settings) -> None:
    for name in (*settings, *(switch for switch in _SWITCHES if switch not in settings)):
        stored, value = content[name].item() if name in content else None, settings.get(name)
        if stored != value:
            raise InputError(
                f"{path}: cannot be resumed, it was made with {name} {stored}, not {value}: give the same arguments, another "
                "--output, or leave out --resume to start over"
            )


def _write(path: Path, **entries: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez_compressed(file, **entries)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def as_json(value: Any) -> str:
    """One text for equal values, whatever the order of their keys; what JSON does not know is written as Python does."""
    return json.dumps(value, sort_keys=True, default=repr)
