"""The certify command says what its certificate is of, assumes and leaves out, and promises no more than it holds."""

import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support.certify_runs import MODEL_SHA256, RETURNS, certify, error_line, noisy_run
from support.logs import write_evaluation, write_monitor
from support.run_folders import NOISE, make_run, noise

import sb3_camp
from sb3_camp.certification.bounds import certified_radius
from sb3_camp.command_line import spelled


def certificate_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


def warning_lines(capsys: pytest.CaptureFixture, *args: Any) -> list[str]:
    """Run the command, which must succeed, and return its warnings."""
    capsys.readouterr()
    assert certify(*args) == 0
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("certify: warning: ") for line in lines)
    return lines


# What the certificate does not cover, or only by assumption


def test_a_noise_that_only_the_user_vouches_for_is_called_an_assumption(tmp_path, capsys):
    outside = write_monitor(tmp_path / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    assert certify(outside, "--sigma", 0.2, "--min-return", 0, "-o", tmp_path) == 0
    assert certificate_in(tmp_path)["sigma_assumed"] is True
    assert "Assumed: the episodes were played with fresh noise of sigma 0.2" in capsys.readouterr().out
    evaluated = write_evaluation(tmp_path / "evaluations.npz", RETURNS, sigma=0.2)
    assert certify(evaluated, "--sigma", 0.2, "-o", tmp_path) == 0
    assert certificate_in(tmp_path)["sigma_assumed"] is False
    assert "fresh noise" not in capsys.readouterr().out


def test_independence_that_no_log_shows_is_called_an_assumption(tmp_path, capsys):
    """An env that keeps what its first reset drew: the returns of a single env show nothing of it."""
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    monitor = write_monitor(tmp_path / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    logs = [(run / "evaluations.npz", True), (monitor, True)]
    gym.register("Unknown-v0", vector_entry_point="unknown:VectorEnv")
    for name, n_envs, native, env_id, is_assumed in (
        ("several", 8, False, "CartPole-v1", False),
        ("single", 1, False, "CartPole-v1", True),
        ("known", 8, True, "CartPole-v1", False),
        ("unknown", 8, True, "Unknown-v0", True),
        ("unregistered", 8, True, "Unregistered-v0", True),
    ):
        (tmp_path / name).mkdir()
        changes = {"n_envs": n_envs, "native_vec_env": native, "env_id": env_id}
        logs.append((write_evaluation(tmp_path / name / "evaluations.npz", RETURNS, **changes), is_assumed))
    for log, is_assumed in logs:
        options = ["--sigma", 0.4] if log == monitor else []
        assert certify(log, *options, "--min-return", 0, "-o", tmp_path) == 0
        assert certificate_in(tmp_path)["independence_assumed"] is is_assumed
        assert ("Assumed: the episodes are independent" in capsys.readouterr().out) == is_assumed


def unknowing_log(folder: Path, kind: str) -> Path:
    """A log that cannot know of noise, below the folder of a run."""
    folder.mkdir(parents=True)
    if kind == "monitor":
        return write_monitor(folder / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    file = folder / "evaluations.npz"
    np.savez(folder / "own.npz" if kind == "link" else file, timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    if kind == "link":
        file.symlink_to(folder / "own.npz")
    return file


@pytest.mark.parametrize("kind", ["monitor", "callback", "link"])
def test_a_log_that_cannot_know_of_noise_does_not_get_that_of_the_run_in_whose_folder_it_lies(tmp_path, capsys, kind):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    write_monitor(run / "0.monitor.csv", [(9.0, 9, 0.25)], t_start=1.6e9)
    path = unknowing_log(run / "eval", kind)
    line = error_line(capsys, path)
    assert f"{path}: nothing tells the noise" in line
    assert f"{run / 'CartPole-v1/config.yml'} has sigma 0.4, but the log may be of other episodes" in line
    line = error_line(capsys, path, "--sigma", 0.3)
    assert "but --sigma says 0.3" in line
    assert ("put the log outside of the run folder" in line) == (kind == "monitor")
    capsys.readouterr()
    assert certify(path, "--sigma", 0.4, "-o", tmp_path) == 0
    assert certificate_in(tmp_path)["sigma_assumed"] is True
    assert "Assumed: the episodes were played with fresh noise of sigma 0.4" in capsys.readouterr().out


def test_a_monitor_log_of_a_task_of_this_package_has_the_noise_and_the_rewards_of_the_run_by_assumption(tmp_path, capsys):
    """``enjoy --env-kwargs sigma:0.01`` writes the same log."""
    run = make_run(tmp_path, "camp/CartPole1-v0", args={"env_kwargs": {"sigma": 0.3}})
    write_monitor(run / "0.monitor.csv", [(9.0, 9, 0.25)], t_start=1.6e9, env_id="camp/CartPole1-v0")
    (run / "enjoy").mkdir()
    log = write_monitor(run / "enjoy/0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)], env_id="camp/CartPole1-v0")
    assert certify(log, "-o", tmp_path) == 0
    assert (certificate_in(tmp_path)["sigma"], certificate_in(tmp_path)["sigma_assumed"]) == (0.3, True)
    assert (certificate_in(tmp_path)["min_return"], certificate_in(tmp_path)["min_return_basis"]) == (0.0, "given")
    out = capsys.readouterr().out
    assert "Assumed: the episodes were played with fresh noise of sigma 0.3 on each observation (no log tells)\n" in out
    assert "Assumed: no episode can return less than 0\n" in out and "Known of" not in out


@pytest.mark.parametrize("env_id", ["Foreign-v0", "camp/Foreign-v0", "CartPole-v1"])
@pytest.mark.parametrize("log", ["evaluations.npz", "enjoy"])
def test_a_keyword_sigma_of_another_environment_is_not_noise(tmp_path, capsys, env_id, log):
    run = make_run(tmp_path, env_id, args={"env_kwargs": {"sigma": 10}})
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    write_monitor(run / "0.monitor.csv", [(9.0, 9, 0.25)], t_start=1.6e9, env_id=env_id)
    (run / "enjoy").mkdir()
    write_monitor(run / "enjoy/0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)], env_id=env_id)
    line = error_line(capsys, run / log, "--min-return", 0)
    assert f"the environment {env_id} is not of this package, so nothing is known of its noise" in line and "--sigma" in line
    assert certify(run / log, "--min-return", 0, "--sigma", 10, "-o", tmp_path) == 0
    assert (certificate_in(tmp_path)["sigma"], certificate_in(tmp_path)["sigma_assumed"]) == (10, True)


def test_the_possible_returns_are_called_an_assumption(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 3.0, 2.0])
    assert certify(path, "--method", "clopper-pearson", "--support", "1:3") == 0
    assert "Assumed: the 3 thresholds from 1 to 3 were fixed beforehand (--support)\n" in capsys.readouterr().out


def test_entries_without_noise_are_named(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, clean_keys='["b", "a"]')
    assert certify(path) == 0
    assert certificate_in(tmp_path)["clean_keys"] == ["a", "b"]
    assert "Not covered: perturbations of the entries a, b (clean_keys)\n" in capsys.readouterr().out
    write_evaluation(path, RETURNS)
    assert certify(path) == 0
    assert certificate_in(tmp_path)["clean_keys"] == []
    assert "Not covered" not in capsys.readouterr().out


def test_entries_without_noise_of_the_zoos_logs_stand_in_the_runs_config(tmp_path, capsys):
    run = make_run(tmp_path, env_wrapper=[{NOISE: {"sigma": 0.4, "clean_keys": ["a"]}}])
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    write_monitor(run / "0.monitor.csv", [(9.0, 9, 0.25)], t_start=1.6e9)
    (run / "enjoy").mkdir()
    write_monitor(run / "enjoy/0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    older = write_evaluation(run / "certification/evaluations.npz", RETURNS, clean_keys=None, env_wrappers=None)
    for log in (run / "evaluations.npz", run / "enjoy", older):
        assert certify(log, "--sigma", 0.4, "-o", tmp_path) == 0
        assert certificate_in(tmp_path)["clean_keys"] == ["a"]
        assert "Not covered: perturbations of the entries a (clean_keys)\n" in capsys.readouterr().out


@pytest.mark.parametrize(("logged", "configured"), [("[]", ["a"]), ('["a"]', []), ('["a"]', ["a", "b"])])
def test_refuses_entries_without_noise_that_contradict_the_config(tmp_path, capsys, logged, configured):
    run = noisy_run(tmp_path, env_wrapper=[{NOISE: {"sigma": 0.4, "clean_keys": configured}}])
    path = write_evaluation(run / "certification/evaluations.npz", RETURNS, clean_keys=logged)
    line = error_line(capsys, run)
    assert f"{path}: its clean_keys are" in line and f"{run / 'CartPole-v1/config.yml'} says {configured}" in line


TASK = {"env_id": "camp/CartPole1-v0", "env_wrappers": "{}"}
OF_EACH = json.dumps({"env_wrapper": [{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": [0.0, 0.1, 0.1, 0.1]}}]})


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        (dict(sigma=1.0, env_wrappers=json.dumps({"env_wrapper": [noise(0.4)]})), True),
        (dict(sigma=0.4, env_wrappers=json.dumps({"env_wrapper": [noise(0.4)]})), False),
        (dict(sigma=1.0, env_kwargs='{"sigma": 0.4}', **TASK), True),
        (dict(sigma=0.4, env_kwargs='{"sigma": 0.4}', **TASK), False),
        (dict(sigma=0.7, env_kwargs="{}", **TASK), False),  # whatever the task's own was when it was played
        (dict(sigma=1.0, sensor_sigma="[0.0, 0.1, 0.1, 0.1]", clean_keys='["[0]"]', env_wrappers=OF_EACH), False),
        (dict(sigma=1.0, sensor_sigma="[0.0, 1.1, 0.1, 0.1]", clean_keys='["[0]"]', env_wrappers=OF_EACH), True),
        (dict(sigma=1.0, sensor_sigma="[0.0, 0.1, 0.1, 0.1]", clean_keys="[]", env_wrappers=OF_EACH), True),
    ],
)
def test_a_log_whose_noise_is_not_that_of_its_own_settings_is_refused(changes, is_refused, tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, **changes)
    assert certify(path) == (2 if is_refused else 0)
    assert ("not those of the noise in its own settings" in capsys.readouterr().err) == is_refused


def test_a_foreign_wrapper_of_the_same_name_is_not_taken_for_the_noise(tmp_path, capsys):
    run = make_run(tmp_path, env_wrapper=[{"their.pkg.NoisyObservationWrapper": {"sigma": 0.4}}])
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    line = error_line(capsys, run / "evaluations.npz")
    assert "their.pkg.NoisyObservationWrapper is not of this package" in line
    assert f"run {spelled('evaluate')} --algo dqn --env CartPole-v1" in line and "--sigma S" in line
    assert certify(run / "evaluations.npz", "--sigma", 0.4, "-o", tmp_path) == 0
    assert certificate_in(tmp_path)["sigma_assumed"] is True
    # our own noise around it
    wrappers = {"env_wrapper": ["their.pkg.NoisyObservationWrapper", noise(0.4)]}
    write_evaluation(run / "certification/evaluations.npz", RETURNS, env_wrappers=json.dumps(wrappers))
    assert certify(run) == 0


def test_episodes_that_cannot_be_independent_are_refused(tmp_path, capsys):
    rng = np.random.default_rng(0)
    levels = rng.integers(20, 200, 8)  # each env repeats its level
    path = write_evaluation(tmp_path / "evaluations.npz", np.tile(levels, 25).astype(float), n_envs=8)
    assert f"{path}: the episodes are not independent" in error_line(capsys, path)
    write_evaluation(path, np.tile(levels, 25).astype(float), n_envs=None)  # nothing tells which env played which
    assert certify(path) == 0
    write_evaluation(path, rng.permutation(np.tile(levels, 25)).astype(float), n_envs=8)
    assert certify(path) == 0


# What was certified


def test_says_which_evaluation_and_which_checkpoint_it_is_about(tmp_path, capsys):
    run = noisy_run(tmp_path)
    partial = run / "certification/evaluations.partial.npz"
    partial.write_bytes(b"")
    (line,) = warning_lines(capsys, run)
    assert f"{partial}: an interrupted evaluation" in line and "--resume" in line
    partial.unlink()
    (run / "CartPole-v1.zip").rename(run / "best_model.zip")
    assert warning_lines(capsys, run) == []
    (run / "best_model.zip").write_bytes(b"another model")
    (line,) = warning_lines(capsys, run)
    assert f"{run / 'certification/evaluations.npz'}: its model is none of the *.zip files in {run}" in line


def test_a_pipe_that_is_called_like_a_model_is_none(tmp_path, capsys):
    run = noisy_run(tmp_path)
    os.mkfifo(run / "another.zip")
    (run / "endless.zip").symlink_to("/dev/zero")
    assert warning_lines(capsys, run) == []


def test_says_which_evaluation_does_not_tell_its_version_of_the_environment(tmp_path, capsys):
    first = write_evaluation(tmp_path / "a.npz", RETURNS)
    second = write_evaluation(tmp_path / "b.npz", RETURNS + 1, seed=1, env_versions=None)
    (line,) = warning_lines(capsys, first, second)
    assert f"{second}: nothing shows that it played the same version of the environment" in line and str(first) not in line
    assert certificate_in(tmp_path)["env_versions"] == {"gymnasium": "1.0.0"}
    assert warning_lines(capsys, second, "-o", tmp_path) == []


def test_tells_the_steps_of_the_policy_that_the_callback_evaluated(tmp_path, capsys):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    assert certify(run / "evaluations.npz") == 0
    assert certificate_in(run / "certification")["timesteps"] == 500
    assert "Checkpoint: policy after 500 steps\n" in capsys.readouterr().out


def test_keeps_a_certificate_from_other_logs_unless_told(tmp_path, capsys, monkeypatch):
    run = noisy_run(tmp_path)
    assert certify(run) == 0
    file = run / "certification/certificate.json"
    before = file.read_bytes()
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    capsys.readouterr()
    line = error_line(capsys, run / "evaluations.npz")
    assert f"{file}: a certificate from other logs ({run / 'certification/evaluations.npz'})" in line
    assert f"-o {file.parent}" in line and file.read_bytes() == before
    second = write_evaluation(run / "certification/second.npz", RETURNS + 1, seed=1, model_sha256=MODEL_SHA256)
    assert "a certificate from other logs" in error_line(capsys, run, second)
    # the same log, new, and named from elsewhere
    write_evaluation(run / "certification/evaluations.npz", RETURNS + 2, seed=2, model_sha256=MODEL_SHA256)
    monkeypatch.chdir(run / "certification")
    for path in (run, "evaluations.npz", Path("..") / "certification", run):
        assert certify(path) == 0
    assert file.read_bytes() != before
    assert certify(run / "evaluations.npz", "-o", file.parent) == 0
    assert certificate_in(file.parent)["n_episodes"] == 2
    file.write_text("{")
    capsys.readouterr()
    assert "not JSON" in error_line(capsys, run)


def test_no_printed_number_promises_more_than_the_certificate(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for repetition in range(12):
        sigma, alpha = float(rng.uniform(0.05, 3)), float(10.0 ** -rng.uniform(0.5, 9))
        returns = rng.gamma(9.0, 20.0, 60)
        targets = [float(target) for target in rng.uniform(1, 90, 3)]
        targets += [np.nextafter(targets[0], 0), targets[1] + 1e-9]
        options = ["--method", "dkw" if repetition % 2 else "berk-jones", "--alpha", repr(alpha), "--targets"]
        path = write_evaluation(tmp_path / "evaluations.npz", returns, sigma=sigma)
        assert certify(path, *options, *map(repr, map(float, targets))) == 0
        out, certificate = capsys.readouterr().out, certificate_in(tmp_path)

        rows = re.findall(r"^ +(\d\S*) +(\d\S*) +(\d\S*)$", out, re.M)
        curve = list(zip(certificate["radii"], certificate["certified_return"], strict=True))
        for row, (radius, value) in zip(rows, curve[::10], strict=True):
            assert 0 <= radius - float(row[0]) <= 1e-5 * radius
            assert -1e-9 <= radius / sigma - float(row[1]) <= 1e-3
            assert 0 <= value - float(row[2]) <= 1e-3 + 1e-9

        lines = dict(re.findall(r"^Return (\S+): (.*)$", out, re.M))
        assert sorted(map(float, lines)) == sorted(targets)
        for target, line in lines.items():
            radius = certified_radius(returns, sigma, float(target), alpha=alpha, method=options[1])
            printed = re.fullmatch(r"certified up to radius (\S+)", line)
            if printed is None:
                assert line == "not certified at any radius" and np.isnan(radius)
            else:
                assert 0 <= radius - float(printed[1]) <= 1e-5 * radius
        (printed_sigma,) = re.findall(r"^Noise sigma (\S+);", out, re.M)
        assert float(printed_sigma) == sigma
        (confidence,) = re.findall(r"confidence (.*) for all radii together", out)
        percent, minus = confidence.endswith(" %"), confidence.startswith("1 - ")
        assert percent != minus
        assert (1 - Fraction(confidence[:-2]) / 100 if percent else Fraction(confidence[4:])) == Fraction(repr(alpha))


def test_a_small_alpha_is_not_certainty(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    for alpha, text in ((1e-8, "confidence 99.999999 % for"), (1e-40, "confidence 1 - 1e-40 for")):
        assert certify(path, "--alpha", alpha) == 0
        assert text in capsys.readouterr().out


# A run whose settings name Python objects


@pytest.mark.slow
def test_a_run_whose_settings_name_a_class_is_evaluated_and_certified(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(sb3_camp.__file__).parents[1]), "OMP_NUM_THREADS": "1"}

    def python(*args: str) -> str:
        done = subprocess.run([sys.executable, "-m", *args], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run = ["--algo", "a2c", "--env", "CartPole-v1", "-f", "logs", "--device", "cpu"]
    params = [f"env_wrapper:[{noise(0.2)}]", "policy_kwargs:dict(activation_fn=th.nn.ReLU)", "n_envs:1"]
    python("rl_zoo3.train", *run, "-n", "50", "--eval-freq", "-1", "-params", *params)
    for file in ("config.yml", "args.yml"):
        text = (tmp_path / "logs/a2c/CartPole-v1_1/CartPole-v1" / file).read_text()
        assert "python/name:torch.nn.modules.activation.ReLU" in text
    python("sb3_camp.evaluate", *run, "-n", "20", "--n-envs", "4")
    assert "20 episodes" in python("sb3_camp.certify", "logs/a2c/CartPole-v1_1")
