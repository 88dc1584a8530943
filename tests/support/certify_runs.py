"""The certify command, and runs for it."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_camp.certify import main
from support.logs import play_monitored, write_evaluation
from support.run_folders import make_run, noise

MODEL_SHA256 = hashlib.sha256(b"a model").hexdigest()


RETURNS = np.random.default_rng(0).integers(20, 201, 400).astype(float)


def certify(*args: Any) -> int:
    return main([str(arg) for arg in args])


def error_line(capsys: pytest.CaptureFixture, *args: Any) -> str:
    """Run the command, which must refuse, and return its one line."""
    assert certify(*args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("certify: error: ") and printed.err.count("\n") == 1 and printed.err.endswith("\n")
    return printed.err


def noisy_run(tmp_path: Path, **config: Any) -> Path:
    """A run folder with noise of sigma 0.4, its training log and its evaluation by our command."""
    run = make_run(tmp_path / "logs", **{"env_wrapper": [noise(0.4)], **config})
    play_monitored(run / "0", 2)
    model = run / "CartPole-v1.zip"
    model.write_bytes(b"a model")
    write_evaluation(run / "certification" / "evaluations.npz", RETURNS, model_sha256=MODEL_SHA256)
    return run
