"""The zoo's own commands on CAMPDQN, each in a process of its own, registered explicitly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch as th

from sb3_camp import CAMPDQN

ROOT = Path(__file__).resolve().parent.parent


def zoo_train(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, str(ROOT / "zoo_scripts" / "train.py"), "--algo", "camp_dqn", "--seed", "1", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


@pytest.mark.slow
def test_the_zoo_continues_a_run_with_its_buffer_and_both_networks(tmp_path):
    small = ["--env", "CartPole-v1", "-f", "logs", "-n", "1280", "--eval-freq", "-1"]
    zoo_train(tmp_path, *small, "--save-replay-buffer")
    first = CAMPDQN.load(tmp_path / "logs/camp_dqn/CartPole-v1_1/CartPole-v1.zip", device="cpu")
    output = zoo_train(tmp_path, *small, "-i", "logs/camp_dqn/CartPole-v1_1/CartPole-v1.zip", "--save-replay-buffer")
    assert "Loading replay buffer" in output and "empty replay buffer" not in output
    second = CAMPDQN.load(tmp_path / "logs/camp_dqn/CartPole-v1_2/CartPole-v1.zip", device="cpu")
    second.load_replay_buffer(tmp_path / "logs/camp_dqn/CartPole-v1_2/replay_buffer.pkl")
    assert second.replay_buffer.size() == 2 * 1280
    # the counters that the zoo does not reset go on, in the model and in both optimizers
    assert second._n_updates > first._n_updates > 0
    for before, after in ((first.policy, second.policy), (first.reference_policy, second.reference_policy)):
        steps = [next(iter(policy.optimizer.state_dict()["state"].values()))["step"] for policy in (before, after)]
        assert steps == [first._n_updates, second._n_updates]
        assert any(not th.equal(a, b) for a, b in zip(before.q_net.parameters(), after.q_net.parameters(), strict=True))


@pytest.mark.slow
def test_the_zoo_trains_with_a_trained_agent_as_the_reference_and_continues_without_its_file(tmp_path):
    small = ["--env", "CartPole-v1", "-f", "logs", "-n", "1280", "--eval-freq", "-1", "-params"]
    zoo_train(tmp_path, *small, "n_envs:2")
    reference = tmp_path / "logs/camp_dqn/CartPole-v1_1/CartPole-v1.zip"
    zoo_train(tmp_path, *small, f"reference:'{reference}'", "exploration_final_eps:0.01")
    trained = CAMPDQN.load(reference, device="cpu")
    reference.unlink()
    model_path = "logs/camp_dqn/CartPole-v1_2/CartPole-v1.zip"
    zoo_train(tmp_path, *small, f"reference:'{reference}'", "-i", model_path)
    model = CAMPDQN.load(tmp_path / "logs/camp_dqn/CartPole-v1_3/CartPole-v1.zip", device="cpu")
    for a, b in zip(trained.q_net.parameters(), model.reference_policy.q_net.parameters(), strict=True):
        assert th.equal(a, b)


@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("trained_on", "loaded_on"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_model_and_its_buffer_move_between_devices(trained_on, loaded_on, tmp_path):
    settings = dict(learning_starts=10, train_freq=4, policy_kwargs=dict(net_arch=[16]))
    model = CAMPDQN("MlpPolicy", "CartPole-v1", buffer_size=100, device=trained_on, **settings).learn(100)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = CAMPDQN.load(tmp_path / "model", env=model.get_env(), device=loaded_on)
    loaded.load_replay_buffer(tmp_path / "buffer")
    loaded.learn(20, reset_num_timesteps=False)
    for policy in (loaded.policy, loaded.reference_policy):
        moments = [value["exp_avg"] for value in policy.optimizer.state_dict()["state"].values()]
        assert {tensor.device.type for tensor in [*policy.parameters(), *moments]} == {loaded_on}
