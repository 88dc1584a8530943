"""The certify command: sound logs give the bound of the library, every trap is one line and exit status 2."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from support.certify_runs import MODEL_SHA256, RETURNS, certify, error_line, noisy_run
from support.logs import play_monitored, write_evaluation, write_monitor
from support.run_folders import NORMALISER, STACK, make_run, noise

import sb3_camp
from sb3_camp.certification.bands import largest_ratio
from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.command_line import spelled
from sb3_camp.files import only_writer
from sb3_camp.plot import main as plot


def in_process(folder: Path, *args: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(Path(sb3_camp.__file__).parents[1])}
    command = [sys.executable, "-m", "sb3_camp.certify", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_command_certifies_a_run_folder(tmp_path):
    run = noisy_run(tmp_path)
    done = in_process(tmp_path, "logs/dqn/CartPole-v1_1", "--targets", "60", "199")
    assert (done.returncode, done.stderr) == (0, "")
    certificate = json.loads((run / "certification/certificate.json").read_text())
    radii = 0.4 * np.linspace(0, 3, 121)
    np.testing.assert_allclose(certificate["radii"], radii, rtol=1e-11)
    radii = np.array(certificate["radii"])
    bound = certified_return(RETURNS, 0.4, radii)
    np.testing.assert_array_equal(certificate["certified_return"], bound)
    assert certificate["format"] == "sb3_camp-certificate-1"
    assert (certificate["method"], certificate["alpha"], certificate["min_return"]) == ("berk-jones", 0.05, 0.0)
    assert (certificate["sigma"], certificate["n_episodes"], certificate["mean_return"]) == (0.4, 400, RETURNS.mean())
    assert (certificate["env_id"], certificate["algo"], certificate["deterministic"]) == ("CartPole-v1", "dqn", True)
    assert certificate["model_sha256"] == MODEL_SHA256 and certificate["support"] is None
    assert (certificate["env_kwargs"], certificate["env_wrappers"]) == ({}, {"env_wrapper": [noise(0.4)]})
    assert (certificate["timesteps"], certificate["clean_keys"]) == (1000, [])
    assert certificate["targets"] == {"60": certified_radius(RETURNS, 0.4, 60), "199": None}
    ratio = largest_ratio(400, 0.05, "berk-jones")
    assert certificate["ceiling"] == {"ratio": ratio, "radius": 0.4 * ratio}
    (source,) = certificate["sources"]
    assert source["path"] == "logs/dqn/CartPole-v1_1/certification/evaluations.npz" and source["episodes"] == 400
    with open(run / "certification/certificate.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:2] == ["radius", "certified_return"]
    np.testing.assert_array_equal(np.array([row[:2] for row in rows], dtype=float), np.column_stack([radii, bound]))
    assert matplotlib.image.imread(run / "certification/certificate.png").shape[2] in (3, 4)
    assert sorted(file.name for file in (run / "certification").iterdir()) == [
        "certificate.csv",
        "certificate.json",
        "certificate.png",
        "evaluations.npz",
    ]

    table = [line.split() for line in done.stdout.splitlines() if line.startswith("     ")][1:]
    shown = np.array(table, dtype=float)
    np.testing.assert_allclose(shown, np.column_stack([radii, radii / 0.4, bound])[::10], atol=1e-3)
    assert np.all(shown[:, 2] <= bound[::10])
    assert "Checkpoint: logs/dqn/CartPole-v1_1/CartPole-v1.zip, policy after 1000 steps\n" in done.stdout
    for text in ("greedy actions", "400 episodes", "confidence 95 % for all radii together", "less than 0", "Return 199: not"):
        assert text in done.stdout


def test_the_command_refuses_without_a_traceback(tmp_path):
    noisy_run(tmp_path)
    done = in_process(tmp_path, "logs/dqn/CartPole-v1_1/0.monitor.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("certify: error: logs/dqn/CartPole-v1_1/0.monitor.csv: training episodes")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (["--method", "dkw"], {"method": "dkw"}),
        (["--alpha", "0.001"], {"alpha": 0.001}),
        (["--min-return", "-1.5"], {"min_return": -1.5}),
        (["--method", "clopper-pearson", "--support", "1:200"], {"method": "clopper-pearson", "support": range(1, 201)}),
        (["--method", "clopper-pearson"], {"method": "clopper-pearson", "support": range(1, 501)}),  # the limit of CartPole-v1
        (["--sigma", "0.4"], {}),
    ],
)
def test_options_reach_the_bound(tmp_path, capsys, options, keywords):
    run = noisy_run(tmp_path)
    assert certify(run, "--radii", 0.5, 0, 0.2, "-o", tmp_path / "out", *options) == 0
    certificate = json.loads((tmp_path / "out/certificate.json").read_text())
    assert certificate["radii"] == [0, 0.2, 0.5]
    np.testing.assert_array_equal(
        certificate["certified_return"], certified_return(RETURNS, 0.4, [0, 0.2, 0.5], **{"method": "berk-jones", **keywords})
    )
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("     ")]) == 4


def test_support_may_be_a_list(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", [0.0, 1.5, 1.5], [3, 3, 3])
    assert certify(path, "--method", "clopper-pearson", "--support", "1.5", "0", "1.5", "--radii", "0.1") == 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["support"] == [0.0, 1.5]
    wanted = certified_return([0, 1.5, 1.5], 0.4, [0.1], method="clopper-pearson", support=[0, 1.5])
    assert certificate["certified_return"] == wanted.tolist()
    assert certificate["ceiling"]["ratio"] == largest_ratio(3, 0.05, "clopper-pearson", 1)


def test_ceiling_is_what_perfect_episodes_reach(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", np.full(10_000, 200.0))
    for method, ratio in (("dkw", "2.21"), ("berk-jones", "3.19")):
        assert certify(path, "--method", method) == 0
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        radius = certificate["ceiling"]["radius"]
        assert certified_return(np.full(10_000, 200.0), 0.4, radius, method=method) == pytest.approx(100)
        assert f"beyond radius {radius:.4g} ({ratio} sigma), 10000 episodes certify" in capsys.readouterr().out


def test_pools_monitor_logs_and_warns(tmp_path, capsys):
    run = noisy_run(tmp_path)
    played = tmp_path / "logs/dqn/CartPole-v1_1/enjoy"
    env = make_vec_env("CartPole-v1", n_envs=3, seed=0, monitor_dir=str(played))
    env.reset()
    for _ in range(150):
        env.step(np.array([env.action_space.sample() for _ in range(3)]))
    env.close()
    returns = np.concatenate([np.loadtxt(file, delimiter=",", skiprows=2, ndmin=2)[:, 0] for file in sorted(played.iterdir())])
    assert certify(played, "--sigma", 0.4) == 0
    printed = capsys.readouterr()
    (first,) = printed.err.splitlines()
    assert first.startswith("certify: warning: a monitor log")
    assert "cut off" in first and "over-represented" in first and "greedy" in first and "log of a training" in first
    assert "the log does not say" in printed.out
    certificate = json.loads((run / "certification/certificate.json").read_text())
    assert (certificate["sigma"], certificate["n_episodes"], certificate["deterministic"]) == (0.4, len(returns), None)
    np.testing.assert_array_equal(certificate["certified_return"], certified_return(returns, 0.4, certificate["radii"]))
    assert [source["episodes"] for source in certificate["sources"]] == [
        len(file.read_text().splitlines()) - 2 for file in sorted(played.iterdir())
    ]


def test_certifies_the_zoos_own_single_evaluation(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    assert certify(run / "evaluations.npz") == 0
    assert json.loads((run / "certification/certificate.json").read_text())["sigma"] == 0.4


def test_a_log_from_outside_the_zoo_takes_sigma_from_the_command_line(tmp_path, capsys):
    path = write_monitor(tmp_path / "0.monitor.csv", [(9.0, 9, 0.25), (12.0, 12, 0.5)])
    assert f"{path}: nothing tells the noise" in error_line(capsys, path)
    assert "nothing tells with which settings CartPole-v1 was made" in error_line(capsys, path, "--sigma", "0.3")
    assert certify(path, "--sigma", "0.3", "--min-return", 0) == 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert (certificate["sigma"], certificate["env_id"], certificate["algo"]) == (0.3, "CartPole-v1", None)


def test_a_run_without_noise_is_certified_with_the_noise_of_its_evaluation(tmp_path, capsys):
    run = noisy_run(tmp_path, env_wrapper=None)
    assert certify(run) == 0
    assert json.loads((run / "certification/certificate.json").read_text())["sigma"] == 0.4
    capsys.readouterr()
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    play_monitored(run / "enjoy/0", 2)
    for log in (run / "evaluations.npz", run / "enjoy"):
        for options in ([], ["--sigma", "0.4"]):
            line = error_line(capsys, log, *options)
            assert str(run / "CartPole-v1/config.yml") in line and str(log) in line and "no smoothing noise" in line


def test_an_evaluation_may_set_another_sigma_by_env_kwargs(tmp_path, capsys):
    run = make_run(tmp_path, "camp/Freeway-v0", args={"env_kwargs": {"sigma": 0.2}})
    path = run / "certification/evaluations.npz"
    write_evaluation(path, RETURNS, env_id="camp/Freeway-v0", env_kwargs='{"sigma": 0.4}')
    assert certify(run) == 0
    capsys.readouterr()
    write_evaluation(path, RETURNS, env_id="camp/Freeway-v0", env_kwargs='{"sigma": 0.3}')
    assert "not those of the noise in its own settings" in error_line(capsys, run)


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        ({"env_wrapper": [noise(0.3)]}, [], "says sigma 0.4, but {config} says 0.3"),
        ({}, ["--sigma", "0.3"], "but --sigma says 0.3"),
        ({}, ["--sigma", "nan"], "--sigma must be"),
        ({}, ["--sigma", "-1"], "--sigma must be"),
        ({"env_wrapper": [noise(0.2), noise(0.3)]}, [], "{config}: 2 smoothing noises"),
        ({"env_wrapper": [{STACK: {"stack_size": 4}}, noise(0.4)]}, [], "{config}: the smoothing noise comes after"),
        ({"env_wrapper": [noise(0.4), NORMALISER]}, [], "{config}: NormalizeObservation normalises"),
        ({}, ["--alpha", "0"], "alpha"),
        ({}, ["--alpha", "1.5"], "alpha"),
        ({}, ["--alpha", "1e-300"], "alpha must be at least 1e-50"),
        ({}, ["--min-return", "50"], "--min-return 50: an episode of CartPole-v1 can return 0: leave it out"),
        ({}, ["--min-return", "nan"], "--min-return must be a finite number, not nan"),
        ({}, ["--min-return=-1e308"], "--min-return must be a finite number, not -1e+308"),
        ({}, ["--sigma", "1e308"], "--sigma must be a finite number that is at least 0, not 1e+308"),
        ({}, ["--radii", "0.1", "-0.1"], "--radii"),
        ({}, ["--radii", "inf"], "--radii"),
        ({}, ["--radii", "nan"], "--radii"),
        ({}, ["--radii", "0", "1e308"], "--radii: nothing can be certified at 1e+308"),
        ({}, ["--targets", "0"], "the target 0 is not above"),
        ({}, ["--targets", "nan"], "the target nan is not above"),
        ({}, ["--support", "1:200"], "--support is for the method clopper-pearson"),
        ({}, ["--method", "clopper-pearson", "--support", "a"], "--support: 'a' is neither"),
        ({}, ["--method", "clopper-pearson", "--support", "1:b"], "--support: '1:b' is neither"),
        ({}, ["--method", "clopper-pearson", "--support", "1:9999999999"], "--support: 1:9999999999 holds more than 10000000"),
        ({}, ["--method", "clopper-pearson", "--support", f"1:1{'0' * 400}"], "holds more than 10000000"),
        ({}, ["--method", "clopper-pearson", "--support", f"1{'0' * 400}:1{'0' * 400}"], "is neither"),
        ({}, ["--method", "clopper-pearson", "--support", "2:1"], "--support must hold"),
        ({}, ["--method", "clopper-pearson", "--support", "inf"], "--support must hold"),
    ],
)
def test_refuses_noise_and_options_that_cannot_be_right(tmp_path, capsys, config, options, reason):
    run = noisy_run(tmp_path, **config)
    assert reason.format(config=run / "CartPole-v1/config.yml") in error_line(capsys, run, *options)
    assert not (run / "certification/certificate.json").exists()


def test_refuses_evaluations_that_the_noise_of_the_yml_did_not_reach(tmp_path, capsys):
    run = make_run(tmp_path, "camp/Freeway-v0", env_kwargs={"sigma": 0.4})
    np.savez(run / "evaluations.npz", timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    line = error_line(capsys, run / "evaluations.npz")
    assert str(run / "camp-Freeway-v0/config.yml") in line and "evaluation env" in line and spelled("evaluate") in line


def test_refuses_negative_returns_unless_told_the_lowest(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", [-1.0, 1.0, 1.0], [9, 9, 9], env_id="Made-v0")
    line = error_line(capsys, path, "--min-return", "0")
    assert f"{path}: holds the return -1, below 0: pass the lowest return" in line and "--min-return" in line
    assert certify(path, "--min-return", "-1") == 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    np.testing.assert_array_equal(
        certificate["certified_return"], certified_return([-1, 1, 1], 0.4, certificate["radii"], min_return=-1)
    )


@pytest.mark.parametrize(
    ("returns", "lengths", "env_id"),
    [([9.0, 8.5], [9, 9], "CartPole-v1"), ([9.0], [9], "Unknown-v0"), ([9.0], [9], "None-v0")],
)
def test_guesses_no_support(tmp_path, capsys, returns, lengths, env_id):
    path = write_evaluation(tmp_path / "evaluations.npz", returns, lengths, env_id=env_id)
    options = ["--method", "clopper-pearson", "--min-return", 0]
    assert "pass them with --support" in error_line(capsys, path, *options)


def test_refuses_traps_in_the_logs(tmp_path, capsys):
    run = noisy_run(tmp_path)
    evaluation = run / "certification/evaluations.npz"
    assert "training episodes" in error_line(capsys, run / "0.monitor.csv")
    assert "the same file twice" in error_line(capsys, run, evaluation)
    np.savez(run / "evaluations.npz", timesteps=[1, 2], results=[[9.0], [8.0]], ep_lengths=[[9], [8]])
    assert f"{run / 'evaluations.npz'}: 2 rows" in error_line(capsys, run / "evaluations.npz")
    copy = tmp_path / "copy.npz"
    copy.write_bytes(evaluation.read_bytes())
    assert str(copy) in error_line(capsys, run, copy)
    cut = tmp_path / "0.monitor.csv"
    cut.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n127,127,1.5\n12')
    assert f"{cut}, line 4" in error_line(capsys, cut, "--sigma", "0.4")
    evaluation.write_bytes(evaluation.read_bytes()[:-40])
    assert f"{evaluation}: damaged" in error_line(capsys, run)
    evaluation.unlink()
    assert f"{spelled('evaluate')} --algo dqn --env CartPole-v1 -f" in error_line(capsys, run)


def test_refuses_a_hostile_run_folder(tmp_path, capsys):
    run = noisy_run(tmp_path)
    args = run / "CartPole-v1/args.yml"
    args.write_text(f"env: CartPole-v1\nalgo: dqn\nx: !!python/object/apply:os.system ['touch {tmp_path / 'marker'}']\n")
    line = error_line(capsys, run)
    assert str(args) in line and "python/object/apply:os.system" in line
    assert not (tmp_path / "marker").exists()


def test_refuses_logs_of_another_environment_algorithm_or_run(tmp_path, capsys):
    run = noisy_run(tmp_path)
    path = run / "certification/evaluations.npz"
    for changes in ({"env_id": "CartPole-v0"}, {"algo": "ppo"}):
        write_evaluation(path, RETURNS, **changes)
        line = error_line(capsys, run)
        assert str(path) in line and "lies in the folder of a run" in line
    write_evaluation(path, RETURNS)
    other = make_run(tmp_path / "logs", number=2, env_wrapper=[noise(0.4)])
    write_evaluation(other / "certification/evaluations.npz", RETURNS[::-1], seed=1)
    assert "not in the same run folder" in error_line(capsys, run, other)
    write_evaluation(path, RETURNS, sigma=0.0)
    assert "no smoothing noise" in error_line(capsys, run)


def test_an_output_that_cannot_be_written_is_one_line(tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in error_line(capsys, path, "-o", tmp_path / "file")


def test_a_failed_writing_keeps_the_old_certificate(tmp_path, monkeypatch, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    assert certify(path) == 0
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    assert certify(path, "--alpha", "0.5") == 130
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_commands_in_one_folder_lose_nothing_and_say_what_happened(tmp_path, capsys):
    run = noisy_run(tmp_path)
    folder = run / "certification"
    assert certify(run) == 0
    assert "Replaced" not in capsys.readouterr().out
    before = {file: file.read_bytes() for file in folder.iterdir()}
    with only_writer(folder):
        line = error_line(capsys, run, "--alpha", 0.5)
    assert f"{folder}: another command writes its results there now, so this one changed nothing" in line
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert certify(run, "--alpha", 0.5) == 0
    assert (
        "Replaced: the certificate that was there (berk-jones, alpha 0.05, 400 episodes); both hold together"
        in capsys.readouterr().out
    )


def test_no_file_can_send_commands_to_the_terminal(tmp_path, capsys):
    hostile = "\x1b[2J\x07\u202e\r\n"
    path = write_evaluation(
        tmp_path / f"a{hostile}.npz", RETURNS, env_id=f"E{hostile}", algo=f"A{hostile}", model=f"M{hostile}"
    )
    assert certify(path, "--min-return", -1, "--radii", 0) == 0
    printed = capsys.readouterr()
    line = error_line(capsys, path, "--min-return", 1000)
    folder = tmp_path / f"b{hostile}"
    for text in (printed.out + printed.err, line, error_line(capsys, folder)):
        assert r"\x1b" in text and all(one.isprintable() or one == "\n" for one in text)
    (tmp_path / "a.json").write_text(json.dumps({"format": "sb3_camp-certificate-1", "sigma": hostile}))
    assert plot(["certificate", str(tmp_path / "a.json")]) == plot(["certificate", str(folder)]) == 2
    assert all(one.isprintable() or one == "\n" for one in capsys.readouterr().err)


def test_two_seeds_of_one_model_are_pooled(tmp_path):
    run = noisy_run(tmp_path)
    second = write_evaluation(run / "certification/second.npz", RETURNS[::-1] + 1, seed=1, model_sha256=MODEL_SHA256)
    assert certify(run, second) == 0
    certificate = json.loads((run / "certification/certificate.json").read_text())
    pooled = np.concatenate([RETURNS, RETURNS + 1])
    assert certificate["n_episodes"] == 800
    np.testing.assert_allclose(
        certificate["certified_return"], certified_return(pooled, 0.4, certificate["radii"]), rtol=1e-12
    )
    assert not any(math.isnan(value) for value in certificate["certified_return"])


@pytest.mark.parametrize("number", ["-1e3", "-1000", "-1E+3", "-1000.0"])
def test_a_negative_number_is_no_option_however_it_is_written(tmp_path, capsys, number):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS - 500, RETURNS.astype(int), env_id="Own-v0")
    assert certify(path, "--min-return", number, "--targets", "-5e2", "-4.5e2", "--probability-of", "-.5e3") == 0
    certificate = read_certificate(tmp_path / "certificate.json")
    assert certificate.min_return == -1000 and list(certificate.targets) == ["-500", "-450"]
    assert certificate.quantities[0].at == -500
