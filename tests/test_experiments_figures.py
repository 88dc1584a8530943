"""Figures and tables of studies: what is drawn, from tables whose numbers are known."""

import csv
import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from support.experiments import ROOT, WORKFLOW, script

from sb3_camp.errors import InputError

results, summaries, over_seeds, figures = map(script, ("results", "summaries", "over_seeds", "figures"))

TASK, SIGMA = "camp/CartPole1-v0", "0.4"
CAMP0, CAMP4, PPO = ("camp_dqn", "0"), ("camp_dqn", "4"), ("ppo", "")


def line(agent, seed, checkpoint, quantity, method, x, value, task=TASK, sigma=SIGMA, variant="default"):
    return [task, sigma, agent[0], agent[1], variant, str(seed), checkpoint, quantity, method, str(x), str(value)]


def certified(agent, seed, values, checkpoint="best", method="berk-jones", **where):
    return [line(agent, seed, checkpoint, "certified_return", method, x, value, **where) for x, value in values.items()]


LINES = [
    *certified(CAMP0, 0, {0: 150, 0.4: 90, 0.8: 40}),
    *certified(CAMP0, 1, {0: 160, 0.4: 80, 0.8: 50}),
    *certified(CAMP0, 2, {0: 140, 0.4: 100.06, 0.8: 30}),
    *certified(CAMP4, 0, {0: 155, 0.4: 95, 0.8: 45}),
    *certified(CAMP4, 1, {0: 165, 0.4: 85, 0.8: 55}),
    *certified(CAMP4, 2, {0: 145, 0.4: 105, 0.8: 35}),
    *certified(PPO, 0, {0.2: 120, 0.5: 70}),
    *certified(PPO, 0, {0: 1, 0.5: 0}, checkpoint="last"),
    *certified(PPO, 0, {0: 2, 0.5: 1}, method="dkw"),
    *(line(CAMP0, seed, "", "validation_return", "", x, 10 * seed + x) for seed in range(3) for x in (100, 200)),
    *(line(PPO, 0, "", "validation_return", "", x, x / 2) for x in (128, 256, 384)),
    *(line(CAMP0, seed, "best", "mean_return", "", "", 170 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "attacked_return", "pgd", x, 170 + seed - 100 * x) for seed in range(3) for x in (0, 0.5)),
    *(line(CAMP0, seed, "best", "attacked_return", "pgd-sigma0", x, 190 - 100 * x) for seed in range(3) for x in (0, 0.5)),
    *(line(CAMP0, seed, "best", "q_gap_mean", "", "", 2.5 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "q_gap_min", "", "", 1.25e-7 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "q_gap_quantile", "", 0.5, 2 + seed) for seed in range(3)),
]
COSTS = [
    [TASK, SIGMA, "camp_dqn", "0", "default", str(seed), step, wall, "90", memory, speed]
    for seed, wall, memory, speed in ((0, "100", "410.5", "1000"), (1, "140", "", "700"), (2, "120", "400", "800"))
    for step in ("evaluate-best", "train")
]


def write(path, columns, lines):
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *lines])
    return path


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "costs.csv", results.COST_COLUMNS, COSTS)
    return write(tmp_path / "results.csv", results.RESULT_COLUMNS, LINES)


def drawn(rows, name, **options):
    options = {"reference": {}, "method": "berk-jones", "checkpoint": "best", **options}
    (figure,) = (make() for found, make in figures.all_figures(rows, **options) if found == name)
    (axes,) = figure.axes
    return axes


def lines_of(axes):
    """The curves by label, without the caps of bars."""
    return {label: found for found in axes.lines if not (label := str(found.get_label())).startswith("_")}


def records(table):
    return table.to_dict("records")


NAME = "camp-CartPole1-v0_sigma0.4"


def bars_of(axes):
    """Middle of each bar, and its ends, by the colour of the curve."""
    found = {}
    for container in axes.containers:
        (bars,) = container.lines[2]
        colour = to_hex(bars.get_color()[0]).upper()
        found.setdefault(colour, []).extend(tuple(map(float, np.ravel(path)[[0, 1, 3]])) for path in bars.get_segments())
    return found


def test_certified_curves_are_staircases_through_the_means_of_three_seeds_with_bars(table):
    axes = drawn(summaries.read_results([table]), f"certified_{NAME}")
    lines = lines_of(axes)
    assert set(lines) == {"camp_dqn, lambda 0 (3 seeds)", "camp_dqn, lambda 4 (3 seeds)", "ppo"}
    camp = lines["camp_dqn, lambda 0 (3 seeds)"]
    np.testing.assert_allclose(camp.get_xydata(), [[0, 150], [0.4, 270.06 / 3], [0.8, 40]])
    assert camp.get_drawstyle() == "steps-pre", "the value at a radius holds for all smaller ones, not for larger ones"
    assert lines["ppo"].get_xydata().tolist() == [[0, 120], [0.2, 120], [0.5, 70]]
    bars = bars_of(axes)
    assert set(bars) == {camp.get_color(), lines["camp_dqn, lambda 4 (3 seeds)"].get_color()}, "none for a single seed"
    for (x, low, high), before, at, lowest, mean, highest in zip(
        bars[camp.get_color()], (0, 0.4), (0.4, 0.8), (80, 30), (90.02, 40), (100.06, 50), strict=True
    ):
        assert before <= x <= at, "on the step that ends at the radius"
        assert lowest - 1e-9 <= low < mean < high <= highest + 1e-9
    assert "95 % bootstrap interval" in axes.get_title() and "Berk-Jones band, alpha 0.05" in axes.get_title()


def test_attacks_of_one_seed_have_the_interval_over_its_episodes(table):
    rows = summaries.read_results([table])
    ends = [
        line(PPO, 0, "best", f"attacked_return{end}", "pgd", x, 90 + by)
        for x in (0, 0.5)
        for end, by in (("", 0), ("_low", -3), ("_high", 5))
    ]
    more = pd.DataFrame(ends, columns=results.RESULT_COLUMNS).assign(sigma=0.4, camp_lambda=-1.0, seed=0)
    more = more.assign(x=more.x.astype(float), value=more.value.astype(float))
    axes = drawn(pd.concat([rows, more]), f"attacks_{NAME}")
    (bars,) = (found for colour, found in bars_of(axes).items() if colour == lines_of(axes)["ppo: pgd"].get_color())
    assert [(low, high) for _, low, high in bars] == [(87, 95), (87, 95)]


def test_the_same_agent_has_the_same_colour_on_all_figures(table):
    rows = summaries.read_results([table])
    names = [f"{kind}_{NAME}" for kind in ("certified", "validation", "attacks")]
    colours = [
        {line.get_color() for label, line in lines_of(drawn(rows, name)).items() if "lambda 0" in label} for name in names
    ]
    assert colours[0] == colours[1] == colours[2] and len(colours[0]) == 1
    assert lines_of(drawn(rows, names[0]))["ppo"].get_color() not in colours[0]


def test_method_and_checkpoint_choose_what_is_drawn(table):
    rows = summaries.read_results([table])
    last = lines_of(drawn(rows, f"certified_{NAME}", checkpoint="last"))
    assert last["ppo"].get_xydata().tolist() == [[0, 1], [0.5, 0]] and set(last) == {"ppo"}
    dkw = lines_of(drawn(rows, f"certified_{NAME}", method="dkw"))
    assert dkw["ppo"].get_xydata().tolist() == [[0, 2], [0.5, 1]] and set(dkw) == {"ppo"}


def test_a_reference_is_a_dashed_line_where_task_sigma_and_method_are_the_same(table, tmp_path):
    columns = ["task", "sigma", "method", "mean_return", "certified_at_0.2", "certified_at_0.1"]
    lines = [["CartPole1", "0.4", "berk-jones", "1", "140", "150"], ["CartPole5", "0.4", "berk-jones", "1", "7", "8"]]
    reference = summaries.read_reference(write(tmp_path / "linear.csv", columns, lines))
    rows = summaries.read_results([table])
    dashed = lines_of(drawn(rows, f"certified_{NAME}", reference=reference))["linear policy"]
    assert dashed.get_xydata().tolist() == [[0, 150], [0.1, 150], [0.2, 140]]
    assert dashed.get_linestyle() == "--" and dashed.get_drawstyle() == "steps-pre"
    assert "linear policy" not in lines_of(drawn(rows, f"certified_{NAME}", reference=reference, method="dkw"))


def test_the_lambda_ablation_shows_the_certified_return_at_sigma_and_the_others_as_levels(table):
    axes = drawn(summaries.read_results([table]), f"lambda_{NAME}")
    lines = lines_of(axes)
    np.testing.assert_allclose(lines["camp_dqn (3 seeds)"].get_xydata(), [[0, 270.06 / 3], [1, 95]])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "4"]
    assert set(lines["ppo"].get_ydata()) == {70}, "the bound at its next larger radius, 0.5"
    assert axes.get_ylabel().endswith("at radius 0.4")


def test_validation_curves_are_means_at_the_timesteps_of_the_trainings(table):
    lines = lines_of(drawn(summaries.read_results([table]), f"validation_{NAME}"))
    assert lines["camp_dqn, lambda 0 (3 seeds)"].get_xydata().tolist() == [[100, 110], [200, 210]]
    assert lines["ppo"].get_xydata().tolist() == [[128, 64], [256, 128], [384, 192]]


def test_attacks_are_drawn_with_the_certificate_and_those_without_noise_apart(table):
    rows = summaries.read_results([table])
    lines = lines_of(drawn(rows, f"attacks_{NAME}"))
    assert lines["camp_dqn, lambda 0: pgd (3 seeds)"].get_xydata().tolist() == [[0, 171], [0.5, 121]]
    bound = lines["camp_dqn, lambda 0: certified (3 seeds)"]
    np.testing.assert_allclose(bound.get_xydata(), [[0, 150], [0.4, 270.06 / 3]])
    assert bound.get_drawstyle() == "steps-pre"
    assert len(lines) == 2
    lines = lines_of(drawn(rows, f"attacks_{NAME}_without_noise"))
    assert [found.get_xydata().tolist() for found in lines.values()] == [[[0, 190], [0.5, 140]]], "no certificate speaks of it"


def test_bars_stay_inside_of_the_picture():
    lines = [line(PPO, seed, "", "validation_return", "", x, 100 + 90 * seed) for seed in range(3) for x in (100, 200)]
    rows = pd.DataFrame(lines, columns=results.RESULT_COLUMNS).astype(
        {"sigma": float, "seed": int, "x": float, "value": float}
    )
    axes = drawn(rows.assign(camp_lambda=summaries.NO_LAMBDA), f"validation_{NAME}")
    low, high = axes.get_ylim()
    ends = [end for bars in bars_of(axes).values() for _, *both in bars for end in both]
    assert min(ends) < 190 < max(ends)
    assert low < min(ends) and max(ends) < high


def test_variants_are_in_the_order_of_the_numbers_in_their_names():
    names = ["ramp16", "ramp2", "ramp0.5", "default", "hard"]
    found = [found for name in names for found in certified(("camp_dqn", ""), 0, {0: 150, 0.4: 90}, variant=name)]
    rows = pd.DataFrame(found, columns=results.RESULT_COLUMNS).astype(
        {"sigma": float, "seed": int, "x": float, "value": float}
    )
    axes = drawn(rows.assign(camp_lambda=summaries.NO_LAMBDA), f"certified_{NAME}")
    expected = ["camp_dqn", "camp_dqn, hard", "camp_dqn, ramp0.5", "camp_dqn, ramp2", "camp_dqn, ramp16"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == expected


@pytest.mark.parametrize(
    ("conditions", "agents"),
    [
        (["algo=ppo"], {("ppo", "", 0)}),
        (["camp_lambda="], {("ppo", "", 0)}),
        (["algo=camp*", "seed=1,2", "camp_lambda=4"], {("camp_dqn", 4, 1), ("camp_dqn", 4, 2)}),
        (["sigma=0.4", "task=camp/CartPole1-v0", "variant=default", "seed=2"], {("camp_dqn", 0, 2), ("camp_dqn", 4, 2)}),
        (["sigma=0.2"], set()),
    ],
)
def test_only_some_of_the_agents(table, conditions, agents):
    rows = summaries.only(summaries.read_results([table]), conditions)
    found = {
        (row.algo, "" if row.camp_lambda == summaries.NO_LAMBDA else row.camp_lambda, row.seed) for row in rows.itertuples()
    }
    assert found == agents


@pytest.mark.parametrize(
    ("condition", "message"),
    [("algo", "give COLUMN=TEXT"), ("value=1", "give COLUMN=TEXT"), ("seed=7", "the tables have no such results")],
)
def test_what_chooses_nothing_ends_with_one_line(table, condition, message, tmp_path, capsys):
    assert figures.main([str(table), "-o", str(tmp_path / "figures"), "--only", condition]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"figures: error: --only {condition}: ") and message in error


def test_only_radii_and_timesteps_that_all_seeds_have_are_drawn():
    points = [(0, 10), (0, 20), (1, 10), (1, 20), (1, 30)]
    rows = pd.DataFrame([(seed, x, 100.0 * seed) for seed, x in points], columns=["seed", "x", "value"])
    found = summaries.over_seeds(rows)
    curve = over_seeds.intervals_over_seeds(rows.assign(algo="a", variant="v"), ["algo", "variant"])["a", "v"]
    assert curve.iqm.to_dict() == {10: 50, 20: 50}
    assert found[["median", "min", "max"]].to_dict("index") == {x: {"median": 50, "min": 0, "max": 100} for x in (10, 20)}


def test_only_figures_with_data_are_made(table):
    rows = summaries.read_results([table])

    def made(part):
        return [name for name, _ in figures.all_figures(part, {}, "berk-jones", "best")]

    assert made(rows[rows.quantity == "validation_return"]) == [f"validation_{NAME}"]
    assert made(rows[(rows.camp_lambda != 4) & (rows.quantity == "certified_return")]) == [f"certified_{NAME}"]
    assert made(rows[rows.quantity == "q_gap_mean"]) == []


def test_the_table_of_certified_returns_is_rounded_down_and_silent_beyond_the_last_radius(table):
    rows = summaries.read_results([table])
    found = records(summaries.certified_table(rows, "berk-jones"))
    camp = next(row for row in found if row["lambda"] == "0")
    assert camp == {
        "task": TASK,
        "sigma": "0.4",
        "algorithm": "camp_dqn",
        "lambda": "0",
        "variant": "",
        "checkpoint": "best",
        "seeds": "3",
        "mean return": "171.0",
        "certified at 0": "150.0",
        "at sigma/2": "90.0",
        "at sigma": "90.0",
        "at 2 sigma": "40.0",
        "lowest at sigma": "80.0",
        "highest at sigma": "100.0",
    }
    ppo = next(row for row in found if row["algorithm"] == "ppo" and row["checkpoint"] == "best")
    assert (ppo["lowest at sigma"], ppo["highest at sigma"]) == ("70.0", "70.0")
    assert [ppo[name] for name in ("certified at 0", "at sigma/2", "at sigma", "at 2 sigma")] == ["120.0", "120.0", "70.0", ""]
    (rounded,) = records(summaries.certified_table(rows[(rows.seed == 0) & (rows.x == 0)].assign(value=99.99), "dkw"))
    assert rounded["certified at 0"] == "99.9"


def test_the_table_of_attacks_has_a_column_for_each_budget_and_is_silent_where_a_seed_lacks_it(table):
    rows = summaries.read_results([table])
    found = records(summaries.attack_table(rows))
    assert [(line["attack"], line["seeds"], line["at 0"], line["at 0.5"]) for line in found] == [
        ("pgd", "3", "171.0", "121.0"),
        ("pgd-sigma0", "3", "190.0", "140.0"),
    ]
    incomplete = rows[~((rows.quantity == "attacked_return") & (rows.x == 0.5) & (rows.seed == 1))]
    assert [(line["at 0"], line["at 0.5"]) for line in records(summaries.attack_table(incomplete))] == [
        ("171.0", ""),
        ("190.0", ""),
    ]


def test_tables_of_gaps_and_costs(table):
    (gaps,) = records(summaries.gap_table(summaries.read_results([table])))
    assert [gaps[name] for name in ("seeds", "mean gap", "median gap", "lowest gap")] == ["3", "3.5", "3", "1.25e-07"]
    (costs,) = records(summaries.cost_table(summaries.read_costs([table.with_name("costs.csv")])))
    assert [costs[name] for name in ("trainings", "wall seconds", "CPU seconds", "steps per second", "peak memory (MiB)")] == [
        "3",
        "120",
        "90",
        "800",
        "410",
    ]


def test_tables_of_several_studies_are_joined_and_must_not_contradict(table, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    more = certified(("ars", ""), 0, {0: 100})
    rows = summaries.read_results([table, write(other / "results.csv", results.RESULT_COLUMNS, [*more, LINES[0]])])
    assert len(rows) == len(LINES) + 1
    changed = [*LINES[0][:-1], "151"]
    with pytest.raises(InputError, match="several values of its certified_return: join no two such studies"):
        summaries.read_results([table, write(other / "results.csv", results.RESULT_COLUMNS, [changed])])


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_drawing_loads_nothing_of_what_training_needs():
    code = "import sys, figures\nprint(*{'torch', 'stable_baselines3', 'rl_zoo3'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=WORKFLOW, capture_output=True, text=True, check=True).stdout == "\n"
    )


@pytest.mark.slow
def test_the_command_draws_everything_and_the_same_table_gives_the_same_files(table, tmp_path, monkeypatch):
    folder, again = tmp_path / "figures", tmp_path / "again"
    options = ["--format", "png", "pdf", "svg"]
    command = [sys.executable, str(WORKFLOW / "figures.py"), str(table), "-o", str(folder), *options]
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # which the command sets for its process
    assert figures.main([str(table), "-o", str(again), *options]) == 0
    kinds = ("certified", "lambda", "validation", "attacks")
    pictures = {f"{kind}_{NAME}" for kind in kinds} | {f"attacks_{NAME}_without_noise"}
    files = {f"{name}.{ending}" for name in pictures for ending in ("png", "pdf", "svg")}
    tables = {f"{name}.{ending}" for name in ("certified", "attacks", "q_gap", "costs") for ending in ("md", "csv", "html")}
    assert set(digests(folder)) == files | tables
    assert digests(folder) == digests(again)
    assert len(result.stdout.splitlines()) == len(files) + len(tables) // 3
    lines = (folder / "q_gap.md").read_text().splitlines()
    assert lines[0] == "| task | sigma | algorithm | lambda | checkpoint | seeds | mean gap | median gap | lowest gap |"
    assert lines[2] == "| camp/CartPole1-v0 | 0.4 | camp_dqn | 0 | best | 3 | 3.5 | 3 | 1.25e-07 |"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("", "not the results.csv of a study"),
        ("a,b\n1,2\n", "not the results.csv of a study"),
        ("{header}\n", "no results yet"),
        ("{header}\na,b\n", "line 2: not as many fields as columns"),
        ("{header}\nt,0.2,a,,d,0,best,mean_return,,,1,2\n", "line 2: not as many fields"),
        ("{header}\nt,x,a,,d,0,best,mean_return,,,1\n", "line 2: sigma 'x' is no number"),
        ("{header}\nt,0.2,a,,d,0.5,best,mean_return,,,1\n", "line 2: '0.5' is no seed"),
        ("{header}\nt,0.2,a,,d,0,best,mean_return,,,nan\n", "line 2: the value is not a finite number"),
    ],
)
def test_what_is_no_table_ends_with_one_line(content, message, tmp_path, capsys):
    file = tmp_path / "results.csv"
    if content is not None:
        file.write_text(content.replace("{header}", ",".join(results.RESULT_COLUMNS)))
    assert figures.main([str(file), "-o", str(tmp_path / "figures")]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("figures: error: ") and message in error
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(
    "content",
    ["task,sigma\n", "task,sigma,method,certified_at_x\na,0.2,dkw,1\n", "task,sigma,method,certified_at_1\na,0.2,dkw,\n"],
)
def test_what_is_no_reference_ends_with_one_line(content, table, tmp_path, capsys):
    (tmp_path / "linear.csv").write_text(content)
    assert figures.main([str(table), "-o", str(tmp_path / "figures"), "--reference", str(tmp_path / "linear.csv")]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("figures: error: ") and "linear.csv" in error


def test_the_committed_tables_give_the_rows_that_docs_results_shows():
    rows = summaries.read_results([ROOT / "docs/results/cartpole_50k.csv"])
    found = {
        (line["task"], line["sigma"], line["algorithm"], line["checkpoint"]): (line["at sigma"], line["lowest at sigma"])
        for line in records(summaries.certified_table(rows[(rows.variant == "default")], "berk-jones"))
    }
    shown = (ROOT / "docs/results/README.md").read_text()
    assert found["camp/CartPole1-v0", "0.4", "camp_dqn", "best"] == ("110.0", "106.1")
    assert found["camp/CartPole5-v0", "1", "gaussian_dqn", "last"] == ("23.1", "23.0")
    for (task, sigma, algo, checkpoint), (median, lowest) in found.items():
        name = {"camp_dqn": "**`camp_dqn`**", "ars": "`ars` (linear)"}.get(algo, f"`{algo}`")
        start = f"| {task[5:-3]} | {sigma} | {name} | {checkpoint} | "
        (line,) = (line for line in shown.splitlines() if line.startswith(start))
        assert line.split(" | ")[6].startswith(median) and (lowest == median or f"({lowest} to " in line), line


def test_the_frontier_is_the_best_median_of_the_sigmas_at_the_radii_that_all_have(tmp_path):
    curves = {"0.2": {0: 190, 0.2: 150, 0.4: 60, 0.8: 5}, "0.4": {0: 160, 0.2: 130, 0.4: 90}}
    wide = [
        line
        for seed, shift in ((0, 0), (1, 4), (2, 1))
        for sigma, values in curves.items()
        for line in certified(("a2c", ""), seed, {x: value + shift for x, value in values.items()}, sigma=sigma)
    ]
    rows = summaries.read_results([write(tmp_path / "results.csv", results.RESULT_COLUMNS, [*LINES, *wide])])
    best = summaries.envelope(rows[rows.algo == "a2c"])
    assert best["median"].to_dict() == {0.0: 191, 0.2: 151, 0.4: 91} and best.sigma.tolist() == [0.2, 0.2, 0.4]
    names = [name for name, _ in figures.all_figures(rows, {}, "berk-jones", "best")]
    assert [name for name in names if name.startswith("frontier")] == ["frontier_camp-CartPole1-v0"]
    (table,) = records(summaries.frontier_table(rows, "berk-jones"))  # the others have one sigma each
    assert (table["algorithm"], table["checkpoint"], table["sigmas"]) == ("a2c", "best", "0.2, 0.4")
    assert (table["at 0.2"], table["at 0.4"]) == ("151.0 (sigma 0.2)", "91.0 (sigma 0.4)")
    axes = drawn(rows, "frontier_camp-CartPole1-v0")
    assert {label: staircase.get_drawstyle() for label, staircase in lines_of(axes).items()} == {"a2c": "steps-pre"}
    (bars,) = bars_of(axes).values()
    assert [ends for _, *ends in bars] == [[150, 154], [90, 94]], "of the seeds at the best sigma, at the radii 0.2 and 0.4"


def test_the_committed_tables_give_the_frontiers_that_docs_results_shows():
    rows = summaries.read_results([ROOT / "docs/results/cartpole_50k.csv"])
    rows = rows[(rows.variant == "default") & (rows.camp_lambda == summaries.NO_LAMBDA)]
    names = {"camp_dqn": "CAMP", "gaussian_dqn": "DQN", "noisynet_dqn": "NoisyNet", "ppo": "PPO", "ars": "ARS"}
    shown = (ROOT / "docs/results/README.md").read_text().splitlines()
    found = [line for line in records(summaries.frontier_table(rows, "berk-jones")) if line["checkpoint"] == "best"]
    assert len(found) == 10
    for line in found:
        cells = [line[f"at {radius}"] for radius in ("0.2", "0.4", "0.6", "0.8", "1")]
        # "144.1 (sigma 0.2; 0.4: 110.0)" is "144.1 (0.2; 110.0)" there
        texts = [re.sub(r"; [\d.]+:", ";", cell.replace("sigma ", "") if i else cell) for i, cell in enumerate(cells)]
        assert f"| {line['task'][5:-3]} | {names[line['algorithm']]} | {' | '.join(texts)} |" in shown


def test_more_agents_than_colours_is_an_error_and_no_crash(tmp_path, capsys):
    lines = [found for number in range(40) for found in certified((f"algo{number}", ""), 0, {0: 1})]
    file = write(tmp_path / "results.csv", results.RESULT_COLUMNS, lines)
    assert figures.main([str(file), "-o", str(tmp_path / "figures")]) == 2
    assert "the eye can tell" in capsys.readouterr().err
