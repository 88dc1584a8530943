"""The plot command: certificates of one task on one picture and in one table."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from test_episode_logs import write_evaluation
from test_run_folder import make_run, noise

import sb3_camp
from sb3_camp.certify import main as certify
from sb3_camp.plot import main, value_at


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two certified runs with different noise."""
    runs = []
    for number, (sigma, shift) in enumerate(((0.4, 0), (0.2, 30)), start=1):
        run = make_run(tmp_path / "logs", number=number, env_wrapper=[noise(sigma)])
        returns = np.random.default_rng(number).integers(20, 150, 200) + shift
        write_evaluation(run / "certification/evaluations.npz", returns, sigma=sigma)
        assert certify([str(run)]) == 0
        runs.append(run)
    return runs


def certificate_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "certification/certificate.json").read_text())


def error_line(capsys: pytest.CaptureFixture, *args: Any) -> str:
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("plot: error: ") and printed.err.count("\n") == 1
    return printed.err


def table_of(output: str) -> list[list[str]]:
    lines = output.splitlines()
    start = lines.index("certified return")
    return [line.split() for line in lines[start + 2 :] if line.startswith("  ")]


def test_the_command_draws_and_prints_side_by_side(tmp_path, runs):
    environment = {**os.environ, "PYTHONPATH": str(Path(sb3_camp.__file__).parents[1])}
    command = [sys.executable, "-m", "sb3_camp.plot", *map(str, runs), "-o", "new/both.png"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[1] dqn, CartPole-v1, sigma 0.4: 200 episodes, berk-jones, confidence 95 %" in done.stdout
    assert "[2] dqn, CartPole-v1, sigma 0.2" in done.stdout
    assert matplotlib.image.imread(tmp_path / "new/both.png").std() > 0
    first, second = map(certificate_of, runs)
    rows = table_of(done.stdout)
    assert [float(row[0]) for row in rows] == pytest.approx(np.linspace(0, 1.2, 13), rel=1e-5)
    for row, index in zip(rows, range(0, 121, 10), strict=True):
        assert 0 <= first["certified_return"][index] - float(row[1]) <= 1e-3
        if first["radii"][index] > second["radii"][-1]:
            assert row[2] == "-"
        else:
            # never above what the certificate says at the next radius that it holds
            later = [v for r, v in zip(second["radii"], second["certified_return"], strict=True) if r >= first["radii"][index]]
            assert 0 <= later[0] - float(row[2]) <= 1e-3


def test_value_between_two_radii_is_that_of_the_larger():
    certificate = {"radii": [0.0, 0.5, 1.0], "certified_return": [9.0, 5.0, 2.0]}
    assert [value_at(certificate, radius) for radius in (0, 0.1, 0.5, 0.500001, 1.0)] == [9.0, 5.0, 5.0, 2.0, 2.0]
    assert value_at(certificate, 1.0001) is None


def test_takes_files_folders_and_labels(tmp_path, runs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    paths = [runs[0] / "certification/certificate.json", runs[1] / "certification", runs[0]]
    assert main([*map(str, paths), "--labels", "a", "b", "c"]) == 0
    assert (tmp_path / "certificates.png").is_file()
    output = capsys.readouterr().out
    assert [line.split(":")[0] for line in output.splitlines() if line.startswith("[")] == ["[1] a", "[2] b", "[3] c"]
    rows = table_of(output)
    assert len(rows) == 13 and all(row[1] == row[3] for row in rows)
    assert main([*map(str, paths)]) == 0
    output = capsys.readouterr().out
    assert "[1] dqn, CartPole-v1, sigma 0.4 (1):" in output and "[3] dqn, CartPole-v1, sigma 0.4 (2):" in output


def test_refuses_different_environments(tmp_path, runs, capsys):
    other = make_run(tmp_path / "logs", "CartPole-v0", env_wrapper=[noise(0.4)])
    write_evaluation(other / "certification/evaluations.npz", [9.0, 8.0], env_id="CartPole-v0")
    assert certify([str(other)]) == 0
    line = error_line(capsys, runs[0], other)
    assert str(other / "certification/certificate.json") in line and "CartPole-v0" in line and "CartPole-v1" in line


def test_refuses_a_folder_without_a_certificate_and_bad_options(tmp_path, runs, capsys):
    assert f"{tmp_path}: no certificate.json" in error_line(capsys, tmp_path)
    assert "No such file" in error_line(capsys, tmp_path / "missing.json")
    assert "--labels: 1 for 2" in error_line(capsys, *runs, "--labels", "a")
    assert "--labels must be distinct" in error_line(capsys, *runs, "--labels", "a", "a")
    assert "must be a .png" in error_line(capsys, *runs, "-o", tmp_path / "certificate.json")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "other"}, "not a certificate"),
        ({"radii": []}, "radii must ascend"),
        ({"radii": [0, 1], "certified_return": [1]}, "radii must ascend"),
        ({"radii": [1, 0], "certified_return": [1, 1]}, "radii must ascend"),
        ({"certified_return": ["1"]}, "certified_return must be a list of numbers"),
        ({"radii": [float("nan")], "certified_return": [1]}, "radii must be a list of numbers"),
        ({"sigma": None}, "sigma must be a number"),
        ({"mean_return": True}, "mean_return must be a number"),
        ({"method": 1}, "method must be a text"),
    ],
)
def test_refuses_an_unsound_certificate(tmp_path, runs, capsys, changes, reason):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({**certificate_of(runs[0]), **changes}))
    assert f"{path}: {reason}" in error_line(capsys, runs[0], path)
    path.write_text("{")
    assert f"{path}: not JSON" in error_line(capsys, path)
