"""A real sweep: interrupted and resumed it gives the same table, and several workers share it."""

import csv
import json
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from optuna.trial import TrialState
from sweep_runs import SMALL, TASK, environment, output_of, start, stopped_at, sweep, sweep_table, until

from sb3_camp.tuning.workers import open_study

ONE_CELL = [*SMALL, "--algos", "ars", "--seeds", "3", "--checkpoints", "last"]
CELL = "camp-CartPole1-v0_ars_sigma0.2_seed3"
GRID = [*SMALL, "--algos", "camp_dqn", "ppo", "--lambdas", "0", "1", "--seeds", "0", "--checkpoints", "last", "best"]
GRID += ["--attacks", "apgd", "--attack-budgets", "0.3", "0", "--attack-episodes", "40"]
N_CELLS = 3


@pytest.fixture(autouse=True)
def signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def rows(folder, **wanted):
    with (folder / "results.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if all(row[name] == value for name, value in wanted.items())]
    return found


def trials(folder):
    return open_study(str(folder / "study.log"), "sweep", create=False).trials


def test_a_sweep_that_was_stopped_twice_gives_the_table_of_one_that_ran_through(tmp_path, capsys):
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    assert sweep.main(["-o", str(through), *ONE_CELL]) == 0
    reference = (through / "results.csv").read_bytes()

    def training():  # has begun
        return list((stopped / CELL).glob("ars/*/*.monitor.csv"))

    def evaluating():
        return (stopped / CELL / "steps/evaluate-last.log").exists()

    assert stopped_at(stopped, ONE_CELL, training, signal.SIGKILL) == -signal.SIGKILL
    assert stopped_at(stopped, ONE_CELL, evaluating, signal.SIGINT) == 130
    assert output_of(stopped).endswith("sweep: interrupted: the same command goes on from here\n")
    assert "Traceback" not in output_of(stopped)
    trained = (stopped / CELL / "steps/train.json").read_bytes()
    assert sweep.main(["-o", str(stopped), *ONE_CELL]) == 0
    assert (stopped / "results.csv").read_bytes() == reference
    assert (stopped / CELL / "steps/train.json").read_bytes() == trained, "a finished training is not done again"
    assert [trial.state for trial in trials(stopped)] == [TrialState.FAIL] * 2 + [TrialState.COMPLETE]

    capsys.readouterr()
    assert sweep.main(["-o", str(stopped), *ONE_CELL]) == 0
    assert capsys.readouterr().out == f"1 of 1 cells are done: {stopped}/results.csv\n"
    assert len(trials(stopped)) == 3

    # The table says what the files say
    run = stopped / CELL / "ars" / "camp-CartPole1-v0_1"
    with np.load(run / "evaluation_last/evaluations.npz") as log:
        assert log["results"].shape == (1, 60)
        (mean,) = rows(stopped, quantity="mean_return")
        assert float(mean["value"]) == pytest.approx(log["results"].mean(), abs=5e-5)
        assert mean["checkpoint"] == "last"
    with np.load(run / "evaluations.npz") as log:
        validation = rows(stopped, quantity="validation_return")
        assert [int(row["x"]) for row in validation] == log["timesteps"].tolist()
        assert [float(row["value"]) for row in validation] == pytest.approx(log["results"].mean(axis=1), abs=5e-5)
    for method in ("berk-jones", "dkw", "clopper-pearson"):
        certificate = json.loads((run / "evaluation_last" / method / "certificate.json").read_text())
        assert certificate["method"] == method and certificate["radii"] == [0, 0.1, 0.2]
        written = rows(stopped, quantity="certified_return", method=method)
        assert [float(row["x"]) for row in written] == certificate["radii"]
        for row, exact in zip(written, certificate["certified_return"], strict=True):
            assert exact - 1e-4 < float(row["value"]) <= exact, "rounded down"
    with (stopped / "costs.csv").open(newline="") as file:
        costs = {row["step"]: row for row in csv.DictReader(file)}
    assert set(costs) == {
        "train",
        "evaluate-last",
        *(f"certify-last-{name}" for name in ("berk-jones", "dkw", "clopper-pearson")),
    }
    (timesteps,) = (int(row["value"]) for row in rows(stopped, quantity="timesteps"))
    speed, seconds = (float(costs["train"][name]) for name in ("steps_per_second", "wall_seconds"))
    assert timesteps >= 500 and speed * seconds == pytest.approx(timesteps, rel=0.02)
    assert trials(stopped)[-1].value == pytest.approx(
        float(rows(stopped, quantity="certified_return", method="berk-jones", x="0.2")[0]["value"]), abs=1e-4
    )


def test_a_failed_cell_is_reported_and_tried_again_while_the_others_are_done(tmp_path, capsys):
    conf = tmp_path / "ars.yml"
    conf.write_text(f"{TASK}:\n  policy: 'NoSuchPolicy'\n")
    bad = [*SMALL, "--algos", "ars", "--seeds", "0", "--checkpoints", "last", "--conf", f"ars={conf}"]
    folder = tmp_path / "sweep"
    for attempt in (1, 2):
        assert sweep.main(["-o", str(folder), *bad]) == 1
        printed = capsys.readouterr()
        log = folder / "camp-CartPole1-v0_ars_sigma0.2_seed0/steps/train.log"
        assert (
            f"train failed (status 1): {log.read_text().strip().splitlines()[-1]} (log: {log}, command: python " in printed.err
        )
        assert "0 of 1 cells are done" in printed.out
        assert [trial.state.name for trial in trials(folder)] == ["FAIL"] * attempt
    assert (folder / "results.csv").read_text().count("\n") == 1


@pytest.fixture(scope="module")
def through(tmp_path_factory):
    """A sweep of three cells with everything that a sweep can do, by one worker."""
    folder = tmp_path_factory.mktemp("sweep") / "through"
    worker = start(folder, GRID)
    assert worker.wait(600) == 0, output_of(folder)
    return folder


def steps_done(folder):
    return len(list(folder.glob("*/steps/*.json")))


@pytest.mark.slow
def test_a_grid_that_was_stopped_three_times_gives_the_table_of_one_that_ran_through(tmp_path, through):
    folder = tmp_path / "stopped"
    for n_steps, by in ((1, signal.SIGTERM), (8, signal.SIGKILL), (19, signal.SIGINT)):
        status = stopped_at(folder, GRID, lambda n_steps=n_steps: steps_done(folder) >= n_steps, by)
        assert status == (-signal.SIGKILL if by == signal.SIGKILL else 130)
    worker = start(folder, GRID)
    assert worker.wait(600) == 0, output_of(folder)
    assert f"{N_CELLS} of {N_CELLS} cells are done" in output_of(folder)
    assert (folder / "results.csv").read_bytes() == (through / "results.csv").read_bytes()
    assert sum(trial.state == TrialState.COMPLETE for trial in trials(folder)) == N_CELLS
    assert len(rows(folder, quantity="attacked_return", method="apgd", x="0.3")) == 2 * N_CELLS
    gaps = rows(folder, quantity="q_gap_min")
    assert len(gaps) == 2 * 2, "PPO has no Q-values"
    measured = [float(np.load(file)["q_gap_min"]) for file in folder.glob("*/camp_dqn/*/evaluation_*/evaluations.npz")]
    assert sorted(float(row["value"]) for row in gaps) == pytest.approx(sorted(measured), rel=1e-3), "small as they are"


@pytest.mark.slow
def test_two_workers_that_start_at_once_share_a_grid_and_one_that_is_killed_is_replaced(tmp_path, through):
    folder = tmp_path / "shared"
    first, second = start(folder, GRID, "first"), start(folder, GRID, "second")
    try:
        until(lambda: "evaluate" in output_of(folder, "first") and "evaluate" in output_of(folder, "second"))
        first.kill()
        assert second.wait(600) == 0, output_of(folder, "second")
    finally:
        first.kill()
        second.kill()
    assert f"{N_CELLS} of {N_CELLS} cells are done" in output_of(folder, "second")
    assert (folder / "results.csv").read_bytes() == (through / "results.csv").read_bytes()
    begun = [line for name in ("first", "second") for line in output_of(folder, name).splitlines() if line.endswith(": train")]
    assert len(begun) == len(set(begun)) == N_CELLS, "no training was done twice"
    complete = [trial.user_attrs["cell"] for trial in trials(folder) if trial.state == TrialState.COMPLETE]
    assert len(complete) == len(set(complete)) == N_CELLS
    assert not [trial for trial in trials(folder) if trial.state == TrialState.RUNNING]


@pytest.mark.slow
def test_the_commands_in_the_folder_of_a_cell_reproduce_it(tmp_path, through):
    (cell,) = through.glob("*ppo*")
    again = tmp_path / "again"
    for line in (cell / "commands.txt").read_text().splitlines():
        words = [word.replace(str(through), str(again)) for word in shlex.split(line)]
        assert words[0] == "python"
        result = subprocess.run([sys.executable, *words[1:]], env=environment(), capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    shutil.copy(cell / "cell.json", again / cell.name)
    shutil.copytree(cell / "steps", again / cell.name / "steps")
    sweep_table.write_tables(again)
    assert rows(again) == rows(through, algo="ppo")
    assert len(rows(again)) > 20


@pytest.mark.slow
def test_an_attack_that_is_added_later_is_all_that_is_done(tmp_path):
    folder = tmp_path / "sweep"
    assert sweep.main(["-o", str(folder), *ONE_CELL]) == 0
    trained = (folder / CELL / "steps/train.json").read_bytes()
    more = ["--attacks", "apgd", "--attack-budgets", "0.1", "--attack-episodes", "30", "--attack-sigma", "own", "0"]
    assert sweep.main(["-o", str(folder), *ONE_CELL, *more]) == 0
    assert {row["method"] for row in rows(folder, quantity="attacked_return")} == {"apgd", "apgd-sigma0"}
    assert (folder / CELL / "steps/train.json").read_bytes() == trained
    assert len(trials(folder)) == 2
    assert sweep.main(["-o", str(folder), *ONE_CELL]) == 0
    assert len(trials(folder)) == 2, "without --attacks there is nothing left to do"
    assert sweep.main(["-o", str(folder), *ONE_CELL, "--checkpoints", "best"]) == 0
    assert {row["checkpoint"] for row in rows(folder, quantity="mean_return")} == {"best", "last"}
    assert (folder / CELL / "commands.txt").read_text().count("sb3_camp.attack") == 2, "what was done before stays there"
