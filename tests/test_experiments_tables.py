"""Tables of studies: how they are read, chosen from, and summed up, from numbers that are known."""

import re

import pandas as pd
import pytest
from support.experiments import ROOT, script
from support.study_tables import LINES, TASK, certified, records, write, written

from sb3_camp.errors import InputError

results, summaries, over_seeds, figures = map(script, ("results", "summaries", "over_seeds", "figures"))


@pytest.fixture
def table(tmp_path):
    return written(tmp_path)


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


def test_the_committed_attacks_are_those_that_docs_results_shows():
    rows = summaries.read_results([ROOT / "docs/results/attacks.csv"])
    text = (ROOT / "docs/results/README.md").read_text()
    table = text[text.index("## Attacks\n") :].split("\n\n")[2].replace("*", "")
    shown = [[re.split(r"[ (,]", cell.strip())[0] for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    expected = []
    certificates = {line["algorithm"]: line for line in records(summaries.certified_table(rows, "berk-jones"))}
    for algo in ("camp_dqn", "gaussian_dqn"):
        own = {line["attack"]: line for line in records(summaries.attack_table(rows[rows.algo == algo]))}
        for name in ("random", "pgd", "apgd", "learned"):
            expected.append([f"`{name}`", *(own[name][f"at {budget}"] for budget in ("0", "0.2", "0.4", "1"))])
        expected.append(["certified", certificates[algo]["certified at 0"], certificates[algo]["at sigma/2"]])
    assert [line[1:] for line in shown if line[1] != "certified"] == [line for line in expected if line[0] != "certified"]
    assert [line[1:4] for line in shown if line[1] == "certified"] == [line for line in expected if line[0] == "certified"]
    # The strongest of each agent at each budget is the learned adversary
    means = rows[(rows.quantity == "attacked_return") & (rows.x > 0)]
    lowest = means.loc[means.groupby(["algo", "seed", "x"]).value.idxmin()]
    assert set(lowest.method) == {"learned"} and len(lowest) == 18
