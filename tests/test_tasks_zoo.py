"""The stock zoo's commands on the tasks, then the evaluation and the certificate, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate
from sb3_camp.tasks import TASKS

ROOT = Path(__file__).resolve().parents[1]
# What an installed package does at the start of the interpreter
START = "import runpy, sys, sb3_camp_startup as s; s.install(); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
ALGORITHMS = ["camp_dqn", "gaussian_dqn", "noisynet_dqn"]
ATARI = [env_id for env_id, task in TASKS.items() if task.pixels]


def run(folder: Path, module: str, *arguments: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    command = [sys.executable, *(["-c", START] if module.startswith("rl_zoo3.") else ["-m"]), module, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def succeeded(folder: Path, module: str, *arguments: object) -> str:
    result = run(folder, module, *arguments)
    assert result.returncode == 0, result.stderr
    assert "CartPole-v0 is out of date" not in result.stderr
    return result.stdout


def error_line(capsys: pytest.CaptureFixture, command: Callable[[list[str]], int], *arguments: object) -> str:
    capsys.readouterr()
    assert command(list(map(str, arguments))) == 2
    printed = capsys.readouterr().err.strip()
    assert "\n" not in printed
    return printed


def certificate(run_folder: Path) -> dict:
    return json.loads((run_folder / "certification" / "certificate.json").read_text())


@pytest.mark.slow
def test_cartpole_through_all_commands_with_another_sigma(tmp_path, monkeypatch, capsys):
    task = ["--algo", "camp_dqn", "--env", "camp/CartPole5-v0", "-f", "logs"]
    small = ["-params", "learning_starts:100", "train_freq:64", "gradient_steps:4"]
    trained = ["-n", 600, "--eval-freq", 300, "--eval-episodes", 2, "--seed", 1, "--env-kwargs", "sigma:0.6", *small]
    succeeded(tmp_path, "rl_zoo3.train", *task, *trained)
    run_folder = tmp_path / "logs/camp_dqn/camp-CartPole5-v0_1"
    config = run_folder / "camp-CartPole5-v0/config.yml"
    assert "env_wrapper" not in yaml.unsafe_load(config.read_text())

    succeeded(tmp_path, "rl_zoo3.enjoy", *task, "-n", 400, "--no-render", "--reward-log", "played")
    (log,) = (tmp_path / "played").glob("*.monitor.csv")
    assert len(log.read_text().splitlines()) > 2

    assert "sigma 0.6" in succeeded(tmp_path, "sb3_camp.evaluate", *task, "-n", 40, "--n-envs", 8, "--device", "cpu")
    # No --support: the returns 1 to 200 follow from the registration
    succeeded(tmp_path, "sb3_camp.certify", run_folder, "--method", "clopper-pearson", "--radii", 0, 0.1)
    result = certificate(run_folder)
    assert (result["sigma"], result["env_id"], result["n_episodes"]) == (0.6, "camp/CartPole5-v0", 40)
    assert 0 < result["certified_return"][1] < result["certified_return"][0] < result["mean_return"] < 200

    monkeypatch.chdir(tmp_path)
    line = error_line(capsys, evaluate, *task, "-n", 2, "--env-kwargs", "n_stack:3")
    assert "the policy observes Box(-inf, inf, (20,), float32), the environment gives Box(-inf, inf, (12,), float32)" in line
    assert "camp-CartPole5-v0.zip" in line


@pytest.mark.slow
def test_atari_trains_and_is_evaluated_and_certified_with_negative_returns(tmp_path, monkeypatch, capsys):
    task = ["--algo", "gaussian_dqn", "--env", "camp/Pong1r-v0", "-f", "logs"]
    succeeded(
        tmp_path, "rl_zoo3.train", *task, "-n", 300, "--eval-freq", -1, "-params", "buffer_size:300", "learning_starts:250"
    )
    monkeypatch.chdir(tmp_path)
    assert evaluate([*task, "-n", "4", "--n-envs", "2", "--device", "cpu"]) == 0
    run_folder = Path("logs/gaussian_dqn/camp-Pong1r-v0_1")
    with np.load(run_folder / "certification/evaluations.npz") as evaluation:
        assert np.all(np.isin(evaluation["results"], [-1, 1]))
    assert "camp/Pong1r-v0 can return -1" in error_line(capsys, certify, run_folder, "--min-return", "0")
    assert certify([str(run_folder)]) == 0
    result = certificate(run_folder)
    assert (result["sigma"], result["min_return"]) == (12.75, -1)


@pytest.mark.slow
def test_an_agent_that_was_trained_without_noise_is_evaluated_with_the_noise_of_the_task(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trained = ["--algo", "dqn", "--env", "camp/CartPole5-v0", "-n", 120, "-f", "logs", "--env-kwargs", "sigma:0"]
    succeeded(tmp_path, "rl_zoo3.train", *trained, "--eval-freq", -1, "-params", "buffer_size:100", "learning_starts:100")
    arguments = ["--algo", "dqn", "--env", "camp/CartPole5-v0", "-n", "20", "--n-envs", "4", "--device", "cpu"]
    assert "sigma 0, so there is nothing to certify" in error_line(capsys, evaluate, *arguments)
    assert evaluate([*arguments, "--sigma", "0.3"]) == 0
    run_folder = Path("logs/dqn/camp-CartPole5-v0_1")
    assert certify([str(run_folder)]) == 0
    assert certificate(run_folder)["sigma"] == 0.3


@pytest.mark.slow
@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("env_id", TASKS)
def test_every_algorithm_on_every_task_through_all_commands(env_id, algo, tmp_path):
    task = ["--algo", algo, "--env", env_id, "-f", "logs"]
    n_steps = 1200 if env_id in ATARI or "Highway" in env_id else 3000
    small = ["-params", "buffer_size:1000", "learning_starts:500"]
    succeeded(tmp_path, "rl_zoo3.train", *task, "-n", n_steps, "--eval-freq", n_steps // 2, "--eval-episodes", 2, *small)
    succeeded(tmp_path, "rl_zoo3.enjoy", *task, "-n", 300, "--no-render")
    succeeded(tmp_path, "sb3_camp.evaluate", *task, "--load-best", "-n", 10, "--n-envs", 5, "--device", "cpu")
    run_folder = tmp_path / "logs" / algo / f"{env_id.replace('/', '-')}_1"
    succeeded(tmp_path, "sb3_camp.certify", run_folder)
    result = certificate(run_folder)
    assert (result["sigma"], result["n_episodes"]) == (TASKS[env_id].registration["kwargs"]["sigma"], 10)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", TASKS)
def test_the_zoo_records_a_video(env_id, tmp_path):
    task = ["--algo", "gaussian_dqn", "--env", env_id, "-f", "logs"]
    small = ["-params", "buffer_size:100", "learning_starts:50"]
    succeeded(tmp_path, "rl_zoo3.train", *task, "-n", 100, "--eval-freq", -1, *small)
    succeeded(tmp_path, "rl_zoo3.record_video", *task, "-n", 30, "-o", "videos")
    (video,) = (tmp_path / "videos").glob("*.mp4")
    assert video.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["camp/CartPole1-v0", "camp/CartPole5-v0"])
def test_camp_learns_cartpole(env_id, tmp_path):
    succeeded(
        tmp_path, "rl_zoo3.train", "--algo", "camp_dqn", "--env", env_id, "-f", "logs", "-n", 30_000,
        "--eval-freq", 2000, "--eval-episodes", 20, "--seed", 1,
    )  # fmt: skip
    (evaluations,) = (tmp_path / "logs").rglob("evaluations.npz")
    with np.load(evaluations) as content:
        assert content["results"].mean(axis=1).max() >= 190
