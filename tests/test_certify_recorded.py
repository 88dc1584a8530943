"""What evaluate recorded besides the returns, certified from bands of their own that share alpha."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from support.certify_runs import certify, error_line
from support.logs import write_evaluation, write_monitor

from sb3_camp.certification import certified_cost, certified_return
from sb3_camp.certification.bands import lower_band
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.quantities_figure import quantities_figure
from sb3_camp.certify import command_parser
from sb3_camp.errors import InputError

RNG = np.random.default_rng(7)
N = 400
RETURNS = RNG.integers(20, 201, N).astype(float)
SUCCESS = (RNG.random(N) < 0.97).astype(float)
CRASHED = (RNG.random(N) < 0.01).astype(float)
COST = RNG.gamma(2.0, 3.0, N)
SPEED = 30 + 5 * RNG.random(N)
SIGMA, SHARE = 0.4, 0.05 / 5


def recorded(**changes):
    entries = {
        "record": json.dumps(["is_success:last", "crashed:any", "cost:sum", "speed:last"]),
        "recorded": np.array([SUCCESS, CRASHED, COST, SPEED]),
        "recorded_boolean": np.array([True, False, False, False]),
    }
    return {**entries, **changes}


OPTIONS = ["--at-least", "is_success", "speed", "--at-most", "crashed", "cost", "--worst", "cost:60", "speed:0"]


def bounds(folder):
    return {one.key: one for one in read_certificate(folder / "certificate.json").recorded}


def test_each_has_a_band_of_its_own_at_its_share_of_alpha(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    assert certify(path, *OPTIONS, "--quantile", 0.1) == 0
    certificate, found = read_certificate(tmp_path / "certificate.json"), bounds(tmp_path)
    radii = np.array(certificate.radii)
    test = {"alpha": SHARE, "method": "clopper-pearson"}
    expected = {
        "is_success": certified_return(SUCCESS, SIGMA, radii, support=[1], **test),
        "speed": certified_return(SPEED, SIGMA, radii, alpha=SHARE),
        "crashed": certified_cost(CRASHED, SIGMA, radii, support=[0, 1], **test),
        "cost": certified_cost(COST, SIGMA, radii, alpha=SHARE, max_cost=60),
    }
    assert list(found) == list(expected)
    for name, curve in expected.items():
        np.testing.assert_array_equal(found[name].certified, curve)
        assert found[name].alpha == SHARE
    # In closed form
    n_crashes, n_successes = int(CRASHED.sum()), int(SUCCESS.sum())
    upper = stats.beta.ppf(1 - SHARE, n_crashes + 1, N - n_crashes)
    lower = stats.beta.ppf(SHARE, n_successes, N - n_successes + 1)
    ratios = radii / SIGMA
    np.testing.assert_allclose(found["crashed"].certified, stats.norm.cdf(stats.norm.ppf(upper) + ratios), rtol=1e-9)
    np.testing.assert_allclose(found["is_success"].certified, stats.norm.cdf(stats.norm.ppf(lower) - ratios), rtol=1e-9)
    # The returns pay too, and alpha is that of all together
    assert (certificate.alpha, certificate.band_alpha) == (0.05, SHARE)
    np.testing.assert_array_equal(certificate.certified_return, certified_return(RETURNS, SIGMA, radii, alpha=SHARE))
    assert [(one.side, one.is_event, one.worst) for one in found.values()] == [
        ("at_least", True, 0.0),
        ("at_least", False, 0.0),
        ("at_most", True, 1.0),
        ("at_most", False, 60.0),
    ]
    out = capsys.readouterr().out
    assert "confidence 95 % for all radii and bounds together\n" in out
    assert "Of alpha 0.05, each band has the share 0.01 (fixed beforehand)\n" in out
    assert "[3] probability of: crashed at any time of an episode, at most\n" in out
    assert "[4] expected value of: cost, summed over an episode, at most\n" in out
    assert (
        f"Mean of cost without an attack: {COST.mean():.6g}; assumed: 60 is the highest that any can have (--worst)\n" in out
    )


def test_what_is_not_asked_for_costs_nothing_and_a_part_costs_as_much_as_all(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    assert certify(path) == 0
    alone = read_certificate(tmp_path / "certificate.json")
    assert (alone.alpha, alone.level, alone.recorded, alone.is_shared) == (0.05, 0.05, [], False)
    np.testing.assert_array_equal(alone.certified_return, certified_return(RETURNS, SIGMA, alone.radii))
    # What is named may be chosen after the episodes were seen; what was recorded was fixed before
    assert certify(path, "--at-most", "crashed", "--alpha", 0.1) == 0
    assert bounds(tmp_path)["crashed"].alpha == 0.1 / 5


def test_missing_counts_as_the_worst(tmp_path, capsys):
    values = np.array([SUCCESS, CRASHED, COST, SPEED])
    values[:, :7] = np.nan
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded(recorded=values))
    assert certify(path, *OPTIONS) == 0
    found = bounds(tmp_path)
    test = {"alpha": SHARE, "method": "clopper-pearson"}
    worst = {"is_success": 0.0, "crashed": 1.0, "cost": 60.0, "speed": 0.0}
    filled = dict(zip(["is_success", "crashed", "cost", "speed"], values, strict=True))
    filled = {name: np.where(np.isnan(row), worst[name], row) for name, row in filled.items()}
    radii = read_certificate(tmp_path / "certificate.json").radii
    crashed = certified_cost(filled["crashed"], SIGMA, radii, support=[0], **test)
    np.testing.assert_array_equal(found["crashed"].certified, crashed)
    success = certified_return(filled["is_success"], SIGMA, radii, support=[1], **test)
    np.testing.assert_array_equal(found["is_success"].certified, success)
    for name, one in found.items():
        assert one.n_missing == 7 and one.mean == filled[name].mean()
    assert "missing in 7 episodes, which count as 1\n" in capsys.readouterr().out


def test_all_files_have_them_and_none_better_than_it_is(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    assert certify(path, *OPTIONS, "--probability-of", 100) == 0
    certificate = read_certificate(tmp_path / "certificate.json")
    table = pd.read_csv(tmp_path / "certificate.csv", float_precision="round_trip")
    names = ["is_success_last_at_least", "speed_last_at_least", "crashed_any_at_most", "cost_sum_at_most"]
    assert [one.name for one in certificate.recorded] == names
    for one in certificate.recorded:
        assert table[one.name].tolist() == one.certified
    returns, probabilities, *numbers = quantities_figure(certificate).axes
    texts = [text.get_text() for text in probabilities.get_legend().get_texts()]
    assert texts[0] == "return of at least 100" and texts[2].startswith("probability of: crashed") and len(texts) == 3
    assert [axes.get_ylabel() for axes in numbers] == ["speed", "cost"] and len(returns.get_lines()) == 1
    assert probabilities.get_lines()[2].get_ydata().tolist() == certificate.recorded[2].certified
    lines = capsys.readouterr().out.split("[4] expected value")[1].splitlines()
    rows = [line.split() for line in lines if len(line.split()) == 5 and line.strip()[0].isdigit()]
    for row, index in zip(rows, range(0, 121, 10), strict=True):
        for text, one in zip(row[1:], certificate.recorded, strict=True):
            above = float(text) - one.certified[index]
            assert 0 <= (-above if one.side == "at_least" else above) <= 1.001e-3


def test_pooled_logs_must_record_the_same(tmp_path, capsys):
    first = write_evaluation(tmp_path / "a" / "evaluations.npz", RETURNS, **recorded())
    second = write_evaluation(tmp_path / "b" / "evaluations.npz", RETURNS[::-1], seed=1, **recorded())
    out = ["-o", tmp_path / "out"]
    assert certify(first, second, *OPTIONS, *out) == 0
    capsys.readouterr()
    curve = certified_cost(np.tile(COST, 2), SIGMA, 0.4, alpha=SHARE, max_cost=60)
    at = read_certificate(tmp_path / "out" / "certificate.json").radii.index(0.4)
    assert bounds(tmp_path / "out")["cost"].certified[at] == curve
    write_evaluation(second, RETURNS[::-1], seed=1, **recorded(recorded_boolean=np.zeros(4, dtype=bool)))
    assert "does not record the same as" in error_line(capsys, first, second, *OPTIONS, *out)
    write_evaluation(second, RETURNS[::-1], seed=1)
    assert "does not record the same as" in error_line(capsys, first, second, *OPTIONS, *out)
    assert certify(first, second, *out) == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--at-most", "fuel"], "no fuel in it (it recorded is_success, crashed, cost, speed): evaluate again with --record"),
        (["--at-most", "cost"], "--at-most cost: it is a number: pass the highest that any episode can have"),
        (["--at-least", "speed"], "--at-least speed: it is a number: pass the lowest"),
        (["--at-most", "cost", "--worst", "cost:5"], "--worst cost:5: an episode has "),
        (["--at-least", "speed", "--worst", "speed:31"], "--worst speed:31: an episode has 30.0"),
        (["--at-most", "crashed", "--worst", "crashed:1"], "its worst is known: leave it out"),
        (["--at-most", "crashed", "--at-least", "crashed"], "crashed is named twice"),
        (["--at-most", "cost", "--worst", "cost:60", "cost:30"], "--worst: cost is named twice"),
        (["--at-most", "cost", "--worst", "cost:60", "--worst", "cost:60"], "--worst: cost is named twice"),
        (["--at-most", "fuel", "--at-most", "crashed"], "no fuel in it"),
        (["--at-least", "fuel", "--at-least", "is_success"], "no fuel in it"),
        (["--targets", "-1", "--targets", "50"], "the target -1 is not above"),
        (["--worst", "cost:5"], "--worst cost: name it in --at-least or --at-most too"),
        (["--plan", "--target", "3", "--radius", "1", "--at-most", "crashed"], "--at-most cannot be used with --plan"),
        (["--frontier", "--at-most", "crashed"], "--at-most cannot be used with --frontier"),
    ],
)
def test_what_cannot_be_certified_is_one_line(tmp_path, capsys, options, reason):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    assert reason in error_line(capsys, path, *options)
    assert not (tmp_path / "certificate.json").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--worst", "cost:nan"], "argument --worst: 'nan' is no finite number up to 1e+100"),
        (["--worst", "5"], "argument --worst: '5' is not KEY:VALUE"),
        (["--target", "low"], "argument --target: 'low' is no finite number"),
    ],
)
def test_words_that_are_no_numbers_are_named(capsys, options, reason):
    with pytest.raises(SystemExit):
        command_parser().parse_args(["evaluations.npz", *options])
    assert reason in capsys.readouterr().err


def test_logs_without_records_say_so(tmp_path, capsys):
    path = write_monitor(tmp_path / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    line = error_line(capsys, path, "--sigma", 0.4, "--min-return", 0, "--at-most", "crashed")
    assert "no crashed in it (nothing was recorded)" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"record": "[]"},
        {"record": "nonsense"},
        {"record": '["crashed"]'},
        {"record": '["crashed:mean", "a", "b", "c"]'},
        {"record": np.array(["a", "b", "c", "d"])},
        {"record": None},
        {"recorded": None},
        {"recorded": np.zeros((4, N - 1))},
        {"recorded": np.zeros((4, N), dtype=int)},
        {"recorded": np.full((4, N), np.inf)},
        {"recorded": np.full((4, N), 0.5)},
        {"recorded_boolean": None},
        {"recorded_boolean": np.zeros(4)},
    ],
)
def test_damaged_records_are_refused(tmp_path, capsys, changes):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded(**changes))
    assert "record" in error_line(capsys, path)


def test_records_of_a_certificate_must_be_whole(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    assert certify(path, *OPTIONS, "--radii", 0, 1) == 0
    file = tmp_path / "certificate.json"
    content = json.loads(file.read_text())
    good = content["recorded"][0]
    for broken in ([1], [{}], [{**good, "side": "left"}], [{**good, "certified": [1]}], [{**good, "alpha": "a"}], {}):
        file.write_text(json.dumps({**content, "recorded": broken}))
        with pytest.raises(InputError, match="recorded must"):
            read_certificate(file)
    for band_alpha in (0, 0.06, "a"):
        file.write_text(json.dumps({**content, "band_alpha": band_alpha}))
        with pytest.raises(InputError, match="band_alpha"):
            read_certificate(file)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_returns_and_records_are_wrong_together_for_at_most_a_share_alpha(alpha):
    # An episode sees z ~ N(0, 1): it returns Phi(z), crashes below -1.8, and costs 1 - Phi(z). The worst attack of norm R
    # takes R from z.
    repetitions, m, share = 2000, 300, alpha / 3
    ratios = np.array([0.0, 0.5, 1.5])
    z = np.random.default_rng(11).normal(size=(repetitions, m))
    kept = special.ndtr(special.ndtri(lower_band(np.arange(m, 0, -1), m, share, "berk-jones"))[:, np.newaxis] - ratios)
    returns, costs = special.ndtr(z), special.ndtr(-z)
    lower = np.diff(np.sort(returns, axis=1), axis=1, prepend=0) @ kept
    upper = -(-1 + np.diff(np.sort(-costs, axis=1), axis=1, prepend=-1) @ kept)
    test = {"alpha": share, "method": "clopper-pearson", "support": [0]}
    counts = (z < -1.8).sum(axis=1).tolist()
    crash = {n: certified_cost(np.arange(m) < n, 1.0, ratios, **test) for n in set(counts)}
    np.testing.assert_allclose(lower[0], certified_return(returns[0], 1.0, ratios, alpha=share), rtol=1e-10)
    np.testing.assert_allclose(upper[0], certified_cost(costs[0], 1.0, ratios, alpha=share), rtol=1e-10)
    expected = special.ndtr(-ratios / np.sqrt(2))
    wrong = np.array(
        [
            np.any(lower > expected, axis=1),
            np.any(upper < 1 - expected, axis=1),
            np.any(np.array([crash[n] for n in counts]) < special.ndtr(-1.8 + ratios) - 1e-12, axis=1),
        ]
    )
    assert 0 < wrong.any(axis=0).mean() <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / repetitions)


def test_a_certificate_says_what_of_the_same_episodes_does_not_hold_together_with_it(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **recorded())
    plain = write_evaluation(tmp_path / "plain" / "evaluations.npz", RETURNS)
    both = "hold together at the sum of their alphas only (for two of alpha 0.05: confidence 90 %)."
    note = "The episodes also recorded is_success, crashed, cost, speed: none of it is certified here"
    for log, options, keys in ((path, [], True), (path, OPTIONS, False), (plain, [], False)):
        capsys.readouterr()
        assert certify(log, *options) == 0
        content = json.loads((log.parent / "certificate.json").read_text())
        assert content["recorded_keys"] == ([] if log == plain else ["is_success", "crashed", "cost", "speed"])
        assert content["holds_together"].startswith(
            "Everything in this certificate holds together with confidence 95 %. Another"
        )
        assert both in content["holds_together"]
        assert (note in content["holds_together"], note in capsys.readouterr().out) == (keys, keys)
    assert certify(path, "--alpha", 0.6) == 0
    out = capsys.readouterr().out
    assert (
        "Replaced: the certificate that was there (berk-jones, alpha 0.05, 400 episodes); both hold together at the sum" in out
    )
    assert "for two of" not in read_certificate(tmp_path / "certificate.json").holds_together
    assert certify(path, "--alpha", 0.6, "--quantile", 0.1) == 0  # from the same band
    assert capsys.readouterr().out.endswith("Replaced: the certificate that was there (berk-jones, alpha 0.6, 400 episodes)\n")


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_two_certificates_of_the_same_episodes_need_the_sum_of_their_alphas(alpha):
    # The returns at alpha, and a crash at alpha / 2 in a second certificate, on another number of an episode
    repetitions, m = 2000, 100
    rng = np.random.default_rng(3)
    band = lower_band(np.arange(m, 0, -1), m, alpha, "berk-jones")
    returns_wrong = np.any(band > 1 - np.sort(rng.random((repetitions, m)), axis=1), axis=1)
    crashes = rng.binomial(m, 0.3, repetitions)
    crash_wrong = stats.beta.ppf(1 - alpha / 2, crashes + 1, m - crashes) < 0.3
    share = (returns_wrong | crash_wrong).mean()
    error = np.sqrt(alpha * (1 - alpha) / repetitions)
    assert alpha + 3 * error < share <= 1.5 * alpha + 3 * error
