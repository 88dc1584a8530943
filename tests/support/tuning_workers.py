"""A study of several workers of the real zoo, one of which is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from sb3_camp.tuning.workers import open_study

ROOT = Path(__file__).resolve().parents[2]
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
SHORT, DEFAULT = "workers.INTERVAL, workers.GRACE_PERIOD = 0.3, 3.0", ""
START = """
import sb3_camp.zoo
sb3_camp.zoo.register()
from sb3_camp.tuning import workers
{}
from rl_zoo3.train import train
train()
"""
CALLBACK = "callback:[{'sb3_camp.tuning.CertifiedReturnCallback':{'n_eval_episodes':20,'radii':[0.1,0.2],'objective':'area'}}]"


def worker(folder: Path, total: int, seed: int, storage: str, steps: int = 900, beats: str = SHORT) -> subprocess.Popen:
    command = [sys.executable, "-c", START.format(beats), "--algo", "camp_dqn", "--env", "camp/CartPole1-v0"]
    command += ["-n", str(steps), "--seed", str(seed), "--n-evaluations", "2", "--n-startup-trials", "5", "--no-optim-plots"]
    command += ["-params", CALLBACK, "learning_starts:1000", "-f", "logs", "-optimize"]
    command += ["--storage", storage, "--study-name", "study", "--max-total-trials", str(total)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (folder / f"worker{seed}.txt").open("w") as output:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT)


def study_with_one_worker_killed(folder: Path, total: int, storage: str, **kwargs: Any) -> tuple[optuna.Study, int]:
    """A study of two workers, the first of which is killed amid a trial, and the number of that trial."""
    absolute = str(folder / storage) if storage.endswith(".log") else storage
    first, second = worker(folder, total, 1, storage, **kwargs), worker(folder, total, 2, storage, **kwargs)
    try:
        end, victims = time.monotonic() + 240, []
        while not victims:
            assert time.monotonic() < end and first.poll() is None, (folder / "worker1.txt").read_text()
            time.sleep(0.05)
            study = open_study(absolute, "study", create=False)
            trials = [] if study is None else study.trials
            running = [trial for trial in trials if trial.state == TrialState.RUNNING]
            # All parameters are sampled, so it hardly holds the lock of the journal: to break that takes half a minute
            sampled = [trial for trial in running if "imitation" in trial.params and len(trials) > 2]
            victims = [t.number for t in sampled if t.user_attrs.get("worker", "").endswith(f":{first.pid}")]
        first.kill()
        first.wait()
        assert second.wait(1200) == 0, (folder / "worker2.txt").read_text()
    finally:
        first.kill()
        second.kill()
    study = open_study(absolute, "study", create=False)
    assert study is not None
    return study, victims[0]


def check_counts(study: optuna.Study, total: int, victim: int) -> None:
    """Every trial once, the killed one failed, and as many finished ones as were asked for."""
    trials = study.trials
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert trials[victim].state == TrialState.FAIL
    assert not [trial.number for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    assert sum(trial.state in FINISHED for trial in trials) == total
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    assert study.best_value == max(trial.value for trial in complete)
    for trial in trials:
        if trial.state in FINISHED:
            assert trial.value == trial.intermediate_values[trial.last_step]
