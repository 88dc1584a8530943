"""The files of an attack: ``attack.json``, ``attack.csv`` and a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_camp.attack_runs.attack_figure import attack_figure
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, BudgetResult, parts_of
from sb3_camp.attack_runs.mean_interval import mean_return
from sb3_camp.certification.certificate_entries import is_number
from sb3_camp.certification.picture_file import save_figure
from sb3_camp.errors import InputError
from sb3_camp.files import json_writer, read_bytes, read_json, sha256, write_files
from sb3_camp.runs.scenario import with_public_names
from sb3_camp.threat_models import THREATS

if TYPE_CHECKING:
    from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes  # which needs PyTorch, as plots do not

ATTACK_FORMAT = "sb3_camp-attack-1"

_COLUMNS = ("budget", "episode", "return", "steps", "budget_spent", "flips")
_TEXTS = ("env_id", "algo", "attack", "objective", "model", "model_sha256")
_NUMBERS = ("sigma", "n_episodes", "q_threshold")
_MEANS = ("mean_steps", "mean_flips", "mean_spent", "max_spent")


def write_attack(attack: AttackResult, played: "AttackedEpisodes", folder: Path) -> list[Path]:
    """
    Write ``attack.csv``, ``attack.png`` and ``attack.json``: all of them or none.

    :param attack: What :func:`attack_result` returned
    :param played: Its episodes
    :param folder: Where to, made if needed
    :return: the files
    :raises InputError: if they cannot be written
    """
    table = _table([one.budget for one in attack.budgets], played)
    content = {
        "format": ATTACK_FORMAT,
        **attack.settings.as_json(),
        "confidence": attack.confidence,
        "interval_method": attack.interval_method,
        "budgets": [
            {one.name: getattr(result, one.name) for one in fields(result) if one.name != "returns"}
            for result in attack.budgets
        ],
        "episodes_sha256": sha256(table),
    }
    files = {
        folder / "attack.csv": lambda file: file.write(table),
        folder / "attack.png": lambda file: save_figure(attack_figure([attack]), file),
        folder / "attack.json": json_writer(content),
    }
    write_files(files)
    return list(files)


def _table(budgets: Sequence[float], played: "AttackedEpisodes") -> bytes:
    """The content of ``attack.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for budget, part in zip(budgets, parts_of(played, len(budgets)), strict=True):
        columns = (part.episodes.returns, part.episodes.lengths, part.budget_spent, part.flips)
        rows = zip(*(values.tolist() for values in columns), strict=True)
        writer.writerows((budget, episode, *row) for episode, row in enumerate(rows))
    return text.getvalue().encode()


def read_attack(path: str | Path) -> AttackResult:
    """
    :param path: An ``attack.json``; the returns are read from the ``attack.csv`` beside it
    :return: the result
    :raises InputError: if it is not a sound one, or if the episodes beside it are those of another attack
    """
    path = Path(path)
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != ATTACK_FORMAT:
        raise InputError(f"{path}: not an attack of the format {ATTACK_FORMAT}")
    settings = _settings(path, content)
    if not is_number(content.get("confidence")) or not 0 < content["confidence"] < 1:
        raise InputError(f"{path}: confidence must be a number between 0 and 1, not {content.get('confidence')!r}")
    budgets = _budgets(path, content.get("budgets"))
    returns = _returns(path, content.get("episodes_sha256"), budgets, settings.n_episodes)
    return AttackResult(
        settings,
        tuple(
            BudgetResult(
                one["budget"],
                one["mean_return"],
                None if one["confidence_interval"] is None else tuple(one["confidence_interval"]),
                **{name: one.get(name) for name in _MEANS},
                returns=values,
            )
            for one, values in zip(budgets, returns, strict=True)
        ),
        content["confidence"],
        str(content.get("interval_method")),
    )


def _settings(path: Path, content: Mapping[str, Any]) -> AttackSettings:
    for key in _TEXTS:
        if not isinstance(content.get(key), str):
            raise InputError(f"{path}: {key} must be a text, not {content.get(key)!r}")
    for key in _NUMBERS:
        if not is_number(content.get(key)) or content[key] < 0:
            raise InputError(f"{path}: {key} must be a number that is at least 0, not {content.get(key)!r}")
    for key in ("env_kwargs", "env_wrappers"):
        if not isinstance(content.get(key), dict):
            raise InputError(f"{path}: {key} must be an object")
    if not isinstance(content.get("deterministic"), bool):
        raise InputError(f"{path}: deterministic must be true or false")
    keys = content.get("clean_keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InputError(f"{path}: clean_keys must be a list of texts")
    if content.get("threat", "episode-l2") not in THREATS:
        raise InputError(f"{path}: threat must be one of {', '.join(THREATS)}, not {content['threat']!r}")
    for key in ("step_size", "multiplier"):
        if content.get(key) is not None and not is_number(content[key]):
            raise InputError(f"{path}: {key} must be a number or null")
    # A setting that is missing is one that there was not when the file was written
    required = [one.name for one in fields(AttackSettings) if one.default is one.default_factory is MISSING]
    known = {one.name: content[one.name] for one in fields(AttackSettings) if one.name in content}
    known["env_wrappers"] = with_public_names(known["env_wrappers"], str(path))
    return AttackSettings(**{**dict.fromkeys(required), **known})


def _budgets(path: Path, budgets: Any) -> list[dict[str, Any]]:
    if not isinstance(budgets, list) or not budgets or not all(map(_is_summary, budgets)):
        raise InputError(
            f"{path}: budgets must be a list of objects with the numbers budget and mean_return, and with "
            "confidence_interval, null or two numbers that ascend"
        )
    values = [one["budget"] for one in budgets]
    if values[0] < 0 or any(np.diff(values) <= 0):
        raise InputError(f"{path}: the budgets must be at least 0 and ascend")
    return budgets


def _is_summary(value: Any) -> bool:
    if not isinstance(value, dict) or not all(is_number(value.get(key)) for key in ("budget", "mean_return")):
        return False
    if not all(value.get(key) is None or is_number(value[key]) for key in _MEANS):
        return False
    interval = value.get("confidence_interval", ())
    if interval is None:
        return True
    if not isinstance(interval, list) or len(interval) != 2 or not all(map(is_number, interval)):
        return False
    return interval[0] <= interval[1]


def _returns(path: Path, digest: Any, budgets: Sequence[Mapping[str, Any]], n_episodes: int) -> list[np.ndarray | None]:
    """The returns at each budget, from the table beside the file; None for each if there is no table."""
    file = path.with_name("attack.csv")
    if not file.is_file():
        return [None] * len(budgets)
    table = read_bytes(file)
    if digest is not None and digest != sha256(table):
        raise InputError(f"{file}: not the episodes of {path}: attack again")
    try:
        header, *rows = csv.reader(io.StringIO(table.decode()))
        values = np.array([[float(row[0]), float(row[2])] for row in rows])
        if tuple(header) != _COLUMNS or not np.all(np.isfinite(values)):
            raise ValueError("other columns, or values that are not finite")
    except (ValueError, IndexError) as error:
        raise InputError(f"{file}: not the episodes of an attack: {error}") from None
    of_budgets = [values[values[:, 0] == one["budget"], 1] for one in budgets]
    # Files of earlier versions have no digest
    same = all(
        returns.size == n_episodes and np.isclose(mean_return(returns), one["mean_return"], rtol=1e-9)
        for one, returns in zip(budgets, of_budgets, strict=True)
    )
    if not same or len(values) != n_episodes * len(budgets):
        raise InputError(f"{file}: not the episodes of {path}: attack again")
    return list(of_budgets)
