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
from support.logs import write_evaluation
from support.run_folders import make_run, noise

import sb3_camp
from sb3_camp.certify import main as certify
from sb3_camp.plot import main


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two certified runs with different noise."""
    tmp_path = tmp_path_factory.mktemp("runs")
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


def plot(*args: Any) -> int:
    return main(["certificate", *map(str, args)])


def error_line(capsys: pytest.CaptureFixture, *args: Any) -> str:
    capsys.readouterr()
    assert plot(*args) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("plot: error: ") and printed.err.count("\n") == 1
    return printed.err


def table_of(output: str) -> list[list[str]]:
    lines = output.splitlines()
    start = lines.index("certified return")
    return [line.split() for line in lines[start + 2 :] if line.startswith(" ")]


def in_process(folder: Path, *args: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(Path(sb3_camp.__file__).parents[1])}
    command = [sys.executable, "-m", "sb3_camp.plot", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_command_draws_and_prints_side_by_side(tmp_path, runs):
    done = in_process(tmp_path, "certificate", *map(str, runs), "-o", "new/both.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[1] dqn, CartPole-v1, sigma 0.4: 200 episodes, berk-jones, confidence 95 %" in done.stdout
    assert "[2] dqn, CartPole-v1, sigma 0.2" in done.stdout
    assert "differ" not in done.stdout
    assert matplotlib.image.imread(tmp_path / "new/both.png").std() > 0
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["both.png"]
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


def test_without_a_kind_of_picture_the_command_says_which_there_are(tmp_path, runs):
    for args in ([], [str(runs[0])]):
        done = in_process(tmp_path, *args)
        assert done.returncode == 2 and "certificate" in done.stderr and "Traceback" not in done.stderr


def test_takes_files_folders_and_labels(tmp_path, runs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    paths = [runs[0] / "certification/certificate.json", runs[1] / "certification", runs[0]]
    assert plot(*paths, "--labels", "a", "b", "c") == 0
    assert (tmp_path / "certificates.png").is_file()
    output = capsys.readouterr().out
    assert [line.split(":")[0] for line in output.splitlines() if line.startswith("[")] == ["[1] a", "[2] b", "[3] c"]
    rows = table_of(output)
    assert len(rows) == 13 and all(row[1] == row[3] for row in rows)
    assert plot(*paths) == 0
    output = capsys.readouterr().out
    assert "[1] dqn, CartPole-v1, sigma 0.4 (1):" in output and "[3] dqn, CartPole-v1, sigma 0.4 (2):" in output


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_the_ending_of_the_file_chooses_the_kind_of_picture(tmp_path, runs, ending, start):
    picture = tmp_path / f"curves{ending}"
    assert plot(*runs, "-o", picture) == 0
    content = picture.read_bytes()
    assert content.startswith(start)
    if ending.lower() == ".pdf":
        assert b"/Type3" not in content


def test_the_picture_follows_no_link_and_says_where_it_cannot_be_written(tmp_path, runs, capsys):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("curves.png", ".curves.partial.png"):
        (tmp_path / name).symlink_to(victim)
    assert plot(*runs, "-o", tmp_path / "curves.png") == 0
    assert victim.read_text() == "precious" and (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    line = error_line(capsys, *runs, "-o", victim / "curves.png")
    assert f"cannot write {victim / 'curves.png'}: " in line and "choose another folder with -o" in line


def test_pixels_and_panels_reach_the_table_and_the_picture(tmp_path, runs, capsys):
    assert plot(*runs, "-o", tmp_path / "plain.svg") == 0
    plain = table_of(capsys.readouterr().out)
    assert plot(*runs, "-o", tmp_path / "panels.svg", "--pixels", "--by", "sigma", "--labels", "CAMP", "CAMP") == 0
    output = capsys.readouterr().out
    assert "[1] CAMP, sigma 0.4:" in output and "[2] CAMP, sigma 0.2:" in output and "radius/255" in output
    for row, scaled in zip(plain, table_of(output), strict=True):
        assert float(scaled[0]) == pytest.approx(float(row[0]) / 255, rel=1e-4) and scaled[1:] == row[1:]
    # each panel has a frame of its own
    frames = [(tmp_path / name).read_text().count('id="axes_') for name in ("plain.svg", "panels.svg")]
    assert frames == [1, 2]


def test_says_what_certificates_differ_in(tmp_path, runs, capsys):
    assert certify([str(runs[1]), "--method", "dkw", "--alpha", "0.01", "-o", str(tmp_path)]) == 0
    capsys.readouterr()
    assert plot(runs[0], tmp_path, "-o", tmp_path / "curves.png") == 0
    output = capsys.readouterr().out
    assert "They differ in: method, alpha\n" in output and "[2] dqn, CartPole-v1, sigma 0.2: 200 episodes, dkw" in output


def test_warns_of_a_log_that_has_changed_since(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    log = write_evaluation(run / "certification/evaluations.npz", [9.0, 8.0])
    monkeypatch.chdir(tmp_path)
    assert certify([str(run.relative_to(tmp_path))]) == 0
    options = ("-o", tmp_path / "curves.png")

    def warnings() -> str:
        capsys.readouterr()
        assert plot(run, *options) == 0
        return capsys.readouterr().err

    assert warnings() == ""
    write_evaluation(log, [9.0, 9.0], seed=1)
    other = write_evaluation(tmp_path / "else" / run.relative_to(tmp_path) / "certification/evaluations.npz", [7.0])
    for folder in (tmp_path, tmp_path / "dqn", tmp_path / "else"):  # the certificate has a relative path
        monkeypatch.chdir(folder)
        line = warnings()
        assert (
            line.startswith(f"plot: warning: {run / 'certification/certificate.json'}: older than ") and line.count("\n") == 1
        )
        assert "evaluations.npz, which has changed since: certify again" in line
    assert certify([str(run)]) == 0
    assert warnings() == ""
    log.unlink()
    other.unlink()
    assert warnings() == ""


def test_logs_of_one_name_that_were_pooled_are_not_mixed_up(tmp_path, capsys, monkeypatch):
    for name, value in (("a", 9.0), ("b", 8.0)):
        write_evaluation(tmp_path / "logs" / name / "evaluations.npz", [value], seed=ord(name))
    monkeypatch.chdir(tmp_path / "logs")
    assert certify(["a", "b"]) == 0
    for folder in (tmp_path, tmp_path / "logs/a"):
        monkeypatch.chdir(folder)
        capsys.readouterr()
        assert plot(tmp_path / "logs/a", "-o", tmp_path / "curves.png") == 0
        assert capsys.readouterr().err == ""


def test_tasks_that_differ_under_one_name_are_told_apart(tmp_path, runs, capsys):
    other = write_evaluation(tmp_path / "a.npz", [9.0, 8.0], env_kwargs='{"length": 2}', clean_keys='["a"]')
    assert certify([str(other), "--min-return", "0"]) == 0
    capsys.readouterr()
    assert plot(runs[0], tmp_path, "-o", tmp_path / "curves.png") == 0
    output = capsys.readouterr().out
    assert "They differ in: number of episodes, env_kwargs\n" in output
    assert 'env_kwargs of [1]: {}\nenv_kwargs of [2]: {"length": 2}\n' in output
    assert "[2] dqn, CartPole-v1, sigma 0.4 (2): 2 episodes, berk-jones, confidence 95 %, not covered: entries a\n" in output


def test_refuses_different_environments(tmp_path, runs, capsys):
    other = make_run(tmp_path / "logs", "CartPole-v0", env_wrapper=[noise(0.4)])
    write_evaluation(other / "certification/evaluations.npz", [9.0, 8.0], env_id="CartPole-v0")
    assert certify([str(other), "--min-return", "0"]) == 0
    line = error_line(capsys, runs[0], other)
    assert str(other / "certification/certificate.json") in line and "CartPole-v0" in line and "CartPole-v1" in line


def test_refuses_a_folder_without_a_certificate_and_bad_options(tmp_path, runs, capsys):
    assert f"{tmp_path}: no certificate.json" in error_line(capsys, tmp_path)
    assert "No such file" in error_line(capsys, tmp_path / "missing.json")
    assert "labels: 1 for 2" in error_line(capsys, *runs, "--labels", "a")
    assert "labels must be distinct" in error_line(capsys, *runs, "--labels", "a", "a")
    assert r"labels: '$\\nonsense$'" in error_line(capsys, *runs, "--labels", "a", r"$\nonsense$")
    assert "must be a .png, .pdf or .svg file" in error_line(capsys, *runs, "-o", tmp_path / "certificate.json")
    assert not (tmp_path / "certificate.json").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "other"}, "not a certificate"),
        ({"radii": []}, "radii must ascend"),
        ({"radii": [0, 1], "certified_return": [1]}, "radii must ascend"),
        ({"radii": [1, 0], "certified_return": [1, 1]}, "radii must ascend"),
        ({"radii": [-1, 0], "certified_return": [1, 1]}, "radii must be at least 0"),
        ({"radii": [0, 1], "certified_return": [1, 2]}, "radii must be at least 0, and certified_return must not rise"),
        ({"certified_return": ["1"]}, "certified_return must be a list of numbers"),
        ({"radii": [float("nan")], "certified_return": [1]}, "not JSON: NaN is not a number of JSON"),
        ({"sigma": None}, "sigma must be a number"),
        ({"sigma": 0.0}, "sigma cannot be 0.0"),
        ({"alpha": 1.5}, "alpha cannot be 1.5"),
        ({"mean_return": True}, "mean_return must be a number"),
        ({"method": 1}, "method must be a text"),
        ({"sigma": 10**400}, "sigma must be a number"),
        ({"radii": [0, 10**400], "certified_return": [1, 1]}, "radii must be a list of numbers"),
        ({"env_kwargs": [1]}, "env_kwargs must be an object or null"),
        ({"env_wrappers": "a"}, "env_wrappers must be an object or null"),
        ({"clean_keys": "a"}, "clean_keys must be a list of texts or null"),
        ({"clean_keys": [1]}, "clean_keys must be a list of texts or null"),
        ({"sources": None}, "sources must be a list of objects"),
        ({"sources": [{"path": "a"}]}, "sources must be a list of objects"),
    ],
)
def test_refuses_an_unsound_certificate(tmp_path, runs, capsys, changes, reason):
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({**certificate_of(runs[0]), **changes}))
    assert f"{path}: {reason}" in error_line(capsys, runs[0], path)
    path.write_text("{")
    assert f"{path}: not JSON" in error_line(capsys, path)
