"""The sweep of ``zoo_scripts/``, as tests start and stop it."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "zoo_scripts"
sys.path.insert(0, str(SCRIPTS))

# As modules of this one: the scripts are on the path only now
figure_data, figure_tables, figures, sweep, sweep_cells, sweep_claims, sweep_grid, sweep_steps, sweep_table = map(
    importlib.import_module,
    (
        "figure_data",
        "figure_tables",
        "figures",
        "sweep",
        "sweep_cells",
        "sweep_claims",
        "sweep_grid",
        "sweep_steps",
        "sweep_table",
    ),
)

TASK = "camp/CartPole1-v0"
SMALL = ["--tasks", TASK, "--sigmas", "0.2", "-n", "500", "--eval-freq", "250", "--eval-episodes", "4", "--n-eval-envs", "4"]
SMALL += ["--n-episodes", "60", "--radii", "0.1", "0", "0.2"]

_CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
sys.path.insert(0, sys.argv[1])
from sb3_camp.tuning import workers
workers.INTERVAL, workers.GRACE_PERIOD = 0.3, 6.0
import sweep
sys.exit(sweep.main(sys.argv[2:]))
"""


def start(folder: Path, arguments: list[str], name: str = "worker") -> subprocess.Popen:
    """Start a worker, with its output beside the folder of the sweep."""
    command = [sys.executable, "-c", _CODE, str(SCRIPTS), "-o", str(folder), *arguments]
    with Path(f"{folder}_{name}.txt").open("w") as output:
        return subprocess.Popen(command, cwd=folder.parent, env=environment(), stdout=output, stderr=subprocess.STDOUT)


def output_of(folder: Path, name: str = "worker") -> str:
    return Path(f"{folder}_{name}.txt").read_text()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def commands_in(folder: Path) -> list[int]:
    """Processes whose command line names something in the folder of the sweep, but for its workers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(word.startswith(f"{folder}/") for word in words):
            found.append(int(entry.name))
    return found


def until(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, "the worker has ended before"
        time.sleep(0.02)


def stopped_at(folder: Path, arguments: list[str], point: Callable[[], object], by: signal.Signals) -> int:
    """Start a worker, stop it by a signal as soon as a condition holds, and return its exit status."""
    process = start(folder, arguments)
    try:
        until(point, process)
        process.send_signal(by)
        status = process.wait(60)
        until(lambda: not commands_in(folder))  # what it had started
        return status
    finally:
        process.kill()
