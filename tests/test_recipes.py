"""The numbers of docs/recipes.md and docs/results/best.md are those of the formulas and of the committed tables."""

import csv
from pathlib import Path

import numpy as np
import pytest

from sb3_camp.certification import certified_return

DOCS = Path(__file__).parents[1] / "docs"


def table(page: str, header: str) -> list[list[str]]:
    """Cells of the rows of the first table whose header begins so."""
    lines = (DOCS / page).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(header)) + 2
    rows = []
    while at < len(lines) and lines[at].startswith("|"):
        rows.append([cell.strip().replace("**", "") for cell in lines[at].strip("|").split("|")])
        at += 1
    return rows


def rounded_down(value: str | float) -> str:
    return f"{np.floor(float(value) * 10) / 10:.1f}"


def test_what_an_agent_without_a_failure_certifies_is_the_table_of_the_recipe():
    rows = table("recipes.md", "| R / sigma |")
    ratios = [float(row[0]) for row in rows]
    for column, n in enumerate((1_000, 10_000, 100_000), start=1):
        shares = certified_return(np.ones(n), 1.0, ratios)
        assert [row[column] for row in rows] == [f"{rounded_down(100 * share)} %" for share in shares]
    shares = certified_return(np.ones(10_000), 1.0, ratios, method="clopper-pearson", support=[1.0])
    assert [row[4] for row in rows] == [f"{rounded_down(100 * share)} %" for share in shares]


def test_the_table_of_the_kalman_filter_is_that_of_its_csv():
    shown = [row for row in table("results/best.md", "| | sigma | at 0") if "no failure" not in row[0]]
    rows = list(csv.DictReader((DOCS / "results/kalman.csv").open()))
    found = [row for row in rows if row["method"] == "berk-jones"]
    assert [row[1] for row in shown] == [row["sigma"] for row in found]
    columns = ("0", "0.2", "0.4", "0.6", "0.8", "1")
    assert [row[2:] for row in shown] == [[rounded_down(row[f"certified_at_{radius}"]) for radius in columns] for row in found]


def test_the_rows_of_the_wang_transform_are_those_of_their_csv():
    found: dict[tuple[str, str], list[str]] = {}
    for row in csv.DictReader((DOCS / "results/wang.csv").open()):
        if row["quantity"] == "certified_return" and float(row["x"]) in (0, 0.2, 0.4, 0.6, 0.8, 1):
            found.setdefault((row["variant"], row["seed"]), []).append(rounded_down(row["value"]))
    shown = table("results/best.md", "| objective | seed |")
    variants = {"mean return": "default", "Wang, parameter 2": "wang2"}
    assert {(variants[row[0]], row[1]): row[2:8] for row in shown} == found


@pytest.mark.parametrize(
    ("file", "header"), [("imitation", "| agent | seed |"), ("imitation_frames15", "| agent | seed of CAMP |")]
)
def test_the_rows_of_imitation_are_those_of_their_csv(file, header):
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in csv.DictReader((DOCS / f"results/{file}.csv").open()):
        if row["quantity"] == "certified_return" and float(row["x"]) in (0, 0.2, 0.4, 0.6, 0.8, 1):
            found.setdefault((row["algo"], row["camp_lambda"], row["seed"]), []).append(rounded_down(row["value"]))
    agents = {"the teacher": ("ppo", ""), "imitation alone (lambda 0)": ("camp_dqn", "0")}
    rows = [row for row in table("results/best.md", header) if row[1]]  # a teacher without a seed is not in the file
    assert {(*agents.get(row[0].split(":")[0], ("camp_dqn", "")), row[1]): row[2:8] for row in rows} == found


def test_the_rows_of_ppo_are_those_of_their_csv():
    shown = [row for row in table("results/best.md", "| frames | sigma |") if "comparison" not in row[2]]
    found: dict[tuple[str, ...], list[str]] = {}
    for row in csv.DictReader((DOCS / "results/best.csv").open()):
        if float(row["radius"]) in (0, 0.2, 0.4, 0.6, 0.8, 1):
            names = ("n_stack", "sigma", "parameter", "n_envs", "timesteps", "seed", "n_episodes")
            found.setdefault(tuple(row[name] for name in names), []).append(rounded_down(row["certified_return"]))
    assert [row[4:] for row in shown] == list(found.values())
    assert [(row[0], row[1], f"{row[3]}000000") for row in shown] == [(one[0], one[1], one[4]) for one in found]
