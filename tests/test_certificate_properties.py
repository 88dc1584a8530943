"""What every certificate has in common, on returns that nobody picked; the worst attacks on small tasks; a worked example."""

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from sb3_camp.certification import (
    certified_cost,
    certified_cvar,
    certified_probability,
    certified_quantile,
    certified_radius,
    certified_return,
    plan_episodes,
    planned_looks,
)
from sb3_camp.certification.bands import METHODS, berk_jones_level, lower_band

# The same examples in every run, and no database of them.
PROFILE = settings(derandomize=True, deadline=None, database=None, max_examples=150)

RATIOS = np.array([0.0, 0.3, 1.0, 2.0, 3.5, 6.0])  # radius / sigma
ALPHAS = (0.001, 0.05, 0.5)


@st.composite
def questions(draw):
    """Returns and the arguments to certify them with. Halves are exact, so that ties are ties and shifts are exact too."""
    halves = st.integers(0, draw(st.sampled_from([1, 4, 400]))).map(lambda number: number / 2)
    min_return = draw(st.integers(-20, 5)) / 2
    returns = min_return + np.array(draw(st.lists(halves, min_size=1, max_size=40)))
    method = draw(st.sampled_from(METHODS))
    options = {"alpha": draw(st.sampled_from(ALPHAS)), "method": method, "min_return": min_return}
    if method == "clopper-pearson":
        unseen = min_return + np.array(draw(st.lists(halves, max_size=5)))
        options["support"] = np.concatenate((returns, unseen))
    return returns, options


def curve(returns, options, sigma=1.0, **changes):
    return certified_return(returns, sigma, RATIOS * sigma, **{**options, **changes})


def rounding(returns, options):
    return 1e-12 * (np.abs(returns).max() + abs(options["min_return"]) + 1)


@PROFILE
@given(questions())
def test_falls_with_the_radius_from_below_the_mean_to_the_lowest_return(question):
    returns, options = question
    values = curve(returns, options)
    assert np.all(np.diff(values) <= rounding(returns, options))
    assert values[0] <= returns.mean() + rounding(returns, options)
    assert np.all(values >= options["min_return"])
    assert certified_return(returns, 1.0, math.inf, **options) == options["min_return"]


@PROFILE
@given(questions())
def test_is_below_the_mean_even_where_a_single_return_is(question):
    returns, options = question
    assume(len(set(returns)) > 1 or returns[0] > options["min_return"])
    assert curve(returns, options)[0] < returns.mean()  # strictly: a band of confidence above 1/2 leaves something out


@PROFILE
@given(questions())
def test_rises_with_alpha(question):
    returns, options = question
    curves = [curve(returns, options, alpha=alpha) for alpha in ALPHAS]
    assert np.all(np.diff(curves, axis=0) >= -rounding(returns, options))


@PROFILE
@given(questions(), st.integers(2, 6))
def test_rises_with_the_number_of_episodes_of_the_same_law(question, times):
    returns, options = question
    more = curve(np.tile(returns, times), options)
    assert np.all(more >= curve(returns, options) - rounding(returns, options))


@PROFILE
@given(questions(), st.randoms(use_true_random=False))
def test_does_not_depend_on_the_order(question, random):
    returns, options = question
    shuffled = returns.tolist()
    random.shuffle(shuffled)
    np.testing.assert_array_equal(curve(shuffled, options), curve(returns, options))


@PROFILE
@given(questions(), st.integers(-1000, 1000), st.sampled_from([2.0**-20, 0.125, 1.0, 3.0, 1e9]))
def test_moves_and_stretches_with_the_returns(question, shift, scale):
    returns, options = question
    moved = options | {"min_return": (options["min_return"] + shift) * scale}
    if "support" in options:
        moved["support"] = (options["support"] + shift) * scale
    got = curve((returns + shift) * scale, moved)
    expected = (curve(returns, options) + shift) * scale
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * scale * (1500 + abs(shift)))


@PROFILE
@given(questions(), st.sampled_from([1e-6, 0.4, 12.75, 1e6]))
def test_only_the_ratio_of_radius_and_sigma_matters(question, sigma):
    returns, options = question
    np.testing.assert_allclose(curve(returns, options, sigma=sigma), curve(returns, options), rtol=1e-11, atol=1e-11)


@PROFILE
@given(questions())
def test_is_the_lowest_return_exactly_where_nothing_is_certified(question):
    returns, options = question
    lowest = np.full(len(returns), options["min_return"])  # the episodes show nothing better
    support = {"support": np.append(options["support"], options["min_return"])} if "support" in options else {}
    np.testing.assert_array_equal(curve(lowest, options, **support), options["min_return"])
    too_few = options | {"method": "dkw", "alpha": 0.05}
    too_few.pop("support", None)
    np.testing.assert_array_equal(curve(returns[:1], too_few), options["min_return"])  # one episode: the band is empty
    # 40 sigma away even the most probable event may have become impossible
    assert certified_return(returns, 1.0, 60.0, **options) == options["min_return"]


@PROFILE
@given(questions(), st.floats(0, 1))
def test_a_better_episode_never_lowers_it(question, share):
    returns, options = question
    index = int(share * (len(returns) - 1))
    better = returns.copy()
    better[index] = returns.max()
    assert np.all(curve(better, options) >= curve(returns, options) - rounding(returns, options))


@PROFILE
@given(questions())
def test_a_lower_lowest_return_never_raises_it(question):
    returns, options = question
    lower = curve(returns, options, min_return=options["min_return"] - 3)
    assert np.all(lower <= curve(returns, options) + rounding(returns, options))


@PROFILE
@given(questions(), st.floats(0, 1))
def test_the_radius_of_a_target_is_the_last_that_keeps_it(question, share):
    returns, options = question
    top = float(curve(returns, options)[0])
    target = options["min_return"] + share * (top - options["min_return"])
    assume(options["min_return"] < target <= top)
    radius = certified_radius(returns, 1.0, target, **options)
    assert certified_return(returns, 1.0, radius, **options) >= target
    assert certified_return(returns, 1.0, radius + 2e-9, **options) < target + rounding(returns, options)
    farther = certified_radius(returns, 1.0, (target + options["min_return"]) / 2, **options)
    assert farther >= radius


@PROFILE
@given(questions(), st.lists(st.integers(0, 400).map(lambda number: number / 2), min_size=1, max_size=6))
def test_any_declared_thresholds_give_what_the_floored_returns_do_and_stay_below_the_mean(question, thresholds):
    returns, options = question
    support = options["min_return"] + np.array(thresholds)
    options = options | {"method": "clopper-pearson", "support": support}
    floored = [max(options["min_return"], *(c for c in support if c <= value), options["min_return"]) for value in returns]
    got = curve(returns, options)
    np.testing.assert_array_equal(got, curve(floored, options))
    assert got[0] <= np.mean(floored) + rounding(returns, options)


def test_more_episodes_of_one_law_raise_the_berk_jones_band_at_every_count():
    for m in (1, 2, 3, 5, 10, 40, 100, 333):
        for times in (2, 3, 10):
            counts = np.arange(m + 1)
            few = lower_band(counts, m, 0.05, "berk-jones")
            many = lower_band(counts * times, m * times, 0.05, "berk-jones")
            assert np.all(many >= few)


BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "worst_case_mdp.py"


def test_the_worst_attacks_on_small_tasks_are_right():
    spec = importlib.util.spec_from_file_location("worst_case_mdp", BENCHMARK)
    assert spec is not None and spec.loader is not None
    games = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = games  # where dataclasses look for it
    spec.loader.exec_module(games)
    parts, largest = 72, 3.0
    budgets = largest * np.sqrt(np.arange(parts + 1) / parts)

    value, _ = games.worst_case(games.TASKS["one look"], parts, largest)
    np.testing.assert_allclose(value, stats.norm.cdf(1.5 - budgets), rtol=1e-12)

    # Two looks of which both must be right: the best split of the budget by brute force
    both = games.Task((1.0, 1.0), (1, games.END), (games.END, games.END), (0.0, 1.0), (0.0, 0.0), 2)
    value, attack = games.worst_case(both, parts, largest)
    for units in (0, 8, 72):
        first = np.arange(units + 1)
        right = [stats.norm.cdf(1 - largest * np.sqrt(part / parts)) for part in (first, units - first)]
        assert value[units] == pytest.approx(np.min(right[0] * right[1]), rel=1e-12)
    played = games.play(both, 20_000, np.random.default_rng(0), attack, 8, largest).mean()
    assert played == pytest.approx(value[8], abs=4 * 0.5 / math.sqrt(20_000))


def test_certificates_stay_below_the_worst_attack_on_small_tasks():
    run = subprocess.run([sys.executable, BENCHMARK, "--short"], capture_output=True, text=True, check=True)
    result = json.loads(run.stdout.splitlines()[-1])
    for task in result["tasks"].values():
        for method, certified in task["certified"].items():
            assert np.all(np.array(certified) <= task["worst"]), method
            assert certified[2] >= 0.5 * task["worst"][2]  # at R = sigma, far from empty
    assert result["highest_share"] <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 200)


DOCUMENT = Path(__file__).parent.parent / "docs" / "certificates.md"


def example_table(*landmarks: str) -> list[list[float]]:
    """The numbers of the first table of the document after a heading, or after some text under it."""
    section = DOCUMENT.read_text(encoding="utf-8")
    for landmark in landmarks:
        section = section[section.index(landmark) :]
    rows = re.search(r"\n\|[-:| ]+\|\n((?:\|.*\n)+)", section)
    assert rows is not None
    return [[float(cell) for cell in line.strip("|").split("|")] for line in rows.group(1).splitlines()]


def worked_returns() -> np.ndarray:
    return np.repeat([1.0, 2.0, 3.0], [50, 150, 800])


def test_the_worked_example_of_the_documentation_can_be_recomputed():
    table = example_table("### A worked example")
    returns, m = worked_returns(), 1000
    text = DOCUMENT.read_text(encoding="utf-8")
    margin = math.sqrt(math.log(2 / 0.05) / (2 * m))
    assert f"= {margin:.4f}" in text
    for (threshold, count, band, quantile, shifted, kept), expected in zip(table, (1, 2, 3), strict=True):
        assert threshold == expected
        assert count == np.sum(returns >= threshold)
        assert band == pytest.approx(count / m - margin, abs=0.5e-4 + 1e-9)
        assert quantile == pytest.approx(stats.norm.ppf(band), abs=0.5e-2)
        assert shifted == pytest.approx(quantile - 1, abs=1e-9)
        assert kept == pytest.approx(stats.norm.cdf(shifted), abs=0.5e-4 + 1e-9)
    total = sum(row[5] for row in table)
    assert f"= \\mathbf{{{total:.4f}}}$" in text
    exact = certified_return(returns, 0.4, 0.4, method="dkw")
    assert f"{exact:.4f}" in text and abs(exact - total) < 0.005
    for number in (
        certified_return(returns, 0.4, 0.0, method="dkw"),
        certified_return(returns, 0.4, 0.4),
        certified_return(returns, 0.4, 0.4, method="clopper-pearson", support=[1, 2, 3]),
        certified_return(returns, 0.4, 0.0),
        returns.mean(),
    ):
        assert f"{number:.4f}" in text


def shown_too_low(value, digits=4):
    return math.floor(float(value) * 10**digits) / 10**digits


def test_the_other_quantities_of_the_worked_example_can_be_recomputed():
    table = example_table("## More from the same episodes\n", "In the worked example below")
    returns = worked_returns()
    for radius, *cells in table:
        expected = [certified_probability(returns, 0.4, c, radius) for c in (1, 2, 3)]
        expected += [certified_quantile(returns, 0.4, 0.1, radius), certified_cvar(returns, 0.4, 0.25, radius)]
        expected += [certified_return(returns, 0.4, radius)]
        assert cells == [shown_too_low(value) for value in expected]
    assert [row[0] for row in table] == [0, 0.4]
    text = DOCUMENT.read_text(encoding="utf-8")
    crashed = np.repeat([0, 1], [998, 2])
    for radius in (0.0, 0.4):
        bound = float(certified_cost(crashed, 0.4, radius, method="clopper-pearson", support=[0, 1]))
        assert f"at most {math.ceil(bound * 1e4) / 1e4:.4f}" in text
    for target, shown in ((2.0, "1,190"), (2.05, "2,160")):
        plan = plan_episodes(returns, 0.4, target, 0.4)
        assert plan.n_episodes == pytest.approx(int(shown.replace(",", "")), rel=0.02) and f"about {shown}" in text
    assert plan_episodes(returns, 0.4, 2.2, 0.4).n_episodes is None
    assert f"the ceiling is {shown_too_low(plan.ceiling)}" in text
    assert ", ".join(f"{look.n_episodes:,}" for look in planned_looks(1000, 200_000, 5)[:4]) in text


def test_the_berk_jones_value_for_perfect_episodes_in_the_documentation_can_be_recomputed():
    text = DOCUMENT.read_text(encoding="utf-8")
    level = berk_jones_level(1000, 0.05)
    bound = level ** (1 / 1000)
    assert f"{level:.8f}" in text and f"{bound:.5f}" in text
    assert lower_band(1000, 1000, 0.05, "berk-jones") == pytest.approx(bound, rel=1e-12)
    assert f"{stats.norm.ppf(bound):.2f}" in text
