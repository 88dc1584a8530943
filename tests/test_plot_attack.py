"""The pictures of attacks, alone and beside a certificate, and the intervals that they show."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import matplotlib.image
import numpy as np
import pytest
from scipy import stats
from support.attack_agents import write_certificate
from support.attacked_results import HOW, PLAYED, POLICY
from support.evaluate_runs import environment

from sb3_camp.attack_runs.attack_figure import attack_figure, default_labels
from sb3_camp.attack_runs.attack_files import read_attack, write_attack
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, BudgetResult, attack_result
from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes
from sb3_camp.attack_runs.consistency import compare
from sb3_camp.certification.certificate import Certificate, read_certificate
from sb3_camp.errors import InputError
from sb3_camp.evaluation import Episodes
from sb3_camp.plot import main

SETTINGS = {**POLICY, **HOW, **PLAYED, "versions": {}}

EVALUATED = np.random.default_rng(0).uniform(10, 100, 1000)
"""Returns of an evaluation, to which those of the attacks below are no contradiction"""


def write(folder, means=(90.0, 60.0, 30.0), budgets=(0.0, 0.5, 1.0), n_episodes=40, **settings):
    """An attack whose returns are spread evenly by 10 around each mean."""
    returns = np.concatenate([mean + np.linspace(-10, 10, n_episodes) for mean in means])
    n = returns.size
    played = AttackedEpisodes(
        Episodes(returns, returns.astype(int), np.ones(n)), np.repeat(budgets, n_episodes) * 0.9, np.ones(n, dtype=int)
    )
    attack = attack_result(AttackSettings(**{**SETTINGS, "n_episodes": n_episodes, **settings}), budgets, played)
    write_attack(attack, played, folder)
    return folder


def changed(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def plot(kind, *args):
    return main([kind, *map(str, args)])


def error_line(capsys, *args):
    capsys.readouterr()
    assert plot(*args) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("plot: error: ") and printed.err.count("\n") == 1
    return printed.err


def table(output):
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("mean return"))
    return [line.split() for line in lines[start + 2 :] if line.startswith(" ")]


@pytest.fixture
def run(tmp_path):
    """A run that was certified and attacked, also without noise, and after more training."""
    run = tmp_path / "run"
    attack = asdict(read_attack(write(run / "attacks" / "pgd_sigma0.4") / "attack.json").settings)
    write(run / "attacks" / "pgd_sigma0", means=(200.0, 9.0, 8.0), sigma=0.0)
    write(run / "attacks" / "other", model_sha256="1" * 64)
    write_certificate(run / "certification" / "certificate.json", attack, [85.0, 55.0, 25.0], EVALUATED)
    return run


# Several attacks


def test_attacks_of_several_agents_stand_side_by_side(tmp_path, capsys):
    write(tmp_path / "a" / "attacks" / "pgd_sigma0.4")
    write(tmp_path / "a" / "attacks" / "apgd_sigma0.4", means=(90.0, 50.0), budgets=(0.0, 0.7), attack="apgd", n_episodes=60)
    write(tmp_path / "b", algo="ppo", sigma=0.0, env_wrappers={})
    picture = tmp_path / "new" / "attacks.png"
    assert plot("attack", tmp_path / "a", tmp_path / "b" / "attack.json", "-o", picture) == 0
    assert matplotlib.image.imread(picture).std() > 0
    output = capsys.readouterr().out
    labels = [line for line in output.splitlines() if line.startswith("[")]
    assert labels == [
        "[1] dqn, CartPole-v1, sigma 0.4, apgd: 60 episodes per budget",
        "[2] dqn, CartPole-v1, sigma 0.4, pgd: 40 episodes per budget",
        "[3] ppo, CartPole-v1, sigma 0, pgd: 40 episodes per budget",
    ]
    # the noise, which is in the label, makes no other task
    assert "They differ in: number of episodes\n" in output
    rows = table(output)
    assert [row[0] for row in rows] == ["0", "0.5", "0.7", "1"]
    assert rows[1][1] == "-" and rows[1][2] == "60.00" and rows[2][1] == "50.00" and rows[2][4] == "-"
    low, high = (float(text.strip("(,)")) for text in rows[1][3:5])
    assert low < 60 < high


def test_error_bars_are_the_confidence_intervals(tmp_path):
    attack = read_attack(write(tmp_path) / "attack.json")
    (axes,) = attack_figure([attack]).axes
    ((line, _, (bars,)),) = axes.containers
    np.testing.assert_array_equal(line.get_xdata(orig=False), [0, 0.5, 1])
    np.testing.assert_allclose(line.get_ydata(orig=False), [90, 60, 30])
    ends = [[segment[0][1], segment[1][1]] for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [one.confidence_interval for one in attack.budgets])
    (axes,) = attack_figure([attack], pixels=True).axes
    np.testing.assert_allclose(axes.containers[0][0].get_xdata(orig=False), np.array([0, 0.5, 1]) / 255)


def test_what_makes_a_comparison_unfair_stands_in_the_legend(tmp_path):
    changes = ({}, {"step_size": 0.02}, {"objective": "jeffreys"}, {"env_kwargs": {"length": 2}}, {"key": "signal"})
    attacks = [read_attack(write(tmp_path / str(i), **change) / "attack.json") for i, change in enumerate(changes)]
    assert default_labels(attacks)[1] == "dqn, CartPole-v1, sigma 0.4, pgd (2)"
    (axes,) = attack_figure(attacks, ["a", "b", "c", "d", "e"]).axes
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend[1] == "b (targeted, step size 0.02, env_kwargs none)"
    assert legend[2] == "c (jeffreys, default step size, env_kwargs none)"
    assert legend[3] == 'd (targeted, default step size, env_kwargs {"length": 2})'
    assert legend[4] == "e (targeted, default step size, env_kwargs none)"


def test_mixed_environments_and_bad_options_are_refused(tmp_path, capsys):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", env_id="Acrobot-v1")
    assert "an attack in Acrobot-v1, not comparable" in error_line(capsys, "attack", a, b)
    (tmp_path / "empty").mkdir()
    assert "no attack.json in it" in error_line(capsys, "attack", tmp_path / "empty")
    assert "No such file" in error_line(capsys, "attack", tmp_path / "missing.json")
    assert "labels: 1 for 2 attacks" in error_line(capsys, "attack", a, a, "--labels", "x")
    assert "must be a .png" in error_line(capsys, "attack", a, "-o", tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "other"}, "not an attack"),
        ({"algo": None}, "algo must be a text"),
        ({"sigma": "0.4"}, "sigma must be a number"),
        ({"n_episodes": 10**400}, "n_episodes must be a number"),
        ({"env_kwargs": None}, "env_kwargs must be an object"),
        ({"deterministic": None}, "deterministic must be true or false"),
        ({"clean_keys": [1]}, "clean_keys must be a list of texts"),
        ({"step_size": "a"}, "step_size must be a number or null"),
        ({"budgets": []}, "budgets must be a list of objects"),
        ({"budgets": [{"budget": 0, "mean_return": float("nan"), "confidence_interval": None}]}, "not JSON: NaN"),
        ({"budgets": [{"budget": 0, "mean_return": 1}]}, "budgets must be"),
        ({"budgets": [{"budget": 0, "mean_return": 1, "confidence_interval": [2, 1]}]}, "budgets must be"),
        (
            {"budgets": [{"budget": -1, "mean_return": 1, "confidence_interval": None}]},
            "the budgets must be at least 0 and ascend",
        ),
        (
            {"budgets": [{"budget": 1, "mean_return": 1, "confidence_interval": None}] * 2},
            "the budgets must be at least 0 and ascend",
        ),
    ],
)
def test_unsound_attack_is_refused(tmp_path, capsys, changes, reason):
    path = write(tmp_path) / "attack.json"
    changed(path, **changes)
    assert f"{path}: {reason}" in error_line(capsys, "attack", path)
    path.write_text("[")
    assert f"{path}: not JSON" in error_line(capsys, "attack", path)
    assert f"{path}: not JSON" in error_line(capsys, "both", path)


# With a certificate


def test_both_shows_the_attacks_that_the_certificate_speaks_of(run, tmp_path):
    python = os.path.join(os.path.dirname(sys.executable), "python")
    command = [python, "-m", "sb3_camp.plot", "both", str(run), "-o", "both.svg"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    left_out = [line for line in done.stdout.splitlines() if line.startswith("Left out: ")]
    assert len(left_out) == 2
    assert left_out[0].endswith("other/attack.json: the certificate is for another model file")
    assert left_out[1].endswith("pgd_sigma0/attack.json: its sigma is 0, that of the certificate 0.4")
    assert "No attack contradicts the certificate" in done.stdout
    assert [row[:3] for row in table(done.stdout)] == [
        ["0", "85.000", "90.00"],
        ["0.5", "55.000", "60.00"],
        ["1", "25.000", "30.00"],
    ]
    picture = (tmp_path / "both.svg").read_text()
    assert "certified (berk-jones, confidence 95 %)" in picture and "VIOLATION" not in picture


def test_violation_is_marked_and_is_an_error_of_status_3(run, tmp_path, capsys):
    file, certificate = run / "attacks" / "pgd_sigma0.4" / "attack.json", run / "certification" / "certificate.json"
    settings = asdict(read_attack(file).settings)
    # Where 1000 episodes have returned 80 to 100, a half and more do so at 2 sigma; but none of 40
    high = np.random.default_rng(0).uniform(80, 100, 1000)
    for evaluated, status in ((high, 3), (high - 35, 3), (high - 65, 0)):
        write_certificate(certificate, settings, [81.0, 70.0, 61.0], evaluated, radii=[0.0, 0.5, 1.5])
        capsys.readouterr()
        assert plot("both", run, "-o", tmp_path / "both.svg") == status
        printed = capsys.readouterr()
        assert ("VIOLATION" in (tmp_path / "both.svg").read_text()) == bool(status)
        assert ("No attack contradicts" in printed.out) == (not status)
        assert "Written: " in printed.out
        budgets = [budget for budget in ("0", "0.5", "1") if f"at budget {budget} " in printed.err]
        assert budgets == {0: ["0.5", "1"], 35: ["1"], 65: []}[round(high[0] - evaluated[0])]
        assert printed.err.count("\n") == bool(status)
    assert f"{file}: Inconclusive: the mean return is below the certified one at budget 0.5, 1 " in printed.out
    record = read_certificate(certificate)
    comparison = compare(read_attack(file), record, high)
    (axes,) = attack_figure([read_attack(file)], certificate=record, comparisons=[comparison]).axes
    marks = [line for line in axes.get_lines() if line.get_label().startswith("VIOLATION")]
    assert [line.get_xydata().round(6).tolist() for line in marks] == [[[0.5, 60.0], [1.0, 30.0]]]


def test_attacks_that_do_just_what_is_possible_are_rarely_called_a_contradiction():
    """Returns from the very distribution to which the best attack can bring an agent whose returns are uniform."""
    rng = np.random.default_rng(0)
    settings = AttackSettings(**{**SETTINGS, "n_episodes": 60})
    n_alarms, repetitions, sigma, radius = 0, 400, 0.4, 0.5
    fixed = {"alpha": 0.05, "method": "berk-jones", "min_return": 0.0, "n_episodes": 400, "mean_return": 0.5, "sources": []}
    certificate = Certificate(sigma=sigma, radii=[radius], certified_return=[0.2], **fixed)

    def contradicts(returns):
        attack = AttackResult(settings, (BudgetResult(radius, returns.mean(), None, returns=returns),))
        return bool(compare(attack, certificate, evaluated).violations)

    for _ in range(repetitions):
        evaluated = np.round(rng.uniform(size=400), 2)
        # P(return >= c) = Phi(Phi^-1(1 - c) - radius / sigma)
        worst = np.round(stats.norm.cdf(stats.norm.ppf(rng.uniform(size=60)) - radius / sigma), 2)
        n_alarms += contradicts(worst)
    assert n_alarms <= 0.05 * repetitions
    assert contradicts(0.5 * worst)


def test_budgets_beyond_the_certificate_and_lost_episodes_are_said_to_be_not_compared(run, tmp_path, capsys):
    certificate = run / "certification" / "certificate.json"
    changed(certificate, radii=[0.0, 0.4], certified_return=[85.0, 84.0])
    assert plot("both", run, "-o", tmp_path / "both.svg") == 0
    printed = capsys.readouterr().out
    file = run / "attacks" / "pgd_sigma0.4" / "attack.json"
    assert f"{file}: Not compared: budgets beyond its last radius 0.4: 0.5, 1\n" in printed
    changed(certificate, radii=[0.0, 1.0], certified_return=[85.0, 84.0])
    (run / "certification" / "evaluations.npz").unlink()
    assert plot("both", run, "-o", tmp_path / "both.svg") == 0
    printed = capsys.readouterr().out
    assert "Inconclusive" in printed and "evaluate and certify again" in printed
    write(run / "attacks" / "pgd_sigma0.4", budgets=(1.5, 2.0, 3.0))
    assert plot("both", run, "-o", tmp_path / "both.svg") == 0
    printed = capsys.readouterr().out
    assert "all budgets lie beyond its last radius 1\n" in printed and "No attack contradicts" not in printed


def test_episodes_of_another_attack_are_refused_and_old_files_without_digest_are_read(tmp_path, capsys):
    folder, other = write(tmp_path / "a"), write(tmp_path / "b", means=(1.0, 2.0, 3.0))
    file = folder / "attack.json"
    np.testing.assert_allclose(read_attack(file).budgets[1].returns, 60 + np.linspace(-10, 10, 40))
    content = json.loads(file.read_text())
    del content["episodes_sha256"], content["versions"]
    file.write_text(json.dumps(content))
    assert read_attack(file).budgets[1].returns.size == 40
    table = (folder / "attack.csv").read_bytes()
    for wrong in ((other / "attack.csv").read_bytes(), table[: len(table) // 2], b"", b"budget,return\n0,1\n"):
        (folder / "attack.csv").write_bytes(wrong)
        line = error_line(capsys, "attack", folder)
        assert "attack.csv: not the episodes of " in line
    (folder / "attack.csv").unlink()
    assert read_attack(file).budgets[1].returns is None and read_attack(file).budgets[1].mean_return == 60


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"env_id": "CartPole-v0"}, 'its env_id is "CartPole-v1", that of the certificate "CartPole-v0"'),
        ({"sigma": 0.5}, "its sigma is 0.4, that of the certificate 0.5"),
        ({"model_sha256": "2" * 64}, "another model file"),
        ({"model_sha256": None}, "does not tell its model_sha256"),
        ({"deterministic": False}, "its deterministic is true"),
        ({"clean_keys": ["mode"]}, "its clean_keys is []"),
        ({"clean_keys": None}, "does not tell its clean_keys"),
        ({"env_kwargs": {"length": 2}}, "its env_kwargs is {}"),
        ({"env_wrappers": {}}, "its env_wrappers is"),
    ],
)
def test_certificate_of_something_else_is_refused(run, capsys, changes, reason):
    certificate, attack = run / "certification" / "certificate.json", run / "attacks" / "pgd_sigma0.4" / "attack.json"
    changed(certificate, **changes)
    line = error_line(capsys, "both", certificate, attack)
    assert line.startswith(f"plot: error: {attack}: not comparable with {certificate}: ") and reason in line
    assert "no attack that is comparable" in error_line(capsys, "both", run / "attacks", certificate)


def test_attack_on_an_entry_without_noise_is_not_covered(run, capsys):
    certificate, attack = run / "certification" / "certificate.json", run / "attacks" / "pgd_sigma0.4" / "attack.json"
    for file in (certificate, attack):
        changed(file, clean_keys=["mode"])
    changed(attack, key="signal")
    assert plot("both", certificate, attack, "-o", run / "both.png") == 0
    changed(attack, key="mode")
    assert "the entry mode of the observation, which the certificate does not cover" in error_line(
        capsys, "both", certificate, attack
    )


def test_both_needs_one_certificate_and_an_attack(run, tmp_path, capsys):
    certificate = run / "certification" / "certificate.json"
    assert "2 (" in error_line(capsys, "both", run, certificate)
    assert "there is none" in error_line(capsys, "both", run / "certification")
    certificate.rename(tmp_path / "moved.json")
    assert "none found" in error_line(capsys, "both", run)
    assert plot("both", run, tmp_path / "moved.json", "-o", tmp_path / "both.png") == 0
    (tmp_path / "moved.json").write_text('{"format": "sb3_camp-certificate-1"}')
    assert "sigma must be a number" in error_line(capsys, "both", run, tmp_path / "moved.json")


def test_no_attack_at_all_is_refused():
    with pytest.raises(InputError, match="no attack"):
        attack_figure([])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sigma": 1.0, "sensor_sigma": [0.1, 0.2, 0.3, 0.4]},
        {"threat": "step-linf", "sigma": 1.0, "sensor_sigma": [0.1, 0.2, 0.3, 0.4]},
        {"threat": "step-l2"},
    ],
)
def test_no_text_runs_out_of_the_picture(tmp_path, settings):
    figure = attack_figure([read_attack(write(tmp_path, **settings) / "attack.json")])
    figure.draw_without_rendering()
    assert figure._supxlabel.get_text().endswith("each sensor's sigma" if "sensor_sigma" in settings else "of the observation")
    width, height = figure.bbox.width, figure.bbox.height
    for text in (figure._supxlabel, figure._supylabel, figure._suptitle):
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, text.get_text()
