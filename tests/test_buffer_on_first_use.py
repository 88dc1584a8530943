"""A model that is loaded to play takes no memory for a replay buffer; one that goes on learning has its full buffer."""

import sys
from pathlib import Path

import numpy as np
import pytest
import rl_zoo3.enjoy
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN, NoisyNetDQN
from sb3_camp.zoo import register
from sb3_camp.zoo.gaussian_dqn import GaussianDQN

ALGORITHMS = {"camp_dqn": CAMPDQN, "gaussian_dqn": GaussianDQN, "noisynet_dqn": NoisyNetDQN}
NO_MACHINE_HAS_IT = 10**13
TASK = "CartPole-v1"


def trained(algorithm: type[DQN], **kwargs) -> DQN:
    settings = dict(buffer_size=200, learning_starts=20, seed=0, device="cpu", policy_kwargs={"net_arch": [8]})
    return algorithm("MlpPolicy", make_vec_env(TASK, n_envs=2, seed=0), **{**settings, **kwargs}).learn(300)


def stored_with_a_huge_buffer(algorithm: type[DQN], path: Path) -> Path:
    model = trained(algorithm)
    model.buffer_size = NO_MACHINE_HAS_IT
    model.save(path)
    return path


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_zoo_plays_an_agent_with_a_buffer_that_fits_into_no_machine(algo, tmp_path, monkeypatch, capsys):
    register()
    run = tmp_path / algo / f"{TASK}_1"
    stored_with_a_huge_buffer(ALGORITHMS[algo], run / f"{TASK}.zip")
    (run / TASK).mkdir()
    command = ["enjoy", "--algo", algo, "--env", TASK, "-f", str(tmp_path), "-n", "300", "--no-render", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", command)
    rl_zoo3.enjoy.enjoy()
    assert "Mean reward" in capsys.readouterr().out


@pytest.mark.parametrize("kwargs", [{}, {"n_steps": 3}], ids=["one-step", "n-step"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_a_model_that_gets_its_environment_later_learns_as_one_that_is_loaded_with_it(algorithm, kwargs, tmp_path):
    trained(algorithm, **kwargs).save(tmp_path / "model.zip")
    models = []
    for has_env in (True, False):
        env = make_vec_env(TASK, n_envs=2, seed=1)
        model = algorithm.load(tmp_path / "model.zip", env=env if has_env else None, device="cpu")
        model.set_env(env)
        model.set_random_seed(3)
        models.append(model.learn(300))
    with_env, later = models
    assert type(later.replay_buffer) is type(with_env.replay_buffer)
    assert later.replay_buffer_class is with_env.replay_buffer_class
    assert vars(later.replay_buffer).keys() == vars(with_env.replay_buffer).keys()
    for name in ("observations", "actions", "rewards"):
        assert np.array_equal(getattr(later.replay_buffer, name), getattr(with_env.replay_buffer, name))
    assert later.replay_buffer.full and later.replay_buffer.buffer_size == 100
    for one, other in zip(later.policy.parameters(), with_env.policy.parameters(), strict=True):
        assert th.equal(one, other)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_a_stored_buffer_is_loaded_in_place_of_it(algorithm, tmp_path):
    model = trained(algorithm)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    assert loaded.replay_buffer.full and loaded.replay_buffer.buffer_size == 100
    assert np.array_equal(loaded.replay_buffer.observations, model.replay_buffer.observations)


def test_a_buffer_that_was_not_used_yet_can_be_saved_and_used_after_that(tmp_path):
    trained(GaussianDQN).save(tmp_path / "model.zip")
    model = GaussianDQN.load(tmp_path / "model.zip", device="cpu")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    model.set_env(make_vec_env(TASK, n_envs=2, seed=1))
    model.learn(300)
    assert type(model.replay_buffer) is ReplayBuffer and model.replay_buffer.buffer_size == 100


def test_a_checkpoint_of_gaussian_dqn_is_one_of_dqn(tmp_path):
    trained(GaussianDQN).save(tmp_path / "model.zip")
    assert b"sb3_camp" not in (tmp_path / "model.zip").read_bytes()
    DQN.load(tmp_path / "model.zip", env=make_vec_env(TASK, n_envs=2, seed=1), device="cpu").learn(50)
