"""The version of an environment is that of its own package, or the digest of the file that it stands in."""

import hashlib
import importlib
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import PPO
from support import evaluation_envs

from sb3_camp.evaluate import main
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.env_versions import env_versions

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
