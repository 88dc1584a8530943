"""
Draw what is in the tables of studies: certified curves, lambda ablation, validation curves and attacks, with tables of
certified returns, returns under attack, Q-gaps and costs. Only what the tables have data for is made.

Curves are medians over the seeds, bands go from the lowest to the highest seed.
Example: python zoo_scripts/experiments/figures.py docs/results/cartpole_50k.csv --reference docs/results/linear.csv -o figures
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from summaries import (
    AGENT,
    NO_LAMBDA,
    agent_label,
    at_radius,
    attack_table,
    certified_table,
    cost_table,
    envelope,
    frontier_table,
    gap_table,
    over_seeds,
    read_costs,
    read_reference,
    read_results,
    short_task,
    write_table,
)

from sb3_camp.certification.bands import METHODS
from sb3_camp.certification.curve_style import curve_styles, shown_label
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = dict[str, dict[str, str]]
Reference = dict[tuple[str, float, str], pd.Series]


def certified_figure(rows: pd.DataFrame, styles: Styles, reference: Reference) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :param reference: What :func:`summaries.read_reference` returned
    :return: a staircase for each agent, as the value at a radius holds for all smaller ones
    """
    figure, axes = _picture("certified expected return")
    for label, own in _agents(rows):
        _draw(axes, own, label, styles[label], steps=True)
    first = rows.iloc[0]
    line = reference.get((short_task(first.task), first.sigma, first.method))
    if line is not None:
        line = _from_zero(line)
        axes.plot(line.index, line, drawstyle="steps-pre", color="0.4", linestyle="--", label="linear policy")
    axes.set_xlabel("l2 norm of the attack on the observations of an episode")
    _with_origin(axes, rows)
    return _finished(figure, axes, f"{first.task}, sigma {exact(first.sigma)}, {first.checkpoint} checkpoint, {first.method}")


def frontier_figure(rows: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param rows: Certified returns of one task, method and checkpoint
    :param styles: Style of each label
    :return: for each agent with several sigmas the best of them at each radius, by the median over the seeds
    """
    figure, axes = _picture("certified expected return, the best of the sigmas")
    for label, own in _agents(rows):
        if own.sigma.nunique() > 1:
            best = _from_zero(envelope(own))
            style: dict[str, Any] = {**styles[label], "marker": ""}
            axes.plot(best.index, best["median"], drawstyle="steps-pre", label=shown_label(label), **style)
    axes.set_xlabel("l2 norm of the attack on the observations of an episode")
    _with_origin(axes, rows)
    first, sigmas = rows.iloc[0], ", ".join(exact(sigma) for sigma in sorted(rows.sigma.unique()))
    return _finished(figure, axes, f"{first.task}, sigma {sigmas}: medians, {first.checkpoint} checkpoint, {first.method}")


def lambda_figure(rows: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :return: certified return at the radius sigma for each lambda, and as level lines that of the other agents
    """
    first = rows.iloc[0]
    figure, axes = _picture(f"certified expected return at radius {exact(first.sigma)}")
    at_sigma = rows.groupby(AGENT).apply(at_radius, first.sigma, include_groups=False).rename("value").reset_index()
    lambdas = sorted(set(at_sigma.camp_lambda) - {NO_LAMBDA})
    constant = at_sigma[at_sigma.camp_lambda != NO_LAMBDA]
    for (algo, variant), own in constant.groupby(["algo", "variant"]):
        label = agent_label(pd.Series({"algo": algo, "camp_lambda": NO_LAMBDA, "variant": variant}))
        points = own.groupby("camp_lambda").value.agg(["median", "min", "max"])
        points.index = points.index.map(lambdas.index)
        _line(axes, points, own.seed.nunique(), label, {**styles[label], "marker": "o"})
    for label, own in _agents(at_sigma[at_sigma.camp_lambda == NO_LAMBDA]):
        style: dict[str, Any] = {name: styles[label][name] for name in ("color", "linestyle")}
        axes.axhline(own.value.median(), label=shown_label(label), **style)
    axes.set_xticks(range(len(lambdas)), [exact(value) for value in lambdas])
    axes.set_xlabel("lambda")
    return _finished(figure, axes, f"{first.task}, sigma {exact(first.sigma)}, {first.checkpoint} checkpoint, {first.method}")


def validation_figure(rows: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param rows: Validation returns of one task and sigma
    :param styles: Style of each label
    :return: mean return of the validation during the training of each agent
    """
    figure, axes = _picture("mean return of the validation")
    for label, own in _agents(rows):
        _draw(axes, own, label, styles[label])
    axes.set_xlabel("steps of the environment")
    return _finished(figure, axes, f"{rows.iloc[0].task}, sigma {exact(rows.iloc[0].sigma)}")


def attack_figure(attacked: pd.DataFrame, certified: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param attacked: Attacked returns of one task, sigma and checkpoint
    :param certified: Certified returns of the same by one method; none for attacks without noise, of which they say nothing
    :param styles: Style of each label
    :return: mean return under each attack, with markers, and the certified curve of each agent without them, up to the largest
        budget
    """
    figure, axes = _picture("mean return under attack, certified expected return")
    attacks = sorted(attacked.method.unique())
    bounds = dict(_agents(certified[certified.x <= attacked.x.max()]))
    for label, own in _agents(attacked):
        for attack, rows in own.groupby("method"):
            style = {**styles[label], "marker": "osD^v"[attacks.index(attack) % 5]}
            _draw(axes, rows, f"{label}: {attack}", style, band=False)
        if label in bounds:
            _draw(axes, bounds[label], f"{label}: certified", styles[label], steps=True, band=False)
    axes.set_xlabel("budget: l2 norm of the attack on the observations of an episode")
    _with_origin(axes, attacked)
    first = attacked.iloc[0]
    return _finished(figure, axes, f"{first.task}, sigma {exact(first.sigma)}, {first.checkpoint} checkpoint")


def _agents(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Label and rows of each agent, in their order."""
    for key, own in rows.groupby(AGENT):
        yield agent_label(pd.Series(dict(zip(AGENT, key, strict=True)))), own


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


def _with_origin(axes: "Axes", rows: pd.DataFrame) -> None:
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, rows.value.min()))


def _draw(
    axes: "Axes", rows: pd.DataFrame, label: str, style: dict[str, str], *, steps: bool = False, band: bool = True
) -> None:
    curve = over_seeds(rows)
    _line(axes, _from_zero(curve) if steps else curve, rows.seed.nunique(), label, style, steps=steps, band=band)


def _line(
    axes: "Axes",
    curve: pd.DataFrame,
    n_seeds: int,
    label: str,
    style: dict[str, str],
    *,
    steps: bool = False,
    band: bool = True,
) -> None:
    """A line through the medians, with a band from the lowest to the highest seed."""
    shown: dict[str, Any] = dict(style)
    if steps and len(curve) > 1:
        shown["marker"] = ""
    text = label + (f" (median of {n_seeds})" if n_seeds > 1 else "")
    drawstyle = "steps-pre" if steps else "default"
    axes.plot(curve.index, curve["median"], drawstyle=drawstyle, markersize=4, label=shown_label(text), **shown)
    if band and n_seeds > 1:
        step: Any = "pre" if steps else None
        axes.fill_between(curve.index, curve["min"], curve["max"], step=step, color=style["color"], alpha=0.15, linewidth=0)


def _from_zero(curve: Any) -> Any:
    """The value at the first radius holds for all smaller ones too."""
    if not len(curve) or curve.index[0] <= 0:
        return curve
    return pd.concat([curve.iloc[:1].set_axis([0.0]), curve])


def all_figures(
    rows: pd.DataFrame, reference: Reference, method: str, checkpoint: str
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """
    :param rows: All rows
    :param reference: What :func:`summaries.read_reference` returned
    :param method: Method of the certificates that are drawn
    :param checkpoint: Which checkpoint is drawn
    :return: name and maker of each figure that there is data for
    """
    agents = rows[AGENT].drop_duplicates().sort_values(AGENT)
    labels = [
        label
        for _, agent in agents.iterrows()
        for label in (agent_label(agent), agent_label(agent.replace({agent.camp_lambda: NO_LAMBDA})))
    ]
    styles = curve_styles(list(dict.fromkeys(labels)))  # the same agent has the same colour on all figures
    chosen = rows.query("quantity == 'certified_return' and method == @method and checkpoint == @checkpoint")
    for task, own in chosen.groupby("task"):
        if (own.groupby(AGENT).sigma.nunique() > 1).any():
            yield f"frontier_{task.replace('/', '-')}", lambda own=own: frontier_figure(own, styles)  # type: ignore[misc]
    for (task, sigma), panel in rows.groupby(["task", "sigma"]):
        name = f"{task.replace('/', '-')}_sigma{exact(sigma)}"
        of = {quantity: part for quantity, part in panel.groupby("quantity")}
        none = panel.iloc[:0]
        curves = of.get("certified_return", none).query("method == @method and checkpoint == @checkpoint")
        if len(curves):
            yield f"certified_{name}", lambda curves=curves: certified_figure(curves, styles, reference)  # type: ignore[misc]
        reached = curves[curves.x >= sigma]
        if len(set(reached.camp_lambda) - {NO_LAMBDA}) > 1:
            yield f"lambda_{name}", lambda reached=reached: lambda_figure(reached, styles)  # type: ignore[misc]
        steps = of.get("validation_return", none)
        if len(steps):
            yield f"validation_{name}", lambda steps=steps: validation_figure(steps, styles)  # type: ignore[misc]
        attacked = of.get("attacked_return", none).query("checkpoint == @checkpoint")
        clean = attacked.method.str.endswith("-sigma0")
        for suffix, part, bound in (("", attacked[~clean], curves), ("_without_noise", attacked[clean], none)):
            if len(part):
                yield f"attacks_{name}{suffix}", lambda part=part, bound=bound: attack_figure(part, bound, styles)  # type: ignore[misc]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("tables", nargs="+", type=Path, metavar="RESULTS.csv", help="results.csv of studies; costs.csv is beside it")
    add("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for figures and tables")
    add("--format", nargs="+", choices=["png", "pdf", "svg"], default=["png"], help="of the figures (default: png)")
    add("--method", choices=METHODS, default="berk-jones", help="band of the certificates (default: %(default)s)")
    add("--checkpoint", choices=["best", "last"], help="which is drawn (default: best, if the tables have it)")
    reference = "certified returns of a linear policy, drawn dashed: columns task,sigma,method,certified_at_R"
    add("--reference", type=Path, metavar="CSV", help=reference)
    return parser


def _figures(args: argparse.Namespace) -> None:
    rows = read_results(args.tables)
    if rows.empty:
        raise InputError(f"{args.tables[0]}: no results yet")
    reference = {} if args.reference is None else read_reference(args.reference)
    costs = read_costs([file for table in args.tables if (file := table.with_name("costs.csv")).is_file()])
    checkpoint = args.checkpoint or ("best" if (rows.checkpoint == "best").any() else "last")
    with rc_context({"svg.hashsalt": "sb3_camp"}):
        for name, make in all_figures(rows, reference, args.method, checkpoint):
            figure = make()
            for ending in args.format:
                write_picture(figure, args.output / f"{name}.{ending}")
                print(args.output / f"{name}.{ending}")
    tables = {
        "certified": certified_table(rows, args.method),
        "frontier": frontier_table(rows, args.method),
        "attacks": attack_table(rows),
        "q_gap": gap_table(rows),
        "costs": cost_table(costs),
    }
    for name, table in tables.items():
        if not table.empty:
            write_table(table, args.output / name)
            print(f"{args.output / name}.md, .csv and .html")


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
