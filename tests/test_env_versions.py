"""The version of an environment is that of its own package, or the digest of the file that it stands in."""

import hashlib
import importlib
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from stable_baselines3 import PPO
from support import evaluation_envs

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.env_versions import env_versions
from sb3_camp.tasks import TASKS
from sb3_camp.tasks.returns import registered_otherwise

OWN = """
import gymnasium, numpy
from gymnasium import spaces
class OwnEnv(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros(2, numpy.float32), {}
    def step(self, action):
        return numpy.zeros(2, numpy.float32), float(self.np_random.random()), True, False, {}
gymnasium.register("tests/OwnFile-v0", "own_env_file:OwnEnv", disable_env_checker=True)
"""


def evaluate(*arguments):
    command = ["--algo", "ppo", "--env", "tests/OwnFile-v0", "--device", "cpu", *map(str, arguments)]
    return main(command)


def digest(path):
    return f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"


@pytest.mark.parametrize(
    ("env_id", "distributions"),
    [
        ("CartPole-v1", ["gymnasium"]),
        ("camp/Highway-v0", ["gymnasium", "highway-env"]),
        ("camp/Freeway-v0", ["ale-py", "gymnasium"]),
    ],
)
def test_packages_of_an_environment_and_its_wrappers(env_id, distributions):
    found = env_versions(EvaluationEnv(env_id))
    assert found == {name: version(name) for name in distributions}


def test_files_of_the_user_are_known_by_their_content():
    found = env_versions(EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": "support.evaluation_envs.FixedLevel"}))
    assert found["support.evaluation_envs"] == digest(evaluation_envs.__file__) and found["gymnasium"] == version("gymnasium")


def test_two_versions_of_an_environment_make_no_evaluation(tmp_path, monkeypatch, capsys):
    file = tmp_path / "own_env_file.py"
    file.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_env_file")
    PPO("MlpPolicy", module.OwnEnv(), n_steps=8, batch_size=8, device="cpu").save(tmp_path / "model.zip")
    same = ("--model", tmp_path / "model.zip", "--sigma", 0.2, "-n", 4, "-o", tmp_path / "out")
    assert evaluate(*same) == 0
    with np.load(tmp_path / "out" / "evaluations.npz", allow_pickle=False) as content:
        assert json.loads(content["env_versions"].item())["own_env_file"] == digest(file)
    capsys.readouterr()
    file.write_text(OWN.replace("random())", "random()) + 1"))
    assert evaluate(*same, "--resume") == 2
    assert "evaluate: error: " in (error := capsys.readouterr().err) and "made with env_versions" in error


MOUNTAIN_CAR = "gymnasium.envs.classic_control.mountain_car:MountainCarEnv"
CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
CHANGED_REWARD = WrapperSpec("TransformReward", "gymnasium.wrappers:TransformReward", dict(func=float))


def registered_again(monkeypatch, env_id, **changes):
    monkeypatch.setitem(gym.registry, env_id, EnvSpec(env_id, **changes))


@pytest.mark.parametrize(
    ("env_id", "changes", "shown"),
    [
        ("MountainCar-v0", dict(entry_point=MOUNTAIN_CAR, max_episode_steps=1000), {"max_episode_steps": 1000}),
        ("MountainCar-v0", dict(entry_point=MOUNTAIN_CAR), {"max_episode_steps": None}),
        (
            "CartPole-v1",
            dict(entry_point=CARTPOLE, max_episode_steps=500, kwargs={"sutton_barto_reward": True}),
            {"kwargs": {"sutton_barto_reward": True}},
        ),
        (
            "CartPole-v1",
            dict(entry_point="support.evaluation_envs:CountedEnv", max_episode_steps=500),
            {"entry_point": "support.evaluation_envs:CountedEnv"},
        ),
        ("CartPole-v1", dict(entry_point=CARTPOLE, max_episode_steps=500, additional_wrappers=(CHANGED_REWARD,)), {}),
        (
            "camp/Pong1r-v0",
            dict(entry_point="sb3_camp.tasks.atari:make_atari", kwargs={"game": "pong", "sigma": 12.75}),
            {"kwargs": {"game": "pong", "sigma": 12.75}},
        ),
        ("MountainCar-v0", dict(entry_point=MOUNTAIN_CAR, max_episode_steps=200), None),
    ],
)
def test_another_environment_under_an_id_whose_lowest_return_is_known_says_so(env_id, changes, shown, monkeypatch):
    assert registered_otherwise(env_id) is None
    registered_again(monkeypatch, env_id, **changes)
    found = registered_otherwise(env_id)
    if shown is None:
        assert found is None
    else:
        assert json.loads(found).items() >= shown.items() and found == registered_otherwise(env_id)


def test_a_task_that_is_registered_with_another_sigma_keeps_its_lowest_return(monkeypatch):
    task = TASKS["camp/Pong1r-v0"].registration
    registered_again(monkeypatch, "camp/Pong1r-v0", **{**task, "kwargs": {**task["kwargs"], "sigma": 1.0}})
    assert registered_otherwise("camp/Pong1r-v0") is None


def test_a_task_whose_registration_has_wrappers_keeps_its_lowest_return(monkeypatch):
    task = TASKS["camp/Pong1r-v0"]
    wrapped = {**task.registration, "additional_wrappers": (CHANGED_REWARD,)}
    registered_again(monkeypatch, "camp/Pong1r-v0", **wrapped)
    assert registered_otherwise("camp/Pong1r-v0") is not None
    monkeypatch.setitem(TASKS, "camp/Pong1r-v0", replace(task, registration=wrapped))
    assert registered_otherwise("camp/Pong1r-v0") is None


def test_more_steps_than_gymnasiums_leave_the_lowest_return_unknown(tmp_path, monkeypatch, capsys):
    registered_again(monkeypatch, "MountainCar-v0", entry_point=MOUNTAIN_CAR, max_episode_steps=1000)
    PPO("MlpPolicy", "MountainCar-v0", n_steps=8, batch_size=8, device="cpu", seed=0).save(tmp_path / "model.zip")
    played = ("--env", "MountainCar-v0", "--model", tmp_path / "model.zip", "--sigma", 0.001, "-o", tmp_path / "out")
    assert evaluate(*played, "-n", 4) == 0
    assert certify([str(tmp_path / "out" / "evaluations.npz")]) == 2
    assert "the registration of MountainCar-v0 is another" in capsys.readouterr().err
    assert certify([str(tmp_path / "out" / "evaluations.npz"), "--min-return=-1000"]) == 0
    assert evaluate(*played, "--until", "width=50", "--max-episodes", 8, "-o", tmp_path / "until") == 2
    assert "the registration of MountainCar-v0 is another" in capsys.readouterr().err
