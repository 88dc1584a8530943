"""The tables of a sweep, from what is in the folders of its cells."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sweep_cells import COST_COLUMNS, RESULT_COLUMNS, Cell, gap_text, write_atomically
from sweep_steps import locked

from sb3_camp.attack_runs import read_attack
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.rounded_text import exact, floor_decimals

DECIMALS = 4

Row = tuple[str, str, str, float | None, str]  # checkpoint, quantity, method, x, value


def write_tables(folder: Path) -> Path:
    """
    Write ``results.csv`` and ``costs.csv`` from the steps that are done in the cells of a sweep.

    :param folder: Folder of the sweep
    :return: ``results.csv``
    """
    with locked(folder / ".tables.lock"):
        cells = sorted((read_cell(file) for file in folder.glob("*/cell.json")), key=_cell_order)
        results = [
            [*_cell_texts(cell), checkpoint, quantity, method, "" if x is None else exact(x), value]
            for cell in cells
            for checkpoint, quantity, method, x, value in sorted(_rows(folder, cell), key=_row_order)
        ]
        costs = [[*_cell_texts(cell), *row] for cell in cells for row in _costs(folder, cell)]
        _write(folder / "costs.csv", COST_COLUMNS, costs)
        _write(folder / "results.csv", RESULT_COLUMNS, results)
    return folder / "results.csv"


def read_cell(file: Path) -> Cell:
    """
    :param file: A ``cell.json``
    :return: the cell
    """
    return Cell(**json.loads(file.read_text(encoding="utf-8")))


def _cell_order(cell: Cell) -> tuple:
    first = -1.0 if cell.camp_lambda is None else cell.camp_lambda
    return cell.task, cell.sigma, cell.algo, first, cell.variant, cell.seed


def _row_order(row: Row) -> tuple:
    return *row[:3], -1.0 if row[3] is None else row[3]


def _cell_texts(cell: Cell) -> list[str]:
    texts = [cell.task, exact(cell.sigma), cell.algo]
    return [*texts, "" if cell.camp_lambda is None else exact(cell.camp_lambda), cell.variant, str(cell.seed)]


def _rows(folder: Path, cell: Cell) -> Iterator[Row]:
    run = cell.run_folder(folder)
    for done in (folder / cell.name / "steps").glob("*.json"):
        step, _, rest = done.stem.partition("-")
        checkpoint, _, method = rest.partition("-")
        if step == "train":
            yield from _validation(run / "evaluations.npz")
        elif step == "evaluate":
            yield from _evaluation(run / f"evaluation_{checkpoint}" / "evaluations.npz", checkpoint)
        elif step == "certify":
            yield from _certificate(run / f"evaluation_{checkpoint}" / method / "certificate.json", checkpoint)
        elif step == "attack":
            yield from _attack(run / f"attack_{checkpoint}" / method / "attack.json", checkpoint, method)


def _validation(file: Path) -> Iterator[Row]:
    if not file.is_file():  # --eval-freq -1
        return
    with np.load(file, allow_pickle=False) as content:
        for timestep, returns in zip(content["timesteps"], content["results"], strict=True):
            yield "", "validation_return", "", int(timestep), _rounded(float(returns.mean()))


def _evaluation(file: Path, checkpoint: str) -> Iterator[Row]:
    with np.load(file, allow_pickle=False) as content:
        returns = content["results"]
        yield checkpoint, "n_episodes", "", None, str(returns.size)
        yield checkpoint, "timesteps", "", None, str(int(content["timesteps"][0]))
        yield checkpoint, "mean_return", "", None, _rounded(float(returns.mean()))
        if "q_gap_mean" in content:
            yield checkpoint, "q_gap_mean", "", None, gap_text(float(content["q_gap_mean"]))
            yield checkpoint, "q_gap_min", "", None, gap_text(float(content["q_gap_min"]))
            for level, gap in zip(content["q_gap_levels"], content["q_gap_quantiles"], strict=True):
                yield checkpoint, "q_gap_quantile", "", float(level), gap_text(float(gap))


def _certificate(file: Path, checkpoint: str) -> Iterator[Row]:
    certificate = read_certificate(file)
    for radius, value in zip(certificate.radii, certificate.certified_return, strict=True):
        yield checkpoint, "certified_return", certificate.method, radius, floor_decimals(value, DECIMALS)


def _attack(file: Path, checkpoint: str, name: str) -> Iterator[Row]:
    for one in read_attack(file).budgets:
        low, high = one.confidence_interval or (None, None)
        for quantity, value in (("", one.mean_return), ("_low", low), ("_high", high)):
            if value is not None:
                yield checkpoint, f"attacked_return{quantity}", name, one.budget, _rounded(value)


def _rounded(value: float) -> str:
    return f"{value + 0.0:.{DECIMALS}f}"


def _costs(folder: Path, cell: Cell) -> Iterator[list[str]]:
    for done in sorted((folder / cell.name / "steps").glob("*.json")):
        costs: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        speed = ""
        if done.stem == "train":
            model = cell.run_folder(folder) / f"{cell.task.replace('/', '-')}.zip"
            speed = f"{trained_timesteps(model) / max(costs['wall_seconds'], 0.01):.1f}"
        yield [done.stem, *("" if costs[name] is None else str(costs[name]) for name in COST_COLUMNS[-4:-1]), speed]


def trained_timesteps(model: Path) -> int:
    """
    :param model: A checkpoint of SB3
    :return: steps of the environment that it was trained for
    """
    with zipfile.ZipFile(model) as archive:
        return int(json.loads(archive.read("data"))["num_timesteps"])


def _write(file: Path, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(file, text.getvalue())
