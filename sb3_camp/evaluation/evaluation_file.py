"""The files of an evaluation: ``evaluations.npz`` in the zoo's format, and what is kept of one that was interrupted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.episode_logs import EVALUATION_FORMAT, PARTIAL_EVALUATION_FORMAT
from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.evaluation.episodes import Episodes
from sb3_camp.files import npz_writer, read_bytes, read_npz, write_file

Settings = dict[str, "str | int | float | bool"]
"""All that the numbers of an evaluation depend on, by name."""

# Settings that a file holds only if they are on
_SWITCHES = ("q_gap", "trained_env_id", "sensor_sigma", "record", "until", "looks", "looks_alpha")
# The columns of Episodes: their number of dimensions and kinds of numbers
_FORMS = tuple(zip((*Episodes._fields, "recorded", "are_boolean"), (1, 1, 1, 2, 2), "fiffb", strict=True))
# Settings that files of older versions lack
_SINCE = ("env_versions",)


def write_evaluation(path: Path, settings: Settings, episodes: Episodes, **facts: Any) -> None:
    """
    Write the finished evaluation, whole or not at all: ``timesteps`` (1,), ``results`` (1, n) and ``ep_lengths`` (1, n) as in
    the zoo's logs, ``min_reward``, the lowest raw reward of any single step, and one entry for each setting and fact. Where k
    keys of ``info`` are recorded (the setting ``record``), also ``recorded`` (k, n), nan where an episode had no such key, and
    ``recorded_boolean`` (k,), which of them had booleans only. It holds nothing pickled.

    :param path: The file, replaced if it exists
    :param settings: Settings of the evaluation
    :param episodes: Its n episodes
    :param facts: Further entries, among them ``timesteps``, the steps that the model was trained for
    :raises InputError: if it cannot be written
    """
    facts["timesteps"] = np.array([facts["timesteps"]], dtype=np.int64)
    if "record" in settings:
        facts |= {"recorded": episodes.recorded.T, "recorded_boolean": episodes.are_boolean.all(axis=0)}
    entries = {
        "format": EVALUATION_FORMAT,
        "results": episodes.returns[np.newaxis],
        "ep_lengths": episodes.lengths[np.newaxis],
        "min_reward": float(episodes.min_rewards.min()),
    }
    write_file(path, npz_writer({**entries, **settings, **facts}))


def write_partial(path: Path, settings: Settings, episodes: Episodes, n_chunks: int, **more: np.ndarray) -> None:
    """Keep the episodes of the first ``n_chunks`` chunks and more arrays, see :func:`read_partial` and :func:`read_more`."""
    entries = {"format": PARTIAL_EVALUATION_FORMAT, "n_chunks": n_chunks}
    played = episodes._asdict()
    if "record" in settings:
        played |= {"recorded": episodes.recorded, "are_boolean": episodes.are_boolean}
    write_file(path, npz_writer({**entries, **settings, **played, **more}))


def read_partial(path: Path, settings: Settings, chunks: Sequence[Chunk]) -> tuple[Episodes, int]:
    """
    :param path: File of an interrupted evaluation
    :param settings: Settings of the evaluation that is to be resumed
    :param chunks: Its chunks
    :return: the episodes, and the number of chunks that have been played
    :raises InputError: if the file cannot be read, was made with other settings, or does not hold the episodes of its chunks
    """
    content = _read(path)
    _check_settings(path, content, settings)
    n_chunks = int(_entry(path, content, "n_chunks", 0, "iu"))
    n_episodes = sum(chunk.n_episodes for chunk in chunks[:n_chunks])
    forms = _FORMS if "record" in settings else _FORMS[:3]
    columns = [_entry(path, content, name, n_dims, kinds) for name, n_dims, kinds in forms]
    episodes, sizes = Episodes(*columns), {len(values) for values in columns}
    if not 1 <= n_chunks <= len(chunks) or sizes != {n_episodes}:
        raise InputError(
            f"{path}: cannot be resumed, {n_chunks} of {len(chunks)} chunks have {n_episodes} episodes, it holds "
            f"{' or '.join(map(str, sorted(sizes)))}: leave out --resume to start over"
        )
    return episodes, n_chunks


def read_more(path: Path, name: str, kinds: str = "f") -> np.ndarray:
    """
    :param path: File of an interrupted evaluation
    :param name: Name of an array (n,) that was given to :func:`write_partial`
    :param kinds: Kinds of numbers that it may hold, as NumPy calls them
    :return: the array
    :raises InputError: if the file cannot be read or lacks it
    """
    return _entry(path, _read(path), name, 1, kinds)


def check_finished(path: Path, settings: Settings) -> int:
    """
    :param path: A finished evaluation
    :param settings: Settings of the evaluation that is to be resumed
    :return: number of episodes in the file
    :raises InputError: if the file cannot be read, was made with other settings or lacks episodes
    """
    content = _read(path)
    n_episodes = _entry(path, content, "results", 2, "f").size
    if n_episodes in json.loads(str(settings.get("looks", "[]"))):
        settings = {**settings, "n_episodes": n_episodes}  # it ended at this look
    _check_settings(path, content, settings)
    if n_episodes != settings["n_episodes"]:
        raise InputError(
            f"{path}: cannot be resumed, it holds {n_episodes} of {settings['n_episodes']} episodes: leave out --resume to "
            "start over"
        )
    return n_episodes


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_npz(path, read_bytes(path))
    except InputError as error:
        raise InputError(f"{error}: it cannot be read: delete it, or leave out --resume") from error


def _check_settings(path: Path, content: dict[str, Any], settings: Settings) -> None:
    names = [*settings, *(switch for switch in _SWITCHES if switch not in settings)]
    for name in sorted(names, key=_follows_from_others):
        entry, value = content.get(name), settings.get(name)
        stored = entry.item() if isinstance(entry, np.ndarray) and entry.ndim == 0 else None
        if stored is None and name not in content and name in _SINCE:
            raise InputError(
                f"{path}: cannot be resumed, an older version of sb3_camp made it, which did not note {name}: give another "
                "--output, or leave out --resume to start over"
            )
        if stored != value:
            raise InputError(
                f"{path}: cannot be resumed, it was made with {name} {stored}, not {value}: give the same arguments, another "
                "--output, or leave out --resume to start over"
            )


def _follows_from_others(name: str) -> bool:
    """Whether a setting is told last, as another one, which people give, is why it differs."""
    return name.endswith("_env_seed")


def _entry(path: Path, content: dict[str, Any], name: str, n_dims: int, kinds: str) -> np.ndarray:
    entry = content.get(name)
    if not isinstance(entry, np.ndarray) or entry.ndim != n_dims or entry.dtype.kind not in kinds:
        fault = f"it holds no {name}" if entry is None else f"its {name} is damaged"
        raise InputError(f"{path}: cannot be resumed, {fault}: leave out --resume to start over")
    return entry


def as_json(value: Any) -> str:
    """One text for equal values, whatever the order of their keys; what JSON does not know is written as Python does."""
    return json.dumps(value, sort_keys=True, default=repr)
