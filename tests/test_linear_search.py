"""The linear policies that trained agents are held against."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import ARS

from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.native import opened_native

SCRIPT = Path(__file__).parents[1] / "zoo_scripts" / "linear_search.py"
spec = importlib.util.spec_from_file_location("linear_search", SCRIPT)
linear_search = importlib.util.module_from_spec(spec)
spec.loader.exec_module(linear_search)


def test_the_model_pushes_right_where_the_weighted_sum_is_positive(tmp_path):
    weights = np.array([0.3, -1.0, 2.0, 0.5])
    linear_search.linear_model(gym.make("camp/CartPole1-v0", sigma=0.2), weights).save(tmp_path / "linear")
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    actions, _ = ARS.load(tmp_path / "linear").predict(observations, deterministic=True)
    assert np.array_equal(actions, observations @ weights > 0)


@pytest.mark.parametrize("task", linear_search.TASKS)
def test_mean_returns_are_those_of_playing_each_candidate_alone(task):
    environment = EvaluationEnv(task, env_kwargs={"sigma": 0.2})
    with opened_native(environment, 3 * 400) as env:
        size = int(np.prod(env.single_observation_space.shape))
        candidates = np.stack([np.ones(size), np.tile([0.1, 0.5, 1.0, 1.0], size // 4), np.zeros(size)])
        found = linear_search.mean_returns(env, candidates, seed=0)
    env = gym.make(task, sigma=0.2)
    env.reset(seed=1)
    for weights, mean in zip(candidates, found, strict=True):
        returns = []
        for _ in range(60):
            observation, _ = env.reset()
            total, done = 0.0, False
            while not done:
                observation, reward, terminated, truncated, _ = env.step(int(observation.reshape(-1) @ weights > 0))
                total, done = total + reward, terminated or truncated
            returns.append(total)
        assert abs(mean - np.mean(returns)) < 5 * np.std(returns) / np.sqrt(60) + 0.1
    assert found[1] > 120 > 12 > found[2]  # balancing; always left


@pytest.mark.slow
def test_the_command_writes_certificates_and_models_that_the_other_commands_take(tmp_path):
    command = [sys.executable, str(SCRIPT), "-o", str(tmp_path), "--tasks", "camp/CartPole1-v0", "--sigmas", "0.2"]
    subprocess.run([*command, "--n-candidates", "10", "--n-episodes", "300"], check=True, capture_output=True)
    rows = list(csv.DictReader((tmp_path / "linear.csv").open()))
    assert [row["method"] for row in rows] == ["berk-jones", "dkw", "clopper-pearson"]
    for row in rows:
        bounds = [float(value) for name, value in row.items() if name.startswith("certified_at_")]
        assert len(bounds) == 11 and bounds == sorted(bounds, reverse=True)
        assert 100 < bounds[0] < float(row["mean_return"]) <= 200
    model = tmp_path / "camp-CartPole1-v0_sigma0.2.zip"
    evaluate = ["-m", "sb3_camp.evaluate", "--algo", "ars", "--env", "camp/CartPole1-v0", "--model", str(model)]
    subprocess.run([sys.executable, *evaluate, "-n", "300", "-o", str(tmp_path / "fresh")], check=True, capture_output=True)
    fresh = np.load(tmp_path / "fresh" / "evaluations.npz")["results"].ravel()
    assert abs(fresh.mean() - float(rows[0]["mean_return"])) < 5 * fresh.std() * np.sqrt(2 / 300)


@pytest.mark.parametrize(("arguments", "message"), [(["--tasks", "CartPole-v1"], "--tasks"), (["--sigmas", "-1"], "sigma")])
def test_wrong_input_is_one_line_and_status_2(tmp_path, arguments, message):
    result = subprocess.run([sys.executable, str(SCRIPT), "-o", str(tmp_path), *arguments], capture_output=True, text=True)
    assert result.returncode == 2 and "Traceback" not in result.stderr and message in result.stderr.splitlines()[-1]
