"""A linear policy that a search finds, as a run of the zoo."""

import sys
from functools import partial

import numpy as np
import pytest
from sb3_contrib import ARS
from support.zoo_scripts import ZOO_SCRIPTS, imported_script, run_python, status_of

from sb3_camp import CAMPDQN


@pytest.fixture(scope="module")
def teacher():
    with imported_script("linear_teacher") as module:
        yield module


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--env", "CartPole-v1"], "--env"),
        (["--env-kwargs", "length:1"], "the names are sigma, n_stack"),
        (["--env-kwargs", "sigma:-1"], "sigma"),
        (["--env-kwargs", "n_stack:0"], "n_stack"),
        (["--env-kwargs", "sigma:0.1", "sigma:0.3"], "sigma is given twice"),
        (["--env-kwargs", "sigma:0.1", "--env-kwargs", "sigma:0.3"], "sigma is given twice"),
        (["-f", "a_file"], "a_file"),
    ],
)
def test_what_it_cannot_use_is_said_before_the_search(teacher, options, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    monkeypatch.setattr(sys, "argv", ["linear_teacher", "--env", "camp/CartPole5-v0", *options])
    monkeypatch.setattr(teacher, "search", lambda *args: pytest.fail("it searches"))
    assert status_of(teacher.main) == 2 and told in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"], "nothing is left of it"


@pytest.mark.slow
def test_camp_imitates_the_policy_of_the_search(tmp_path):
    run = partial(run_python, tmp_path)
    task = ("--env", "camp/CartPole5-v0")
    run(str(ZOO_SCRIPTS / "linear_teacher.py"), *task, "--env-kwargs", "sigma:0.4", "n_stack:2", "-f", "logs", "--seed", "1")
    zip_path = "logs/ars/camp-CartPole5-v0_1/camp-CartPole5-v0.zip"
    weights = ARS.load(tmp_path / zip_path).policy.action_net[0].weight
    assert weights.shape == (2, 8) and not weights[0].any(), "it pushes right where their sum is positive"
    run("-m", "sb3_camp.evaluate", "--algo", "ars", *task, "-f", "logs", "-n", "1000")
    run(
        *("-m", "rl_zoo3.train", "--algo", "camp_dqn", *task, "--env-kwargs", "sigma:0.4", "n_stack:2", "-f", "logs"),
        *("-n", "2500", "--eval-freq", "-1", "--seed", "0", "-params", f"reference:'{zip_path}'"),
    )
    run("-m", "sb3_camp.evaluate", "--algo", "camp_dqn", *task, "-f", "logs", "-n", "1000")
    assert CAMPDQN.load(tmp_path / "logs/camp_dqn/camp-CartPole5-v0_1/camp-CartPole5-v0.zip").reference_kind == "frozen"
    means = []
    for algo in ("ars", "camp_dqn"):
        path = tmp_path / "logs" / algo / "camp-CartPole5-v0_1" / "certification" / "evaluations.npz"
        with np.load(path) as evaluation:
            means.append(evaluation["results"].mean())
    assert means[0] > 170 and abs(means[1] - means[0]) < 8
