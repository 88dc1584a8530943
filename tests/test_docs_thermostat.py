"""The walk-through of docs/agents.md runs as it stands, with fewer steps and episodes."""

import ast
import importlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from sb3_camp.certification.certificate import read_certificate

PAGE = Path(__file__).parents[1] / "docs" / "agents.md"


def blocks() -> list[tuple[str, str]]:
    """Language and text of the code blocks of the walk-through, in their order."""
    (section,) = re.findall(r"^## A thermostat.*?(?=^## )", PAGE.read_text(), re.M | re.S)
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.M | re.S)


def smaller(text: str) -> str:
    return (
        text.replace("learn(100_000)", "learn(768)")
        .replace("-n 2000", "-n 100")
        .replace("environment, 2000)", "environment, 64)")
    )


def command(line: str) -> None:
    """Run a command as it stands, in this process: what takes long is to start another one."""
    python, option, module, *arguments = shlex.split(line)
    assert (python, option) == ("python", "-m") and importlib.import_module(module).main(arguments) == 0, line


def test_the_walk_through_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (environment, train, python), commands = (
        [text for language, text in blocks() if language == "python"],
        [text for language, text in blocks() if language == "sh"],
    )
    Path("thermostat.py").write_text(environment)
    exec(compile(smaller(train), "train.py", "exec"), {})
    assert commands[0] == "python train.py\n"
    assert {path.name for path in Path("agent").iterdir()} == {"model.zip", "vecnormalize.pkl"}

    printed = {}
    for text in commands[1:]:
        capsys.readouterr()
        command(smaller(text))
        printed[text] = capsys.readouterr().out
    evaluated, certified, per_step, planned, reported = printed.values()
    assert "normalised by agent/vecnormalize.pkl, frozen; the noise is on raw observations" in evaluated
    # What the page says that a radius means for each sensor
    for row in ("[0] 0.5 0.051", "[1] 2 0.204", "[2] 300 30.6"):
        assert row.split() in [line.split() for line in certified.splitlines()]
    certificate = read_certificate("agent/certification/certificate.json")
    assert certificate.sensor_sigma == [0.5, 2.0, 300.0] and certificate.min_return == -1008
    assert certificate.per_step is not None and "sqrt(96)" in certificate.per_step.formula
    # 0.1 sigma of each of three sensors at each of 96 steps
    assert certificate.per_step.radius == pytest.approx(0.1 * np.sqrt(3 * 96))
    assert "R = " in per_step and "episodes" in planned and "report.html" in reported and Path("report.html").is_file()

    capsys.readouterr()
    exec(compile(smaller(python), "page", "exec"), {})
    curve = ast.literal_eval(capsys.readouterr().out)
    assert list(curve) == [0.0, 0.5, 1.0, 2.0]
    assert -1008 <= curve[2.0] < curve[1.0] < curve[0.5] < curve[0.0] < 0


def test_no_day_of_the_thermostat_returns_less_than_the_page_says():
    space: dict = {}
    exec(blocks()[0][1].partition("gym.register")[0], space)
    for action in (-1.0, 1.0, 5.0):
        env = space["Thermostat"]()
        env.reset(seed=0)
        env.pressure = 95_000.0 if action > 0 else 107_000.0  # as warm, and as cold, as it gets
        rewards = [env.step(np.array([action]))[1] for _ in range(96)]
        assert min(rewards) >= -10.5 and sum(rewards) >= -1008
