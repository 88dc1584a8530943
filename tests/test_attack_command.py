"""The attack command: what it plays, what it writes, and how it ends."""

import os
import shutil

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import PPO
from support.attack_agents import (
    POLE,
    RareReturn,
    TwoSignals,
    attack,
    column,
    result,
    rows,
    save_positive,
    write_certificate,
)
from support.attacked_envs import balancing_dqn
from support.command_errors import error_line
from support.evaluate_runs import read as read_npz
from support.evaluate_runs import run as run_module
from support.interrupted import run_interrupted
from support.run_folders import make_run, noise

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate

pytest_plugins = ["support.attack_fixtures"]

LIVES = "'stable_baselines3.common.atari_wrappers.EpisodicLifeEnv'"


def test_undefended_agent_loses_most_of_its_return_to_real_attacks_only(agent, tmp_path):
    means = {}
    attacks = {name: ("--attack", name) for name in ("pgd", "apgd", "fgsm", "random")}
    attacks["jeffreys"] = ("--objective", "jeffreys")
    for name, options in attacks.items():
        assert attack("--model", agent, "-n", 20, "--budget", 1, 0, *options, "-o", tmp_path / name) == 0
        clean, attacked = result(tmp_path / name)["budgets"]
        assert (clean["budget"], attacked["budget"]) == (0, 1)
        assert clean["mean_return"] == 60 and clean["mean_flips"] == clean["max_spent"] == 0
        assert 0 < attacked["max_spent"] <= 1
        means[name] = attacked["mean_return"]
    assert max(means["pgd"], means["apgd"], means["jeffreys"]) < 20 and means["random"] > 50
    assert means["apgd"] <= means["pgd"] + 1


def test_the_files_agree_with_each_other_and_with_the_budget(agent, tmp_path):
    assert attack("--model", agent, "-n", 30, "--n-envs", 7, "--budget", 0.05, 0.2, "--sigma", 0.1, "-o", tmp_path) == 0
    assert sorted(os.listdir(tmp_path)) == ["attack.csv", "attack.json", "attack.png"]
    with open(tmp_path / "attack.csv") as file:
        assert file.readline() == "budget,episode,return,steps,budget_spent,flips\n"
    assert [(row["budget"], row["episode"]) for row in rows(tmp_path)] == [(b, i) for b in (0.05, 0.2) for i in range(30)]
    content = result(tmp_path)
    assert [one["budget"] for one in content["budgets"]] == [0.05, 0.2]
    for one in content["budgets"]:
        values = {name: column(tmp_path, name, one["budget"]) for name in ("return", "steps", "budget_spent", "flips")}
        np.testing.assert_array_equal(values["return"], values["steps"])
        assert np.all(values["budget_spent"] <= one["budget"]) and np.all(values["flips"] <= values["steps"])
        assert np.all((values["budget_spent"] > 0) == (values["flips"] > 0))
        means = [one[name] for name in ("mean_return", "mean_steps", "mean_spent", "mean_flips", "max_spent")]
        expected = [values[name].mean() for name in ("return", "steps", "budget_spent", "flips")]
        assert means == pytest.approx([*expected, values["budget_spent"].max()])
        low, high = one["confidence_interval"] or (60, 60)
        assert low <= one["mean_return"] <= high
    assert content["format"] == "sb3_camp-attack-1"
    expected = {"attack": "pgd", "sigma": 0.1, "n_episodes": 30, "deterministic": True, "env_id": POLE, "clean_keys": []}
    assert {name: content[name] for name in expected} == expected


def test_the_command_attacks_a_run_folder(tmp_path, agent):
    run = make_run(tmp_path / "logs", "CartPole-v1", env_wrapper=[noise(0.1)])
    shutil.copy(agent, run / "CartPole-v1.zip")
    arguments = (
        "--algo",
        "dqn",
        "--env",
        "CartPole-v1",
        "-n",
        "4",
        "--budget",
        "0.2",
        "--multiplier",
        "0.1",
        "--attack",
        "apgd",
    )
    done = run_module("sb3_camp.attack", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    folder = run / "attacks" / "apgd_sigma0.1"
    assert sorted(os.listdir(folder)) == ["attack.csv", "attack.json", "attack.png"]
    assert str((folder / "attack.json").relative_to(tmp_path)) in done.stdout
    assert len(rows(folder)) == 4


def test_without_a_budget_the_episodes_are_those_of_evaluate(agent, tmp_path):
    common = ("--model", agent, "-n", 70, "--n-envs", 2, "--seed", 5, "--sigma", 0.3, "-o", tmp_path)
    assert attack(*common, "--budget", 0) == 0
    assert evaluate(["--algo", "dqn", "--env", POLE, "--device", "cpu", *map(str, common)]) == 0
    evaluated = read_npz(tmp_path / "evaluations.npz")["results"][0]
    np.testing.assert_array_equal(column(tmp_path, "return"), evaluated)
    assert len(set(evaluated)) > 5


def test_run_is_attacked_with_its_noise_or_as_told(smoothed_run):
    plain = ("-n", 8, "--budget", 0.3)
    for sigma, folder in ((None, "pgd_sigma0.1"), (0, "pgd_sigma0"), (0.25, "pgd_sigma0.25")):
        assert attack(*plain, *(() if sigma is None else ("--sigma", sigma))) == 0
        assert result(smoothed_run / "attacks" / folder)["sigma"] == (0.1 if sigma is None else sigma)
    # Each as if the noise had been put around the bare environment
    shutil.copy(smoothed_run / "tests-ShortPole-v0.zip", "bare.zip")
    for sigma in (0, 0.1, 0.25):
        assert attack("--model", "bare.zip", *plain, "--sigma", sigma) == 0
        of_run, bare = (folder / "attacks" / f"pgd_sigma{sigma:g}" for folder in (smoothed_run, smoothed_run.parents[2]))
        assert (of_run / "attack.csv").read_bytes() == (bare / "attack.csv").read_bytes()
    assert attack("--model", "bare.zip", *plain, "-o", "plain") == 0
    assert result(smoothed_run.parents[2] / "plain")["sigma"] == 0


def test_each_game_is_paired_with_what_its_adversary_spent(tmp_path):
    model = save_positive(tmp_path / "model.zip")
    for name, wrappers, n_attacked in (("whole", "", 5), ("lives", LIVES, 4)):
        arguments = ("-params", f"env_wrapper:[{wrappers}]") if wrappers else ()
        common = ("--model", model, "-n", 12, "--n-envs", 3, "--budget", 9)
        assert attack(*common, *arguments, "-o", tmp_path / name, env="tests/Games-v0") == 0
        games = column(tmp_path / name, "return") / 5
        assert set(games) == {1, 2, 3, 4}
        np.testing.assert_array_equal(column(tmp_path / name, "steps"), 5)
        np.testing.assert_array_equal(column(tmp_path / name, "flips"), n_attacked)
        # up to the next step of 0.01 beyond 0; nothing for the last observation of a life, and a lost life refills nothing
        step = column(tmp_path / name, "budget_spent") / np.sqrt(n_attacked) - games / 10
        assert np.all(step > 0) and np.all(step < 0.0101)


def test_entry_of_a_dict_is_attacked_and_clean_ones_are_recorded(tmp_path, capsys):
    model = PPO("MultiInputPolicy", TwoSignals(), n_steps=8, batch_size=8, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    common = ("--model", tmp_path / "model.zip", "-n", 4, "--budget", 5, "-o", tmp_path)
    noise = "{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.1, 'clean_keys': ['mode']}}"
    assert attack(*common, "-params", f"env_wrapper:[{noise}]", env="tests/TwoSignals-v1", algo="ppo") == 0
    content = result(tmp_path)
    assert (content["key"], content["clean_keys"]) == ("signal", ["mode"])
    capsys.readouterr()
    assert attack(*common, env="tests/TwoSignals-v1", algo="ppo") == 2
    line = error_line(capsys)
    assert "'signal'" in line and "'mode'" in line and "key" in line
    assert attack(*common, "--key", "mode", env="tests/TwoSignals-v1", algo="ppo") == 0
    assert result(tmp_path)["key"] == "mode"


@pytest.mark.slow
def test_interrupted_and_resumed_equals_uninterrupted(agent, tmp_path, capsys):
    arguments = ("--model", agent, "-n", 52, "--n-envs", 2, "--sigma", 1.5, "--multiplier", 0.1, "--budget", 0, 0.2, "-o")
    command = ["--algo", "dqn", "--env", POLE, "--device", "cpu", *arguments, tmp_path / "a"]
    # the third of four chunks is the first with an adversary
    process = run_interrupted(
        "sb3_camp.attack",
        "write_partial_attack",
        3,
        command,
        imported="support.attack_agents",
        where="sb3_camp.attack_runs.single_attack",
    )
    assert process.returncode == 130
    assert process.stderr.strip() == "attack: interrupted: the same command with --resume continues"
    assert os.listdir(tmp_path / "a") == ["attack.partial.npz"]

    assert attack(*arguments, tmp_path / "a", "--resume", "--attack", "apgd") == 2
    assert "made with attack pgd, not apgd" in error_line(capsys)
    assert attack(*arguments[:-1], 0.3, "-o", tmp_path / "a", "--resume") == 2
    assert "budgets" in error_line(capsys)
    assert attack(*arguments, tmp_path / "a", "--resume") == 0
    assert "Resuming after " in capsys.readouterr().out
    assert attack(*arguments, tmp_path / "b") == 0
    for name in ("attack.csv", "attack.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(os.listdir(tmp_path / "a")) == ["attack.csv", "attack.json", "attack.png"]


@pytest.mark.slow
def test_interruption_before_anything_is_kept_says_so(agent, tmp_path):
    command = ["--algo", "dqn", "--env", POLE, "--device", "cpu"]
    command += ["--model", agent, "-n", 1600, "--sigma", 1.5, "--budget", 5, "-o", tmp_path / "a"]
    process = run_interrupted(
        "sb3_camp.attack", "_play", 0, command, imported="support.attack_agents", where="sb3_camp.attack_runs.single_attack"
    )
    stderr = process.stderr
    assert process.returncode == 130 and os.listdir(tmp_path / "a") == []
    assert stderr.startswith("attack: interrupted: nothing is kept, as the first 1600 episodes were not finished")
    assert stderr.count("\n") == 1 and "--resume" not in stderr


def test_attack_is_repeated_by_its_seed(agent, tmp_path):
    common = ("--model", agent, "-n", 20, "--budget", 0.4, "--sigma", 0.1, "--attack", "random")
    th.manual_seed(1)
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert attack(*common, "--seed", seed, "-o", tmp_path / folder) == 0
    contents = [(tmp_path / folder / "attack.csv").read_bytes() for folder in "abc"]
    assert contents[0] == contents[1] != contents[2]


def test_attacks_of_another_kind_or_policy_are_not_replaced_unasked(smoothed_run, capsys):
    common = ("-n", 5, "--budget", 0.1)
    folder = smoothed_run / "attacks" / "pgd_sigma0.1"
    assert attack(*common) == 0
    assert attack(*common, "--attack", "fgsm") == 0
    assert (smoothed_run / "attacks" / "fgsm_sigma0.1" / "attack.json").exists()
    before = (folder / "attack.csv").read_bytes()
    capsys.readouterr()
    for arguments, name in ((("--q-threshold", 0.5), "q_threshold"), (("--stochastic",), "deterministic")):
        assert attack(*common, *arguments) == 2
        line = error_line(capsys)
        assert f"made with {name}" in line and f"-o {folder.relative_to(smoothed_run.parents[2])}" in line
    model = balancing_dqn()
    with th.no_grad():
        model.q_net.q_net[0].bias[0] += 0.01
    model.save(smoothed_run / "best_model.zip")
    assert attack(*common, "--load-best") == 2
    assert "made with model_sha256" in error_line(capsys)
    assert (folder / "attack.csv").read_bytes() == before
    # the same again, with other episodes
    assert attack(*common, "--seed", 3) == 0
    assert "Replacing the attack in " in capsys.readouterr().out
    assert attack(*common, "--load-best", "-o", folder) == 0
    assert "Replacing the attack in " in capsys.readouterr().out


def test_finished_attack_is_kept_with_resume(smoothed_run, capsys):
    common = ("-n", 5, "--budget", 0.1, "--resume")
    assert attack(*common) == 0
    file = smoothed_run / "attacks" / "pgd_sigma0.1" / "attack.json"
    before = file.stat().st_mtime_ns
    capsys.readouterr()
    assert attack(*common) == 0
    assert "Nothing to resume" in capsys.readouterr().out
    assert attack(*common, "--seed", 7) == 2
    assert "made with seed 0, not 7" in error_line(capsys)
    assert attack(*common[:-2], 0.2, "--resume") == 2
    assert "made with budgets [0.1], not [0.2]" in error_line(capsys)
    assert file.stat().st_mtime_ns == before


def test_contradiction_of_the_certificate_is_shown(smoothed_run, capsys):
    common = ("-n", 12, "--step-size", 0.5, "--budget", 0, 3)
    file = smoothed_run / "certification" / "certificate.json"
    shown = file.relative_to(smoothed_run.parents[2])
    assert attack(*common) == 0
    assert str(shown) not in capsys.readouterr().out
    content = result(smoothed_run / "attacks" / "pgd_sigma0.1")
    assert content["budgets"][0]["mean_return"] == 60 and content["budgets"][1]["mean_return"] < 40
    # Returns of 60 that are certain without an attack: at a large sigma (here 20), an attack of norm 3 cannot change much
    content["sigma"] = 20.0
    always = np.full(1000, 60.0)
    write_certificate(file, content, [59.0, 50.0, 0.0], always, radii=[0, 4, 5])
    assert attack(*common) == 0
    assert "its sigma is 0.1, that of the certificate 20" in capsys.readouterr().out
    run_of_20 = ("--sigma", 20, "-o", smoothed_run / "other")
    assert attack(*common, *run_of_20) == 3
    line = error_line(capsys)
    assert "violation of the certificate" in line and "a return of 60 or more" in line
    # An evaluation that promises little is not contradicted, though the mean is lower than what the file claims
    write_certificate(file, content, [59.0, 50.0, 0.0], np.repeat([5.0, 60.0], [999, 1]), radii=[0, 4, 5])
    assert attack(*common, *run_of_20) == 0
    assert f"{shown}: Inconclusive: the mean return is below the certified one at budget 0, 3 " in capsys.readouterr().out
    # Nor is one whose episodes are gone, and beyond its last radius nothing is claimed
    write_certificate(file, content, [59.0, 0.0], radii=[0, 1])
    assert attack(*common, *run_of_20) == 0
    printed = capsys.readouterr().out
    assert (
        f"{shown}: Not compared: budgets beyond its last radius 1: 3\n" in printed and "evaluate and certify again" in printed
    )
    assert attack(*common[:-2], 2, 3, *run_of_20) == 0
    printed = capsys.readouterr().out
    assert "all budgets lie beyond its last radius 1" in printed and "Inconclusive" not in printed


def test_valid_certificate_of_rare_large_returns_is_not_contradicted_by_their_absence(tmp_path, capsys):
    """1000 with probability 0.05, otherwise 0: most attacks of 12 episodes see nothing but 0."""
    gym.register("tests/Rare-v0", RareReturn, disable_env_checker=True)
    model = save_positive(tmp_path / "model.zip")
    env = ("--algo", "dqn", "--env", "tests/Rare-v0", "--device", "cpu", "--model", str(model), "--sigma", "1")
    assert evaluate([*env, "-n", "2000"]) == 0
    assert certify([str(tmp_path / "certification"), "--min-return", "0"]) == 0
    seen = set()
    for seed in range(6):
        assert attack("-n", 12, "--budget", 0, "--sigma", 1, "--model", model, "--seed", seed, env="tests/Rare-v0") == 0
        (one,) = result(tmp_path / "attacks" / "pgd_sigma1")["budgets"]
        seen.add(one["mean_return"] > 0)
        if one["mean_return"] == 0:
            assert one["confidence_interval"] is None
            assert "Inconclusive: " in capsys.readouterr().out
    assert seen == {True, False}
    del gym.registry["tests/Rare-v0"]
