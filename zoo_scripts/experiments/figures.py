"""
Draw what is in the tables of studies: certified curves, lambda ablation, validation curves and attacks, with tables of
certified returns, returns under attack, Q-gaps and costs. Only what the tables have data for is made.

Curves are interquartile means over the seeds, bars their 95 % intervals (stratified bootstrap, rliable). Of a single seed,
attacks have the interval of the mean over its episodes.
Example: python zoo_scripts/experiments/figures.py docs/results/cartpole_50k.csv --reference docs/results/linear.csv -o figures
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from over_seeds import comparison_table, intervals_over_seeds
from summaries import (
    AGENT,
    NO_LAMBDA,
    agent_label,
    at_radius,
    attack_table,
    by_numbers,
    certified_table,
    cost_table,
    envelope,
    frontier_table,
    gap_table,
    only,
    read_costs,
    read_reference,
    read_results,
    short_task,
    write_table,
)

from sb3_camp.certification.bands import METHODS
from sb3_camp.certification.certificate_figure import BAND_TITLES
from sb3_camp.certification.curve_style import curve_styles, shown_label
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Styles = dict[str, dict[str, str]]
Reference = dict[tuple[str, float, str], pd.Series]


_SEEDS = "line: interquartile mean of the seeds, bar: its 95 % bootstrap interval"
_EPISODES = "bar: 95 % interval of the mean over the episodes"
_NORM = "l2 norm of the attack on an episode, in units of the observation"
_MOST_BARS = 7
_BAR_SHIFT = 0.05  # between the bars of two curves at the same point, in inches
_GOLDEN = 0.618  # multiples of it, modulo 1, are far from each other


def certified_figure(rows: pd.DataFrame, styles: Styles, reference: Reference, n_episodes: str) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :param reference: What :func:`summaries.read_reference` returned
    :param n_episodes: Number of episodes of the certificates, for the title
    :return: a staircase for each agent, as the value at a radius holds for all smaller ones
    """
    figure, axes = _picture("certified expected return")
    for position, (label, curve) in enumerate(_curves(rows)):
        _line(axes, curve, label, styles[label], steps=True, position=position)
    first = rows.iloc[0]
    line = reference.get((short_task(first.task), first.sigma, first.method))
    if line is not None:
        line = _from_zero(line)
        axes.plot(line.index, line, drawstyle="steps-pre", color="0.4", linestyle="--", label="linear policy")
    axes.set_xlabel(f"radius: {_NORM}")
    _with_origin(axes, rows)
    return _finished(figure, axes, f"{_of(first)}, {_band(first)}, alpha 0.05{n_episodes}", rows)


def frontier_figure(rows: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param rows: Certified returns of one task, method and checkpoint
    :param styles: Style of each label
    :return: for each agent with several sigmas the best of them at each radius, by the median over the seeds, with bars from
        the lowest to the highest seed of that sigma
    """
    figure, axes = _picture("certified expected return, the best of the sigmas")
    several = (group for group in rows.groupby(AGENT) if group[1].sigma.nunique() > 1)
    for position, (key, own) in enumerate(sorted(several, key=lambda group: by_numbers(group[0]))):
        best, label = envelope(own), agent_label(pd.Series(key, AGENT))
        ends = best[["min", "max"]].where(best["size"] > 1).set_axis(["low", "high"], axis=1)
        curve = ends.assign(iqm=best["median"], seeds=1)
        _line(axes, curve, label, styles[label], steps=True, position=position)
    axes.set_xlabel(f"radius: {_NORM}")
    _with_origin(axes, rows)
    first, sigmas = rows.iloc[0], ", ".join(exact(sigma) for sigma in sorted(rows.sigma.unique()))
    title = f"{first.task}, sigma {sigmas}, {first.checkpoint} checkpoint, {_band(first)}, alpha 0.05"
    return _finished(figure, axes, f"{title}\nline: median of the seeds, bar: from the lowest to the highest seed")


def lambda_figure(rows: pd.DataFrame, styles: Styles, n_episodes: str) -> Figure:
    """
    :param rows: Certified returns of one task, sigma, method and checkpoint
    :param styles: Style of each label
    :param n_episodes: Number of episodes of the certificates, for the title
    :return: certified return at the radius sigma for each lambda, and as level lines that of the other agents
    """
    first = rows.iloc[0]
    figure, axes = _picture(f"certified expected return at radius {exact(first.sigma)}")
    of_agents = {key: at_radius(own, first.sigma) for key, own in rows.groupby(AGENT)}
    at_sigma = pd.concat(of_agents, names=AGENT).rename("value").reset_index()
    lambdas = sorted(set(at_sigma.camp_lambda) - {NO_LAMBDA})
    constant = at_sigma[at_sigma.camp_lambda != NO_LAMBDA]
    ranks = constant.assign(x=constant.camp_lambda.map(lambdas.index))
    for (algo, variant), curve in intervals_over_seeds(ranks, ["algo", "variant"], complete=False).items():
        label = agent_label(pd.Series({"algo": algo, "camp_lambda": NO_LAMBDA, "variant": variant}))
        _line(axes, curve, label, {**styles[label], "marker": "o"})
    for label, curve in _curves(at_sigma[at_sigma.camp_lambda == NO_LAMBDA].assign(x=0.0)):
        axes.axhline(
            curve["iqm"].iloc[0],
            label=_legend_text(label, curve),
            color=styles[label]["color"],
            linestyle=styles[label]["linestyle"],
        )
    axes.set_xticks(range(len(lambdas)), [exact(value) for value in lambdas])
    axes.set_xlabel("lambda, weight of the robustness loss")
    return _finished(figure, axes, f"{_of(first)}, {_band(first)}, alpha 0.05{n_episodes}", rows)


def validation_figure(rows: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param rows: Validation returns of one task and sigma
    :param styles: Style of each label
    :return: mean return of the validation during the training of each agent
    """
    figure, axes = _picture("mean return of the validation")
    for position, (label, curve) in enumerate(_curves(rows)):
        _line(axes, curve, label, styles[label], position=position)
    axes.set_xlabel("training, in steps of the environment")
    return _finished(figure, axes, f"{rows.iloc[0].task}, sigma {exact(rows.iloc[0].sigma)}", rows)


def attack_figure(attacked: pd.DataFrame, ends: pd.DataFrame, certified: pd.DataFrame, styles: Styles) -> Figure:
    """
    :param attacked: Attacked returns of one task, sigma and checkpoint
    :param ends: The same with the ends of the confidence intervals, ``attacked_return_low`` and ``_high``
    :param certified: Certified returns of the same by one method; none for attacks without noise, of which they say nothing
    :param styles: Style of each label
    :return: mean return under each attack, with markers, and the certified curve of each agent without them, up to the largest
        budget
    """
    figure, axes = _picture("mean return" + (" (markers), certified return (steps)" if len(certified) else " under attack"))
    attacks = sorted(attacked.method.unique())
    bounds = dict(_curves(certified[certified.x <= attacked.x.max()]))
    of_episodes = ends.pivot_table(index=[*AGENT, "method", "x"], columns="quantity", values="value")
    for position, ((*agent, attack), curve) in enumerate(intervals_over_seeds(attacked, [*AGENT, "method"]).items()):
        label = agent_label(pd.Series(agent, AGENT))
        key = (*agent, attack)
        if curve["seeds"].iloc[0] == 1 and key in of_episodes.index:
            own = of_episodes.loc[key].reindex(curve.index)
            curve = curve.assign(low=own["attacked_return_low"], high=own["attacked_return_high"])
        _line(
            axes,
            curve,
            f"{label}: {attack}",
            {**styles[label], "marker": "osD^v"[attacks.index(attack) % 5]},
            position=position,
        )
    for label in dict.fromkeys(agent_label(row) for _, row in attacked.iterrows()):
        if label in bounds:
            _line(axes, bounds[label], f"{label}: certified", styles[label], steps=True, bars=False)
    axes.set_xlabel(f"budget: {_NORM}")
    _with_origin(axes, attacked)
    axes.set_xlim(left=-0.03 * attacked.x.max())  # room for the bars beside budget 0
    first = attacked.iloc[0]
    return _finished(figure, axes, _of(first), attacked, of_one_seed=_EPISODES if len(ends) else "")


def _curves(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Label and curve of each agent, in their order."""
    for key, curve in sorted(intervals_over_seeds(rows, AGENT).items(), key=lambda curve: by_numbers(curve[0])):
        yield agent_label(pd.Series(key, AGENT)), curve


def _of(row: pd.Series) -> str:
    return f"{row.task}, sigma {exact(row.sigma)}, {row.checkpoint} checkpoint"


def _band(row: pd.Series) -> str:
    return BAND_TITLES.get(row.method, row.method)


def _picture(ylabel: str) -> "tuple[Figure, Axes]":
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel(ylabel)
    return figure, axes


def _finished(figure: Figure, axes: "Axes", title: str, rows: pd.DataFrame | None = None, of_one_seed: str = "") -> Figure:
    explained = _SEEDS if rows is not None and rows.groupby(AGENT).seed.nunique().max() > 1 else of_one_seed
    axes.set_title(title + (f"\n{explained}" if explained else ""), fontsize="small")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _with_origin(axes: "Axes", rows: pd.DataFrame) -> None:
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, rows.value.min()))


def _legend_text(label: str, curve: pd.DataFrame) -> str:
    n_seeds = curve["seeds"].max()
    return shown_label(label + (f" ({n_seeds} seeds)" if n_seeds > 1 else ""))


def _line(
    axes: "Axes",
    curve: pd.DataFrame,
    label: str,
    style: dict[str, str],
    *,
    steps: bool = False,
    bars: bool = True,
    position: int = 0,
) -> None:
    """A line, with intervals as bars at some of its points, beside those of the curves at other positions."""
    line = _from_zero(curve["iqm"]) if steps else curve["iqm"]
    axes.plot(
        line.index,
        line,
        drawstyle="steps-pre" if steps else "default",
        markersize=4,
        label=_legend_text(label, curve),
        color=style["color"],
        linestyle=style["linestyle"],
        marker="" if steps and len(curve) > 1 else style["marker"],
    )
    known = curve.dropna()
    if steps and len(known) > 1:
        known = known[known.index > 0]  # at the edge of the picture all bars would lie on each other
    if not bars or not len(known):
        return
    barred = known.iloc[:: -(-len(known) // _MOST_BARS)]
    lengths = [(barred.iqm - barred.low).clip(lower=0), (barred.high - barred.iqm).clip(lower=0)]
    places, shift = barred.index.to_numpy(), _BAR_SHIFT * ((position + 1) // 2) * (-1) ** position
    if steps:  # the value holds from the radius before on
        before = curve.index.to_numpy()[np.maximum(curve.index.get_indexer(barred.index) - 1, 0)]
        places, shift = places - (places - before) * ((position + 1) * _GOLDEN % 1), 0.0
    axes.errorbar(
        places,
        barred.iqm,
        lengths,
        fmt="none",
        ecolor=style["color"],
        elinewidth=1,
        capsize=2.5,
        clip_on=False,
        transform=axes.transData + ScaledTranslation(shift, 0, axes.figure.dpi_scale_trans),
    )
    # Matplotlib makes no room for what it draws with a transform of its own
    for ends in (barred.low, barred.high):
        axes.update_datalim(np.column_stack([places, ends]))


def _from_zero(curve: pd.Series) -> pd.Series:
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
    agents = rows[AGENT].drop_duplicates()
    algorithms = {
        label: agent.algo
        for _, agent in sorted(agents.iterrows(), key=lambda row: by_numbers(row[1]))
        for label in (agent_label(agent.replace({agent.camp_lambda: NO_LAMBDA})), agent_label(agent))
    }
    styles = curve_styles(list(algorithms), list(algorithms.values()))  # the same agent has the same style on all figures
    chosen = rows.query("quantity == 'certified_return' and method == @method and checkpoint == @checkpoint")
    for task, own in chosen.groupby("task"):
        if (own.groupby(AGENT).sigma.nunique() > 1).any():
            yield f"frontier_{task.replace('/', '-')}", lambda own=own: frontier_figure(own, styles)  # type: ignore[misc]
    for (task, sigma), panel in rows.groupby(["task", "sigma"]):
        name = f"{task.replace('/', '-')}_sigma{exact(sigma)}"
        of = {quantity: part for quantity, part in panel.groupby("quantity")}
        none = panel.iloc[:0]
        curves = of.get("certified_return", none).query("method == @method and checkpoint == @checkpoint")
        counts = sorted(set(of.get("n_episodes", none).query("checkpoint == @checkpoint").value.astype(int)))
        played = f", {' or '.join(map(str, counts))} episodes" if counts else ""
        if len(curves):
            yield f"certified_{name}", lambda c=curves, n=played: certified_figure(c, styles, reference, n)  # type: ignore[misc]
        reached = curves[curves.x >= sigma]
        if len(set(reached.camp_lambda) - {NO_LAMBDA}) > 1:
            yield f"lambda_{name}", lambda r=reached, n=played: lambda_figure(r, styles, n)  # type: ignore[misc]
        steps = of.get("validation_return", none)
        if len(steps):
            yield f"validation_{name}", lambda steps=steps: validation_figure(steps, styles)  # type: ignore[misc]
        attacked = panel[panel.quantity.str.startswith("attacked_return") & (panel.checkpoint == checkpoint)]
        clean = attacked.method.str.endswith("-sigma0")
        for suffix, part, bound in (("", attacked[~clean], curves), ("_without_noise", attacked[clean], none)):
            means = part[part.quantity == "attacked_return"]
            if len(means):
                ends = part[part.quantity != "attacked_return"]
                yield f"attacks_{name}{suffix}", lambda m=means, e=ends, b=bound: attack_figure(m, e, b, styles)  # type: ignore[misc]


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
    choice = "only these rows: texts of the columns task, sigma, algo, camp_lambda, variant and seed, * stands for anything"
    add("--only", nargs="+", default=[], metavar="COLUMN=TEXT[,TEXT]", help=choice)
    return parser


def _figures(args: argparse.Namespace) -> None:
    rows = read_results(args.tables)
    if rows.empty:
        raise InputError(f"{args.tables[0]}: no results yet")
    rows = only(rows, args.only)
    if rows.empty:
        raise InputError(f"--only {' '.join(args.only)}: the tables have no such results")
    reference = {} if args.reference is None else read_reference(args.reference)
    costs = only(read_costs([file for table in args.tables if (file := table.with_name("costs.csv")).is_file()]), args.only)
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
        "comparisons": comparison_table(rows, args.method),
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
