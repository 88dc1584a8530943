"""The evaluate command, and what it wrote."""

import os
import subprocess
import sys

import numpy as np

import sb3_camp
from sb3_camp.evaluate import main

NOISE = "{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.2}}"


def run(module, *arguments, cwd):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


def environment():
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sb3_camp.__file__)), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def read(path):
    with np.load(path, allow_pickle=False) as content:
        return dict(content)


def evaluate(*arguments, algo="dqn", env="CartPole-v1"):
    return main(["--algo", algo, "--env", env, "--device", "cpu", *map(str, arguments)])


def error_line(capsys):
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("evaluate: error: ") and "\n" not in printed
    return printed
