"""What the attack command cannot use, or only in its own way."""

import shutil

import gymnasium as gym
import pytest
import yaml
from stable_baselines3 import DQN, PPO
from support.attack_agents import (
    NOISE,
    POLE,
    attack,
    result,
    save_balancing,
)
from support.attacked_envs import RandomFrames, image_space
from support.command_errors import error_line
from support.run_folders import make_run, noise

LIVES = "'stable_baselines3.common.atari_wrappers.EpisodicLifeEnv'"


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    return save_balancing(tmp_path_factory.mktemp("agent") / "agent.zip")


@pytest.fixture
def smoothed_run(tmp_path, agent, monkeypatch):
    """A run folder of an agent on noise of sigma 0.1, below the working directory."""
    run = make_run(tmp_path / "logs", POLE, env_wrapper=[noise(0.1)])
    shutil.copy(agent, run / "tests-ShortPole-v0.zip")
    monkeypatch.chdir(tmp_path)
    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", 0], "--n-episodes"),
        (["--budget", -1], "--budget"),
        (["--budget", "nan"], "--budget"),
        (["--sigma", -0.1], "--sigma"),
        (["--sigma", "inf"], "--sigma"),
        (["--step-size", 0], "--step-size"),
        (["--multiplier", "nan"], "--multiplier"),
        (["--attack", "fgsm", "--multiplier", 2], "--multiplier is not for fgsm"),
        (["--q-threshold", -1], "--q-threshold"),
        (["--key", "signal"], "no Dict"),
        (["-n", 10**12], "--n-episodes"),
        (["--sigma", 1e300], "--sigma"),
        (["--budget", 0.5, 1e300, "--attack", "fgsm"], "--budget"),
        (["--step-size", 1e300], "--step-size"),
        (["--budget", 0, 1e17], "steps"),
        (["--step-size", 1e-9], "steps"),
        (["--attack", "apgd", "--multiplier", 1e6], "steps"),
        (["--device", "cuda:99"], "--device"),
        (["--device", "nonsense"], "--device"),
        (["-params", "frame_stack:2"], "the policy observes"),
        (["-params", "gamma:0.9"], "gamma"),
        (["-params", f"env_wrapper:[{NOISE}, {NOISE}]"], "2 smoothing noises"),
        (["-params", f"env_wrapper:[{NOISE}, {{'gymnasium.wrappers.DelayObservation': {{'delay': 2}}}}]"], "DelayObservation"),
        (["-params", "env_wrapper:'gymnasium.wrappers.NormalizeObservation'"], "NormalizeObservation"),
        (["-params", "vec_env_wrapper:'stable_baselines3.common.vec_env.VecNormalize'"], "VecNormalize"),
    ],
)
def test_wrong_arguments_give_one_line(arguments, message, agent, tmp_path, capsys):
    assert attack("--model", agent, "-o", tmp_path / "out", *arguments) == 2
    assert message in error_line(capsys)
    assert not (tmp_path / "out").exists()


def test_negative_zeros_are_zeros(agent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(agent, "agent.zip")
    assert attack("--model", "agent.zip", "-n", 2, "--budget", "-0.0", "--sigma", "-0.0", "--q-threshold", "-0.0") == 0
    text = (tmp_path / "attacks" / "pgd_sigma0" / "attack.json").read_text()
    assert "-0" not in text.replace("e-0", "") and result(tmp_path / "attacks" / "pgd_sigma0")["budgets"][0]["budget"] == 0
    assert "-0.0" not in (tmp_path / "attacks" / "pgd_sigma0" / "attack.csv").read_text()


def test_output_that_cannot_be_written_is_found_before_playing(agent, tmp_path, capsys):
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nothing"):
        assert attack("--model", agent, "-n", 2, "-P", "-o", output) == 2
        printed = capsys.readouterr()
        assert str(output) in printed.err and printed.err.count("\n") == 1 and "episode" not in printed.err


def test_file_of_another_algorithm_is_said_to_be_one(tmp_path, agent, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "logs", POLE, env_wrapper=[noise(0.1)])
    shutil.copy(agent, run / "tests-ShortPole-v0.zip")
    assert attack("--model", run / "tests-ShortPole-v0.zip", algo="ppo") == 2
    assert "it is a checkpoint of DQN, not of PPO: give --algo dqn" in error_line(capsys)
    assert attack("--model", agent, algo="a2c") == 2
    assert "it is a checkpoint of DQN, not of A2C: give --algo dqn" in error_line(capsys)


def test_policies_that_cannot_be_attacked_give_one_line(tmp_path, capsys):
    PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu").save(tmp_path / "model.zip")
    assert attack("--model", tmp_path / "model.zip", env="Pendulum-v1", algo="ppo") == 2
    assert "use random, mad, critic, robust-sarsa, learned" in error_line(capsys)
    assert attack("--model", tmp_path / "model.zip", env=POLE, algo="ppo") == 2
    error_line(capsys)


def test_run_with_running_statistics_gives_one_line(smoothed_run, capsys):
    config = smoothed_run / "tests-ShortPole-v0" / "config.yml"
    settings = yaml.unsafe_load(config.read_text())
    for wrapper in (None, [noise(0.1)]):
        config.write_text(yaml.dump({**settings, "env_wrapper": wrapper, "normalize": True}))
        assert attack("-n", 2) == 2
        assert "the observations of this run are normalised, but there is no" in error_line(capsys)


def test_damaged_leftovers_give_one_line(agent, tmp_path, capsys):
    common = ("--model", agent, "-n", 2, "--budget", 0.1, "-o", tmp_path)
    (tmp_path / "attack.partial.npz").write_bytes(b"")
    assert attack(*common, "--resume") == 2
    assert "cannot be read" in error_line(capsys)
    assert attack(*common) == 0
    assert "Replacing the interrupted attack" in capsys.readouterr().out
    (tmp_path / "attack.json").write_text("{}")
    assert attack(*common, "--resume") == 2
    assert "not an attack" in error_line(capsys)


def test_progress_and_sampled_actions(agent, tmp_path, capsys):
    assert attack("--model", agent, "-n", 4, "--budget", 0, 1, "--stochastic", "-P", "-o", tmp_path) == 0
    assert "8/8" in capsys.readouterr().err
    assert result(tmp_path)["deterministic"] is False


def test_images_have_budgets_in_pixels(tmp_path):
    gym.register("tests/Pictures-v0", lambda: RandomFrames(image_space(36, 36, 1)), disable_env_checker=True)
    kwargs = {"features_extractor_kwargs": {"features_dim": 8}}
    model = DQN("CnnPolicy", "tests/Pictures-v0", buffer_size=1, policy_kwargs=kwargs, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    assert (
        attack("--model", tmp_path / "model.zip", "-n", 1, "--multiplier", 0.05, "-o", tmp_path, env="tests/Pictures-v0") == 0
    )
    assert [one["budget"] for one in result(tmp_path)["budgets"]] == pytest.approx([0, 51, 102, 153, 204, 255])
    del gym.registry["tests/Pictures-v0"]
