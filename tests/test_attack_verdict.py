"""The strongest of several attacks: chosen by other episodes than those that measure it, and why an attack does not hurt."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.attack_agents import attack, result, save_balancing
from support.command_errors import error_line
from support.run_folders import make_run, noise

from sb3_camp.attack_runs.attack_files import read_attack
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, BudgetResult
from sb3_camp.attack_runs.mean_interval import mean_interval, mean_return
from sb3_camp.attack_runs.verdict import VERDICT_FORMAT, read_verdict, reasons, strongest, verdict_as_json
from sb3_camp.errors import InputError

SETTINGS = AttackSettings(
    "Game-v0", {}, {}, "dqn", "a.zip", "0" * 64, 0, True, 0.1, [], "pgd", "targeted", None, 2.0, 0.0, None, 0, 100, 8, "cpu"
)


def made(name, returns, flips=1.0, **changes):
    """An attack with these returns by budget."""
    budgets = tuple(
        BudgetResult(budget, mean_return(values), mean_interval(values), mean_flips=flips if budget else 0.0, returns=values)
        for budget, values in returns.items()
    )
    return AttackResult(replace(SETTINGS, attack=name, **changes), budgets)


def around(mean, n=100, seed=0):
    return mean + np.random.default_rng(seed).normal(size=n)


def test_the_strongest_is_chosen_by_the_pilot_and_measured_by_the_others():
    lucky = around(10)
    lucky[:20] -= 5  # looks strongest in the pilot, and is not
    attacks = [made("pgd", {0: around(12), 1: around(8, seed=1)}), made("apgd", {0: around(12), 1: lucky})]
    clean, one = strongest(attacks)
    assert (clean.attack, clean.budget) == ("pgd", 0)
    assert (one.attack, one.at_budget, one.n_pilot, one.n_episodes) == ("apgd", 1, 20, 80)
    assert one.mean_return == pytest.approx(lucky[20:].mean(), rel=1e-12) and one.mean_return > 9.5
    assert one.confidence_interval[0] < one.mean_return < one.confidence_interval[1]


def test_more_budget_is_never_weaker():
    found = strongest([made("pgd", {0: around(12), 0.5: around(5, seed=1), 1: around(9, seed=2)})])
    assert [(one.budget, one.at_budget) for one in found] == [(0, 0), (0.5, 0.5), (1, 0.5)]
    assert found[1].mean_return == found[2].mean_return


def test_the_interval_of_the_strongest_of_equals_holds():
    """Ten attacks of the same strength: the lowest mean of all would lie below the truth in nine of ten cases."""
    rng = np.random.default_rng(3)
    held, too_low = 0, 0
    for _ in range(60):
        attacks = [made(f"attack{i}", {1: rng.normal(size=50)}) for i in range(10)]
        (one,) = strongest(attacks)
        held += one.confidence_interval[0] <= 0 <= one.confidence_interval[1]
        too_low += min(attack.budgets[0].confidence_interval[1] for attack in attacks) < 0
    assert held >= 51 and too_low > 60 - held


def test_only_attacks_on_one_policy_with_their_returns_are_compared():
    one = made("pgd", {1: around(3)})
    with pytest.raises(InputError, match="no attack"):
        strongest([])
    for other in (made("apgd", {1: around(3)}, sigma=0.2), made("apgd", {1: around(3)}, model_sha256="1" * 64)):
        with pytest.raises(InputError, match="not on one policy"):
            strongest([one, other])
    with pytest.raises(InputError, match=r"no attack\.csv"):
        strongest([replace(one, budgets=(replace(one.budgets[0], returns=None),))])


def test_a_verdict_is_read_as_it_was_written_and_checked(tmp_path):
    found = strongest(
        [made("pgd", {0: around(12), 0.5: around(5, seed=1)}), made("apgd", {0: np.full(100, 7.0), 0.5: around(9)})]
    )
    file, content = tmp_path / "verdict.json", {"format": VERDICT_FORMAT, "attacks": ["pgd", "apgd"]}
    content.update(verdict_as_json(found, {}, {}))
    file.write_text(json.dumps(content))
    assert read_verdict(file) == (["pgd", "apgd"], found) and found[0].confidence_interval is None
    first = content["budgets"][0]
    for wrong in (
        {"format": "sb3_camp-attack-1"},
        {"attacks": None},
        {"budgets": [{**first, "mean_return": "7"}]},
        {"budgets": [{**first, "confidence_interval": [1]}]},
        {"budgets": [{name: first[name] for name in first if name != "at_budget"}]},
    ):
        file.write_text(json.dumps({**content, **wrong}))
        with pytest.raises(InputError, match=r"verdict\.json"):
            read_verdict(file)


def test_an_attack_that_does_not_hurt_says_why():
    clean, hurt = around(12), around(5, seed=1)
    idle = made("pgd", {0: clean, 1: clean}, flips=0.0)
    assert reasons([made("pgd", {0: clean, 1: hurt})]) == {}
    assert reasons([idle]) == {"pgd": "it changed no action with budget 1"}
    found = reasons([made("random", {0: clean, 1: hurt}), idle], 0.75)
    assert set(found) == {"pgd"}
    assert "at 75% of the observations the gradient is zero" in found["pgd"] and "masked: random" in found["pgd"]
    found = reasons([made("random", {0: clean, 1: clean}), idle, made("learned", {0: clean, 1: hurt})])
    assert "the agent can be hurt: learned did" in found["pgd"] and "blind" in found["random"]
    # An attack that helps the agent is no sign that one which does nothing hurts it
    found = reasons([made("pgd", {0: clean, 1: around(20)}, flips=2.0), made("mad", {0: clean, 1: clean}, flips=1.0)])
    assert all("none of the others hurt either" in text for text in found.values()) and len(found) == 2
    transferred = made("transfer", {0: clean, 1: hurt})
    found = reasons([made("random", {0: clean, 1: clean}), idle, transferred, made("learned", {0: clean, 1: clean})], 1.0)
    assert "masked: the gradients of another agent hurt more" in found["pgd"] and "100%" in found["pgd"]
    assert "gradient" not in found["learned"] and "transfer did" in found["learned"], "it follows none"
    found = reasons([made("random", {0: clean, 1: clean}), made("pgd", {0: clean, 1: clean}, flips=3.0)])
    assert "changed 3.0 actions" in found["pgd"] and "none of the others hurt either" in found["pgd"]


@pytest.mark.slow
def test_all_attacks_with_one_command_and_again_with_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "logs", "CartPole-v1", env_wrapper=[noise(0.1)])
    save_balancing(run / "CartPole-v1.zip")
    common = ("--attack", "all", "-n", 20, "--budget", 0, 1, "--step-size", 0.2, "--adversary-timesteps", 300)
    assert attack(*common, env="CartPole-v1") == 0
    printed = capsys.readouterr().out
    folder = run / "attacks"
    names = ["random", "pgd", "apgd", "fgsm", "learned"]
    assert {f"{name}_sigma0.1" for name in names} < {path.name for path in folder.iterdir()}
    content = json.loads((folder / "verdict_sigma0.1.json").read_text())
    assert content["format"] == "sb3_camp-verdict-1" and set(names) <= set(content["attacks"])
    assert content["attacks"][0] == "random" and content["attacks"][-1] == "learned"
    last = content["budgets"][-1]
    assert last["n_pilot"] == 4 and last["n_episodes"] == 16
    winner = read_attack(folder / f"{last['attack']}_sigma0.1" / "attack.json").budgets[-1]
    assert last["mean_return"] == pytest.approx(winner.returns[4:].mean())
    assert "The strongest attack at each budget" in printed and "random did not hurt" in printed
    before = {path: path.read_bytes() for path in folder.rglob("attack.csv")}
    # An interruption: one attack is not there yet, and the verdict neither
    (folder / "apgd_sigma0.1" / "attack.json").unlink()
    (folder / "verdict_sigma0.1.json").unlink()
    assert attack(*common, "--resume", env="CartPole-v1") == 0
    assert capsys.readouterr().out.count("Nothing to resume") == len(content["attacks"]) - 1
    assert {path: path.read_bytes() for path in folder.rglob("attack.csv")} == before
    assert json.loads((folder / "verdict_sigma0.1.json").read_text()) == content
    assert result(folder / "learned_sigma0.1")["adversary_sha256"] is not None
    for arguments, message in ((("-n", 1), "-n 2 and more"), (("--budget", 0), "above 0")):
        assert attack(*common, *arguments, "-o", tmp_path / "other", env="CartPole-v1") == 2
        assert message in error_line(capsys)
