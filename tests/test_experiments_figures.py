"""Figures of studies: what is drawn, from tables whose numbers are known."""

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
from support.study_tables import LINES, PPO, certified, line, records, write, written

results, summaries, over_seeds, figures = map(script, ("results", "summaries", "over_seeds", "figures"))


@pytest.fixture
def table(tmp_path):
    return written(tmp_path)


def drawn(rows, name, **options):
    options = {"reference": {}, "method": "berk-jones", "checkpoint": "best", **options}
    (figure,) = (make() for found, make in figures.all_figures(rows, **options) if found == name)
    (axes,) = figure.axes
    return axes


def lines_of(axes):
    """The curves by label, without the caps of bars."""
    return {label: found for found in axes.lines if not (label := str(found.get_label())).startswith("_")}


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


def test_the_lambda_ablation_is_drawn_where_all_agents_have_the_same_one_seed(table):
    rows = summaries.read_results([table])
    axes = drawn(rows[rows.seed == rows[rows.algo == "ppo"].seed.iloc[0]], f"lambda_{NAME}")
    lines = lines_of(axes)
    assert lines["camp_dqn"].get_xdata().tolist() == [0, 1] and set(lines["ppo"].get_ydata()) == {70}


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


def test_only_figures_with_data_are_made(table):
    rows = summaries.read_results([table])

    def made(part):
        return [name for name, _ in figures.all_figures(part, {}, "berk-jones", "best")]

    assert made(rows[rows.quantity == "validation_return"]) == [f"validation_{NAME}"]
    assert made(rows[(rows.camp_lambda != 4) & (rows.quantity == "certified_return")]) == [f"certified_{NAME}"]
    assert made(rows[rows.quantity == "q_gap_mean"]) == []


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
    for row in found:
        cells = [row[f"at {radius}"] for radius in ("0.2", "0.4", "0.6", "0.8", "1")]
        # "144.1 (sigma 0.2; 0.4: 110.0)" is "144.1 (0.2; 110.0)" there
        texts = [re.sub(r"; [\d.]+:", ";", cell.replace("sigma ", "") if i else cell) for i, cell in enumerate(cells)]
        assert f"| {row['task'][5:-3]} | {names[row['algorithm']]} | {' | '.join(texts)} |" in shown


def test_more_agents_than_colours_is_an_error_and_no_crash(tmp_path, capsys):
    lines = [found for number in range(40) for found in certified((f"algo{number}", ""), 0, {0: 1})]
    file = write(tmp_path / "results.csv", results.RESULT_COLUMNS, lines)
    assert figures.main([str(file), "-o", str(tmp_path / "figures")]) == 2
    assert "the eye can tell" in capsys.readouterr().err
