"""The workflow of ``zoo_scripts/experiments/``, as tests start, stop and look at it."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "zoo_scripts"
WORKFLOW = SCRIPTS / "experiments"
STUDIES = WORKFLOW / "studies"
TASK = "camp/CartPole1-v0"
CELL = "camp-CartPole1-v0_ars_sigma0.2_seed3"

TINY: dict[str, Any] = {
    "grids": [{"tasks": [TASK], "algorithms": ["ars"], "sigmas": [0.2], "seeds": [3]}],
    "train": {"n_timesteps": 500, "eval_freq": 250, "eval_episodes": 4, "n_eval_envs": 4},
    "evaluate": {"n_episodes": 61, "shards": 2, "checkpoints": ["last"]},
    "certify": {"radii": [0.1, 0, 0.2]},
    "attack": {"budgets": [0.3, 0], "n_episodes": 20},
}


def grid(**entries: Any) -> dict[str, Any]:
    """A grid of one cell of CAMP, with other entries."""
    return {"tasks": [TASK], "algorithms": ["camp_dqn"], "sigmas": [0.2], "seeds": [0], **entries}


def script(name: str) -> Any:
    """A module of the workflow, or of ``zoo_scripts``."""
    for folder in (SCRIPTS, WORKFLOW):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def changed(**sections: Any) -> dict[str, Any]:
    """The tiny study with other sections; of those that are a dict only the given entries are others."""
    return TINY | {
        name: {**TINY.get(name, {}), **value} if isinstance(value, dict) and name != "variants" else value
        for name, value in sections.items()
    }


def write_study(file: Path, config: Any) -> Path:
    file.write_text(yaml.safe_dump(config))
    return file


def start(study: Path, folder: Path, *options: str) -> subprocess.Popen:
    """Start a sweep in a process group of its own, with its output beside its folder."""
    command = [sys.executable, str(SCRIPTS / "sweep.py"), str(study), "-o", str(folder), "--cores", "2", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path(f"{folder}.txt").open("w") as output:
        return subprocess.Popen(
            command, cwd=folder.parent, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def output_of(folder: Path) -> str:
    return Path(f"{folder}.txt").read_text()


def run(study: Path, folder: Path, *options: str) -> str:
    """Run a sweep to its end, and return what it said."""
    assert start(study, folder, *options).wait(900) == 0, output_of(folder)
    return output_of(folder)


def working_in(folder: Path) -> list[int]:
    """Processes whose working folder it is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(entry / "cwd")) == folder:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, "the sweep has ended before"
        time.sleep(0.02)


def killed_at(study: Path, folder: Path, point: Callable[[], object], *options: str) -> None:
    """Start a sweep, kill it with -9 as soon as a condition holds, and wait until nothing of it is left."""
    process = start(study, folder, *options)
    try:
        until(point, process)
    finally:
        process.kill()
    assert process.wait(60) == -signal.SIGKILL
    until(lambda: not working_in(folder))
