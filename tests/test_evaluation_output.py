"""What ``python -m sb3_camp.evaluate`` writes down about an evaluation, and how it ends."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from support.evaluate_runs import NOISE, environment, error_line, evaluate, read
from support.evaluation_envs import TwoSignalsEnv

from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.wrappers import NoisyObservationWrapper


@pytest.fixture
def cartpole_file(tmp_path):
    DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu", seed=0).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


@pytest.fixture(scope="module")
def counted_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "counted.zip"
    PPO("MlpPolicy", "tests/Counted-v0", n_steps=8, batch_size=8, device="cpu", seed=0).save(path)
    return path


def evaluate_counted(model, *arguments, env="tests/Counted-v0"):
    return evaluate("--model", model, "--sigma", 0.3, *arguments, algo="ppo", env=env)


def test_entries_without_noise_are_recorded_and_named(tmp_path, capsys):
    env = NoisyObservationWrapper(TwoSignalsEnv(), 0.2, clean_keys=["mode"])
    PPO("MultiInputPolicy", env, n_steps=8, batch_size=8, device="cpu").save(tmp_path / "model.zip")
    for clean_keys in ([], ["mode"]):
        noise = f"{{'sb3_camp.wrappers.NoisyObservationWrapper': {{'sigma': 0.2, 'clean_keys': {clean_keys}}}}}"
        common = ("--model", tmp_path / "model.zip", "-n", 4, "-params", f"env_wrapper:[{noise}]", "-o", tmp_path)
        assert evaluate(*common, algo="ppo", env="tests/TwoSignals-v0") == 0
        stored = read(tmp_path / "evaluations.npz")["clean_keys"]
        assert stored.ndim == 0 and stored.dtype.kind == "U" and json.loads(str(stored)) == clean_keys
        named = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Without noise")]
        assert [line.endswith("touches it: mode") for line in named] == [True] * len(clean_keys)


def test_lowest_reward_of_a_step_and_the_seeds_of_the_envs_are_recorded(counted_file, cartpole_file, tmp_path):
    assert evaluate_counted(counted_file, "-n", 80, "--n-envs", 3, "-o", tmp_path) == 0
    content = read(tmp_path / "evaluations.npz")
    assert content["min_reward"].dtype == np.float64 and content["min_reward"].item() == pytest.approx(-0.9)
    assert np.all(content["results"] >= content["ep_lengths"] * content["min_reward"])
    chunks = plan_chunks(80, 3, 0)
    assert len(chunks) == 2
    seeds = [chunk.seed + i + 3 * k for chunk in chunks for i in range(3) for k in range(14)]  # of 40 episodes
    assert (content["first_env_seed"].item(), content["last_env_seed"].item()) == (min(seeds), max(seeds))
    assert content["first_env_seed"].dtype.kind == content["last_env_seed"].dtype.kind == "i"
    assert evaluate("--model", cartpole_file, "--sigma", 0.2, "-n", 3, "-o", tmp_path) == 0
    assert read(tmp_path / "evaluations.npz")["min_reward"] == 1


def test_shaped_rewards_do_not_reach_the_file(counted_file, tmp_path):
    shaped = "env_wrapper:[{'rl_zoo3.wrappers.TruncatedOnSuccessWrapper':{'reward_offset':50.0}}]"
    plain = "env_wrapper:[{'rl_zoo3.wrappers.TruncatedOnSuccessWrapper':{'reward_offset':0.0}}]"
    monitor = "vec_env_wrapper:'stable_baselines3.common.vec_env.VecMonitor'"
    for folder, params in (("plain", [plain]), ("shaped", [shaped]), ("monitor", [shaped, monitor])):
        assert evaluate_counted(counted_file, "-n", 30, "-params", *params, "-o", tmp_path / folder) == 0
    expected = read(tmp_path / "plain" / "evaluations.npz")
    assert np.abs(expected["results"]).max() < 40 and np.unique(expected["results"]).size > 5
    for folder in ("shaped", "monitor"):
        content = read(tmp_path / folder / "evaluations.npz")
        for name in ("results", "ep_lengths", "min_reward"):
            np.testing.assert_array_equal(content[name], expected[name])


def test_wrapper_that_nothing_is_known_of_may_stand_inside_of_the_noise_only(cartpole_file, tmp_path, capsys):
    wrappers = f"env_wrapper:[{NOISE},'support.evaluation_envs.FixedLevel']"
    assert evaluate("--model", cartpole_file, "-n", 5, "-params", wrappers, "-o", tmp_path / "out") == 2
    assert "FixedLevel stands between the smoothing noise and the policy" in error_line(capsys)
    assert not (tmp_path / "out").exists()
    # inside of the noise it may
    wrappers = f"env_wrapper:['support.evaluation_envs.FixedLevel',{NOISE}]"
    assert evaluate("--model", cartpole_file, "-n", 50, "-params", wrappers, "-o", tmp_path / "out") == 0


def test_envs_that_play_the_same_levels_at_the_same_time_give_no_evaluation(counted_file, tmp_path, capsys):
    arguments = ("-n", 60, "--n-envs", 6, "-o", tmp_path)
    assert evaluate_counted(counted_file, *arguments, env="tests/SeededOnce-v0") == 2
    assert "the episodes are not independent: the returns of all envs in one turn are more alike" in error_line(capsys)
    assert not (tmp_path / "evaluations.npz").exists()


def test_interrupted_evaluation_that_is_damaged_is_one_line(counted_file, tmp_path, capsys):
    assert evaluate_counted(counted_file, "-n", 4, "-o", tmp_path) == 0
    finished = read(tmp_path / "evaluations.npz")
    capsys.readouterr()
    np.savez(tmp_path / "evaluations.partial.npz", **finished, n_chunks=1)
    assert evaluate_counted(counted_file, "-n", 4, "-o", tmp_path, "--resume") == 2
    assert "holds no returns" in error_line(capsys)


@pytest.mark.slow
def test_worker_that_dies_is_one_line_after_its_own(counted_file, tmp_path, capsys):
    arguments = ("-n", 4, "-o", tmp_path / "out", "--vec-env", "subproc", "--n-envs", 2)
    assert evaluate_counted(counted_file, *arguments, env="tests/Dying-v0") == 2
    assert "a worker process" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("unbuffered", [pytest.param("", marks=pytest.mark.slow), "1"])
def test_reader_that_has_seen_enough_ends_the_command_in_silence(cartpole_file, tmp_path, unbuffered):
    command = [sys.executable, "-m", "sb3_camp.evaluate", "--algo", "dqn", "--env", "CartPole-v1", "--device", "cpu"]
    command += ["--model", str(cartpole_file), "--sigma", "0.2", "-n", "5"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment(), "PYTHONUNBUFFERED": unbuffered},
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")
