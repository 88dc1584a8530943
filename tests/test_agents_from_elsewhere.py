"""Agents that people have: normalised by VecNormalize, pickled by other versions, or trained in what has a successor."""

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
import yaml
from gymnasium import spaces
from scipy.special import ndtr
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate

MEAN, DEVIATION, OFFSET = 20.0, 4.0, 3.0


class Thermometer(gym.Env):
    """One step: 23 degrees are shown, and the action 1 is right."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), float(action), True, False, {}

    def _observation(self):
        return np.array([MEAN + OFFSET], np.float32)


gym.register("tests/Thermometer-v1", Thermometer, max_episode_steps=1, disable_env_checker=True)
gym.register("tests/Thermometer-v3", Thermometer, max_episode_steps=1, disable_env_checker=True)


def warm_or_cold(env) -> DQN:
    """Takes the action 1 where what it observes is positive, so above 20 degrees if they are normalised by their mean."""
    model = DQN("MlpPolicy", env, buffer_size=1, policy_kwargs={"net_arch": []}, device="cpu")
    with th.no_grad():
        layer = model.q_net.q_net[0]
        layer.weight.copy_(th.tensor([[-1.0], [1.0]]))
        layer.bias.zero_()
    return model


@pytest.fixture
def normalised(tmp_path) -> Path:
    """A checkpoint from a script, with the statistics of its VecNormalize beside it."""
    env = VecNormalize(make_vec_env("tests/Thermometer-v1"), epsilon=0.0, norm_reward=False)
    env.obs_rms.mean, env.obs_rms.var = np.array([MEAN]), np.array([DEVIATION**2])
    env.save(str(tmp_path / "vecnormalize.pkl"))
    warm_or_cold(env).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def play(model: Path, *arguments, env="tests/Thermometer-v1", folder="out") -> int:
    options = ("--algo", "dqn", "--env", env, "--model", model, "-n", 4000, "--device", "cpu", "-o", model.parent / folder)
    return evaluate([*map(str, (*options, *arguments))])


def certificate(model: Path, *arguments, folder="out") -> dict:
    assert certify([str(model.parent / folder / "evaluations.npz"), "--min-return", "0", *map(str, arguments)]) == 0
    return json.loads((model.parent / folder / "certificate.json").read_text())


@pytest.mark.parametrize(("noise_on", "sigma", "unit"), [(None, 2.0, 1.0), ("raw", 2.0, 1.0), ("normalized", 0.5, DEVIATION)])
def test_both_places_of_the_noise_certify_the_truth_in_their_units(noise_on, sigma, unit, normalised):
    options = () if noise_on is None else ("--noise-on", noise_on)
    assert play(normalised, "--sigma", sigma, *options) == 0
    radii = np.array([0.0, 0.25, 0.5, 1.0, 2.0]) * sigma
    found = certificate(normalised, "--radii", *radii)
    # The policy is a half-space: the worst adversary moves the reading straight down
    truth = ndtr((OFFSET / unit - radii) / sigma)
    certified = np.array(found["certified_return"])
    assert np.all(certified <= truth) and np.all(certified >= truth - 0.04)
    assert found["mean_return"] == pytest.approx(ndtr(OFFSET / unit / sigma), abs=0.02)


def test_without_its_statistics_it_is_another_policy(normalised, capsys):
    assert play(normalised, "--sigma", 2.0) == 0
    assert f"normalised by {normalised.with_name('vecnormalize.pkl')}, frozen; the noise is on raw" in capsys.readouterr().out
    assert play(normalised, "--sigma", 2.0, "--vecnormalize", "none", folder="other") == 0
    assert certificate(normalised, folder="other")["mean_return"] == 1.0
    assert certificate(normalised)["mean_return"] < 0.96


def test_statistics_from_elsewhere_and_of_another_shape(normalised, tmp_path, capsys):
    (tmp_path / "vecnormalize.pkl").rename(tmp_path / "statistics.pkl")
    assert play(normalised, "--sigma", 2.0, "--noise-on", "normalized") == 2
    assert "name the statistics of its VecNormalize with --vecnormalize" in capsys.readouterr().err
    assert play(normalised, "--sigma", 2.0, "--vecnormalize", tmp_path / "statistics.pkl") == 0
    other = VecNormalize(make_vec_env("CartPole-v1"))
    other.save(str(tmp_path / "other.pkl"))
    assert play(normalised, "--sigma", 2.0, "--vecnormalize", tmp_path / "other.pkl") == 2
    assert "does not fit the observation" in capsys.readouterr().err


def run_folder(model: Path, env_id: str, **config) -> Path:
    """The checkpoint as a run of the zoo."""
    name = env_id.replace("/", "-")
    run = model.parent / "logs" / "dqn" / f"{name}_1"
    (run / name).mkdir(parents=True)
    (run / name / "args.yml").write_text(yaml.dump({"algo": "dqn", "env": env_id, "env_kwargs": None}))
    (run / name / "config.yml").write_text(yaml.dump({"policy": "MlpPolicy", **config}))
    shutil.copy(model, run / f"{name}.zip")
    return run


def play_run(run: Path, env_id: str, *arguments) -> int:
    options = ("--algo", "dqn", "--env", env_id, "-f", run.parents[1], "-n", 2000, "--device", "cpu", *arguments)
    return evaluate([*map(str, options)])


def test_a_normalised_run_of_the_zoo_is_played_with_its_statistics(normalised, capsys):
    run = run_folder(normalised, "tests/Thermometer-v1", normalize="dict(norm_obs=True)")
    assert play_run(run, "tests/Thermometer-v1", "--sigma", 2.0) == 2
    assert "vecnormalize.pkl: name the file with --vecnormalize" in capsys.readouterr().err
    shutil.copy(normalised.with_name("vecnormalize.pkl"), run / "tests-Thermometer-v1")
    assert play_run(run, "tests/Thermometer-v1", "--sigma", 2.0) == 0
    assert certify([str(run), "--min-return", "0"]) == 0
    found = json.loads((run / "certification" / "certificate.json").read_text())
    assert found["mean_return"] == pytest.approx(ndtr(OFFSET / 2), abs=0.03)


def test_a_run_that_normalises_rewards_only_needs_no_statistics(normalised):
    run = run_folder(normalised, "tests/Thermometer-v1", normalize="{'norm_obs': False}")
    assert play_run(run, "tests/Thermometer-v1", "--sigma", 2.0) == 0


# Environments with successors


def test_the_successor_of_an_environment_is_named_and_played(normalised, tmp_path, capsys):
    normalised.with_name("vecnormalize.pkl").unlink()
    run = run_folder(normalised, "tests/Thermometer-v2")
    assert play_run(run, "tests/Thermometer-v2", "--sigma", 2.0) == 2
    line = capsys.readouterr().err
    assert "have tests/Thermometer-v3 in place of tests/Thermometer-v2" in line and "--play-in tests/Thermometer-v3" in line
    assert play_run(run, "tests/Thermometer-v2", "--sigma", 2.0, "--play-in", "tests/Thermometer-v3") == 0
    assert certify([str(run), "--min-return", "0"]) == 0
    found = json.loads((run / "certification" / "certificate.json").read_text())
    assert (found["env_id"], found["trained_env_id"]) == ("tests/Thermometer-v3", "tests/Thermometer-v2")
    assert play(normalised, "--sigma", 2.0, env="tests/Thermometer-v2") == 2
    assert "--env tests/Thermometer-v3" in capsys.readouterr().err


def test_a_successor_with_other_observations_is_refused(normalised, capsys):
    run = run_folder(normalised, "tests/Thermometer-v1")
    assert play_run(run, "tests/Thermometer-v1", "--sigma", 2.0, "--play-in", "CartPole-v1", "--vecnormalize", "none") == 2
    assert "the policy observes Box(-100.0, 100.0, (1,), float32), the environment gives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env_id", "named"), [("Hopper-v3", "Hopper-v4"), ("LunarLander-v2", "LunarLander-v3"), ("CartPol-v1", "CartPole")]
)
def test_known_successors_and_misspelt_names_are_suggested(env_id, named, normalised, capsys):
    assert play(normalised, "--sigma", 1.0, env=env_id) == 2
    assert named in capsys.readouterr().err


# Checkpoints of other versions


class _OldBox:
    """Pickled as gym's, which is not installed."""

    def __reduce__(self):
        return _missing, ()


def _missing():
    raise ModuleNotFoundError


def with_members(model: Path, **changes) -> Path:
    """The checkpoint with other members in its settings."""
    old = model.with_name("old.zip")
    with zipfile.ZipFile(model) as archive, zipfile.ZipFile(old, "w") as written:
        for member in archive.namelist():
            content = archive.read(member)
            if member == "data":
                settings = json.loads(content)
                settings.update(changes)
                content = json.dumps(settings).encode()
            written.writestr(member, content)
    return old


def old_member(kind: str, **described) -> dict:
    """As SB3 writes it: a pickle of a class that cannot be imported, and its attributes as text."""
    import base64

    content = io.BytesIO()
    pickle.dump(_OldBox(), content)
    unreadable = content.getvalue().replace(b"_missing", b"_gone_by")
    return {":type:": f"<class '{kind}'>", ":serialized:": base64.b64encode(unreadable).decode(), **described}


OLD_SPACES = {
    "observation_space": old_member("gym.spaces.box.Box", dtype="float32", _shape=[1], low="[-100.]", high="[100.]"),
    "action_space": old_member("gym.spaces.discrete.Discrete", n=2, _shape=[], dtype="int64"),
}


def test_what_other_versions_pickled_is_replaced_and_named(normalised, capsys):
    old = with_members(normalised, **OLD_SPACES, _last_dones=old_member("numpy.ndarray"), something=old_member("gone.Thing"))
    assert play(old, "--sigma", 2.0, folder="old") == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert "observation_space by Box(" in line and "action_space by Discrete(2)" in line and "something by None" in line
    assert play(normalised, "--sigma", 2.0, folder="new") == 0
    with np.load(old.parent / "old/evaluations.npz") as one, np.load(old.parent / "new/evaluations.npz") as other:
        np.testing.assert_array_equal(one["results"], other["results"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"observation_space": old_member("gym.spaces.box.Box", _shape=[3])},
            "observation_space of the policy has shape",
        ),
        ({"action_space": old_member("gym.spaces.discrete.Discrete", n="5")}, "action_space of the policy has 5 actions"),
    ],
)
def test_an_old_space_that_is_not_that_of_the_environment_is_refused(changes, problem, normalised, capsys):
    old = with_members(normalised, **{**OLD_SPACES, **changes})
    assert play(old, "--sigma", 2.0) == 2
    assert problem in capsys.readouterr().err
