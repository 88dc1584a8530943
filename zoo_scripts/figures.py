"""
Draw what is in the tables of sweeps: certified curves, lambda ablation, validation curves and attacks, with tables of
certified returns, returns under attack, Q-gaps and costs. Only what the tables have data for is made.

Curves are medians over the seeds, bands go from the lowest to the highest seed.
Example: python zoo_scripts/figures.py sweep/results.csv -o figures --format png pdf
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figure_data import (
    Agent,
    Curve,
    Row,
    agents_of,
    at_radius,
    curve,
    panels_of,
    read_costs,
    read_reference,
    read_results,
    select,
    short_task,
    summary,
)
from figure_tables import attack_table, certified_table, cost_table, gap_table, write_table
from matplotlib import rc_context
from matplotlib.figure import Figure

from sb3_camp.certification.bands import METHODS
from sb3_camp.certification.curve_style import curve_styles, shown_label
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = dict[str, dict[str, str]]
Reference = dict[tuple[str, float, str], dict[float, float]]


def certified_figure(rows: Sequence[Row], styles: Styles, reference: Reference) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :param reference: What :func:`figure_data.read_reference` returned
    :return: a staircase for each agent, as the value at a radius holds for all smaller ones
    """
    figure, axes = _picture("certified expected return")
    for agent in agents_of(rows):
        _draw(axes, curve(select(rows, agent=agent)), agent.label, styles[agent.label], steps=True)
    row = rows[0]
    line = reference.get((short_task(row.task), row.sigma, row.method))
    if line is not None:
        axes.plot(
            *_from_zero(list(line), list(line.values())),
            drawstyle="steps-pre",
            color="0.4",
            linestyle="--",
            label="linear policy",
        )
    axes.set_xlabel("l2 norm of the attack on the observations of an episode")
    _with_origin(axes, rows)
    return _finished(figure, axes, f"{row.task}, sigma {exact(row.sigma)}, {row.checkpoint} checkpoint, {row.method}")


def lambda_figure(rows: Sequence[Row], styles: Styles) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :return: certified return at the radius sigma for each lambda, and as level lines that of the other agents
    """
    sigma = rows[0].sigma
    figure, axes = _picture(f"certified expected return at radius {exact(sigma)}")
    values = {agent: list(at_radius(select(rows, agent=agent), sigma).values()) for agent in agents_of(rows)}
    lambdas = sorted({agent.camp_lambda for agent in values if agent.camp_lambda is not None})
    groups = sorted({(agent.algo, agent.variant) for agent in values if agent.camp_lambda is not None})
    for algo, variant in groups:
        points = {lambdas.index(value): values.get(Agent(algo, value, variant), []) for value in lambdas}
        line = summary({x: seeds for x, seeds in points.items() if seeds})
        label = Agent(algo, None, variant).label
        _draw(axes, line, label, {**styles[label], "marker": "o"})
    for agent, seeds in values.items():
        if agent.camp_lambda is None and seeds:
            axes.axhline(statistics.median(seeds), label=shown_label(agent.label), **_line(styles[agent.label]))
    axes.set_xticks(range(len(lambdas)), [exact(value) for value in lambdas])
    axes.set_xlabel("lambda")
    row = rows[0]
    return _finished(figure, axes, f"{row.task}, sigma {exact(sigma)}, {row.checkpoint} checkpoint, {row.method}")


def validation_figure(rows: Sequence[Row], styles: Styles) -> Figure:
    """
    :param rows: Validation returns of one task and sigma
    :param styles: Style of each label
    :return: mean return of the validation during the training of each agent
    """
    figure, axes = _picture("mean return of the validation")
    for agent in agents_of(rows):
        _draw(axes, curve(select(rows, agent=agent)), agent.label, styles[agent.label])
    axes.set_xlabel("steps of the environment")
    return _finished(figure, axes, f"{rows[0].task}, sigma {exact(rows[0].sigma)}")


def attack_figure(attacked: Sequence[Row], certified: Sequence[Row], styles: Styles) -> Figure:
    """
    :param attacked: Attacked returns of one task, sigma and checkpoint
    :param certified: Certified returns of the same by one method; none for attacks without noise, of which they say nothing
    :param styles: Style of each label
    :return: mean return under each attack, with markers, and the certified curve of each agent without them, up to the largest
        budget
    """
    figure, axes = _picture("mean return under attack, certified expected return")
    largest = max(row.x for row in attacked)
    attacks = sorted({row.method for row in attacked})
    for agent in agents_of(attacked):
        style = styles[agent.label]
        for index, attack in enumerate(attacks):
            rows = select(attacked, agent=agent, method=attack)
            if rows:
                _draw(axes, curve(rows), f"{agent.label}: {attack}", {**style, "marker": "osD^v"[index % 5]}, band=False)
        bound = curve([row for row in select(certified, agent=agent) if row.x <= largest])
        if bound.x:
            _draw(axes, bound, f"{agent.label}: certified", style, steps=True, band=False)
    axes.set_xlabel("budget: l2 norm of the attack on the observations of an episode")
    _with_origin(axes, attacked)
    row = attacked[0]
    return _finished(figure, axes, f"{row.task}, sigma {exact(row.sigma)}, {row.checkpoint} checkpoint")


def _picture(ylabel: str) -> "tuple[Figure, Axes]":
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel(ylabel)
    return figure, axes


def _finished(figure: Figure, axes: "Axes", title: str) -> Figure:
    axes.set_title(title, fontsize="small")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _with_origin(axes: "Axes", rows: Sequence[Row]) -> None:
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, *(row.value for row in rows)))


def _line(style: dict[str, str]) -> dict[str, Any]:
    return {name: style[name] for name in ("color", "linestyle")}


def _draw(axes: "Axes", line: Curve, label: str, style: dict[str, str], *, steps: bool = False, band: bool = True) -> None:
    x, median = _from_zero(line.x, line.median) if steps else (line.x, line.median)
    text = label + (f" (median of {line.n_seeds})" if line.n_seeds > 1 else "")
    marker = "" if steps and len(x) > 1 else style["marker"]
    axes.plot(
        x,
        median,
        drawstyle="steps-pre" if steps else "default",
        marker=marker,
        markersize=4,
        label=shown_label(text),
        **_line(style),
    )  # type: ignore[arg-type]
    if band and line.n_seeds > 1:
        low, high = (_from_zero(line.x, values)[1] if steps else values for values in (line.low, line.high))
        axes.fill_between(x, low, high, step="pre" if steps else None, color=style["color"], alpha=0.15, linewidth=0)


def _from_zero(x: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """The value at the first radius holds for all smaller ones too."""
    return ([0.0, *x], [values[0], *values]) if x and x[0] > 0 else (x, values)


def all_figures(
    rows: Sequence[Row], reference: Reference, method: str, checkpoint: str
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """
    :param rows: All rows
    :param reference: What :func:`figure_data.read_reference` returned
    :param method: Method of the certificates that are drawn
    :param checkpoint: Which checkpoint is drawn
    :return: name and maker of each figure that there is data for
    """
    agents = agents_of(rows)
    # The same agent has the same colour on all figures
    styles = curve_styles(
        list(dict.fromkeys(label for agent in agents for label in (agent.label, Agent(agent.algo, None, agent.variant).label)))
    )
    certified = select(rows, quantity="certified_return", method=method, checkpoint=checkpoint)
    attacked = select(rows, quantity="attacked_return", checkpoint=checkpoint)
    validation = select(rows, quantity="validation_return")
    for task, sigma in panels_of(rows):
        name = f"{task.replace('/', '-')}_sigma{exact(sigma)}"
        curves = select(certified, task=task, sigma=sigma)
        if curves:
            yield f"certified_{name}", lambda curves=curves: certified_figure(curves, styles, reference)  # type: ignore[misc]
        reached = [row for row in curves if row.x >= sigma]
        if len({row.agent.camp_lambda for row in reached} - {None}) > 1:
            yield f"lambda_{name}", lambda reached=reached: lambda_figure(reached, styles)  # type: ignore[misc]
        steps = select(validation, task=task, sigma=sigma)
        if steps:
            yield f"validation_{name}", lambda steps=steps: validation_figure(steps, styles)  # type: ignore[misc]
        for suffix, noise in (("", True), ("_without_noise", False)):
            part = [row for row in select(attacked, task=task, sigma=sigma) if row.method.endswith("-sigma0") != noise]
            bound = curves if noise else []
            if part:
                yield f"attacks_{name}{suffix}", lambda part=part, bound=bound: attack_figure(part, bound, styles)  # type: ignore[misc]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tables", nargs="+", type=Path, metavar="RESULTS.csv", help="results.csv of sweeps; costs.csv is beside it"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for figures and tables")
    parser.add_argument(
        "--format", nargs="+", choices=["png", "pdf", "svg"], default=["png"], help="of the figures (default: png)"
    )
    parser.add_argument(
        "--method", choices=METHODS, default="berk-jones", help="band of the certificates (default: %(default)s)"
    )
    parser.add_argument("--checkpoint", choices=["best", "last"], help="which is drawn (default: best, if the tables have it)")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="CSV",
        help="certified returns of a linear policy, drawn dashed: columns task,sigma,method,certified_at_R",
    )
    return parser


def _figures(args: argparse.Namespace) -> None:
    rows = read_results(args.tables)
    if not rows:
        raise InputError(f"{args.tables[0]}: no results yet")
    reference = {} if args.reference is None else read_reference(args.reference)
    costs = read_costs([file for table in args.tables if (file := table.with_name("costs.csv")).is_file()])
    checkpoint = args.checkpoint or ("best" if select(rows, checkpoint="best") else "last")
    with rc_context({"svg.hashsalt": "sb3_camp"}):
        for name, make in all_figures(rows, reference, args.method, checkpoint):
            figure = make()
            for ending in args.format:
                write_picture(figure, args.output / f"{name}.{ending}")
                print(args.output / f"{name}.{ending}")
    tables = {
        "certified": certified_table(rows, args.method),
        "attacks": attack_table(rows),
        "q_gap": gap_table(rows),
        "costs": cost_table(costs),
    }
    for name, table in tables.items():
        if table:
            write_table(table, args.output / name)
            print(f"{args.output / name}.md and .csv")


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 2 for bad input, 130 if interrupted
    """
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")  # no date in PDF and SVG: the same table gives the same files
    args = _parser().parse_args(argv)
    return exit_status("figures", lambda: _figures(args))


if __name__ == "__main__":
    sys.exit(main())
