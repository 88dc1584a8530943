"""The tables of a study, ``results.csv`` and ``costs.csv``, from the files that its steps left."""

import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from results import COST_COLUMNS, RESULT_COLUMNS, Cell, gap_text
from study import Study

from sb3_camp.attack_names import ALL
from sb3_camp.attack_runs import BudgetResult, Strongest, read_attack, read_verdict
from sb3_camp.attack_runs.consistency import compare, evaluated_returns, incomparable
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.rounded_text import exact, floor_decimals

DECIMALS = 4

Row = tuple[str, str, str, float | None, str]  # checkpoint, quantity, method, x, value


def write_tables(study: Study, folder: Path, results: str = "results.csv") -> None:
    """
    Write the tables, of what is there, and warn where an attack contradicts a certificate.

    :param study: The study
    :param folder: Folder of its results
    :param results: Name of the table of results
    """
    cells = sorted(study.cells.values(), key=lambda cell: cell.order)
    rows = [
        [*cell.texts, checkpoint, quantity, method, "" if x is None else exact(x), value]
        for cell in cells
        for checkpoint, quantity, method, x, value in sorted(_rows(study, cell, folder), key=_row_order)
    ]
    costs = [[*cell.texts, *row] for cell in cells for row in _costs(cell, folder)]
    pd.DataFrame(costs, columns=COST_COLUMNS).to_csv(folder / "costs.csv", index=False, lineterminator="\n")
    pd.DataFrame(rows, columns=RESULT_COLUMNS).to_csv(folder / results, index=False, lineterminator="\n")
    for cell in cells:
        for line in _contradictions(study, cell, folder):
            print(f"warning: {line}", file=sys.stderr)


def _row_order(row: Row) -> tuple:
    return *row[:3], -1.0 if row[3] is None else row[3]


def _rows(study: Study, cell: Cell, folder: Path) -> Iterator[Row]:
    yield from _validation(folder / cell.run / "evaluations.npz")
    for checkpoint in study.checkpoints(cell):
        shards = [folder / cell.shard(checkpoint, shard) / "evaluations.npz" for shard in range(study.evaluate["shards"])]
        if all(file.is_file() for file in shards):
            yield from _evaluation(shards, checkpoint)
        for method in study.methods(cell):
            yield from _certificate(folder / cell.certificate(checkpoint, method) / "certificate.json", checkpoint)
    for checkpoint, name in study.attacks[cell.name]:
        for file, one in _attack_files(cell, folder, checkpoint, name):
            yield from _attack(read_attack(file).budgets, checkpoint, one)
        for verdict in (folder / cell.attack(checkpoint, name)).glob("verdict_sigma*.json"):
            yield from _attack(read_verdict(verdict)[1], checkpoint, name)


def _validation(file: Path) -> Iterator[Row]:
    if not file.is_file():  # as without validations
        return
    with np.load(file, allow_pickle=False) as content:
        for timestep, returns in zip(content["timesteps"], content["results"], strict=True):
            yield "", "validation_return", "", int(timestep), _rounded(float(returns.mean()))


def _evaluation(shards: list[Path], checkpoint: str) -> Iterator[Row]:
    logs = [dict(np.load(file, allow_pickle=False)) for file in shards]
    returns = np.concatenate([log["results"].ravel() for log in logs])
    yield checkpoint, "n_episodes", "", None, str(returns.size)
    yield checkpoint, "timesteps", "", None, str(int(logs[0]["timesteps"][0]))
    yield checkpoint, "mean_return", "", None, _rounded(float(returns.mean()))
    if all("q_gap_mean" in log for log in logs):
        mean = np.average([log["q_gap_mean"] for log in logs], weights=[log["q_gap_steps"] for log in logs])
        yield checkpoint, "q_gap_mean", "", None, gap_text(float(mean))
        yield checkpoint, "q_gap_min", "", None, gap_text(float(min(log["q_gap_min"] for log in logs)))
        # Quantiles of shards do not tell those of all their steps
        for log in logs if len(logs) == 1 else []:
            for level, gap in zip(log["q_gap_levels"], log["q_gap_quantiles"], strict=True):
                yield checkpoint, "q_gap_quantile", "", float(level), gap_text(float(gap))


def _certificate(file: Path, checkpoint: str) -> Iterator[Row]:
    if not file.is_file():
        return
    certificate = read_certificate(file)
    for radius, value in zip(certificate.radii, certificate.certified_return, strict=True):
        yield checkpoint, "certified_return", certificate.method, radius, floor_decimals(value, DECIMALS)


def _attack_files(cell: Cell, folder: Path, checkpoint: str, name: str) -> Iterator[tuple[Path, str]]:
    """The results of an attack, or of each of all, and what it is called."""
    attack, _, sigma = name.partition("-sigma")
    own = folder / cell.attack(checkpoint, name)
    files = [(own / "attack.json", name)]
    if attack == ALL:
        suffix = f"_sigma{sigma or exact(cell.sigma)}"
        found = sorted(own.glob(f"*{suffix}/attack.json"))
        files = [(file, file.parent.name.replace(suffix, "-sigma0" if sigma else "")) for file in found]
    yield from [(file, one) for file, one in files if file.is_file()]


def _attack(budgets: Sequence[BudgetResult | Strongest], checkpoint: str, name: str) -> Iterator[Row]:
    for one in budgets:
        low, high = one.confidence_interval or (None, None)
        for quantity, value in (("", one.mean_return), ("_low", low), ("_high", high)):
            if value is not None:
                yield checkpoint, f"attacked_return{quantity}", name, one.budget, _rounded(value)


def _rounded(value: float) -> str:
    return f"{value + 0.0:.{DECIMALS}f}"


def _costs(cell: Cell, folder: Path) -> Iterator[list[str]]:
    """What the engine measured of each step: that of the last attempt."""
    for file in sorted((folder / "costs" / cell.name).glob("*.tsv")):
        measured = pd.read_csv(file, sep="\t").iloc[-1]
        speed = ""
        model = folder / cell.model("last")
        if file.stem == "train" and model.is_file():
            speed = f"{_trained_timesteps(model) / max(measured['s'], 0.01):.1f}"
        texts = ("" if pd.isna(measured[name]) else f"{measured[name]:.2f}" for name in ("s", "cpu_time", "max_rss"))
        yield [file.stem, *texts, speed]


def _trained_timesteps(model: Path) -> int:
    with zipfile.ZipFile(model) as archive:
        return int(json.loads(archive.read("data"))["num_timesteps"])


def _contradictions(study: Study, cell: Cell, folder: Path) -> Iterator[str]:
    """Attacks that contradict a certificate."""
    attacks = study.attacks[cell.name]
    files = [(checkpoint, file) for checkpoint, name in attacks for file, _ in _attack_files(cell, folder, checkpoint, name)]
    for checkpoint, file in files:
        certified = folder / cell.certificate(checkpoint, "berk-jones") / "certificate.json"
        if not certified.is_file():
            continue
        attack, certificate = read_attack(file), read_certificate(certified)
        if incomparable(attack, certificate) is None:
            for one in compare(attack, certificate, evaluated_returns(certificate, certified)).violations:
                yield (
                    f"{file}: at budget {exact(one.budget)} the mean return is {one.mean_return:.2f}, in contradiction to the "
                    f"certified {one.certified:.2f}"
                )
