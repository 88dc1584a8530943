"""Evaluations that stop as soon as a target is certified, at looks that were planned beforehand."""

import itertools
import json
import re

import numpy as np
import pytest
from scipy import special, stats
from stable_baselines3 import DQN
from support.certify_runs import certify
from support.certify_runs import error_line as certify_error_line
from support.evaluate_runs import error_line, evaluate, read
from support.info_envs import InfoEnv
from support.logs import write_evaluation

import sb3_camp.evaluation.run_evaluation
from sb3_camp.certification import certified_return, planned_looks
from sb3_camp.certification.bands import lower_band
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.independence import chunk_sizes
from sb3_camp.evaluation.evaluation_file import write_partial

RADIUS, SIGMA = 0.1, 0.2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.zip"
    DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu", seed=0).save(path)
    return path


def run(model, folder, target, *options, n_envs=4):
    arguments = ["--model", model, "--sigma", SIGMA, "-o", folder, "--n-envs", n_envs, "--until", f"{target}@{RADIUS}"]
    return evaluate(*arguments, "--max-episodes", 400, "--looks", 3, *options)


@pytest.fixture(scope="module")
def all_returns(model, tmp_path_factory):
    """Returns of all 400 episodes, of which an evaluation that stops early has the first."""
    folder = tmp_path_factory.mktemp("all")
    assert run(model, folder, 1000) == 0
    return read(folder / "evaluations.npz")["results"][0]


def at_looks(returns, alpha):
    looks = planned_looks(100, 400, 3, alpha)
    return [float(certified_return(returns[: look.n_episodes], SIGMA, RADIUS, alpha=look.alpha)) for look in looks]


def test_it_stops_at_the_first_look_that_certifies_the_target_and_certify_goes_on_from_there(
    model, tmp_path, capsys, all_returns
):
    certified = at_looks(all_returns, 0.05)
    assert certified[0] < certified[1] < certified[2]
    for index, target in enumerate((certified[0], (certified[0] + certified[1]) / 2, certified[2])):
        folder = tmp_path / str(index)
        capsys.readouterr()
        assert run(model, folder, repr(target)) == 0
        content, out = read(folder / "evaluations.npz"), capsys.readouterr().out
        n = (100, 200, 400)[index]
        np.testing.assert_array_equal(content["results"][0], all_returns[:n])
        assert (content["n_episodes"], content["looks"], content["looks_alpha"]) == (n, "[100, 200, 400]", 0.05)
        assert out.count("is not certified\n") == index and out.count("is certified\n") == 1
        assert certify(folder, "--targets", repr(target)) == 0
        certificate = read_certificate(folder / "certificate.json")
        assert (certificate.alpha, certificate.level, certificate.looks) == (0.05, 0.05 / 3, [100, 200, 400])
        assert certificate.value_at(RADIUS) == certified[index] >= target
        assert min(certificate.targets.values()) >= RADIUS * (1 - 1e-8)
        out = capsys.readouterr().out
        assert f"Stopped at look {index + 1} of 3 that were planned (100, 200, 400 episodes)\n" in out
        assert "confidence 95 % for all radii together\n" in out


def test_alpha_of_the_looks_is_that_of_the_certificate_unless_another_is_given(model, tmp_path, all_returns):
    assert run(model, tmp_path, 1, "--alpha", 0.2) == 0
    assert certify(tmp_path) == 0
    assert read_certificate(tmp_path / "certificate.json").alpha == 0.2
    assert certify(tmp_path, "--alpha", 0.01) == 0  # the looks hold together at any alpha
    certificate = read_certificate(tmp_path / "certificate.json")
    assert (certificate.alpha, certificate.level) == (0.01, 0.01 / 3)
    expected = certified_return(all_returns[:100], SIGMA, certificate.radii, alpha=0.01 / 3)
    np.testing.assert_array_equal(certificate.certified_return, expected)


def test_resumed_after_any_chunk_it_stops_where_it_would_have(model, tmp_path, monkeypatch, capsys, all_returns):
    target = repr(sum(at_looks(all_returns, 0.05)[:2]) / 2)
    n_interruptions = 0

    def write_then_stop(*args, **kwargs):
        write_partial(*args, **kwargs)
        raise KeyboardInterrupt

    while n_interruptions < 20:
        monkeypatch.setattr(sb3_camp.evaluation.run_evaluation, "write_partial", write_then_stop)
        status = run(model, tmp_path, target, "--resume")
        if status == 0:
            break
        n_interruptions += 1
    assert n_interruptions == len(chunk_sizes(200, 4, [100, 200]))
    np.testing.assert_array_equal(read(tmp_path / "evaluations.npz")["results"][0], all_returns[:200])
    capsys.readouterr()
    assert run(model, tmp_path, target, "--resume") == 0
    assert "has all 200 episodes" in capsys.readouterr().out
    assert run(model, tmp_path, "9999", "--resume") == 2
    assert "it was made with until" in error_line(capsys)
    arguments = ["--model", model, "--sigma", SIGMA, "-o", tmp_path, "--n-envs", 4, "-n", 400, "--resume"]
    assert evaluate(*arguments) == 2
    assert "cannot be resumed" in error_line(capsys)


def test_what_is_recorded_has_its_share_of_each_look(tmp_path, capsys):
    DQN("MlpPolicy", InfoEnv(), buffer_size=8, device="cpu", seed=0).save(tmp_path / "model.zip")
    options = ["--model", tmp_path / "model.zip", "--sigma", SIGMA, "-o", tmp_path, "--n-envs", 4]
    options += ["--until", f"2@{RADIUS}", "--max-episodes", 400, "--looks", 4, "--record", "crashed", "cost:sum"]
    assert evaluate(*options, env="tests/Info-v0") == 2
    assert "--until: the lowest return of tests/Info-v0 is not known" in error_line(capsys)
    assert evaluate(*options, "--min-return", 0, env="tests/Info-v0") == 0
    assert certify(tmp_path, "--min-return", 0, "--at-most", "crashed") == 0
    certificate = read_certificate(tmp_path / "certificate.json")
    assert certificate.level == certificate.recorded[0].alpha == 0.05 / 4 / 3
    assert certificate.value_at(RADIUS) >= 2


def test_a_return_below_the_lowest_is_refused_at_once_and_the_episodes_before_it_are_kept(model, tmp_path, capsys):
    DQN("MlpPolicy", InfoEnv(), buffer_size=8, device="cpu", seed=0).save(tmp_path / "model.zip")
    options = ["--model", tmp_path / "model.zip", "--sigma", SIGMA, "-o", tmp_path, "--n-envs", 4, "--looks", 1]
    options += ["--until", f"900@{RADIUS}", "--max-episodes", 40_000]
    assert evaluate(*options, "--min-return", 800, env="tests/Info-v0") == 2
    line = error_line(capsys)
    assert "--until: an episode returned" in line and "below 800: give the lowest return" in line
    assert not (tmp_path / "evaluations.npz").exists()


@pytest.mark.parametrize("target", ["-1.5@0.1", "-1e2@0.1", "-0@0.1"])
def test_a_target_may_be_negative(model, tmp_path, target):
    options = ["--model", model, "--sigma", SIGMA, "-o", tmp_path, "--n-envs", 4, "--until", target, "--max-episodes", 40]
    assert evaluate(*options, "--looks", 2, "--min-return", "-2e2", env="CartPole-v1") == 0
    assert float(str(read(tmp_path / "evaluations.npz")["until"]).partition("@")[0]) == float(target.partition("@")[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--until", "150@0.4"], "--until needs --max-episodes"),
        (["--until", "150@0.4", "-n", 10, "--max-episodes", 10], "in place of -n"),
        (["--max-episodes", 10], "--max-episodes is for --until"),
        (["--looks", 3], "--looks is for --until"),
        (["--min-return", 0], "--min-return is for --until"),
        (["--until", "150", "--max-episodes", 10], "--until takes TARGET@RADIUS, as 150@0.4"),
        (["--until", "nan@0.4", "--max-episodes", 10], "--until takes TARGET@RADIUS"),
        (["--until", "150@-1", "--max-episodes", 10], "--until takes TARGET@RADIUS"),
        (["--until", "0@1", "--max-episodes", 10], "0 is not above the lowest return that an episode can have, 0"),
        (["--until", "9@1", "--max-episodes", 10, "--looks", 11], "11 looks from 1 to 10 episodes are not possible"),
        (["--until", "9@1", "--max-episodes", 10, "--alpha", 2], "alpha must lie strictly between 0 and 1"),
        (["--until", "9@1", "--max-episodes", 10, "--min-return", 1], "an episode of CartPole-v1 can return 0"),
    ],
)
def test_options_that_do_not_fit_together_are_one_line(model, tmp_path, capsys, options, message):
    assert evaluate("--model", model, "--sigma", SIGMA, "-o", tmp_path, *options) == 2
    assert message in error_line(capsys)


def planned(folder, n, **changes):
    entries = {"looks": "[100, 200]", "looks_alpha": 0.05, "until": "9@0.1", **changes}
    return write_evaluation(folder / "evaluations.npz", np.random.default_rng(n).integers(5, 100, n), **entries)


def test_an_evaluation_that_stopped_is_certified_alone_and_at_a_look(tmp_path, capsys):
    path = planned(tmp_path, 150)
    assert "150 episodes are none of the looks that were planned (100, 200)" in certify_error_line(capsys, path)
    for changes in (
        {"looks": "[200, 100]"},
        {"looks": "[]"},
        {"looks": "[0, 200]"},
        {"looks": "[100, true]"},
        {"looks": np.array([100, 200])},
        {"looks_alpha": 2.0},
        {"looks_alpha": None},
        {"until": None},
    ):
        assert "looks" in certify_error_line(capsys, planned(tmp_path, 100, **changes))
    first = planned(tmp_path / "a", 100)
    second = write_evaluation(tmp_path / "b" / "evaluations.npz", np.random.default_rng(9).integers(5, 100, 90), seed=1)
    for pair in ((first, second), (second, first)):
        line = certify_error_line(capsys, *pair)
        assert f"{first}: its returns decided how many episodes it has (--until), so it cannot be pooled" in line
    out = tmp_path / "frontier"
    assert certify("--frontier", first, second, "-o", out) == 0
    levels = [one["band_alpha"] for one in json.loads((out / "frontier.json").read_text())["certificates"]]
    assert levels == [0.05 / 2 / 2, 0.05 / 2]


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_certificates_that_stop_when_they_look_good_are_wrong_for_at_most_a_share_alpha(alpha):
    # An episode sees z ~ N(0, 1) and returns Phi(z), which is uniform; the worst attack of norm R takes R from z. What is
    # certified of all probabilities is wrong somewhere with probability alpha exactly, if one looks once.
    repetitions, looks = 2000, planned_looks(20, 640, 6, alpha)
    ratios = np.array([0.0, 0.3, 1.0])
    truth = stats.norm.cdf(-ratios / np.sqrt(2))
    returns = np.random.default_rng(5).random((repetitions, looks[-1].n_episodes))

    def certified(m, level):
        band, ordered = lower_band(np.arange(m, 0, -1), m, level, "berk-jones"), np.sort(returns[:, :m], axis=1)
        curves = np.diff(ordered, axis=1, prepend=0) @ special.ndtr(special.ndtri(band)[:, np.newaxis] - ratios)
        return curves, np.any(band > 1 - ordered, axis=1)

    one = certified(20, 0.05)[0][0]
    np.testing.assert_allclose(one, certified_return(returns[0, :20], 1.0, ratios, alpha=0.05), rtol=1e-12)
    curves, wrong = map(np.array, zip(*(certified(look.n_episodes, look.alpha) for look in looks), strict=True))
    error = np.sqrt(alpha * (1 - alpha) / repetitions)
    for target in (0.2, 0.3, 0.38, truth[1]):  # the last one only by luck
        met = curves[:, :, 1] >= target
        stopped = np.where(met.any(axis=0), met.argmax(axis=0), len(looks) - 1), np.arange(repetitions)
        assert 0 < wrong[stopped].mean() <= alpha + 3 * error
        assert np.any(curves[stopped] > truth, axis=1).mean() <= alpha + 3 * error


def test_a_plan_from_an_evaluation_with_looks_is_at_the_alpha_of_a_look(tmp_path, capsys):
    path = planned(tmp_path, 100, looks="[50, 100, 200]", looks_alpha=0.1)
    plain = write_evaluation(tmp_path / "plain" / "evaluations.npz", read(path)["results"][0])
    options = ["--plan", "--target", 30, "--radius", RADIUS]
    for given, alpha in (([], 0.1), (["--alpha", 0.03], 0.03)):
        assert certify(path, *options, *given) == 0
        with_looks = capsys.readouterr().out
        assert certify(plain, *options, "--alpha", repr(alpha / 3)) == 0
        without = capsys.readouterr().out
        expected = certified_return(read(path)["results"][0], 0.4, RADIUS, alpha=alpha / 3)
        (shown,) = re.findall(r"^These 100 episodes certify (\S+) at", with_looks, re.M)
        assert 0 <= float(expected) - float(shown) <= 1.001e-3
        (number,) = {re.search(r"^About (\d+) episodes", text, re.M).group(1) for text in (with_looks, without)}
        assert f"at the share {alpha / 3:.6g} of alpha {alpha:g}: 3 looks were planned\n" in with_looks
        assert (
            "With 3 looks again (--until, --looks) this is the number at a look; without looks (-n) fewer do\n" in with_looks
        )
    assert certify(plain, *options, "--alpha", 0.1) == 0
    assert int(number) > int(re.search(r"^About (\d+)", capsys.readouterr().out, re.M).group(1))


@pytest.mark.parametrize(
    "lost", [*itertools.combinations(("looks", "looks_alpha", "until"), 1), ("looks", "until"), ("format",)]
)
def test_a_file_that_lost_a_part_of_its_looks_is_refused(tmp_path, capsys, lost):
    path = planned(tmp_path, 100, **dict.fromkeys(lost))
    for options in ([], ["--sigma", 0.4, "--min-return", 0], ["--plan", "--target", 30, "--radius", 0.1]):
        line = certify_error_line(capsys, path, *options)
        assert "evaluate again" in line and f"no {lost[0]}" in line
