"""The commands that a report prints make the same certificate again, and run nothing that a file smuggles in."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from stable_baselines3 import DQN
from support.attack_agents import POLE, save_balancing
from support.info_envs import InfoEnv
from support.report_pages import full_certificate, parsed, recorded_bound, written

from sb3_camp.attack import main as attack
from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.certification.certificate import Certificate, Source
from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate
from sb3_camp.report import main as report
from sb3_camp.reporting.reproduction import reproduction

COMMANDS = {"sb3_camp.evaluate": evaluate, "sb3_camp.certify": certify, "sb3_camp.attack": attack}
NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.15}}
RUN = "logs/dqn/CartPole-v1_1"


def zoo_run(**config: Any) -> str:
    """A run folder of the zoo in the working folder, with the agent as its last model."""
    settings = Path(RUN) / "CartPole-v1"
    settings.mkdir(parents=True)
    (settings / "args.yml").write_text(yaml.dump({"algo": "dqn", "env": "CartPole-v1", "env_kwargs": None}))
    (settings / "config.yml").write_text(yaml.dump({"policy": "MlpPolicy", **config}))
    save_balancing(Path(RUN) / "CartPole-v1.zip")
    return f"{RUN}/CartPole-v1.zip"


def outside(**_: Any) -> str:
    save_balancing(Path("agent.zip"))
    return "agent.zip"


def run_again(page: Path) -> list[str]:
    """Run what the page says, and tell which commands it was."""
    names = []
    for block in parsed(page.read_text()).findall(".//pre/code"):
        words = _shell_words("".join(block.itertext()))
        if words[0] == "sha256sum":
            continue
        assert words[:2] == ["python", "-m"]
        assert COMMANDS[words[2]]([*words[3:]]) == 0
        names.append(words[2])
    return names


def _shell_words(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", ""))


@pytest.mark.parametrize(
    ("agent", "config", "env", "options"),
    [
        (outside, {}, POLE, ["--sigma", "0.1"]),
        pytest.param(outside, {}, POLE, ["--sigma", "0.1", "0.2", "0.1", "0.3"], marks=pytest.mark.slow),
        (outside, {}, POLE, ["--hyperparams", f"env_wrapper:[{NOISE}]", "--stochastic"]),
        pytest.param(
            outside,
            {},
            "camp/CartPole1-v0",
            ["--env-kwargs", "sigma:0.3", "--vec-env", "dummy", "--q-gap"],
            marks=pytest.mark.slow,
        ),
        pytest.param(zoo_run, {}, "CartPole-v1", ["--sigma", "0.1"], marks=pytest.mark.slow),
        (zoo_run, {"env_wrapper": [NOISE]}, "CartPole-v1", []),
    ],
    ids=["sigma", "sigma of each sensor", "wrappers", "task", "run without noise", "run with noise"],
)
def test_the_printed_commands_make_the_same_certificate(tmp_path, monkeypatch, agent, config, env, options):
    monkeypatch.chdir(tmp_path)
    model = agent(**config)
    play = ["--algo", "dqn", "--env", env, "--model", model]
    for seed in (3, 4):
        assert evaluate([*play, "-n", "20", "--n-envs", "4", "--seed", str(seed), "-o", f"first/{seed}", *options]) == 0
    logs = ["first/3/evaluations.npz", "first/4/evaluations.npz"]
    asked = ["--min-return", "0", "--alpha", "0.1", "--targets", "5", "--probability-of", "9", "--cvar", "0.2"]
    asked += ["--epsilon", "0.01", "--epsilon-norm", "linf"]
    assert certify([*logs, "-o", "first", *asked]) == 0
    assert report(["first/certificate.json", "-o", "report.html"]) == 0
    assert run_again(Path("report.html")) == ["sb3_camp.evaluate", "sb3_camp.evaluate", "sb3_camp.certify"]
    for index, log in enumerate(logs, start=1):
        first, again = np.load(log), np.load(f"again/{index}/evaluations.npz")
        np.testing.assert_array_equal(first["results"], again["results"])
        np.testing.assert_array_equal(first["ep_lengths"], again["ep_lengths"])
    first, again = (json.loads(Path(folder, "certificate.json").read_text()) for folder in ("first", "again"))
    for content in (first, again):
        del content["sources"]
    assert first == again


def test_the_printed_commands_make_the_same_attack(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    play = ["--algo", "dqn", "--env", POLE, "--model", outside(), "--sigma", "0.1"]
    assert evaluate([*play, "-n", "30", "-o", "first"]) == 0
    assert certify(["first/evaluations.npz", "--min-return", "0", "--radii", "0", "0.05", "0.3", "--method", "dkw"]) == 0
    how = ["--attack", "pgd", "--budget", "0", "0.3", "--step-size", "0.1", "--multiplier", "1.5", "--seed", "7", "-n", "6"]
    assert attack([*play, *how, "-o", "attacked"]) == 0
    assert report(["first/certificate.json", "attacked/attack.json", "-o", "report.html"]) == 0
    assert run_again(Path("report.html")) == ["sb3_camp.evaluate", "sb3_camp.certify", "sb3_camp.attack"]
    assert Path("attacked/attack.csv").read_bytes() == Path("again/pgd/attack.csv").read_bytes()
    curves = [json.loads(Path(name, "certificate.json").read_text())["certified_return"] for name in ("first", "again")]
    assert curves[0] == curves[1]


def test_recorded_entries_and_planned_looks_are_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DQN("MlpPolicy", InfoEnv(), buffer_size=8, device="cpu", seed=0).save("agent.zip")
    play = [
        "--algo",
        "dqn",
        "--env",
        "tests/Info-v0",
        "--model",
        "agent.zip",
        "--sigma",
        "0.1",
        "--n-envs",
        "4",
        "-o",
        "first",
    ]
    until = ["--until", "1@0.1", "--max-episodes", "200", "--looks", "3", "--alpha", "0.1", "--min-return", "0"]
    assert evaluate([*play, *until, "--n-envs", "4", "--record", "crashed", "cost:sum", "speed:max"]) == 0
    asked = ["--at-least", "speed", "--at-most", "crashed", "cost", "--worst", "speed:-99", "cost:4.5"]
    assert certify(["first", "--min-return", "0", *asked]) == 0
    assert report(["first/certificate.json", "-o", "report.html"]) == 0
    assert run_again(Path("report.html")) == ["sb3_camp.evaluate", "sb3_camp.certify"]
    first, again = (json.loads(Path(folder, "certificate.json").read_text()) for folder in ("first", "again"))
    for content in (first, again):
        del content["sources"]
    assert first == again and len(first["recorded"]) == 3


def test_a_support_and_a_negative_lowest_return_can_be_typed(tmp_path):
    certificate = full_certificate(
        method="clopper-pearson", support=[-2.0, -1.0, 0.0, 1.0], min_return=-1e6, sigma_assumed=True, model=None
    )
    *_, last = reproduction(AgentResults(written(certificate, tmp_path), certificate, [], []))
    words = list(last.command)
    assert words[words.index("--support") + 1] == "-2:1" and "--min-return=-1e+06" in words
    assert words[words.index("--sigma") + 1] == "0.4"


@pytest.mark.parametrize(
    "changes",
    [
        {"env_kwargs": {"a:__import__('os').system('touch owned')": 1}},
        {"env_wrappers": {"a:__import__('os').system('touch owned')": 1}},
        {"env_id": "os:CartPole-v1"},
        {"trained_env_id": "os:CartPole-v1"},
    ],
)
def test_what_evaluate_would_run_is_not_printed(tmp_path, changes):
    def commands(certificate: Certificate) -> list[str]:
        results = AgentResults(written(certificate, tmp_path), certificate, [], [])
        return [" ".join(step.command) for step in reproduction(results)]

    recorded = [commands(full_certificate(recorded=[recorded_bound(key, [0.1] * 5)])) for key in ("a", "--model=b")]
    assert ["sb3_camp" in " ".join(one) for one in recorded] == [True, False]
    sound = commands(full_certificate())
    assert sum("sb3_camp.evaluate" in one for one in sound) == 1
    assert not any("sb3_camp.evaluate" in one for one in commands(full_certificate(**changes)))


def test_words_of_a_file_stay_one_word_for_the_shell(tmp_path):
    hostile = "x; touch owned; $(touch owned) 'a' \"b\""
    certificate = full_certificate(
        model=hostile, algo=hostile, method=hostile, env_kwargs={"name": hostile}, sources=[Source(hostile, "b" * 64, 10)]
    )
    for step in reproduction(AgentResults(written(certificate, tmp_path), certificate, [], [])):
        assert _shell_words(" \\\n".join(step.lines)) == list(step.command)
