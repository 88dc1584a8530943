"""The tables of a study: certified returns, returns under attack, Q-gaps and costs of training, over the seeds."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from figure_data import Agent, Cost, Row, agents_of, at_radius, panels_of, select
from sweep_cells import DEFAULT, gap_text, write_atomically

from sb3_camp.certification.rounded_text import exact, floor_decimals

Table = list[dict[str, str]]

_RADII = {"certified at 0": 0.0, "at sigma/2": 0.5, "at sigma": 1.0, "at 2 sigma": 2.0}


def certified_table(rows: Sequence[Row], method: str) -> Table:
    """
    :param rows: All rows
    :param method: Method of the certificates
    :return: for each agent and checkpoint, medians over the seeds of mean and certified return, and the lowest and highest
        certified return at sigma; certified returns are rounded down, and left out where the certificate of a seed ends before
    """
    table = []
    certified = select(rows, quantity="certified_return", method=method)
    for task, sigma in panels_of(certified):
        part = select(certified, task=task, sigma=sigma)
        for agent in agents_of(part):
            for checkpoint in sorted({row.checkpoint for row in select(part, agent=agent)}):
                own = select(part, agent=agent, checkpoint=checkpoint)
                seeds = {row.seed for row in own}
                which = {"task": task, "sigma": sigma, "agent": agent, "checkpoint": checkpoint}
                means = [row.value for row in select(rows, quantity="mean_return", **which)]
                line = {**_names(task, sigma, agent), "checkpoint": checkpoint, "seeds": str(len(seeds))}
                line["mean return"] = _number(_median(means), 1)
                for title, factor in _RADII.items():
                    line[title] = _of_bounds(statistics.median, at_radius(own, factor * sigma), seeds)
                at_sigma = at_radius(own, sigma)
                line["lowest at sigma"] = _of_bounds(min, at_sigma, seeds)
                line["highest at sigma"] = _of_bounds(max, at_sigma, seeds)
                table.append(line)
    return table


def attack_table(rows: Sequence[Row]) -> Table:
    """
    :param rows: All rows
    :return: for each agent, checkpoint and attack, medians over the seeds of the mean return under it, by budget; left
        out where a seed lacks a budget
    """
    attacked = select(rows, quantity="attacked_return")
    budgets = sorted({row.x for row in attacked})
    table = []
    for task, sigma in panels_of(attacked):
        part = select(attacked, task=task, sigma=sigma)
        for agent in agents_of(part):
            own = select(part, agent=agent)
            for checkpoint, attack in sorted({(row.checkpoint, row.method) for row in own}):
                returns = select(own, checkpoint=checkpoint, method=attack)
                seeds = {row.seed for row in returns}
                line = {**_names(task, sigma, agent), "checkpoint": checkpoint, "attack": attack, "seeds": str(len(seeds))}
                for budget in budgets:
                    values = [row.value for row in select(returns, x=budget)]
                    line[f"at {exact(budget)}"] = _number(_median(values) if len(values) == len(seeds) else math.nan, 1)
                table.append(line)
    return table


def _of_bounds(statistic: Callable[[Iterable[float]], float], bounds: Mapping[int, float], seeds: Collection[int]) -> str:
    """A statistic of the bounds of the seeds, rounded down; empty if one of the seeds has none."""
    return floor_decimals(statistic(bounds.values()), 1) if len(bounds) == len(seeds) else ""


def gap_table(rows: Sequence[Row]) -> Table:
    """
    :param rows: All rows
    :return: for each agent and checkpoint, the gap between the two highest Q-values over the steps of its evaluation: median
        over the seeds of mean and median gap, and the lowest gap of all
    """
    table = []
    gaps = select(rows, quantity="q_gap_mean")
    for task, sigma in panels_of(gaps):
        for agent in agents_of(select(gaps, task=task, sigma=sigma)):
            which = {"task": task, "sigma": sigma, "agent": agent}
            for checkpoint in sorted({row.checkpoint for row in select(gaps, **which)}):
                own = select(rows, **which, checkpoint=checkpoint)
                mean, lowest, median = (
                    [row.value for row in select(own, **wanted)]
                    for wanted in (
                        {"quantity": "q_gap_mean"},
                        {"quantity": "q_gap_min"},
                        {"quantity": "q_gap_quantile", "x": 0.5},
                    )
                )
                line = {**_names(task, sigma, agent), "checkpoint": checkpoint, "seeds": str(len(mean))}
                gaps_of = {"mean": _median(mean), "median": _median(median), "lowest": min(lowest, default=math.nan)}
                line |= {f"{name} gap": "" if math.isnan(gap) else gap_text(gap) for name, gap in gaps_of.items()}
                table.append(line)
    return table


def cost_table(costs: Sequence[Cost]) -> Table:
    """
    :param costs: All rows of ``costs.csv``
    :return: for each task and agent, over all sigmas and seeds: medians of what a training took, and the largest memory
    """
    table = []
    trainings = [cost for cost in costs if cost.step == "train"]
    for task, agent in sorted({(cost.task, cost.agent) for cost in trainings}, key=lambda pair: (pair[0], pair[1].order)):
        own = [cost for cost in trainings if (cost.task, cost.agent) == (task, agent)]
        line = {**_names(task, None, agent), "trainings": str(len(own))}
        line["wall seconds"] = _number(_median([cost.wall_seconds for cost in own]), 0)
        line["CPU seconds"] = _number(_median([cost.cpu_seconds for cost in own]), 0)
        line["steps per second"] = _number(_median([cost.steps_per_second for cost in own]), 0)
        known = [cost.peak_memory_mib for cost in own if not math.isnan(cost.peak_memory_mib)]
        table.append({**line, "peak memory (MiB)": _number(max(known, default=math.nan), 0)})
    return table


def _names(task: str, sigma: float | None, agent: Agent) -> dict[str, str]:
    names = {"task": task, **({} if sigma is None else {"sigma": exact(sigma)}), "algorithm": agent.algo}
    names["lambda"] = "" if agent.camp_lambda is None else exact(agent.camp_lambda)
    return {**names, "variant": "" if agent.variant == DEFAULT else agent.variant}


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def _number(value: float, decimals: int) -> str:
    return "" if math.isnan(value) else f"{value:.{decimals}f}"


def write_table(table: Table, path: Path) -> None:
    """
    Write a table as ``PATH.csv`` and ``PATH.md``, the latter without columns that are empty.

    :param table: The table, not empty
    :param path: The files, without ending
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_atomically(path.with_name(f"{path.name}.csv"), text.getvalue())
    names = [name for name in table[0] if any(line[name] for line in table)]
    lines = [names, ["---"] * len(names), *([line[name] for name in names] for line in table)]
    write_atomically(path.with_name(f"{path.name}.md"), "".join(f"| {' | '.join(line)} |\n" for line in lines))
