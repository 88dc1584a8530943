"""Native vector environments in trainings of the zoo: ``vec_env_wrapper: sb3_camp.vec_env.native``."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import rl_zoo3.enjoy
import rl_zoo3.exp_manager
import yaml
from stable_baselines3.common.monitor import load_results

from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.evaluate import main as evaluate
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.vec_env import NativeVecEnv
from sb3_camp.zoo import register

NATIVE = "sb3_camp.vec_env.native"
NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"
CALLBACK = {"sb3_camp.tuning.CertifiedReturnCallback": {"n_eval_episodes": 8, "radii": [0.1], "eval_freq": 300}}
SETTINGS = {"n_envs": 8, "n_timesteps": 600, "policy": "MlpPolicy", "n_steps": 16, "batch_size": 32, "vec_env_wrapper": NATIVE}


@pytest.fixture(autouse=True)
def registered():
    register()


def trained(folder: Path, env_id: str, **settings) -> Path:
    """The run folder of a short PPO training."""
    (folder / "ppo.yml").write_text(yaml.safe_dump({env_id: {**SETTINGS, **settings}}))
    args = argparse.Namespace(env=env_id, algo="ppo", env_kwargs=None)
    settings = dict(config=str(folder / "ppo.yml"), seed=3, eval_freq=300, log_interval=-1, device="cpu", verbose=0)
    manager = rl_zoo3.exp_manager.ExperimentManager(args, "ppo", env_id, str(folder / "logs"), **settings)
    model, _ = manager.setup_experiment()
    assert isinstance(model.get_env().unwrapped, NativeVecEnv)
    manager.learn(model)
    manager.save_trained_model(model)
    return Path(manager.save_path)


@pytest.mark.parametrize(
    "env_id, settings",
    [
        ("camp/CartPole1-v0", {}),
        ("CartPole-v1", {"env_wrapper": [{NOISE: {"sigma": 0.2}}], "normalize": "dict(norm_obs=False, norm_reward=True)"}),
    ],
)
def test_a_training_leaves_what_other_trainings_leave(tmp_path, monkeypatch, capsys, env_id, settings):
    run = trained(tmp_path, env_id, callback=[CALLBACK], **settings)
    episodes = load_results(str(run))
    assert len(list(run.glob("*.monitor.csv"))) == 8
    # Each env was in the midst of an episode at the end, and no episode was lost before
    assert 400 < episodes["l"].sum() <= 640 and (episodes["l"] == episodes["r"]).all()
    assert (
        np.load(run / "evaluations.npz")["results"].shape[0] == np.load(run / "certified_evaluations.npz")["results"].shape[0]
    )
    assert RunFolder.read(run).smoothing_noise() is not None

    task = ["--algo", "ppo", "--env", env_id, "-f", str(tmp_path / "logs"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["enjoy", *task, "-n", "100", "--no-render"])
    rl_zoo3.enjoy.enjoy()
    assert "Mean reward" in capsys.readouterr().out
    assert evaluate([*task, "-n", "20"]) == 0
    assert certify([str(run)]) == 0
    (certificate,) = run.rglob("certificate.json")
    assert json.loads(certificate.read_text())["sigma"] == 0.2


@pytest.mark.parametrize(
    "env_id, settings, message",
    [
        ("Acrobot-v1", {}, "no native vector environment"),
        ("CartPole-v1", {"env_wrapper": "gymnasium.wrappers.NormalizeObservation"}, "NormalizeObservation has no twin"),
        ("CartPole-v1", {"vec_env_wrapper": ["stable_baselines3.common.vec_env.VecMonitor", NATIVE]}, "first vec_env_wrapper"),
    ],
)
def test_what_has_no_native_twin_is_refused(tmp_path, env_id, settings, message):
    with pytest.raises(InputError, match=message):
        trained(tmp_path, env_id, **settings)
