"""
Which logs may be pooled: independent episodes of one fixed policy in one environment.

What is doubled, comes from several policies or was written during the training is refused.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from sb3_camp.certification.episode_logs import EpisodeLog, read_header, read_log
from sb3_camp.certification.planned_stop import ENTRIES as LOOK_ENTRIES
from sb3_camp.certification.recorded_values import ENTRIES as RECORD_ENTRIES
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes
from sb3_camp.runs.policy_id import POLICY_KEYS
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import SCENARIO_KEYS

# Entries of an evaluation that decide what its episodes are episodes of
ALIKE = (*SCENARIO_KEYS, "trained_env_id", *POLICY_KEYS)
ALIKE_IF_KNOWN = ("env_versions", "pixels", "step_limit", "noisy_numbers")
# Entries that do not, or that are the episodes themselves, see sb3_camp.evaluation.evaluation_file
MAY_DIFFER = (
    *("format", "versions", "device", "model"),
    *("seed", "first_env_seed", "last_env_seed", "n_episodes", "n_envs", "native_vec_env"),
    *("results", "ep_lengths", "min_reward"),
    *("q_gap", "q_gap_min", "q_gap_mean", "q_gap_steps", "q_gap_levels", "q_gap_quantiles"),
    *(*RECORD_ENTRIES, *LOOK_ENTRIES),
)

# The environments of one call of the zoo's enjoy are made within this many seconds
_ONE_CALL = 60.0
# What a chance of one in a million is in logarithms
_BY_CHANCE = math.log(1e-6)
# A row of a monitor log, which starts with r,l,t
_ROW = re.compile(r"[^,]+,[0-9]+,([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)\s*(?:,|$)")


def read_logs(paths: Sequence[Path]) -> list[EpisodeLog]:
    """
    Read logs whose episodes may be pooled: independent episodes of one policy in one environment.

    :param paths: ``evaluations.npz`` files, ``*.monitor.csv`` files, folders with either, or zoo run folders, which stand for
        their ``certification/evaluations.npz``
    :return: one log per file
    :raises InputError: if a log is not sound or the logs must not be pooled
    """
    files = [file for path in paths for file in _files(Path(path))]
    for index, file in enumerate(files):
        if file.resolve() in {other.resolve() for other in files[:index]}:
            raise InputError(f"{file}: the same file twice")
        if file.suffix == ".csv":
            _refuse_training_log(file)
    logs = [read_log(file) for file in files]
    for first, second in combinations(logs, 2):
        _refuse_pair(first, second)
    _refuse_longer_episodes(logs)
    return logs


def _files(path: Path) -> list[Path]:
    """The logs that a path stands for."""
    if not path.is_dir():
        return [path]
    evaluations = path / "evaluations.npz"
    if RunFolder.is_run_folder(path):
        evaluations = path / "certification" / "evaluations.npz"
        if not evaluations.is_file():
            resume = " --resume" if evaluations.with_name("evaluations.partial.npz").is_file() else ""
            raise InputError(f"{evaluations}: not there yet: run {RunFolder.read(path).evaluate_command()}{resume}")
        return [evaluations]
    monitors = sorted(path.glob("*monitor.csv"))
    if evaluations.is_file() and monitors:
        raise InputError(f"{path}: holds both evaluations.npz and monitor logs: name the one to certify")
    if evaluations.is_file():
        return [evaluations]
    if not monitors:
        if (path / "evaluations.partial.npz").is_file():
            raise InputError(f"{path}: the evaluation was interrupted: finish it with {spelled('evaluate')} --resume")
        raise InputError(f"{path}: neither a zoo run folder nor a folder with *.monitor.csv files or an evaluations.npz")
    return monitors


def _refuse_training_log(file: Path) -> None:
    """A monitor log of the training of a run, wherever in its folder it lies: the policy changed while it was written."""
    for name in dict.fromkeys((file, file.resolve())):
        run = RunFolder.containing(name)
        if run is None:
            continue
        advice = f"evaluate the trained model with {run.evaluate_command()}"
        if RunFolder.is_run_folder(name.parent):
            raise InputError(f"{file}: training episodes, of an exploring and changing policy: {advice}")
        end = _end_of_training(run)
        if end is None:
            raise InputError(
                f"{file}: perhaps training episodes: no *.monitor.csv of the training is left in {run.path} to compare with: "
                f"{advice}"
            )
        if read_header(file)["t_start"] <= end:
            raise InputError(f"{file}: training episodes, or played before the training had ended: {advice}")


def _end_of_training(run: RunFolder) -> float | None:
    """
    When the last episode of the training ended, in seconds since 1970, by the monitor logs that it left in the run folder.

    Not by the time stamp of the model, which a copy of the folder does not keep.
    """
    ends = []
    for file in run.path.glob("*monitor.csv"):
        *rows, _cut_off = read_bytes(file).decode("utf-8", errors="replace").split("\n")
        times = (float(row[1]) for row in map(_ROW.match, reversed(rows[2:])) if row)
        ends.append(read_header(file)["t_start"] + next(times, 0.0))  # none if no episode has ended
    return max(ends, default=None)


def _refuse_longer_episodes(logs: Sequence[EpisodeLog]) -> None:
    """An episode beyond the step limit is of another environment than the one that has it, whose radii stand for less."""
    longest = max(logs, key=lambda log: int(log.lengths.max()))
    for log in logs:
        if log.step_limit is not None and log.step_limit < longest.lengths.max():
            raise InputError(
                f"{longest.path}: holds an episode of {longest.lengths.max()} steps, but by {log.path} none has more than "
                f"{log.step_limit}"
            )


def _refuse_pair(first: EpisodeLog, second: EpisodeLog) -> None:
    """Refuse two logs whose episodes are not independent, or not of one policy."""
    if first.is_monitor != second.is_monitor:
        raise InputError(f"{second.path}: cannot be pooled with {first.path}: one is a monitor log, the other is not")
    if first.sha256 == second.sha256:
        raise InputError(f"{second.path}: the same episodes as in {first.path}")
    _refuse_looks(first, second)
    for name in ALIKE:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise InputError(f"{second.path}: its {name} is {other}, but {first.path} has {one}: they cannot be pooled")
    for name in ALIKE_IF_KNOWN:
        one, other = getattr(first, name), getattr(second, name)
        if one is not None and other is not None and one != other:
            raise InputError(
                f"{second.path}: its {name} is {other}, but {first.path} has {one}: not the same environment any more, so "
                "evaluate both again"
            )
    if not first.is_monitor:
        if not first.is_evaluation:
            raise InputError(f"{second.path}: cannot be pooled with {first.path}: nothing shows that they are of one policy")
        if first.seed == second.seed or _shares_env_seeds(first, second):
            seeds = f"the same seed {first.seed} as" if first.seed == second.seed else "envs with the same seeds as in"
            raise InputError(f"{second.path}: {seeds} {first.path}, so the same episodes: evaluate with another --seed")
    if _starts_alike(first, second):
        raise InputError(f"{second.path}: the same episodes in the same order as in {first.path}: one is a copy of the other")
    if not first.is_monitor:
        return
    assert first.t_start is not None and second.t_start is not None
    if first.t_start == second.t_start or _shares_episodes(first, second):
        raise InputError(
            f"{second.path}: holds episodes that {first.path} holds too: one is a copy of the other, or of a part"
        )
    apart = abs(first.t_start - second.t_start)
    if apart > _ONE_CALL:
        raise InputError(
            f"{second.path}: started {apart:.0f} seconds apart from {first.path}, so not by one call of enjoy, and perhaps of "
            "another policy"
        )


def _refuse_looks(first: EpisodeLog, second: EpisodeLog) -> None:
    for log, other in ((first, second), (second, first)):
        if log.looks is not None:
            raise InputError(
                f"{log.path}: its returns decided how many episodes it has (--until), so it cannot be pooled with "
                f"{other.path}: certify it alone"
            )


def _shares_env_seeds(first: EpisodeLog, second: EpisodeLog) -> bool:
    ranges = (first.first_env_seed, first.last_env_seed), (second.first_env_seed, second.last_env_seed)
    (start, end), (other_start, other_end) = ranges
    if start is None or end is None or other_start is None or other_end is None:
        return False
    return start <= other_end and other_start <= end


def _starts_alike(first: EpisodeLog, second: EpisodeLog) -> bool:
    """Whether one log is the start of the other, which would hardly be so by chance (as where all episodes are alike)."""
    shorter, longer = sorted((list(zip(log.returns, log.lengths, strict=True)) for log in (first, second)), key=len)
    if longer[: len(shorter)] != shorter:
        return False
    tally = Counter(longer)
    return sum(math.log(tally[episode] / len(longer)) for episode in shorter) < _BY_CHANCE


def _shares_episodes(first: EpisodeLog, second: EpisodeLog) -> bool:
    """Whether rows of two monitor logs agree to the microsecond more often than by chance."""
    one, other = (
        set(zip(log.returns, log.lengths, log.times, strict=True)) for log in (first, second) if log.times is not None
    )
    shared, smaller = len(one & other), min(len(one), len(other))
    return shared == smaller or shared >= max(2, 0.01 * smaller)
