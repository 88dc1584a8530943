"""Agents whose observations are normalised in part, stacked in either order, or hold sensors that never change."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize
from support.evaluate_runs import error_line, evaluate, read

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv, smoothed_episodes

OPTIONS = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}


class Walk(gym.Env):
    """Six steps of a random walk, and a sensor that always shows 0.1."""

    observation_space: spaces.Space = spaces.Box(-9, 9, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.n_steps = self.np_random.normal(0, 1, 2), 0
        return self.shown(), {}

    def step(self, action: int) -> Any:
        self.place, self.n_steps = self.place + self.np_random.normal(0, 0.3, 2), self.n_steps + 1
        return self.shown(), abs(float(self.place[0])), self.n_steps >= 6, False, {}

    def shown(self) -> Any:
        return np.append(self.place, 0.1).astype(np.float32)


class TwoEntries(Walk):
    observation_space = spaces.Dict(
        {"near": spaces.Box(-9, 9, (2,), np.float32), "far": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    )

    def shown(self) -> Any:
        return {"near": self.place.astype(np.float32), "far": (1000 * self.place).astype(np.float32)}


for kind in (Walk, TwoEntries):
    gym.register(f"tests/{kind.__name__}-v0", kind)


def sigma_of(folder, model, env, *options) -> Any:
    arguments = ["--model", model, "-n", 20, "-o", folder, "--sigma", "auto:0.1", *options]
    assert evaluate(*arguments, algo="ppo", env=env) == 0
    content = read(folder / "evaluations.npz")
    return json.loads(str(content["sensor_sigma"]))


def saved(folder, env, policy="MlpPolicy"):
    """A policy that learned a little, with the statistics of its VecNormalize beside it."""
    model = PPO(policy, env, **OPTIONS)
    model.learn(32)
    model.save(folder / "model.zip")
    while not isinstance(env, VecNormalize):
        env = env.venv
    env.save(folder / "vecnormalize.pkl")
    return folder / "model.zip", env


def test_entries_that_are_not_normalised_have_a_share_of_their_own_deviation(tmp_path):
    env = VecNormalize(make_vec_env("tests/TwoEntries-v0", n_envs=2, seed=0), norm_obs_keys=["near"])
    model, normalizer = saved(tmp_path, env, "MultiInputPolicy")
    raw = sigma_of(tmp_path, model, "tests/TwoEntries-v0")
    np.testing.assert_allclose(raw["near"], 0.1 * np.sqrt(normalizer.obs_rms["near"].var))
    behind = sigma_of(tmp_path, model, "tests/TwoEntries-v0", "--noise-on", "normalized")
    assert behind["near"] == 0.1
    for found in (raw, behind):  # the deviation of a start and of up to five steps, in thousandths
        assert np.all((np.array(found["far"]) > 50) & (np.array(found["far"]) < 200))


def test_where_all_is_normalised_the_share_is_the_sigma_behind_the_normaliser(tmp_path):
    model, _ = saved(tmp_path, VecNormalize(make_vec_env("tests/Walk-v0", n_envs=2, seed=0)))
    arguments = ["--model", model, "-n", 20, "-o", tmp_path, "--sigma", "auto:0.1", "--noise-on", "normalized"]
    assert evaluate(*arguments, algo="ppo", env="tests/Walk-v0") == 0
    content = read(tmp_path / "evaluations.npz")
    assert content["sigma"] == 0.1 and "sensor_sigma" not in content


def test_a_sensor_that_never_changes_has_no_noise_whatever_it_shows(tmp_path):
    PPO("MlpPolicy", make_vec_env("tests/Walk-v0"), **OPTIONS).save(tmp_path / "model.zip")
    *others, constant = sigma_of(tmp_path, tmp_path / "model.zip", "tests/Walk-v0")
    assert min(others) > 0.05 and constant == 0
    assert json.loads(str(read(tmp_path / "evaluations.npz")["clean_keys"])) == ["[2]"]


@pytest.mark.parametrize("sigma", ["0.1", "auto:0.1"])
@pytest.mark.parametrize("noise_on", ["raw", "normalized"])
def test_statistics_of_stacked_frames_are_named_and_those_of_each_frame_are_used(tmp_path, capsys, sigma, noise_on):
    def played(model):
        arguments = ["--model", model, "-n", 20, "-o", tmp_path, "--sigma", sigma, "-params", "frame_stack:4"]
        return evaluate(*arguments, "--noise-on", noise_on, algo="ppo", env="tests/Walk-v0")

    inner, _ = saved(tmp_path, VecFrameStack(VecNormalize(make_vec_env("tests/Walk-v0", seed=0)), 4))
    assert played(inner) == 0
    outer, _ = saved(tmp_path, VecNormalize(VecFrameStack(make_vec_env("tests/Walk-v0", seed=0), 4)))
    capsys.readouterr()
    assert played(outer) == 2
    assert "statistics of 4 stacked frames (VecNormalize around VecFrameStack), which cannot be placed" in error_line(capsys)


class Rewards(Walk):
    """Now and then a step has a reward of its own."""

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def step(self, action: int) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, self.reward if self.n_steps == 3 and self.place[1] > 1 else reward, *rest


gym.register("tests/Rewards-v0", Rewards)


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf", "1e101", "-1e308"])
def test_returns_that_nothing_can_be_certified_from_are_refused_when_they_are_played(tmp_path, capsys, reward):
    model = PPO("MlpPolicy", make_vec_env("tests/Walk-v0"), **OPTIONS)
    model.save(tmp_path / "model.zip")
    arguments = ["--model", tmp_path / "model.zip", "-n", 10_000, "-o", tmp_path, "--sigma", 0.1]
    assert evaluate(*arguments, "--env-kwargs", f"reward:float('{reward}')", algo="ppo", env="tests/Rewards-v0") == 2
    assert "an episode returned" in error_line(capsys)
    assert not (tmp_path / "evaluations.npz").exists()
    environment = EvaluationEnv("tests/Rewards-v0", {"reward": float(reward)}).with_noise(0.1)
    with pytest.raises(InputError, match="an episode returned"):
        smoothed_episodes(model, environment, 100)
