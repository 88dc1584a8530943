"""The tables of studies, read and checked, and summaries over the seeds: certified returns, attacks, Q-gaps and costs."""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from results import COST_COLUMNS, DEFAULT, RESULT_COLUMNS, gap_text

from sb3_camp.certification.rounded_text import exact, floor_decimals
from sb3_camp.errors import InputError

NO_LAMBDA = -1.0
"""Stands for an empty ``camp_lambda``, so that it can be grouped by, and comes first."""

AGENT = ["algo", "camp_lambda", "variant"]
"""What is compared: an algorithm with its settings, over all seeds."""

_OF_AGENT = ("task", "sigma", *AGENT, "seed")

_RADII = {"certified at 0": 0.0, "at sigma/2": 0.5, "at sigma": 1.0, "at 2 sigma": 2.0}


def read_results(files: Sequence[Path]) -> pd.DataFrame:
    """
    :param files: ``results.csv`` of one or several studies
    :return: their rows, with numbers in the columns ``sigma``, ``seed``, ``x`` and ``value``
    :raises InputError: if one is no such table, or if they give two values for the same thing
    """
    frames = [_read(file, "results", RESULT_COLUMNS, ("sigma", "x", "value")) for file in files]
    for file, frame in zip(files, frames, strict=True):
        wrong = frame.index[~np.isfinite(frame.value)]
        if len(wrong):
            raise InputError(f"{file}, line {wrong[0]}: the value is not a finite number")
    rows = pd.concat(frames).drop_duplicates()
    if (doubled := rows.duplicated(list(RESULT_COLUMNS[:-1]))).any():
        first = rows[doubled].iloc[0]
        cell = f"{first.task}, sigma {exact(first.sigma)}, {agent_label(first)}, seed {first.seed}"
        raise InputError(f"{cell}: the tables have several values of its {first.quantity}: join no two such studies")
    return rows.reset_index(drop=True)


def read_costs(files: Sequence[Path]) -> pd.DataFrame:
    """
    :param files: ``costs.csv`` of one or several studies
    :return: their rows; numbers are nan where they are empty
    :raises InputError: if one is no such table
    """
    frames = [_read(file, "costs", COST_COLUMNS, ("sigma", *COST_COLUMNS[-4:])) for file in files]
    return pd.concat(frames) if frames else pd.DataFrame(columns=list(COST_COLUMNS))


def _read(file: Path, kind: str, columns: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            reader = csv.reader(opened, strict=True)
            lines = {}
            for fields in reader:
                lines[reader.line_num] = fields
    except (UnicodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read as a table: {error}") from None
    if lines.pop(1, None) != list(columns):
        raise InputError(f"{file}: not the {kind}.csv of a study: its columns must be {','.join(columns)}")
    for number, fields in lines.items():
        if len(fields) != len(columns):
            raise InputError(f"{file}, line {number}: not as many fields as columns")
    frame = pd.DataFrame(list(lines.values()), index=list(lines), columns=list(columns), dtype=str)
    for name in numbers:
        frame[name] = _numbers(file, frame[name])
    frame["camp_lambda"] = _numbers(file, frame.camp_lambda).fillna(NO_LAMBDA)
    seeds = _numbers(file, frame.seed)
    if len(wrong := frame.index[seeds.isna() | (seeds % 1 != 0)]):
        raise InputError(f"{file}, line {wrong[0]}: {frame.seed[wrong[0]]!r} is no seed")
    return frame.assign(seed=seeds.astype(int))


def _numbers(file: Path, texts: pd.Series) -> pd.Series:
    """Numbers, nan where there is nothing."""
    found = pd.to_numeric(texts.where(texts != ""), errors="coerce")
    wrong = texts.index[found.isna() & ~texts.str.lower().isin(["", "nan"])]
    if len(wrong):
        raise InputError(f"{file}, line {wrong[0]}: {texts.name} {texts[wrong[0]]!r} is no number")
    return found.astype(float)


def only(rows: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """
    :param rows: Rows of results or costs
    :param conditions: ``COLUMN=TEXT[,TEXT ...]`` for columns that say of which agent a row is; ``*`` stands for anything
    :return: the rows that satisfy all of them
    :raises InputError: if one is no such condition
    """
    for condition in conditions:
        column, equals, texts = condition.partition("=")
        if not equals or column not in _OF_AGENT:
            raise InputError(f"--only {condition}: give COLUMN=TEXT[,TEXT] with one of the columns {', '.join(_OF_AGENT)}")
        patterns = texts.split(",")
        fits = {value: any(fnmatchcase(_text(value), pattern) for pattern in patterns) for value in rows[column].unique()}
        rows = rows[rows[column].map(fits).astype(bool)]
    return rows


def _text(value: Any) -> str:
    """As in the table."""
    if isinstance(value, str):
        return value
    return "" if value == NO_LAMBDA else exact(float(value))


def read_reference(file: Path) -> dict[tuple[str, float, str], pd.Series]:
    """
    :param file: Certified returns of a reference: columns ``task``, ``sigma``, ``method``, and ``certified_at_R`` for radii R
    :return: certified returns by radius, by task (without ``camp/`` and version), sigma and method
    :raises InputError: if it is no such table
    """
    try:
        frame = pd.read_csv(file)
        names = [name for name in frame if name.startswith("certified_at_")]
        if not {"task", "sigma", "method"} <= set(frame) or not names:
            raise InputError(f"{file}: not a reference: it needs the columns task, sigma, method and certified_at_R")
        curves = frame[names].astype(float).set_axis([float(name.removeprefix("certified_at_")) for name in names], axis=1)
        if curves.isna().any(axis=None):
            raise ValueError("a certified return is missing")
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
    keys = zip(frame.task.map(short_task), frame.sigma.astype(float), frame.method, strict=True)
    return {key: curves.loc[index].sort_index() for key, index in zip(keys, frame.index, strict=True)}


def short_task(task: str) -> str:
    """Id of a task without namespace and version."""
    return re.sub(r"-v\d+$", "", task.rpartition("/")[2])


def agent_label(row: pd.Series) -> str:
    """
    :param row: ``algo``, ``camp_lambda`` and ``variant``
    :return: name of the agent in a legend
    """
    constant = f"lambda {exact(row.camp_lambda)}" if row.camp_lambda != NO_LAMBDA else ""
    return ", ".join(part for part in (row.algo, constant, "" if row.variant == DEFAULT else row.variant) if part)


def by_numbers(key: Iterable[Any]) -> list[Any]:
    """
    :param key: The columns ``AGENT`` of an agent
    :return: what to sort agents by: numbers in a name by their size, so that ``ramp2`` comes before ``ramp16``
    """
    return [
        [float(part) if position % 2 else part for position, part in enumerate(re.split(r"(\d+(?:\.\d+)?)", value))]
        if isinstance(value, str)
        else value
        for value in key
    ]


def at_radius(rows: pd.DataFrame, radius: float) -> pd.Series:
    """
    :param rows: Certified returns of one agent by one method
    :param radius: A radius
    :return: the certified return of each seed there: the value at its next radius, which holds for all smaller ones; without
        the seeds whose certificate ends before
    """
    return rows[rows.x >= radius].sort_values("x").groupby("seed").value.first()


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """
    :param rows: Rows of one quantity of one agent
    :return: columns ``median``, ``min``, ``max`` and ``size`` (number of seeds) by x, of the x that all seeds have
    """
    curves = rows.groupby("x").value.agg(["median", "min", "max", "size"])
    return curves[curves["size"] == rows.seed.nunique()]


def certified_table(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """
    :param rows: All rows
    :param method: Method of the certificates
    :return: for each agent and checkpoint, medians over the seeds of mean and certified return, and the lowest and highest
        certified return at sigma; certified returns are rounded down, and left out where the certificate of a seed ends before
    """
    certified = rows[(rows.quantity == "certified_return") & (rows.method == method)]
    by = ["task", "sigma", *AGENT, "checkpoint"]
    means = rows[rows.quantity == "mean_return"].groupby(by).value.median()

    def line(key: tuple, own: pd.DataFrame) -> dict[str, str]:
        def of_bounds(statistic: str, radius: float) -> str:
            bounds = at_radius(own, radius)
            return floor_decimals(bounds.agg(statistic), 1) if len(bounds) == own.seed.nunique() else ""

        sigma = key[1]
        return {
            "mean return": _number(means.get(key), 1),
            **{title: of_bounds("median", factor * sigma) for title, factor in _RADII.items()},
            "lowest at sigma": of_bounds("min", sigma),
            "highest at sigma": of_bounds("max", sigma),
        }

    return _table(certified, by, line)


def envelope(rows: pd.DataFrame) -> pd.DataFrame:
    """
    The best of several sigmas at each radius, by the median over the seeds.

    It is a summary of what the noise of a deployment is worth, not a certificate: the one that is best was picked after the
    fact, and each policy was certified at the alpha of its own (see :func:`sb3_camp.certification.certified_frontier`).

    :param rows: Certified returns of one agent, checkpoint and method, with several sigmas
    :return: columns ``sigma`` (the best) and its ``median``, ``min``, ``max`` and ``size`` by x, of the x that all sigmas have
    """
    of_sigma = {sigma: over_seeds(own) for sigma, own in rows.groupby("sigma")}
    medians = pd.DataFrame({sigma: curve["median"] for sigma, curve in of_sigma.items()}).dropna()
    best = medians.idxmax(axis=1)
    found = [of_sigma[sigma].loc[x].rename(x) for x, sigma in best.items()]
    return pd.DataFrame(found, index=best.index, columns=["median", "min", "max", "size"]).assign(sigma=best)


def frontier_table(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """
    :param rows: All rows
    :param method: Method of the certificates
    :return: for each agent and checkpoint with several sigmas, the best median over the sigmas at each of some radii, rounded
        down, with that sigma; and behind it what the agent has whose sigma is the radius
    """
    certified = rows[(rows.quantity == "certified_return") & (rows.method == method)]
    several = certified.groupby(["task", *AGENT, "checkpoint"]).sigma.transform("nunique") > 1
    shown = sorted(certified[several].sigma.unique())

    def line(_: tuple, own: pd.DataFrame) -> dict[str, str]:
        best = envelope(own)
        at = {radius: best[best.index >= radius].iloc[:1] for radius in shown}
        own_sigma = {radius: over_seeds(own[own.sigma == radius])["median"].get(radius) for radius in shown}

        def text(radius: float) -> str:
            if at[radius].empty:
                return ""
            value, sigma = at[radius]["median"].iloc[0], at[radius].sigma.iloc[0]
            has_own = own_sigma[radius] is not None and sigma != radius
            beside = f"; {exact(radius)}: {floor_decimals(own_sigma[radius], 1)}" if has_own else ""
            return f"{floor_decimals(value, 1)} (sigma {exact(sigma)}{beside})"

        sigmas = ", ".join(exact(sigma) for sigma in sorted(own.sigma.unique()))
        return {"sigmas": sigmas, **{f"at {exact(radius)}": text(radius) for radius in shown}}

    return _table(certified[several], ["task", *AGENT, "checkpoint"], line)


def attack_table(rows: pd.DataFrame) -> pd.DataFrame:
    """
    :param rows: All rows
    :return: for each agent, checkpoint and attack, medians over the seeds of the mean return under it, by budget; left
        out where a seed lacks a budget
    """
    attacked = rows[rows.quantity == "attacked_return"].rename(columns={"method": "attack"})
    budgets = sorted(attacked.x.unique())

    def line(_: tuple, own: pd.DataFrame) -> dict[str, str]:
        medians = over_seeds(own)["median"]
        return {f"at {exact(budget)}": _number(medians.get(budget), 1) for budget in budgets}

    return _table(attacked, ["task", "sigma", *AGENT, "checkpoint", "attack"], line)


def gap_table(rows: pd.DataFrame) -> pd.DataFrame:
    """
    :param rows: All rows
    :return: for each agent and checkpoint, the gap between the two highest Q-values over the steps of its evaluation: median
        over the seeds of mean and median gap, and the lowest gap of all
    """
    gaps = rows[rows.quantity.isin(["q_gap_mean", "q_gap_min"]) | ((rows.quantity == "q_gap_quantile") & (rows.x == 0.5))]

    def line(_: tuple, own: pd.DataFrame) -> dict[str, str]:
        values = own.groupby("quantity").value
        found = {"mean": values.median().get("q_gap_mean"), "median": values.median().get("q_gap_quantile")}
        found["lowest"] = values.min().get("q_gap_min")
        return {f"{name} gap": "" if value is None else gap_text(value) for name, value in found.items()}

    return _table(gaps, ["task", "sigma", *AGENT, "checkpoint"], line)


def cost_table(costs: pd.DataFrame) -> pd.DataFrame:
    """
    :param costs: All rows of ``costs.csv``
    :return: for each task and agent, over all sigmas and seeds: medians of what a training took, and the largest memory
    """

    def line(_: tuple, own: pd.DataFrame) -> dict[str, str]:
        medians = own[["wall_seconds", "cpu_seconds", "steps_per_second"]].median()
        return {
            "trainings": str(len(own)),
            "wall seconds": _number(medians.wall_seconds, 0),
            "CPU seconds": _number(medians.cpu_seconds, 0),
            "steps per second": _number(medians.steps_per_second, 0),
            "peak memory (MiB)": _number(own.peak_memory_mib.max(), 0),
        }

    return _table(costs[costs.step == "train"], ["task", *AGENT], line).drop(columns="seeds", errors="ignore")


def _table(rows: pd.DataFrame, by: list[str], line: Callable[[tuple, pd.DataFrame], dict[str, str]]) -> pd.DataFrame:
    """A row of texts for each group, with the names of the group and its number of seeds."""
    lines = []
    for key, own in rows.groupby(by):
        names = dict(zip(by, key, strict=True))
        names = {name: exact(value) if name == "sigma" else value for name, value in names.items()}
        names["camp_lambda"] = exact(names["camp_lambda"]) if names["camp_lambda"] != NO_LAMBDA else ""
        names["variant"] = "" if names["variant"] == DEFAULT else names["variant"]
        lines.append({**names, "seeds": str(own.seed.nunique()), **line(key, own)})
    return pd.DataFrame(lines).rename(columns={"algo": "algorithm", "camp_lambda": "lambda"})


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.{decimals}f}"


def write_table(table: pd.DataFrame, path: Path) -> None:
    """
    Write a table of texts as ``PATH.csv``, and without columns that are empty as ``PATH.md`` and ``PATH.html``.

    :param table: The table
    :param path: The files, without ending
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path.with_name(f"{path.name}.csv"), index=False, lineterminator="\n")
    shown = table.loc[:, (table != "").any()]
    shown.to_html(path.with_name(f"{path.name}.html"), index=False)
    lines = [list(shown), ["---"] * shown.shape[1], *shown.to_numpy().tolist()]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    path.with_name(f"{path.name}.md").write_text(text, encoding="utf-8")
