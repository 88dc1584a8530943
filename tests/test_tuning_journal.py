"""The real zoo on one journal file: a study of two workers ends with the right count though one of them is killed."""

import json
import os
import subprocess
import sys

import pytest
from support.tuning_workers import CALLBACK, DEFAULT, ROOT, START, check_counts, study_with_one_worker_killed, worker

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate
from sb3_camp.tuning.workers import open_study

TASK = "camp/CartPole1-v0"


@pytest.mark.slow
def test_a_study_ends_with_the_right_count_though_a_worker_was_killed(tmp_path):
    study, victim = study_with_one_worker_killed(tmp_path, 6, "tune/study.log")
    check_counts(study, 6, victim)


@pytest.mark.slow
def test_a_real_study_survives_a_killed_worker_and_its_best_trial_is_trained_and_certified(tmp_path):
    """With the heartbeat as it is, so the last worker waits until the killed one counts no more."""
    study, victim = study_with_one_worker_killed(tmp_path, 24, "study.log", steps=1400, beats=DEFAULT)
    check_counts(study, 24, victim)
    late = worker(tmp_path, 24, 3, "study.log", steps=1400, beats=DEFAULT)
    assert late.wait(200) == 0, (tmp_path / "worker3.txt").read_text()
    reread = open_study(str(tmp_path / "study.log"), "study", create=False)
    assert reread is not None and len(reread.trials) == len(study.trials), "it finds nothing to do"

    best = study.best_trial
    command = ["--algo", "camp_dqn", "--env", TASK, "-n", "1400", "-f", "best", "--eval-freq", "-1", "--seed", "1"]
    command += ["--storage", "study.log", "--study-name", "study", "--trial-id", str(best.number), "-params", CALLBACK]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-c", START.format(DEFAULT)]
    result = subprocess.run([*start, *command], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    run = tmp_path / "best/camp_dqn/camp-CartPole1-v0_1"
    config = (run / "camp-CartPole1-v0/config.yml").read_text()
    assert str(best.params["camp_lambda"]) in config and str(best.params["learning_rate"]) in config
    assert evaluate(["--algo", "camp_dqn", "--env", TASK, "-f", str(tmp_path / "best"), "-n", "500"]) == 0
    assert certify([str(run)]) == 0
    certificate = json.loads((run / "certification/certificate.json").read_text())
    assert certificate["n_episodes"] == 500 and certificate["certified_return"][0] > 0
