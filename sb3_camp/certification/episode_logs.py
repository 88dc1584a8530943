"""
Strict readers of the logs that hold the returns of evaluation episodes, one at a time (several: see
:mod:`sb3_camp.certification.pooling`).

Two formats: the ``*.monitor.csv`` of SB3's ``Monitor`` and the ``evaluations.npz`` of SB3's ``EvalCallback``, which
``sb3_camp.evaluate`` writes with more keys. A certificate is only as good as its episodes: what is damaged, doubled or comes
from several policies is refused, never repaired.
"""

import csv
import io
import json
import math
import re
import reprlib
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.planned_stop import ENTRIES as LOOK_ENTRIES
from sb3_camp.certification.planned_stop import PlannedStop, read_planned_stop
from sb3_camp.certification.recorded_values import ENTRIES as RECORD_ENTRIES
from sb3_camp.certification.recorded_values import RecordedValues, read_recorded
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes, read_npz, sha256
from sb3_camp.runs.layers import Shows
from sb3_camp.runs.scenario import Scenario, noise_layer, with_public_names

EVALUATION_FORMAT = "sb3_camp-evaluation-1"
PARTIAL_EVALUATION_FORMAT = "sb3_camp-evaluation-partial-1"
SELECTION_FORMAT = "sb3_camp-selection-1"

MOST = 1e100
"""No return, and no standard deviation of noise, can be larger: sums of them must stay finite."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_COUNT = re.compile(r"[0-9]{1,18}")
# The entries of an evaluation that are read; what else stands in the file is not even unpacked
_ZOO_ENTRIES = ("timesteps", "results", "ep_lengths")
_ENTRIES = (
    *(*_ZOO_ENTRIES, "format", "n_episodes", "min_reward"),
    *("sigma", "deterministic", "seed", "first_env_seed", "last_env_seed", "n_envs", "native_vec_env", "pixels"),
    *("step_limit", "noisy_numbers"),
    *("env_id", "trained_env_id", "env_kwargs", "env_wrappers", "env_versions", "clean_keys", "sensor_sigma"),
    *("algo", "model", "model_sha256"),
    *("q_gap_min", "q_gap_mean", "q_gap_steps", "q_gap_levels", "q_gap_quantiles"),
    *(*RECORD_ENTRIES, *LOOK_ENTRIES),
)
_LEAST = {"n_envs": 1, "first_env_seed": 0, "last_env_seed": 0, "step_limit": 1, "noisy_numbers": 0}


@dataclass(frozen=True, eq=False)
class EpisodeLog:
    """
    The episodes of one log and what the log says about them; None where it does not say.

    :param path: the file
    :param sha256: of the file's content
    :param returns: undiscounted returns, float64, shape (n,)
    :param lengths: steps of the episodes, int64, shape (n,)
    :param env_id: id of the environment
    :param trained_env_id: id of the environment that the policy was trained in, where it was played in another
    :param algo: the zoo's name of the algorithm
    :param sigma: standard deviation of the noise on the observations, in their units
    :param deterministic: whether the actions were greedy
    :param seed: seed of the evaluation
    :param env_kwargs: keyword arguments of the environment
    :param env_wrappers: ``env_wrapper``, ``vec_env_wrapper`` and ``frame_stack`` as in the zoo's hyperparameters
    :param env_versions: versions of the package that the environment comes from, or digests of its source, by name
    :param clean_keys: entries of the observation that have no noise, sorted
    :param sensor_sigma: standard deviation of the noise on each entry, as lists or a mapping, where each has its own
    :param model: path of the checkpoint
    :param model_sha256: of the checkpoint's content
    :param timesteps: steps that the policy had been trained for
    :param pixels: whether the observations are images with pixel values from 0 to 255
    :param n_envs: environments that played at once
    :param native_vec_env: whether they were Gymnasium's native vector environment
    :param step_limit: most steps that an episode can have
    :param noisy_numbers: how many numbers of each observation have noise
    :param min_reward: lowest raw reward of any step
    :param first_env_seed: lowest seed of any env
    :param last_env_seed: highest seed of any env
    :param q_gap: statistics of the top-two gap of the action scores, see :mod:`sb3_camp.evaluation.q_gaps`
    :param recorded: what was recorded besides
    :param looks: the looks that had been planned, if one of them ended the evaluation
    :param t_start: of a monitor log, when the environment was made (seconds since 1970)
    :param times: of a monitor log, seconds from t_start to the end of each episode, shape (n,)
    """

    path: Path
    sha256: str
    returns: np.ndarray
    lengths: np.ndarray
    env_id: str | None = None
    trained_env_id: str | None = None
    algo: str | None = None
    sigma: float | None = None
    deterministic: bool | None = None
    seed: int | None = None
    env_kwargs: dict[str, Any] | None = None
    env_wrappers: dict[str, Any] | None = None
    env_versions: dict[str, str] | None = None
    clean_keys: list[str] | None = None
    sensor_sigma: list[Any] | dict[str, Any] | None = None
    model: str | None = None
    model_sha256: str | None = None
    timesteps: int | None = None
    pixels: bool | None = None
    n_envs: int | None = None
    native_vec_env: bool | None = None
    step_limit: int | None = None
    noisy_numbers: int | None = None
    min_reward: float | None = None
    first_env_seed: int | None = None
    last_env_seed: int | None = None
    q_gap: dict[str, Any] | None = None
    recorded: list[RecordedValues] = field(default_factory=list)
    looks: PlannedStop | None = None
    t_start: float | None = None
    times: np.ndarray | None = None

    @property
    def is_monitor(self) -> bool:
        """Whether this is a monitor log."""
        return self.t_start is not None

    @property
    def is_evaluation(self) -> bool:
        """Whether ``sb3_camp.evaluate`` wrote this."""
        return self.model_sha256 is not None


def read_log(path: Path) -> EpisodeLog:
    """
    :param path: a ``*.npz`` or ``*.csv`` file
    :return: its episodes
    :raises InputError: if the file is neither, or not sound
    """
    readers = {".npz": read_evaluations, ".csv": read_monitor}
    if path.suffix not in readers:
        raise InputError(f"{path}: not a log of episodes: give an evaluations.npz, *.monitor.csv files or a zoo run folder")
    return readers[path.suffix](path)


def read_monitor(path: Path) -> EpisodeLog:
    """
    Read the log of one SB3 ``Monitor``.

    :param path: a ``*.monitor.csv`` file
    :return: its episodes
    :raises InputError: if anything but complete episodes of one environment stands in it, with the line
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text") from None
    if not text:
        raise InputError(f"{path}: empty file")
    first, _, body = text.partition("\n")
    header = _monitor_header(path, first)
    if not text.endswith("\n"):
        line = text.count("\n") + 1
        raise InputError(f"{path}, line {line}: cut off: no newline at its end, so the last episode may be incomplete")

    reader = csv.reader(io.StringIO(body, newline="\n"), strict=True)
    rows = array("d")  # r, l and t of one row after the other: lists would take gigabytes for millions of rows
    try:
        columns = next(reader, [])
        _check_columns(path, columns)
        for row in reader:
            rows.extend(_monitor_row(f"{path}, line {reader.line_num + 1}", row, columns, rows[-1] if rows else -math.inf))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num + 1}: {error}") from None
    if not rows:
        raise InputError(f"{path}: no episodes: the file ends after its header")
    returns, lengths, times = np.array(rows).reshape(-1, 3).T
    env_id = header["env_id"]
    return EpisodeLog(
        path=path,
        sha256=sha256(content),
        returns=returns,
        lengths=lengths.astype(np.int64),
        env_id=None if env_id == "None" else env_id,  # so the Monitor writes it for an unregistered environment
        t_start=float(header["t_start"]),
        times=times,
    )


def read_header(path: Path) -> dict[str, Any]:
    """
    :param path: a monitor log
    :return: its header, among it ``t_start`` (a finite number) and ``env_id`` (a text)
    :raises InputError: if it cannot be read or has no such header
    """
    return _monitor_header(path, read_bytes(path).partition(b"\n")[0].decode("utf-8", errors="replace"))


def _monitor_header(path: Path, line: str) -> dict[str, Any]:
    try:
        header = json.loads(line[1:]) if line.startswith("#") else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise InputError(f'{path}, line 1: not the header #{{"t_start": ..., "env_id": ...}} of a monitor log')
    t_start = header.get("t_start")
    if isinstance(t_start, bool) or not isinstance(t_start, int | float) or not abs(t_start) <= sys.float_info.max:
        raise InputError(f"{path}, line 1: t_start must be a number of seconds, not {reprlib.repr(t_start)}")
    if not isinstance(header.get("env_id"), str):
        raise InputError(f"{path}, line 1: env_id must be a text, not {header.get('env_id')!r}")
    return header


def _check_columns(path: Path, columns: list[str]) -> None:
    if columns[:3] != ["r", "l", "t"]:
        raise InputError(f"{path}, line 2: the column names must start with r,l,t, not {','.join(columns[:4])!r}")
    # A row glued to the names looks like further columns
    if len(set(columns)) < len(columns) or any(not name or _NUMBER.fullmatch(name) for name in columns):
        raise InputError(f"{path}, line 2: {','.join(columns)!r} is not a list of distinct column names")


def _monitor_row(where: str, row: list[str], columns: list[str], previous_t: float) -> list[float]:
    if row == columns or (row and row[0].startswith("#")):
        raise InputError(f"{where}: a second header: an appended run, which may be of another policy")
    if len(row) != len(columns):
        raise InputError(f"{where}: {len(row)} fields, but the header has {len(columns)}")
    r, length, t = row[:3]
    for name, value in (("r", r), ("t", t)):
        if not _NUMBER.fullmatch(value) or not abs(float(value)) <= MOST:
            raise InputError(f"{where}: {name} must be a finite number of at most {MOST:g}, not {value!r}")
    if not _COUNT.fullmatch(length) or int(length) < 1:
        raise InputError(f"{where}: l must be a whole number of steps that is at least 1, not {length!r}")
    if float(t) == previous_t:
        raise InputError(f"{where}: t is {t} as in the line before: one episode twice, or two logs mixed into one")
    if float(t) < max(0.0, previous_t):
        raise InputError(
            f"{where}: t goes back from {max(0.0, previous_t):g} to {t}: an appended run, which may be of another policy"
        )
    return [float(r), int(length), float(t)]


def read_evaluations(path: Path) -> EpisodeLog:
    """
    Read an ``evaluations.npz`` with the episodes of one policy.

    :param path: the file, of SB3's ``EvalCallback`` or of ``sb3_camp.evaluate``
    :return: its episodes
    :raises InputError: if the file is damaged, incomplete, or has several rows, which are different policies
    """
    content = read_bytes(path)
    data = read_npz(path, content, _ENTRIES)
    _refuse_unfit(path, data)
    for key, kinds in zip(_ZOO_ENTRIES, ("iu", "iuf", "iu"), strict=True):
        if key not in data:
            raise InputError(f"{path}: no array {key}: not the log of an evaluation")
        if data[key].dtype.kind not in kinds:
            raise InputError(f"{path}: {key} must hold numbers, not {data[key].dtype}")
    results, lengths = data["results"], data["ep_lengths"]
    if results.ndim != 2 or results.shape != lengths.shape or data["timesteps"].shape != results.shape[:1]:
        shapes = f"{data['timesteps'].shape}, {results.shape}, {lengths.shape}"
        raise InputError(f"{path}: the shapes of timesteps, results and ep_lengths do not fit together: {shapes}")
    if len(results) > 1:
        raise InputError(
            f"{path}: {len(results)} rows of results, which are different policies (one per evaluation during training): "
            f"evaluate the chosen model afresh with {spelled('evaluate')}"
        )
    if results.size == 0:
        raise InputError(f"{path}: no episodes")
    returns, lengths = results[0].astype(np.float64), lengths[0].astype(np.int64)
    for name, values, good in (("results", returns, np.abs(returns) <= MOST), ("ep_lengths", lengths, lengths >= 1)):
        if not good.all():
            episode = int(np.argmin(good))
            raise InputError(f"{path}: {name}[0, {episode}] is {values[episode]}")
    about = _evaluation_record(path, data, len(returns)) if "format" in data else {}
    timesteps = int(data["timesteps"][0])
    return EpisodeLog(path, sha256(content), returns, lengths, timesteps=timesteps, **about)


def _refuse_unfit(path: Path, data: Mapping[str, np.ndarray]) -> None:
    """The logs of this package whose episodes are no evaluation of one policy, or do not say any more what they are."""
    ours = [key for key in _ENTRIES if key in data and key not in _ZOO_ENTRIES]
    if ours and "format" not in data:
        raise InputError(f"{path}: holds {ours[0]}, which evaluate writes, but no format: it was changed: evaluate again")
    log_format = str(data.get("format"))
    if log_format == PARTIAL_EVALUATION_FORMAT:
        raise InputError(f"{path}: an interrupted evaluation: finish it with {spelled('evaluate')} --resume")
    if log_format == SELECTION_FORMAT:
        raise InputError(
            f"{path}: these episodes selected the checkpoint, which looks better on them than it is: evaluate it afresh with "
            f"{spelled('evaluate')} --model .../best_certified_model.zip"
        )


def _evaluation_record(path: Path, data: dict[str, np.ndarray], n_episodes: int) -> dict[str, Any]:
    """What ``sb3_camp.evaluate`` adds to the zoo's format."""

    def entry(key: str, kind: type) -> Any:
        value = data[key].item() if key in data and data[key].ndim == 0 else None
        if type(value) is not kind:
            raise InputError(f"{path}: {key} must be one {kind.__name__}, not {reprlib.repr(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{path}: {key} is {value}")
        return value

    def from_json(key: str) -> Any:
        return _from_json(f"{path}: {key}", entry(key, str)) if key in data else None

    if entry("format", str) != EVALUATION_FORMAT:
        raise InputError(f"{path}: its format is {data['format']}, this version reads {EVALUATION_FORMAT}")
    expected = entry("n_episodes", int)
    if n_episodes != expected:
        raise InputError(
            f"{path}: incomplete: {n_episodes} of {expected} episodes: finish it with {spelled('evaluate')} --resume"
        )
    sigma = entry("sigma", float)
    if not 0 <= sigma <= MOST:
        raise InputError(f"{path}: sigma is {sigma}")
    env_versions = from_json("env_versions")
    if not isinstance(env_versions, dict | None) or not all(isinstance(one, str) for one in (env_versions or {}).values()):
        raise InputError(f"{path}: env_versions must be a JSON object of texts, not {reprlib.repr(env_versions)}")
    texts = {key: entry(key, str) for key in ("env_id", "algo", "model", "model_sha256")}
    env_kwargs, env_wrappers, clean_keys = map(from_json, ("env_kwargs", "env_wrappers", "clean_keys"))
    sensor_sigma = from_json("sensor_sigma")
    if sensor_sigma is not None:
        noise_layer("", {"sigma": sensor_sigma}, "sensor_sigma", str(path))  # refuses what cannot be one
    for key, value in (("env_kwargs", env_kwargs), ("env_wrappers", env_wrappers)):
        if not isinstance(value, dict | None):
            raise InputError(f"{path}: {key} must be a JSON object, not {reprlib.repr(value)}")
    if env_wrappers is not None:
        env_wrappers = with_public_names(env_wrappers, str(path))
    if clean_keys is None and env_wrappers is not None:  # of a version that wrote no clean_keys
        layers = Scenario(texts["env_id"], wrappers=env_wrappers).layers(str(path))
        clean_keys = sorted({key for layer in layers if layer.shows is Shows.NOISY for key in layer.clean_keys})
    if not isinstance(clean_keys, list | None) or not all(isinstance(key, str) for key in clean_keys or ()):
        raise InputError(f"{path}: clean_keys must be a JSON list of texts, not {reprlib.repr(clean_keys)}")
    return {
        "sigma": sigma,
        "deterministic": entry("deterministic", bool),
        "seed": entry("seed", int),
        "env_kwargs": env_kwargs,
        "env_wrappers": env_wrappers,
        "env_versions": env_versions,
        "clean_keys": None if clean_keys is None else sorted(set(clean_keys)),
        "sensor_sigma": sensor_sigma,
        "min_reward": entry("min_reward", float) if "min_reward" in data else None,
        **{key: _at_least(least, f"{path}: {key}", entry(key, int)) if key in data else None for key, least in _LEAST.items()},
        **{key: entry(key, bool) if key in data else None for key in ("native_vec_env", "pixels")},
        "trained_env_id": entry("trained_env_id", str) if "trained_env_id" in data else None,
        "q_gap": _q_gap(path, data) if "q_gap_min" in data else None,
        "recorded": read_recorded(path, data, n_episodes, MOST),
        "looks": read_planned_stop(path, data, n_episodes),
        **texts,
        "env_id": texts["env_id"].split(":")[-1],  # without the package that registers it
    }


def _at_least(least: int, where: str, count: int) -> int:
    if count < least:
        raise InputError(f"{where} is {count}, below {least}")
    return count


def _from_json(where: str, text: str) -> Any:
    try:
        # Infinity and NaN, which Python writes though JSON has none, as texts: so they can be compared, and written as JSON
        value = json.loads(text, parse_constant=str)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not JSON") from None
    return value


def _q_gap(path: Path, data: dict[str, np.ndarray]) -> dict[str, Any]:
    shapes = {"min": 0, "mean": 0, "steps": 0, "levels": 1, "quantiles": 1}
    entries = {name: data.get(f"q_gap_{name}", np.empty(0, dtype=object)) for name in shapes}
    for name, entry in entries.items():
        if entry.dtype.kind not in "iuf" or entry.ndim != shapes[name] or not np.all(np.isfinite(entry)):
            raise InputError(f"{path}: q_gap_{name} must be {'finite numbers' if shapes[name] else 'one finite number'}")
    if entries["levels"].shape != entries["quantiles"].shape:
        raise InputError(f"{path}: q_gap_levels and q_gap_quantiles must have the same length")
    return {name: entry.tolist() for name, entry in entries.items()}
