"""What the attack command cannot use, or only in its own way."""

import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import yaml
from stable_baselines3 import DQN, PPO
from support.attack_agents import (
    NOISE,
    POLE,
    attack,
    result,
)
from support.attacked_envs import RandomFrames, image_space
from support.command_errors import error_line
from support.evaluate_runs import environment
from support.run_folders import make_run, noise

from sb3_camp.attack_names import LEARNED
from sb3_camp.attacks import ATTACKS

pytest_plugins = ["support.attack_fixtures"]

LIVES = "'stable_baselines3.common.atari_wrappers.EpisodicLifeEnv'"


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
        (["--attack", "pdg"], "did you mean pgd?"),
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
    assert "use random, mad, critic, robust-sarsa, transfer, learned" in error_line(capsys)
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


def test_help_needs_neither_pytorch_nor_the_zoo_and_names_all_attacks(tmp_path):
    code = "import sys, sb3_camp.attack as a, atexit\natexit.register(lambda: print(*sys.modules))\na.main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "gymnasium" in loaded
    assert not loaded & {"torch", "stable_baselines3", "rl_zoo3", "sb3_contrib", "pandas", "matplotlib", "scipy"}
    for name in (*ATTACKS, LEARNED):
        assert f"{name}," in done.stdout


MODULE = '''
import torch as th
from sb3_camp.attacks import Attack, Perturbation, register_attack


def first_down(scores, clean, budgets, *, step_size, assemble=None):
    """Takes most of what is left from the first entry."""
    received = clean.clone()
    received[:, 0] -= th.where(budgets > 0.01, 0.99 * budgets, 0).float()
    spent = (received.double() - clean.double()).norm(dim=1)
    target = scores(received).argmax(dim=1)
    return Perturbation(received, spent, target, target != scores(clean).argmax(dim=1))


register_attack("first-down", Attack(first_down, step_of_budget=1.0))
'''


def test_attack_of_another_package_works_by_its_name(agent, tmp_path, monkeypatch, capsys):
    (tmp_path / "downward_attacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    common = ("--model", agent, "-n", 4, "--budget", 0, 0.5, "-o", tmp_path / "out", "--attack", "first-down")
    assert attack(*common) == 2
    assert "--attack: there is no first-down" in error_line(capsys)
    try:
        assert attack(*common, "--gym-packages", "downward_attacks") == 0
        content = result(tmp_path / "out")
        assert content["attack"] == "first-down" and content["multiplier"] is None
        assert content["budgets"][1]["mean_spent"] == pytest.approx(0.5, rel=0.01)
        assert attack(*common, "--multiplier", 2) == 2
        assert "--multiplier is not for first-down" in error_line(capsys)
    finally:
        ATTACKS.pop("first-down", None)


def test_episodes_that_depend_on_each_other_are_not_attacked(agent, tmp_path, capsys):
    class GrowsHarder(gym.Wrapper):
        """The pole of the k-th episode starts with a slope of its own."""

        episodes = 0

        def reset(self, **kwargs):
            observation, info = self.env.reset(**kwargs)
            self.episodes += 1
            self.unwrapped.state = observation + np.float32([0, 0, 0.001 * self.episodes, 0])
            return np.array(self.unwrapped.state, np.float32), info

    gym.register("tests/HarderPole-v0", lambda: GrowsHarder(gym.make("CartPole-v1").unwrapped), max_episode_steps=60)
    assert attack("--model", agent, "-n", 4, "-o", tmp_path, env="tests/HarderPole-v0") == 2
    assert "episodes depend on each other" in error_line(capsys)
    del gym.registry["tests/HarderPole-v0"]
