"""NoisyNet by the commands that a user runs, those of the zoo in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sb3_camp import certify, evaluate
from sb3_camp.noisy_net import NoisyMlpPolicy, NoisyNetDQN

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "zoo_scripts"
NOISYNET = ("--algo", "noisynet_dqn", "--env", "CartPole-v0", "-f", "logs", "--device", "cpu")
SMALL = ("--seed", "1", "-params", "learning_starts:100", "train_freq:16", "gradient_steps:2")


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("noisynet")
    run(folder, str(SCRIPTS / "train.py"), *NOISYNET, *SMALL, "-n", "400", "--eval-freq", "200", "--eval-episodes", "2")
    return folder


@pytest.mark.slow
def test_the_zoo_trains_and_enjoys(folder):
    run_folder = folder / "logs/noisynet_dqn/CartPole-v0_1"
    model = NoisyNetDQN.load(run_folder / "CartPole-v0.zip", device="cpu")
    assert type(model.policy) is NoisyMlpPolicy and model._n_updates > 0
    assert (run_folder / "evaluations.npz").exists()
    assert "Mean reward" in run(folder, str(SCRIPTS / "enjoy.py"), *NOISYNET, "-n", "500", "--no-render")


@pytest.mark.slow
def test_the_zoo_continues(folder):
    model_path = "logs/noisynet_dqn/CartPole-v0_1/CartPole-v0.zip"
    run(folder, str(SCRIPTS / "train.py"), *NOISYNET, *SMALL, "-n", "208", "--eval-freq", "-1", "-i", model_path)
    first = NoisyNetDQN.load(folder / model_path, device="cpu")
    second = NoisyNetDQN.load(folder / "logs/noisynet_dqn/CartPole-v0_2/CartPole-v0.zip", device="cpu")
    assert second._n_updates > first._n_updates


@pytest.mark.parametrize("stochastic", [False, True])
def test_certificate_says_whether_the_weights_had_noise(folder, stochastic, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    output = folder / f"certification_{stochastic}"
    arguments = ["--exp-id", "1", "-n", "20", "--n-envs", "4", "-o", str(output), *["--stochastic"] * stochastic]
    assert evaluate.main([*NOISYNET, *arguments]) == 0
    assert np.load(output / "evaluations.npz")["deterministic"].item() is not stochastic
    assert certify.main([str(output / "evaluations.npz")]) == 0
    assert ("sampled actions" if stochastic else "greedy actions") in capsys.readouterr().out
    certificate = json.loads((output / "certificate.json").read_text())
    assert certificate["deterministic"] is not stochastic
    assert certificate["algo"] == "noisynet_dqn"


@pytest.mark.slow
def test_the_zoo_searches_hyper_parameters_without_exploration(folder):
    search = ["-n", "200", "-optimize", "--n-trials", "1", "--n-jobs", "1", "--sampler", "random", "--pruner", "none"]
    printed = run(folder, str(SCRIPTS / "train.py"), *NOISYNET, "--seed", "1", *search, "--n-evaluations", "1")
    assert "n_steps" in printed
    assert "exploration" not in printed
