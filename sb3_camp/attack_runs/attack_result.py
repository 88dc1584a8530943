"""The files of an attack: ``attack.json``, ``attack.csv`` and a picture."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_camp.attack_runs.attack_figure import attack_figure
from sb3_camp.attack_runs.mean_interval import CONFIDENCE, METHOD, mean_interval, mean_return
from sb3_camp.certification.certificate import is_number
from sb3_camp.certification.picture_file import save_figure
from sb3_camp.errors import InputError
from sb3_camp.files import Write, json_writer, write_files

if TYPE_CHECKING:
    from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes  # which needs PyTorch, as plots do not

ATTACK_FORMAT = "sb3_camp-attack-1"

_COLUMNS = ("budget", "episode", "return", "steps", "budget_spent", "flips")
_TEXTS = ("env_id", "algo", "attack", "objective", "model", "model_sha256")
_NUMBERS = ("sigma", "n_episodes", "q_threshold", "confidence")


def build_attack(settings: dict[str, Any], budgets: Sequence[float], played: "AttackedEpisodes") -> dict[str, Any]:
    """
    Sum up the episodes of an attack.

    :param settings: All that the numbers depend on, as it shall stand in the file; ``n_episodes`` is that of each budget
    :param budgets: The budgets, ascending
    :param played: The episodes of all budgets, one budget after the other
    :return: the content of ``attack.json``
    """
    return {
        "format": ATTACK_FORMAT,
        **_as_read(settings),
        "confidence": CONFIDENCE,
        "interval_method": METHOD,
        "budgets": [_summary(budget, part) for budget, part in zip(budgets, _parts(played, len(budgets)), strict=True)],
    }


def _parts(played: "AttackedEpisodes", n_budgets: int) -> Iterator["AttackedEpisodes"]:
    n_episodes = played.flips.size // n_budgets
    for start in range(0, n_budgets * n_episodes, n_episodes):
        yield played.part(start, start + n_episodes)


def _summary(budget: float, part: "AttackedEpisodes") -> dict[str, Any]:
    returns = part.episodes.returns
    interval = mean_interval(returns)
    return {
        "budget": budget,
        "mean_return": mean_return(returns),
        "confidence_interval": None if interval is None else list(interval),
        "mean_steps": float(part.episodes.lengths.mean()),
        "mean_flips": float(part.flips.mean()),
        "mean_spent": float(part.budget_spent.mean()),
        "max_spent": float(part.budget_spent.max()),
    }


def write_attack(attack: dict[str, Any], played: "AttackedEpisodes", folder: Path) -> list[Path]:
    """
    Write ``attack.csv``, ``attack.png`` and ``attack.json``, each whole or not at all, the last of them last.

    :param attack: What :func:`build_attack` returned
    :param played: Its episodes
    :param folder: Where to, made if needed
    :return: the files
    """
    budgets = [one["budget"] for one in attack["budgets"]]
    files: dict[Path, Write] = {
        folder / "attack.csv": lambda file: file.write(_table(budgets, played).encode()),
        folder / "attack.png": lambda file: save_figure(attack_figure([attack]), file),
        folder / "attack.json": json_writer(attack),
    }
    write_files(files)
    return list(files)


def _table(budgets: Sequence[float], played: "AttackedEpisodes") -> str:
    """The content of ``attack.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for budget, part in zip(budgets, _parts(played, len(budgets)), strict=True):
        columns = (part.episodes.returns, part.episodes.lengths, part.budget_spent, part.flips)
        rows = zip(*(values.tolist() for values in columns), strict=True)
        writer.writerows((budget, episode, *row) for episode, row in enumerate(rows))
    return text.getvalue()


def read_attack(path: str | Path) -> dict[str, Any]:
    """
    :param path: An ``attack.json``
    :return: its content
    :raises InputError: if it is not a sound one
    """
    path = Path(path)
    try:
        attack = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    if not isinstance(attack, dict) or attack.get("format") != ATTACK_FORMAT:
        raise InputError(f"{path}: not an attack of the format {ATTACK_FORMAT}")
    for key in _TEXTS:
        if not isinstance(attack.get(key), str):
            raise InputError(f"{path}: {key} must be a text, not {attack.get(key)!r}")
    for key in _NUMBERS:
        if not is_number(attack.get(key)) or attack[key] < 0:
            raise InputError(f"{path}: {key} must be a number that is at least 0, not {attack.get(key)!r}")
    for key in ("env_kwargs", "env_wrappers"):
        if not isinstance(attack.get(key), dict):
            raise InputError(f"{path}: {key} must be an object")
    if not isinstance(attack.get("deterministic"), bool):
        raise InputError(f"{path}: deterministic must be true or false")
    keys = attack.get("clean_keys")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InputError(f"{path}: clean_keys must be a list of texts")
    for key in ("step_size", "multiplier"):
        if attack.get(key) is not None and not is_number(attack[key]):
            raise InputError(f"{path}: {key} must be a number or null")
    _check_budgets(path, attack.get("budgets"))
    return attack


def differing_setting(attack: Mapping[str, Any], settings: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """
    :param attack: What :func:`read_attack` returned
    :param settings: Settings of another attack
    :param names: Which settings to compare
    :return: the first that differs, with its values, as in "sigma 0.2, not 0.4"; None if all are the same
    """
    for name in names:
        old, new = attack.get(name), _as_read(settings[name])
        if old != new:
            return f"{name} {_text(old)}, not {_text(new)}"
    return None


def _as_read(value: Any) -> Any:
    """What is read again where the value is written: Infinity, which JSON does not know, as a text, as in a certificate."""
    return json.loads(json.dumps(value, default=repr), parse_constant=str)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_budgets(path: Path, budgets: Any) -> None:
    if not isinstance(budgets, list) or not budgets or not all(map(_is_summary, budgets)):
        raise InputError(
            f"{path}: budgets must be a list of objects with the numbers budget and mean_return, and with "
            "confidence_interval, null or two numbers that ascend"
        )
    values = [one["budget"] for one in budgets]
    if values[0] < 0 or any(np.diff(values) <= 0):
        raise InputError(f"{path}: the budgets must be at least 0 and ascend")


def _is_summary(value: Any) -> bool:
    if not isinstance(value, dict) or not all(is_number(value.get(key)) for key in ("budget", "mean_return")):
        return False
    interval = value.get("confidence_interval", ())
    if interval is None:
        return True
    if not isinstance(interval, list) or len(interval) != 2 or not all(map(is_number, interval)):
        return False
    return interval[0] <= interval[1]
