import json
import os
import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import yaml
from stable_baselines3 import DQN
from support.evaluate_runs import NOISE, environment, error_line, evaluate, read, run
from support.interrupted import run_interrupted

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.command_line import spelled
from sb3_camp.files import only_writer
from sb3_camp.wrappers import NoisyObservationWrapper


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A log folder of the stock zoo: DQN trained on the noisy and PPO on the plain CartPole, a few hundred steps each."""
    folder = tmp_path_factory.mktemp("zoo")
    common = ("--env", "CartPole-v1", "-n", 512, "-f", "logs", "--seed", 1)
    noisy = run("rl_zoo3.train", "--algo", "dqn", *common, "-params", f"env_wrapper:[{NOISE}]", "buffer_size:500", cwd=folder)
    assert noisy.returncode == 0, noisy.stderr
    plain = run("rl_zoo3.train", "--algo", "ppo", *common, "--save-freq", 256, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    return folder


@pytest.fixture
def config_file(zoo, tmp_path, monkeypatch):
    """The config.yml of a copy of the noisy run, below the working directory."""
    run_folder = shutil.copytree(zoo / "logs" / "dqn" / "CartPole-v1_1", tmp_path / "logs" / "dqn" / "CartPole-v1_1")
    monkeypatch.chdir(tmp_path)
    return run_folder / "CartPole-v1" / "config.yml"


@pytest.fixture
def dqn_file(tmp_path):
    DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu", seed=0).save(tmp_path / "dqn.zip")
    return tmp_path / "dqn.zip"


def test_run_of_the_zoo_is_evaluated_with_the_noise_of_its_config(zoo):
    done = run("sb3_camp.evaluate", "--algo", "dqn", "--env", "CartPole-v1", "-n", 50, "--n-envs", 8, cwd=zoo)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    file = zoo / "logs" / "dqn" / "CartPole-v1_1" / "certification" / "evaluations.npz"
    assert f"Certify it: {spelled('certify')} {file.relative_to(zoo)}" in done.stdout
    content = read(file)
    assert content["results"].shape == content["ep_lengths"].shape == (1, 50)
    np.testing.assert_array_equal(content["results"], content["ep_lengths"])
    np.testing.assert_array_equal(content["timesteps"], [512])
    assert content["sigma"] == 0.2 and content["seed"] == 0 and content["deterministic"]
    assert str(content["env_id"]) == "CartPole-v1" and str(content["algo"]) == "dqn"
    assert str(content["model"]) == "logs/dqn/CartPole-v1_1/CartPole-v1.zip"
    assert content["n_envs"] == 8 and content["n_episodes"] == 50
    assert set(json.loads(str(content["versions"]))) >= {"sb3_camp", "stable_baselines3", "gymnasium", "numpy", "torch"}
    assert os.listdir(file.parent) == ["evaluations.npz"]


def test_run_without_noise_needs_sigma(zoo, monkeypatch, capsys):
    monkeypatch.chdir(zoo)
    assert evaluate("-n", 5, algo="ppo") == 2
    assert "give --sigma" in error_line(capsys)
    assert evaluate("-n", 5, "--sigma", 0.3, "--load-last-checkpoint", "-o", "checkpoint", algo="ppo") == 0
    content = read(zoo / "checkpoint" / "evaluations.npz")
    assert content["sigma"] == 0.3 and content["timesteps"] > 0
    assert "rl_model_" in str(content["model"])


def test_model_inside_a_run_folder_is_evaluated_like_the_run(zoo, monkeypatch):
    monkeypatch.chdir(zoo)
    assert evaluate("-n", 6, "--model", "logs/dqn/CartPole-v1_1/CartPole-v1", "-o", "model") == 0
    assert evaluate("-n", 6, "-o", "run") == 0
    by_model, by_run = read("model/evaluations.npz"), read("run/evaluations.npz")
    assert by_model["sigma"] == 0.2
    np.testing.assert_array_equal(by_model["results"], by_run["results"])


def test_package_in_front_of_the_environment_is_imported_and_the_run_found(zoo, tmp_path, monkeypatch, capsys):
    (tmp_path / "their_envs.py").write_text(
        "import gymnasium\ngymnasium.register('Their-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(zoo)
    assert evaluate("-n", 3, "-o", tmp_path, env="their_envs:CartPole-v1") == 0
    assert "their_envs" in sys.modules
    assert str(read(tmp_path / "evaluations.npz")["env_id"]) == "CartPole-v1"
    model = zoo / "logs" / "dqn" / "CartPole-v1_1" / "CartPole-v1.zip"
    shutil.copy(model, tmp_path / "model.zip")
    common = ("-n", 3, "--sigma", 0.2, "--model", tmp_path / "model.zip", "-o", tmp_path, "--n-envs", 1)
    assert evaluate(*common, "--env-kwargs", "sutton_barto_reward:True", env="their_envs:Their-v0") == 0
    content = read(tmp_path / "evaluations.npz")
    assert str(content["env_id"]) == "Their-v0" and set(content["results"][0]) == {-1.0}
    assert evaluate("-n", 3, env="no_such_package:CartPole-v1") == 2
    assert "--env: cannot import 'no_such_package'" in error_line(capsys)


def test_normalizer_around_the_noise_is_an_error(config_file, capsys):
    config = yaml.unsafe_load(config_file.read_text())
    for normalize, status in ((True, 2), ("dict(norm_obs=True, norm_reward=False)", 2), ("dict(norm_obs=False)", 0)):
        config_file.write_text(yaml.dump({**config, "normalize": normalize}))
        assert evaluate("-n", 2) == status
        if status:
            assert "normal" in error_line(capsys)
    # also where the noise is not the config's
    config_file.write_text(yaml.dump({**config, "normalize": True, "env_wrapper": None}))
    assert evaluate("-n", 2, "--sigma", 0.2) == 2
    assert "normal" in error_line(capsys)


def test_config_of_a_run_is_never_executed(config_file, tmp_path, capsys):
    config_file.write_text("a: !!python/object/apply:os.mkdir [mark]\n")
    assert evaluate("-n", 2) == 2
    error_line(capsys)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", 0, "--sigma", 0.1], "--n-episodes"),
        (["--n-envs", 0, "--sigma", 0.1], "--n-envs"),
        (["--seed", -1, "--sigma", 0.1], "--seed"),
        (["--sigma", 0], "nothing to certify"),
        (["--sigma", "nan"], "--sigma"),
        ([], "give --sigma"),
        (["-params", f"env_wrapper:{NOISE}", "--sigma", 0.4], "contradicts"),
        (["-params", f"env_wrapper:{NOISE.replace('0.2', '0')}"], "sigma 0"),
        (["-params", "gamma:0.9", "--sigma", 0.1], "gamma"),
        (["-params", "frame_stack:3", "--sigma", 0.1], "the policy observes"),
        (["--env-kwargs", "nonsense:1", "--sigma", 0.1], "nonsense"),
        (["--gym-packages", "no_such_package"], "no_such_package"),
        (["--gym-packages", ""], "cannot import ''"),
        (["--gym-packages", ".envs"], "cannot import '.envs'"),
        (["-params", "frame_stack:'a'", "--sigma", 0.1], "frame_stack must be a whole number of frames, not 'a'"),
        (["-params", "frame_stack:2.5", "--sigma", 0.1], "frame_stack must be a whole number of frames, not 2.5"),
        (["-params", "frame_stack:-3", "--sigma", 0.1], "frame_stack must be a whole number of frames, not -3"),
        (["--device", "meta", "--sigma", 0.1], "computes nothing on 'meta'"),
    ],
)
def test_wrong_arguments_give_one_line(arguments, message, dqn_file, capsys):
    assert evaluate("--model", dqn_file, *arguments) == 2
    assert message in error_line(capsys)
    assert not (dqn_file.parent / "certification").exists()


def test_sigma_can_be_measured_with_any_seed(dqn_file, tmp_path):
    for seed in (3, 2**32 + 3):
        assert evaluate("--model", dqn_file, "--sigma", "auto:0.1", "-n", 3, "--seed", seed, "-o", tmp_path / str(seed)) == 0
    first, second = (read(tmp_path / str(seed) / "evaluations.npz")["sensor_sigma"] for seed in (3, 2**32 + 3))
    assert first == second


def test_missing_model_run_and_environment_give_one_line(dqn_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert evaluate("--model", "missing.zip", "--sigma", 0.1) == 2
    assert "missing.zip" in error_line(capsys)
    assert evaluate() == 2
    assert "logs/dqn" in error_line(capsys)
    assert evaluate("--model", dqn_file, "--sigma", 0.1, env="NoSuchEnv-v0") == 2
    assert "NoSuchEnv" in error_line(capsys)
    for typo, meant in (
        ("CartPole1-v1", "CartPole-v1"),
        ("pendulum-v1", "Pendulum-v1"),
        ("camp/Cartpole1-v0", "camp/CartPole1-v0"),
    ):
        assert evaluate("--model", dqn_file, "--sigma", 0.1, env=typo) == 2
        assert f"--env {typo}: did you mean {meant}?" in error_line(capsys)
    assert evaluate("--model", dqn_file, "--sigma", 0.1, algo="camp-dqn") == 2
    assert "--algo: the zoo has no camp-dqn: did you mean camp_dqn? choose one of " in error_line(capsys)
    assert evaluate("--model", dqn_file, "--sigma", 0.1, env="Acrobot-v1") == 2
    assert "the policy observes" in error_line(capsys)
    # what is not KEY:VALUE
    assert evaluate("--model", dqn_file, "--sigma", 0.1, "--env-kwargs", "render_mode") == 2
    assert "KEY:VALUE" in error_line(capsys)


def test_a_folder_that_cannot_be_written_is_one_line_before_anything_is_played(dqn_file, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 10**6, "-o", tmp_path / "file") == 2
    assert f"cannot write to {tmp_path / 'file'}: File exists: choose another folder with -o" in error_line(capsys)


def test_a_second_evaluation_in_one_folder_changes_nothing(dqn_file, tmp_path, capsys):
    same = ("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path / "out")
    assert evaluate(*same) == 0
    before = (tmp_path / "out" / "evaluations.npz").read_bytes()
    capsys.readouterr()
    with only_writer(tmp_path / "out"):
        assert evaluate(*same, "--seed", 1) == 2
    assert "another command writes its results there now" in error_line(capsys)
    assert (tmp_path / "out" / "evaluations.npz").read_bytes() == before


def test_refusals_do_not_say_that_they_replace_anything(dqn_file, tmp_path, capsys):
    same = ("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path)
    assert evaluate(*same) == 0
    for wrong in (["-params", "frame_stack:2"], ["--vec-env", "native", "-params", "frame_stack:2"], ["--env-kwargs", "a:1"]):
        capsys.readouterr()
        assert evaluate(*same, *wrong) == 2
        assert "Replacing" not in capsys.readouterr().out


def test_help_needs_neither_pytorch_nor_the_zoo(tmp_path):
    code = "import sys, sb3_camp.evaluate as e, atexit\natexit.register(lambda: print(*sys.modules))\ne.main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "--vec-env" in loaded and "gymnasium" in loaded
    assert not loaded & {"torch", "stable_baselines3", "rl_zoo3", "sb3_contrib", "pandas", "matplotlib"}


@pytest.mark.slow
def test_processes_are_as_many_as_cores_unless_asked_for(tmp_path, dqn_file, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    arguments = ("--model", dqn_file, "--sigma", 0.2, "-n", 7, "-o", tmp_path)
    assert evaluate(*arguments, "--vec-env", "subproc") == 0
    assert read(tmp_path / "evaluations.npz")["n_envs"] == 3


def test_same_seed_same_file_contents_other_seed_other_returns(dqn_file, tmp_path):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert (
            evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 40, "--n-envs", 8, "--seed", seed, "-o", tmp_path / folder)
            == 0
        )
    a, b, c = (read(tmp_path / folder / "evaluations.npz") for folder in "abc")
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert not np.array_equal(a["results"], c["results"])
    # --model without -o: beside the model file
    assert evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 4) == 0
    assert (dqn_file.parent / "certification" / "evaluations.npz").is_file()


def test_old_evaluation_is_kept_with_resume_and_replaced_aloud_without(dqn_file, tmp_path, capsys):
    same = ("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path)
    assert evaluate(*same) == 0
    before = (tmp_path / "evaluations.npz").stat().st_mtime_ns
    capsys.readouterr()
    assert evaluate(*same, "--resume") == 0
    assert "Nothing to resume" in capsys.readouterr().out
    assert evaluate(*same, "--resume", "--seed", 7) == 2
    assert "made with seed 0, not 7" in error_line(capsys)
    assert (tmp_path / "evaluations.npz").stat().st_mtime_ns == before
    assert evaluate(*same, "--seed", 7) == 0
    assert "Replacing the evaluation" in capsys.readouterr().out
    assert read(tmp_path / "evaluations.npz")["seed"] == 7


def test_interrupted_and_resumed_equals_uninterrupted(dqn_file, tmp_path, capsys):
    arguments = ("--model", dqn_file, "--sigma", 0.2, "-n", 300, "--n-envs", 3, "-o")
    command = ["--algo", "dqn", "--env", "CartPole-v1", "--device", "cpu", *arguments, tmp_path / "a"]
    where = "sb3_camp.evaluation.run_evaluation"
    process = run_interrupted("sb3_camp.evaluate", "write_partial", 2, command, where=where)
    assert process.returncode == 130
    assert process.stderr.strip() == "evaluate: interrupted: the same command with --resume continues"
    assert os.listdir(tmp_path / "a") == ["evaluations.partial.npz"]

    assert evaluate(*arguments, tmp_path / "a", "--resume", "--seed", 1) == 2
    assert "made with seed 0, not 1" in error_line(capsys)
    assert evaluate(*arguments, tmp_path / "a", "--resume") == 0
    assert "Resuming after " in capsys.readouterr().out
    assert evaluate(*arguments, tmp_path / "b") == 0
    resumed, whole = (read(tmp_path / folder / "evaluations.npz") for folder in "ab")
    np.testing.assert_array_equal(resumed["results"], whole["results"])
    np.testing.assert_array_equal(resumed["ep_lengths"], whole["ep_lengths"])
    assert os.listdir(tmp_path / "a") == ["evaluations.npz"]


@pytest.mark.slow
def test_camp_dqn_is_known_and_plays_the_same_in_worker_processes(tmp_path):
    env = NoisyObservationWrapper(gym.make("CartPole-v1"), 0.2)
    CAMPDQN("MlpPolicy", env, buffer_size=8, device="cpu", seed=0).save(tmp_path / "camp.zip")
    common = ("--model", tmp_path / "camp.zip", "-params", f"env_wrapper:{NOISE}", "-n", 6, "--n-envs", 2)
    assert evaluate(*common, "-o", tmp_path / "dummy", "--vec-env", "dummy", algo="camp_dqn") == 0
    assert evaluate(*common, "-o", tmp_path / "subproc", "--vec-env", "subproc", algo="camp_dqn") == 0
    dummy, subproc = (read(tmp_path / name / "evaluations.npz") for name in ("dummy", "subproc"))
    np.testing.assert_array_equal(dummy["results"], subproc["results"])


def test_interrupted_evaluation_without_resume_is_replaced_aloud(dqn_file, tmp_path, capsys):
    (tmp_path / "evaluations.partial.npz").write_bytes(b"")
    assert evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path, "--resume") == 2
    assert "cannot be read" in error_line(capsys)
    assert evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path) == 0
    assert "Replacing the interrupted evaluation" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.npz")] == ["evaluations.npz"]


def test_stochastic_is_recorded_and_progress_shown(dqn_file, tmp_path, capsys):
    assert evaluate("--model", dqn_file, "--sigma", 0.2, "-n", 5, "-o", tmp_path, "--stochastic", "-P") == 0
    assert not read(tmp_path / "evaluations.npz")["deterministic"]
    assert "5/5" in capsys.readouterr().err
