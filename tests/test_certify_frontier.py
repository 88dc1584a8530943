"""``certify --frontier`` and ``--plan``: as the library has them, with one joint alpha."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.certify_runs import certify, error_line
from support.logs import write_evaluation, write_monitor
from support.run_folders import noise

from sb3_camp.certification import certified_frontier, certified_return, plan_episodes
from sb3_camp.certification.frontier_files import frontier_figure, read_frontier
from sb3_camp.errors import InputError
from sb3_camp.plot import main as plot

SIGMAS = [0.4, 0.1, 0.2]
RETURNS = [np.random.default_rng(i).binomial(200, p, 300).astype(float) for i, p in enumerate((0.5, 0.7, 0.64))]


def evaluations(folder: Path, **changes: Any) -> list[Path]:
    return [
        write_evaluation(folder / name / "evaluations.npz", returns, sigma=sigma, **changes)
        for name, sigma, returns in zip("abc", SIGMAS, RETURNS, strict=True)
    ]


@pytest.mark.parametrize("method", ["berk-jones", "dkw"])
def test_the_frontier_is_the_librarys(tmp_path, capsys, method):
    paths = evaluations(tmp_path)
    assert certify("--frontier", *paths, "--method", method, "-o", tmp_path / "out") == 0
    content = json.loads((tmp_path / "out" / "frontier.json").read_text())
    frontier = certified_frontier(RETURNS, SIGMAS, content["radii"], method=method)
    np.testing.assert_allclose(content["certified_return"], frontier.certified_return, rtol=1e-12)
    assert content["best"] == frontier.best.tolist() and set(content["best"]) == {0, 1, 2}
    assert (content["alpha"], [one["alpha"] for one in content["certificates"]]) == (0.05, [0.05 / 3] * 3)
    assert [one["sigma"] for one in content["certificates"]] == SIGMAS and content["radii"][-1] == pytest.approx(1.2)
    np.testing.assert_allclose([one["certified_return"] for one in content["certificates"]], frontier.curves, rtol=1e-12)
    table = pd.read_csv(tmp_path / "out" / "frontier.csv", float_precision="round_trip")
    assert table["certified_return"].tolist() == content["certified_return"]
    assert table["sigma"].tolist() == [SIGMAS[index] for index in content["best"]] and set(table["alpha"]) == {0.05}

    out = capsys.readouterr().out
    assert "Confidence 95 % for all evaluations and radii together, each at alpha 0.0166667\n" in out
    assert "Assumed: they were listed before they were played, and all that were listed are here\n" in out
    rows = re.findall(r"^ +(\S+) +(\S+) +\[(\d)\] +(\S+) +(\S+) +(\S+)$", out, re.M)
    for row, index in zip(rows, range(0, 121, 10), strict=True):
        assert 0 <= frontier.certified_return[index] - float(row[1]) <= 1.001e-3
        assert int(row[2]) == content["best"][index] + 1


def test_settings_that_differ_are_shown_with_their_values_but_not_the_sigmas_that_are_compared(tmp_path, capsys):
    files = evaluations(tmp_path)
    for file, sigma, returns, more in zip(files, SIGMAS, RETURNS, ({}, {}, {"gravity": 3}), strict=True):
        write_evaluation(file, returns, sigma=sigma, env_kwargs=json.dumps({"sigma": sigma, **more}))
    assert certify("--frontier", *files[:2], "--min-return", 0, "-o", tmp_path / "out") == 0
    assert "They differ in" not in capsys.readouterr().out
    assert certify("--frontier", *files, "--min-return", 0, "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "They differ in: env_kwargs\nenv_kwargs of [1]: {}\n" in out
    assert 'env_kwargs of [3]: {"gravity": 3}\nWhere these change rewards or the game itself' in out


def test_a_policy_that_samples_its_actions_is_told_from_the_greedy_one(tmp_path, capsys):
    files = evaluations(tmp_path)
    for file, sigma, returns, greedy in zip(files, SIGMAS, RETURNS, (True, False, True), strict=True):
        write_evaluation(file, returns, sigma=sigma, deterministic=greedy)
    assert certify("--frontier", *files, "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "They differ in: choice of actions\ngreedy actions of [1]\nsampled actions of [2]\ngreedy actions of [3]\n" in out
    assert "Where these change rewards" not in out


def test_what_was_written_is_read_and_drawn_again(tmp_path, capsys):
    paths = evaluations(tmp_path)
    assert certify("--frontier", *paths, "-o", tmp_path / "out") == 0
    certified = capsys.readouterr().out
    file = tmp_path / "out" / "frontier.json"
    frontier, content = read_frontier(file), json.loads(file.read_text())
    assert frontier.as_json() == content and frontier.certificates[1].sigma == 0.1
    for path in (file, file.parent):
        assert plot(["frontier", str(path), "-o", str(tmp_path / "again.png")]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[:-1] == certified.splitlines()[:-1]
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "out" / "frontier.png").read_bytes()

    def broken(**changes: Any) -> str:
        other = tmp_path / "other.json"
        other.write_text(json.dumps({**content, **changes}))
        with pytest.raises(InputError) as error:
            read_frontier(other)
        assert str(error.value).startswith(str(other)) and "\n" not in str(error.value)
        return str(error.value)

    first, *others = content["certificates"]
    assert "not a frontier of the format" in broken(format="sb3_camp-certificate-1")
    assert "an alpha in (0, 1)" in broken(alpha=0)
    assert "an alpha in (0, 1)" in broken(certificates=[])
    assert "take more alpha than 0.04" in broken(alpha=0.04)
    assert "certificate 2: " in broken(certificates=[first, {}])
    assert "not at the same radii" in broken(certificates=[{**first, "radii": [2 * r for r in first["radii"]]}, *others])
    assert "not comparable with" in broken(certificates=[{**first, "env_id": "Other-v0"}, *others])
    assert "radii is not that of its certificates" in broken(radii=[])
    higher = [value + 1 for value in content["certified_return"]]
    assert "certified_return is not that of its certificates" in broken(certified_return=higher)
    assert "best is not that of its certificates" in broken(best=[0] * len(content["best"]))


def test_the_picture_has_all_curves_and_none_above_the_best(tmp_path):
    from sb3_camp.certification.assumptions import find_evidence
    from sb3_camp.certification.frontier_files import build_frontier
    from sb3_camp.certification.pooling import read_logs

    evidences = [find_evidence(read_logs([path]), None, None) for path in evaluations(tmp_path)]
    frontier = build_frontier(evidences, [None] * 3, np.linspace(0, 1, 5), alpha=0.05, method="dkw")
    lines = [line for line in frontier_figure(frontier).axes[0].get_lines() if line.get_drawstyle() == "steps-pre"]
    assert len(lines) == 4 and lines[3].get_ydata().tolist() == frontier.certified_return
    assert np.all(np.max([line.get_ydata() for line in lines[:3]], axis=0) == lines[3].get_ydata())


def test_the_frontier_refuses_what_cannot_be_compared_or_would_be_lost(tmp_path, capsys, monkeypatch):
    first, second, third = evaluations(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert f"{first}: the same episodes as in {first}" in error_line(capsys, "--frontier", first, second, first)
    write_evaluation(third, RETURNS[2], env_id="CartPole-v0")
    assert f"{third}: an evaluation in CartPole-v0" in error_line(capsys, "--frontier", first, second, third)
    write_evaluation(third, RETURNS[2], clean_keys='["a"]')
    assert f"{third}: its clean_keys: ['a'], those of" in error_line(capsys, "--frontier", first, second, third)
    write_evaluation(third, RETURNS[2], sigma=1.0, sensor_sigma="[0.1, 0.2]")
    assert f"{third}: its sigma of each sensor is not that of" in error_line(capsys, "--frontier", first, second, third)
    wrappers = [{"any.Scale": {"by": 2}}, noise(0.2)]
    write_evaluation(third, RETURNS[2], sigma=0.2, env_wrappers=json.dumps({"env_wrapper": wrappers}))
    line = error_line(capsys, "--frontier", first, second, third)
    assert f"{third}: its wrappers inside of the noise: [('any.Scale'," in line and "different units" in line
    assert "alpha must lie strictly between 0 and 1" in error_line(capsys, "--frontier", first, second, "--alpha", 2)
    assert "--targets cannot be used with --frontier" in error_line(capsys, "--frontier", first, second, "--targets", 3)
    assert not (tmp_path / "frontier").exists()
    assert certify("--frontier", first, second) == 0
    capsys.readouterr()
    assert "frontier.json: there already" in error_line(capsys, "--frontier", first, second)
    assert certify("--frontier", first, second, "-o", "frontier") == 0


def test_an_assumed_sigma_is_named_in_a_frontier(tmp_path, capsys):
    log = write_monitor(tmp_path / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    other = write_evaluation(tmp_path / "evaluations.npz", [3.0, 4.0], sigma=0.2)
    options = ["--sigma", 0.2, "--min-return", 0, "-o", tmp_path / "out"]
    assert certify("--frontier", log, other, *options) == 0
    first, second = re.findall(r"^\[\d\] .*$", capsys.readouterr().out, re.M)
    assert first.endswith(", sigma assumed, independence of the episodes assumed") and "assumed" not in second


def test_the_plan_is_the_librarys_and_nothing_is_written(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS[0])
    for target in (70, 90, 150):
        assert certify(path, "--plan", "--target", target, "--radius", 0.3, "--alpha", 0.01) == 0
        plan = plan_episodes(RETURNS[0], 0.4, target, 0.3, alpha=0.01)
        out = capsys.readouterr().out
        bound = float(certified_return(RETURNS[0], 0.4, 0.3, alpha=0.01))
        (shown,) = re.findall(r"^These 300 episodes certify (\S+) at radius 0.3 with confidence 99 %$", out, re.M)
        assert 0 <= bound - float(shown) <= 1.001e-3
        if plan.n_episodes is None:
            assert "No number of episodes" in out
        else:
            assert f"About {plan.n_episodes} episodes would certify {target} there" in out
    assert plan.n_episodes is None
    assert [file.name for file in tmp_path.iterdir()] == ["evaluations.npz"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--plan"], "--plan needs --target and --radius"),
        (["--plan", "--target", "3"], "--plan needs --target and --radius"),
        (["--plan", "--target", "3", "--radius", "0.1", "--radii", "1"], "--radii cannot be used with --plan"),
        (["--plan", "--target", "3", "--radius", "0.1", "--cvar", "0.1"], "--cvar cannot be used with --plan"),
        (["--plan", "--target", "3", "--radius", "0.1", "--frontier"], "--plan and --frontier exclude each other"),
        (["--plan", "--target", "-3", "--radius", "0.1"], "target must be finite and above min_return=0"),
        (["--plan", "--target", "3", "--radius", "-0.1"], "radii must be numbers >= 0"),
        (["--target", "3"], "--target is for --plan"),
        (["--radius", "3"], "--radius is for --plan"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(tmp_path, capsys, options, reason):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS[0])
    assert reason in error_line(capsys, path, *options)
