"""The plot command: certificates of one task on one picture and in one table."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from test_episode_logs import write_evaluation
from test_run_folder import make_run, noise

import sb3_camp
from sb3_camp.certification.figures import certificate_figure, default_labels
from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.plot import main, value_at


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


def made_certificate(**changes: Any) -> dict[str, Any]:
    return {
        "algo": "dqn",
        "env_id": "Made-v0",
        "sigma": 0.4,
        "method": "berk-jones",
        "alpha": 0.05,
        "n_episodes": 100,
        "min_return": 0.0,
        "mean_return": 9.0,
        "radii": [0.0, 0.5, 1.0],
        "certified_return": [8.0, 5.0, 2.0],
        **changes,
    }


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


def curves(figure: Figure, panel: int = 0) -> list[Any]:
    """The curves of a panel, without the markers of the means."""
    return [line for line in figure.axes[panel].get_lines() if line.get_drawstyle() == "steps-pre"]


def legend(figure: Figure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].get_legend().get_texts()]


# The command


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


def test_value_between_two_radii_is_that_of_the_larger():
    certificate = {"radii": [0.0, 0.5, 1.0], "certified_return": [9.0, 5.0, 2.0]}
    assert [value_at(certificate, radius) for radius in (0, 0.1, 0.5, 0.500001, 1.0)] == [9.0, 5.0, 5.0, 2.0, 2.0]
    assert value_at(certificate, 1.0001) is None


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


def test_refuses_different_environments(tmp_path, runs, capsys):
    other = make_run(tmp_path / "logs", "CartPole-v0", env_wrapper=[noise(0.4)])
    write_evaluation(other / "certification/evaluations.npz", [9.0, 8.0], env_id="CartPole-v0")
    assert certify([str(other)]) == 0
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
        ({"radii": [float("nan")], "certified_return": [1]}, "radii must be a list of numbers"),
        ({"sigma": None}, "sigma must be a number"),
        ({"sigma": 0.0}, "sigma cannot be 0.0"),
        ({"alpha": 1.5}, "alpha cannot be 1.5"),
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


# The figure


def test_a_curve_is_never_above_the_certificate():
    figure = certificate_figure([made_certificate(), made_certificate(radii=[0.5, 1.0], certified_return=[5.0, 2.0])])
    first, second = curves(figure)
    np.testing.assert_array_equal(first.get_xydata(), [[0, 8], [0.5, 5], [1, 2]])
    # what holds at the first radius holds for all smaller ones
    np.testing.assert_array_equal(second.get_xydata(), [[0, 5], [0.5, 5], [1, 2]])
    path = first.get_path().vertices  # the staircase itself
    np.testing.assert_array_equal(path, [[0, 8], [0, 5], [0.5, 5], [0.5, 2], [1, 2]])


def test_the_only_radius_0_is_seen():
    figure = certificate_figure([made_certificate(radii=[0.0], certified_return=[8.0])])
    assert curves(figure)[0].get_marker() == "."


def test_the_mean_is_marked_at_radius_0_in_the_colour_of_its_curve():
    figure = certificate_figure([made_certificate(), made_certificate(mean_return=7.0)])
    marked = [line for line in figure.axes[0].get_lines() if line not in curves(figure)]
    assert [line.get_xydata().tolist() for line in marked] == [[[0, 9]], [[0, 7]]]
    assert [line.get_color() for line in marked] == [line.get_color() for line in curves(figure)]
    assert all(line.get_marker() not in ("", "None") for line in marked)


def test_curves_differ_in_colour_and_line_and_neighbours_in_both():
    figure = certificate_figure([made_certificate()] * 28)
    styles = [(line.get_color(), line.get_linestyle()) for line in curves(figure)]
    assert len(set(styles)) == 28
    for one, other in pairwise(styles):
        assert one[0] != other[0] and one[1] != other[1]
    # also in grey: no colour is as light as the paper
    assert max(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) for colour, _ in styles) < 0.75
    with pytest.raises(InputError, match="at most 28"):
        certificate_figure([made_certificate()] * 29)


@pytest.mark.parametrize(
    ("changes", "mark", "common"),
    [
        ({}, "", "berk-jones, alpha 0.05, 100 episodes, no return below 0"),
        ({"method": "dkw"}, " (dkw)", "alpha 0.05, 100 episodes, no return below 0"),
        ({"alpha": 0.001}, " (alpha 0.001)", "berk-jones, 100 episodes, no return below 0"),
        ({"n_episodes": 5}, " (5 episodes)", "berk-jones, alpha 0.05, no return below 0"),
        ({"min_return": -1.0}, " (no return below -1)", "berk-jones, alpha 0.05, 100 episodes"),
        ({"method": "dkw", "n_episodes": 5}, " (dkw, 5 episodes)", "alpha 0.05, no return below 0"),
    ],
)
def test_what_is_alike_is_the_title_and_what_differs_is_in_the_legend(changes, mark, common):
    figure = certificate_figure([made_certificate(), made_certificate(**changes)], ["a", "b"])
    texts = legend(figure)
    assert texts[1] == f"b{mark}"
    assert figure.get_suptitle() == common
    assert (texts[0] == "a") == (not changes)
    assert figure.axes[0].get_ylim()[0] == min(0.0, changes.get("min_return", 0.0))


def test_panels_by_sigma_ascend_and_one_label_has_one_colour():
    made = [made_certificate(sigma=sigma) for sigma in (0.4, 0.2, 0.2, 0.4, 0.6, 0.8)]
    figure = certificate_figure(made, ["CAMP", "DQN", "CAMP", "DQN", "CAMP", "CAMP"], by="sigma")
    assert [axes.get_title() for axes in figure.axes] == ["sigma 0.2", "sigma 0.4", "sigma 0.6", "sigma 0.8"]
    assert [legend(figure, panel) for panel in range(4)] == [["DQN", "CAMP"], ["CAMP", "DQN"], ["CAMP"], ["CAMP"]]
    colours = {
        (text, line.get_color(), line.get_linestyle())
        for panel in range(4)
        for text, line in zip(legend(figure, panel), curves(figure, panel), strict=True)
    }
    assert len(colours) == 2
    with pytest.raises(InputError, match="labels must be distinct"):
        certificate_figure(made, ["CAMP"] * 6, by="sigma")
    assert default_labels(made, by="sigma") == [
        "dqn, Made-v0 (1)",
        "dqn, Made-v0 (1)",
        "dqn, Made-v0 (2)",
        "dqn, Made-v0 (2)",
        "dqn, Made-v0",
        "dqn, Made-v0",
    ]


def test_pixels_divide_radii_and_say_so():
    made = made_certificate(sigma=12.75, radii=[0.0, 25.5, 51.0])
    figure = certificate_figure([made], pixels=True)
    np.testing.assert_allclose(curves(figure)[0].get_xdata(), [0, 0.1, 0.2])
    assert figure.get_supxlabel().endswith("in pixel values / 255")
    assert legend(figure) == ["dqn, Made-v0, sigma 12.75/255"]
    assert "255" not in certificate_figure([made]).get_supxlabel()
    assert certificate_figure([made], ["a"], pixels=True, by="sigma").axes[0].get_title() == "sigma 12.75/255"


def test_names_are_set_as_they_stand_and_labels_may_hold_mathematics(tmp_path):
    hostile = made_certificate(env_id=r"$\nonsense$", method=r"$\nonsense$")
    certificate_figure([hostile, {**hostile, "method": "dkw"}]).savefig(tmp_path / "a.png")
    certificate_figure([hostile]).savefig(tmp_path / "a.png")
    figure = certificate_figure([made_certificate()] * 2, [r"$\lambda = 1$", "_hidden"])
    assert [text.strip() for text in legend(figure)] == [r"$\lambda = 1$", "_hidden"]
    figure.savefig(tmp_path / "a.png")


def test_the_figure_refuses_what_cannot_be_compared():
    with pytest.raises(InputError, match=r"certificate 2: .* Other-v0, not comparable with certificate 1 for Made-v0"):
        certificate_figure([made_certificate(), made_certificate(env_id="Other-v0")])
    with pytest.raises(InputError, match="no certificate"):
        certificate_figure([])
