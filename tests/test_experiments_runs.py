"""Real studies: killed and continued, changed, with a step that fails, and on Slurm."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sb3_contrib import ARS
from support.experiments import CELL, TINY, WORKFLOW, changed, killed_at, output_of, run, start, until, working_in, write_study

from sb3_camp.camp_dqn import CAMPDQN

pytest.importorskip("snakemake")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def through(tmp_path_factory):
    """A study of one cell that ran through, with its yml beside it."""
    folder = tmp_path_factory.mktemp("experiments")
    run(write_study(folder / "study.yml", TINY), folder / "through")
    return folder / "through"


def rows(folder, **wanted):
    table = pd.read_csv(folder / "results.csv", dtype=str, keep_default_na=False)
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


def would_run(config, folder):
    """The steps that a dry run of a changed study shows, by name and how many."""
    said = run(write_study(folder.parent / "changed.yml", config), folder, "-n")
    names = [line.split()[0].rstrip(":") for line in said.splitlines()[1:]]
    return {name: names.count(name) for name in names if name != "all"}


def test_the_table_says_what_the_files_say(through):
    run_folder = through / "cells" / CELL / "train/ars/camp-CartPole1-v0_1"
    shards = [np.load(through / f"cells/{CELL}/last/shard{shard}/evaluations.npz") for shard in (0, 1)]
    returns = np.concatenate([shard["results"][0] for shard in shards])
    assert len(returns) == 61 and rows(through, quantity="n_episodes").value.tolist() == ["61"]
    assert float(rows(through, quantity="mean_return").value.iloc[0]) == pytest.approx(returns.mean(), abs=5e-5)
    with np.load(run_folder / "evaluations.npz") as log:
        validation = rows(through, quantity="validation_return")
        assert validation.x.astype(int).tolist() == log["timesteps"].tolist()
        assert validation.value.astype(float).tolist() == pytest.approx(log["results"].mean(axis=1), abs=5e-5)
    for method in ("berk-jones", "dkw", "clopper-pearson"):
        file = through / f"cells/{CELL}/last/certificates/{method}/certificate.json"
        certificate = json.loads(file.read_text())
        assert certificate["n_episodes"] == 61, "the shards are pooled"
        written = rows(through, quantity="certified_return", method=method)
        assert written.x.astype(float).tolist() == certificate["radii"] == [0, 0.1, 0.2]
        for value, exact in zip(written.value.astype(float), certificate["certified_return"], strict=True):
            assert exact - 1e-4 < value <= exact, "rounded down"
    costs = pd.read_csv(through / "costs.csv").set_index("step")
    assert set(costs.index) == {"train", "evaluate-last-0", "evaluate-last-1", "certify-last"}
    timesteps = int(rows(through, quantity="timesteps").value.iloc[0])
    assert costs.steps_per_second.train * costs.wall_seconds.train == pytest.approx(timesteps, rel=0.02)
    assert (costs[["wall_seconds", "cpu_seconds", "peak_memory_mib"]] > 0).all(axis=None)
    log = (through / f"logs/{CELL}/evaluate-last-1.log").read_text()
    assert log.startswith("$ python -m sb3_camp.evaluate --algo ars ")
    report = (through / "report.html").read_text()
    assert all(
        name in report for name in ("certified.html", "costs.html", "certified_camp-CartPole1-v0_sigma0.2.png", "results.csv")
    )
    assert "7 of 7 steps" in output_of(through)


def test_killed_twice_it_ends_with_the_table_of_one_that_ran_through(tmp_path, through):
    study, folder = through.parent / "study.yml", tmp_path / "killed"
    cell = folder / "cells" / CELL
    killed_at(study, folder, lambda: list(cell.glob("train.part/ars/*/*.monitor.csv")))
    assert not (cell / "train").exists()
    killed_at(study, folder, lambda: list(cell.glob("last/shard*/begun_by.txt")))
    trained = (cell / "train/ars/camp-CartPole1-v0_1/camp-CartPole1-v0.zip").read_bytes()
    run(study, folder)
    assert (folder / "results.csv").read_bytes() == (through / "results.csv").read_bytes()
    assert (cell / "train/ars/camp-CartPole1-v0_1/camp-CartPole1-v0.zip").read_bytes() == trained, "it was not trained again"


def test_a_change_does_what_depends_on_it_and_nothing_else(through):
    tables = {"tables": 1, "figures": 1}
    assert would_run(TINY, through) == {}
    everything = {"train": 1, "evaluate": 2, "certify": 1, **tables}
    assert would_run(changed(train={"n_timesteps": 600}), through) == everything
    assert would_run(changed(variants={"other": {"params": {"n_delta": 3}}}), through) == {}
    assert would_run(changed(evaluate={"n_episodes": 63}), through) == {"evaluate": 2, "certify": 1, **tables}
    assert would_run(changed(evaluate={"n_episodes": 62}), through)["evaluate"] == 1, "the other shard has as many as before"
    assert would_run(changed(certify={"radii": [0.1]}), through) == {"certify": 1, **tables}
    (grid,) = TINY["grids"]
    assert would_run(changed(grids=[{**grid, "seeds": [3, 4]}]), through) == everything
    assert would_run(changed(grids=[{**grid, "attacks": ["apgd"]}]), through) == {"attack": 1, **tables}
    assert would_run(changed(figures={"formats": ["png", "pdf"]}), through) == {"figures": 1}
    assert would_run(changed(evaluate={"checkpoints": ["best", "last"]}), through) == {"evaluate": 2, "certify": 1, **tables}


def test_all_attacks_and_the_verdict_are_in_the_table(tmp_path):
    (grid,) = TINY["grids"]
    attack = {"budgets": [0, 0.3], "n_episodes": 20, "adversary_timesteps": 100}
    config = changed(grids=[{**grid, "attacks": ["all"]}], attack=attack, certify={"methods": ["berk-jones"]})
    study, folder = write_study(tmp_path / "study.yml", config), tmp_path / "sweep"
    all_of_them = folder / f"cells/{CELL}/last/attacks/all"
    run(study, folder)
    verdict = json.loads((all_of_them / "verdict_sigma0.2.json").read_text())
    means = rows(folder, quantity="attacked_return")
    assert set(means.method) == {*verdict["attacks"], "all"} and {"random", "pgd", "learned"} < set(means.method)
    for one, value in zip(verdict["budgets"], means[means.method == "all"].value.astype(float), strict=True):
        assert value == pytest.approx(one["mean_return"], abs=5e-5)
    pgd = json.loads((all_of_them / "pgd_sigma0.2/attack.json").read_text())["budgets"]
    assert means[means.method == "pgd"].value.astype(float).tolist() == pytest.approx([one["mean_return"] for one in pgd])
    assert would_run(config, folder) == {}


def test_camp_imitates_its_teacher_which_is_trained_before_and_again_if_the_teacher_changes(tmp_path):
    (teachers,) = TINY["grids"]
    grids = [{**teachers, "algorithms": ["camp_dqn"], "lambdas": [0], "variants": ["of_ars"]}, teachers]
    of_ars = {"algorithm": "camp_dqn", "teacher": {"algorithm": "ars"}, "params": {"learning_starts": 100, "train_freq": 200}}
    config = changed(grids=grids, variants={"of_ars": of_ars}, evaluate={"shards": 1}, certify={"methods": ["dkw"]})
    folder = tmp_path / "sweep"
    plan = run(write_study(tmp_path / "study.yml", config), folder, "-n")
    student = CELL.replace("_ars", "_camp_dqn_lambda0_of_ars")
    assert f"train {CELL}: " in plan and f"train {student}: " in plan
    run(tmp_path / "study.yml", folder)
    assert set(rows(folder, quantity="certified_return").variant) == {"default", "of_ars"}
    taught = CAMPDQN.load(folder / f"cells/{student}/train/camp_dqn/camp-CartPole1-v0_1/camp-CartPole1-v0.zip")
    teacher = ARS.load(folder / f"cells/{CELL}/train/ars/camp-CartPole1-v0_1/camp-CartPole1-v0.zip")
    imitated, learned = (policy.action_net.state_dict() for policy in (taught.reference_policy, teacher.policy))
    assert {name: weights.tolist() for name, weights in imitated.items()} == {k: w.tolist() for k, w in learned.items()}

    assert would_run(config, folder) == {}
    of_ars["params"] = {"learning_starts": 90}
    one = {"train": 1, "evaluate": 1, "certify": 1, "tables": 1, "figures": 1}
    assert would_run(config, folder) == one
    grids[1]["seeds"] = [3, 4]
    assert would_run(config, folder) == {**one, "train": 2, "evaluate": 2, "certify": 2}, "the other seed has no student"
    both = {**one, "train": 2, "evaluate": 2, "certify": 2}
    again = changed(**{**config, "grids": [grids[0], {**grids[1], "seeds": [3]}], "train": {"conf": {"ars": "ars.yml"}}})
    (tmp_path / "ars.yml").write_text("default: {policy: LinearPolicy, n_delta: 3}\n")
    again["variants"]["of_ars"]["params"] = {"learning_starts": 100, "train_freq": 200}
    assert would_run(again, folder) == both, "a teacher that is trained again is imitated again"


def test_a_step_that_fails_is_named_with_its_log_while_the_others_are_done_and_is_tried_again(tmp_path):
    (grid,) = TINY["grids"]
    study, folder = tmp_path / "study.yml", tmp_path / "sweep"
    bad = {"params": {"policy": "NoSuchPolicy"}}
    config = changed(grids=[{**grid, "variants": ["default", "bad"]}], variants={"bad": bad}, evaluate={"shards": 1})
    assert start(write_study(study, config), folder).wait(900) == 1
    said, cell = output_of(folder), CELL.replace("_sigma", "_bad_sigma")
    log = folder / f"logs/{cell}/train.log"
    failed = f"failed, the same command tries again: train {cell}: {log.read_text().strip().splitlines()[-1]} (log: {log})"
    assert failed in said.splitlines()
    assert not (folder / "results.csv").exists()
    so_far = pd.read_csv(folder / "results_so_far.csv")
    assert set(so_far.variant) == {"default"} and "certified_return" in set(so_far.quantity)
    trained = (folder / f"cells/{CELL}/train/ars").stat().st_mtime_ns
    bad["params"] = {"n_delta": 3}
    run(write_study(study, config), folder)
    assert set(rows(folder).variant) == {"default", "bad"} and not (folder / "results_so_far.csv").exists()
    assert (folder / f"cells/{CELL}/train/ars").stat().st_mtime_ns == trained


def test_what_was_begun_with_another_model_is_not_continued(tmp_path, through):
    folder = tmp_path / "copy"
    shutil.copytree(through, folder, symlinks=True)
    shard = folder / f"cells/{CELL}/last/shard0"
    with np.load(shard / "evaluations.npz") as log:
        np.savez(shard / "evaluations.partial.npz", results=log["results"])  # of another attempt, and not even whole
    (shard / "evaluations.npz").unlink()
    (shard / "begun_by.txt").write_text("something else\n")
    said = run(through.parent / "study.yml", folder)
    assert f"evaluate {CELL} last 0: " in said and "train" not in said, "what was deleted is made again"
    assert (folder / "results.csv").read_bytes() == (through / "results.csv").read_bytes()


def test_two_at_once_in_one_folder_are_refused_and_ctrl_c_ends_with_one_line(tmp_path, through):
    folder = tmp_path / "sweep"
    first = start(through.parent / "study.yml", folder)
    said = Path(f"{folder}.txt").rename(tmp_path / "first.txt")
    try:
        until(lambda: list(folder.glob("cells/*/train.part/ars/*/*.monitor.csv")), first)
        assert start(through.parent / "study.yml", folder).wait(300) == 2
        assert "another process works on it" in output_of(folder)
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(300) == 130
        assert said.read_text().endswith("\nsweep: interrupted: the same command goes on from here\n")
        assert "failed" not in said.read_text() and "Traceback" not in said.read_text()
    finally:
        first.kill()
        first.wait()
    until(lambda: not working_in(folder))


def slurm_answers():
    return shutil.which("scontrol") is not None and subprocess.run(["scontrol", "ping"], capture_output=True).returncode == 0


@pytest.mark.skipif(not slurm_answers(), reason="no Slurm here: make slurm")
def test_on_slurm_also_killed_the_table_is_the_same(tmp_path, through):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    study, folder = through.parent / "study.yml", tmp_path / "slurm"
    profile = yaml.safe_load((WORKFLOW / "profiles/slurm/config.yaml").read_text())
    assert profile["executor"] == "slurm"
    options = ["--workflow-profile", str(WORKFLOW / "profiles/slurm"), "--latency-wait", "10"]
    options += ["--slurm-init-seconds-before-status-checks", "5"]
    first = start(study, folder, *options)
    while not list(folder.glob("cells/*/train.part/ars/*/*.monitor.csv")):
        assert first.poll() is None, output_of(folder)
    first.kill()
    first.wait()
    name = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True).stdout.split()[0]
    assert name.startswith("study")
    left = ["sbatch", "--parsable", "--job-name", name, "--output", str(tmp_path / "left.txt"), "--wrap", "sleep 900"]
    job = subprocess.run(left, capture_output=True, text=True, check=True).stdout.strip()
    said = run(study, folder, *options)
    assert "jobs that an earlier run left" in said
    state = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True).stdout
    assert "JobState=CANCELLED" in state
    assert (folder / "results.csv").read_bytes() == (through / "results.csv").read_bytes()


def test_no_more_steps_run_at_a_time_than_there_are_cores_for(tmp_path):
    """Old releases of Snakemake gave back a core too many whenever one step alone was ready: a teacher, then its students."""
    (tmp_path / "Snakefile").write_text(
        "rule all:\n    input: 'a', 'b', 'c'\n"
        "rule teacher:\n    output: 'teacher'\n    shell: 'touch {output}'\n"
        "rule student:\n    input: 'teacher'\n    output: '{name,[abc]}'\n"
        "    shell: 'test ! -e running && touch running && sleep 0.5 && rm running && touch {output}'\n"
    )
    done = subprocess.run([sys.executable, "-m", "snakemake", "--cores", "1"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
