"""What the tables of sweeps hold, as the figures need it: curves over several seeds."""

import csv
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sweep_cells import COST_COLUMNS, DEFAULT, RESULT_COLUMNS

from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError


class Agent(NamedTuple):
    """
    What is compared: an algorithm with its settings, over all seeds.

    :param algo: The zoo's name of the algorithm
    :param camp_lambda: CAMP's lambda, None for that of its hyper-parameters
    :param variant: Change of hyper-parameters
    """

    algo: str
    camp_lambda: float | None
    variant: str

    @property
    def label(self) -> str:
        """Its name in a legend."""
        parts = [self.algo, "" if self.camp_lambda is None else f"lambda {exact(self.camp_lambda)}"]
        return ", ".join(part for part in [*parts, "" if self.variant == DEFAULT else self.variant] if part)

    @property
    def order(self) -> tuple:
        """Where it stands among others."""
        return self.algo, -1.0 if self.camp_lambda is None else self.camp_lambda, self.variant


class Row(NamedTuple):
    """A row of ``results.csv``; ``x`` is nan where it is empty."""

    task: str
    sigma: float
    agent: Agent
    seed: int
    checkpoint: str
    quantity: str
    method: str
    x: float
    value: float


class Cost(NamedTuple):
    """A row of ``costs.csv``; numbers are nan where they are empty."""

    task: str
    agent: Agent
    sigma: float
    seed: int
    step: str
    wall_seconds: float
    cpu_seconds: float
    peak_memory_mib: float
    steps_per_second: float


class Curve(NamedTuple):
    """A quantity over several seeds: median, lowest and highest at each x that all seeds have."""

    x: list[float]
    median: list[float]
    low: list[float]
    high: list[float]
    n_seeds: int


def read_results(files: Sequence[Path]) -> list[Row]:
    """
    :param files: ``results.csv`` of one or several sweeps
    :return: their rows
    :raises InputError: if one is no such table, or if they give two values for the same thing
    """
    rows: dict[tuple, Row] = {}
    for file in files:
        for line, record in _records(file, RESULT_COLUMNS):
            try:
                x = math.nan if record["x"] == "" else float(record["x"])
                texts = (record["checkpoint"], record["quantity"], record["method"])
                row = Row(
                    record["task"],
                    float(record["sigma"]),
                    _agent(record),
                    int(record["seed"]),
                    *texts,
                    x,
                    float(record["value"]),
                )
            except ValueError as error:
                raise InputError(f"{file}, line {line}: {error}") from None
            if not math.isfinite(row.value):
                raise InputError(f"{file}, line {line}: the value is not a finite number")
            key = (*row[:7], record["x"] and x)
            if key in rows and rows[key].value != row.value:
                raise InputError(
                    f"{file}, line {line}: another value for the same cell is in the tables: join no two such sweeps"
                )
            rows[key] = row
    return list(rows.values())


def read_costs(files: Sequence[Path]) -> list[Cost]:
    """
    :param files: ``costs.csv`` of one or several sweeps
    :return: their rows
    :raises InputError: if one is no such table
    """
    costs = []
    for file in files:
        for line, record in _records(file, COST_COLUMNS):
            try:
                numbers = [math.nan if record[name] == "" else float(record[name]) for name in COST_COLUMNS[-4:]]
                sigma, seed = float(record["sigma"]), int(record["seed"])
                costs.append(Cost(record["task"], _agent(record), sigma, seed, record["step"], *numbers))
            except ValueError as error:
                raise InputError(f"{file}, line {line}: {error}") from None
    return costs


def _records(file: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    try:
        with open(file, newline="", encoding="utf-8") as opened:
            reader = csv.DictReader(opened, strict=True)
            if list(reader.fieldnames or ()) != list(columns):
                kind = "results" if columns == RESULT_COLUMNS else "costs"
                raise InputError(f"{file}: not the {kind}.csv of a sweep: its columns must be {','.join(columns)}")
            records = [(reader.line_num, record) for record in reader]
    except (UnicodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read as a table: {error}") from None
    for line, record in records:
        if None in record or None in record.values():
            raise InputError(f"{file}, line {line}: not as many fields as columns")
    return records


def _agent(record: dict[str, str]) -> Agent:
    text = record["camp_lambda"]
    return Agent(record["algo"], float(text) if text else None, record["variant"])


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """
    :param rows: Rows
    :param wanted: Values of some of their fields
    :return: the rows that have them
    """
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def agents_of(rows: Iterable[Row]) -> list[Agent]:
    """The agents of some rows, each once, in their order."""
    return sorted({row.agent for row in rows}, key=lambda agent: agent.order)


def panels_of(rows: Iterable[Row]) -> list[tuple[str, float]]:
    """The pairs of task and sigma of some rows, each once, in their order."""
    return sorted({(row.task, row.sigma) for row in rows})


def curve(rows: Sequence[Row]) -> Curve:
    """
    :param rows: Rows of one quantity of one agent
    :return: its curve over the seeds
    """
    by_seed: dict[int, dict[float, float]] = {}
    for row in rows:
        by_seed.setdefault(row.seed, {})[row.x] = row.value
    common = sorted(set.intersection(*map(set, by_seed.values()))) if by_seed else []
    return summary({x: [values[x] for values in by_seed.values()] for x in common})


def summary(values: Mapping[float, Sequence[float]]) -> Curve:
    """
    :param values: For each x the values of the seeds
    :return: the curve over the seeds
    """
    columns = list(values.values())
    medians = [statistics.median(column) for column in columns]
    n_seeds = max(map(len, columns), default=0)
    return Curve(list(values), medians, [min(column) for column in columns], [max(column) for column in columns], n_seeds)


def at_radius(rows: Sequence[Row], radius: float) -> dict[int, float]:
    """
    :param rows: Certified returns of one agent by one method
    :param radius: A radius
    :return: the certified return of each seed there: the value at its next radius, which holds for all smaller ones; without
        the seeds whose certificate ends before
    """
    found: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row.x):
        if row.x >= radius:
            found.setdefault(row.seed, row.value)
    return found


def read_reference(file: Path) -> dict[tuple[str, float, str], dict[float, float]]:
    """
    :param file: Certified returns of a reference: columns ``task``, ``sigma``, ``method``, and ``certified_at_R`` for radii R
    :return: radii and certified returns by task (without ``camp/`` and version), sigma and method
    :raises InputError: if it is no such table
    """
    found = {}
    with open(file, newline="", encoding="utf-8") as opened:
        reader = csv.DictReader(opened)
        names = [name for name in reader.fieldnames or () if name.startswith("certified_at_")]
        if not {"task", "sigma", "method"} <= set(reader.fieldnames or ()) or not names:
            raise InputError(f"{file}: not a reference: it needs the columns task, sigma, method and certified_at_R")
        for record in reader:
            try:
                radii = {float(name.removeprefix("certified_at_")): float(record[name]) for name in names}
                found[short_task(record["task"]), float(record["sigma"]), record["method"]] = dict(sorted(radii.items()))
            except (TypeError, ValueError) as error:
                raise InputError(f"{file}, line {reader.line_num}: {error}") from None
    return found


def short_task(task: str) -> str:
    """Id of a task without namespace and version."""
    return re.sub(r"-v\d+$", "", task.rpartition("/")[2])
