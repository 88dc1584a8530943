"""What is done in a cell of a sweep: train, evaluate, certify, attack, each a command that you could type yourself."""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rl_zoo3.utils import ALGOS
from stable_baselines3 import DQN
from sweep_cells import Cell, write_atomically
from sweep_grid import baseline_conf, counts_steps, takes_sigma

from sb3_camp.certification.rounded_text import exact
from sb3_camp.certify import main as certify

_TRAIN = Path(__file__).with_name("train.py")
_NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"

# A worker that is killed with -9 cannot end the command that it runs: on Linux the system does. Where the worker has gone
# already, its number is that of another parent
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@dataclass(frozen=True)
class Step:
    """
    One command of a cell.

    :param name: Its name: that of its log and of the file that tells that it is done
    :param arguments: Arguments of the Python interpreter
    """

    name: str
    arguments: list[str]

    @property
    def command(self) -> str:
        """As one would type it."""
        return shlex.join(["python", *self.arguments])


class StepFailed(Exception):
    """
    A command of a cell ended with an error.

    The message says which, how, and where its output is.
    """


def cell_steps(
    cell: Cell, settings: dict[str, Any], folder: Path, checkpoints: list[str], attacks: list[str], attack_sigmas: list[str]
) -> list[Step]:
    """
    :param cell: The cell
    :param settings: What all cells have in common
    :param folder: Folder of the sweep
    :param checkpoints: Which of "best" and "last"
    :param attacks: Names of attacks
    :param attack_sigmas: "own" and "0", the noise under attack
    :return: its steps, in their order
    """
    steps = [Step("train", _training(cell, settings, folder))]
    budgets = ["--budget", *map(exact, settings["attack_budgets"])] if settings["attack_budgets"] else []
    radii = ["--radii", *map(exact, settings["radii"])] if settings["radii"] else []
    q_gap = ["--q-gap"] if has_q_values(cell.algo) else []
    for checkpoint in checkpoints:
        evaluation = evaluation_folder(cell, folder, checkpoint)
        agent = [*_agent(cell, settings, folder), *(["--load-best"] if checkpoint == "best" else [])]
        arguments = [*agent, "-n", str(settings["n_episodes"]), "--resume", *q_gap, "-o", str(evaluation)]
        steps.append(Step(f"evaluate-{checkpoint}", ["-m", "sb3_camp.evaluate", *arguments]))
        for method in methods(cell.task):
            arguments = [str(evaluation / "evaluations.npz"), "--method", method, *radii, "-o", str(evaluation / method)]
            steps.append(Step(f"certify-{checkpoint}-{method}", ["-m", "sb3_camp.certify", *arguments]))
        for name in attack_names(attacks, attack_sigmas):
            attack, _, sigma = name.partition("-sigma")
            arguments = [*agent, "--attack", attack, *budgets, "-n", str(settings["attack_episodes"])]
            arguments += ["--n-envs", str(settings["attack_envs"]), "--resume"]
            arguments += [*(["--sigma", sigma] if sigma else []), "-o", str(attack_folder(cell, folder, checkpoint, name))]
            steps.append(Step(f"attack-{checkpoint}-{name}", ["-m", "sb3_camp.attack", *arguments]))
    return steps


def _training(cell: Cell, settings: dict[str, Any], folder: Path) -> list[str]:
    arguments = [os.path.relpath(_TRAIN) if _TRAIN.is_relative_to(Path.cwd()) else str(_TRAIN)]
    arguments += ["--algo", cell.algo, "--env", cell.task, "-f", str(folder / cell.name), "--seed", str(cell.seed)]
    arguments += ["--eval-freq", str(settings["eval_freq"]), "--eval-episodes", str(settings["eval_episodes"])]
    arguments += ["--n-eval-envs", str(settings["n_eval_envs"]), "--num-threads", "1", "--device", settings["device"]]
    if settings["n_timesteps"] is not None:
        arguments += ["-n", str(settings["n_timesteps"])]
    conf = settings["conf"].get(cell.algo)
    conf_file = baseline_conf(cell.algo, cell.task) if conf is None else conf["path"]
    if conf_file is not None:
        arguments += ["-conf", conf_file]
    params = list(settings["variants"].get(cell.variant, {"params": []})["params"])
    if cell.camp_lambda is not None:
        params.append(f"camp_lambda:{float(cell.camp_lambda)!r}")
    if takes_sigma(cell.task):
        noise = f"sigma:{exact(cell.sigma)}"
        arguments += ["--env-kwargs", noise, "--eval-env-kwargs", noise]
    else:
        params.append(f"env_wrapper:[{{'{_NOISE}': {{'sigma': {exact(cell.sigma)}}}}}]")
    return [*arguments, *_gym_packages(settings), *(["-params", *params] if params else [])]


def _agent(cell: Cell, settings: dict[str, Any], folder: Path) -> list[str]:
    arguments = ["--algo", cell.algo, "--env", cell.task, "-f", str(folder / cell.name), "--exp-id", "1"]
    arguments += ["--seed", str(cell.seed), "--num-threads", "1", "--device", settings["device"]]
    return [*arguments, *_gym_packages(settings)]


def _gym_packages(settings: dict[str, Any]) -> list[str]:
    return ["--gym-packages", *settings["gym_packages"]] if settings["gym_packages"] else []


def evaluation_folder(cell: Cell, folder: Path, checkpoint: str) -> Path:
    """Where the evaluation of a checkpoint is, with a folder for the certificate of each method."""
    return cell.run_folder(folder) / f"evaluation_{checkpoint}"


def attack_folder(cell: Cell, folder: Path, checkpoint: str, name: str) -> Path:
    """Where an attack on a checkpoint is."""
    return cell.run_folder(folder) / f"attack_{checkpoint}" / name


def attack_names(attacks: list[str], attack_sigmas: list[str]) -> list[str]:
    """Names of the attacks: "pgd" with the noise of the cell, "pgd-sigma0" without noise."""
    return [attack if sigma == "own" else f"{attack}-sigma0" for attack in attacks for sigma in attack_sigmas]


def methods(task: str) -> list[str]:
    """The bands of the certificates."""
    return ["berk-jones", "dkw", *(["clopper-pearson"] if counts_steps(task) else [])]


def has_q_values(algo: str) -> bool:
    """Whether the action scores of an algorithm are values of the actions."""
    return algo == "qrdqn" or issubclass(ALGOS[algo], DQN)


def marker(folder: Path, cell: Cell, step: str) -> Path:
    """The file that tells that a step is done, and what it took."""
    return folder / cell.name / "steps" / f"{step}.json"


def run_cell(cell: Cell, steps: list[Step], folder: Path, on_step: Callable[[str], object]) -> None:
    """
    Do the steps of a cell that are not done yet.

    :param cell: The cell
    :param steps: Its steps
    :param folder: Folder of the sweep
    :param on_step: Called with the name of each step that begins
    :raises StepFailed: if a command fails
    """
    cell_folder = folder / cell.name
    (cell_folder / "steps").mkdir(parents=True, exist_ok=True)
    write_atomically(cell_folder / "cell.json", json.dumps(cell.fields(), indent=1) + "\n")
    # An attack of an earlier command, say, that this one does not ask for
    earlier = [
        file for file in sorted((cell_folder / "steps").glob("*.json")) if file.stem not in {step.name for step in steps}
    ]
    commands = [*(step.command for step in steps), *(json.loads(file.read_text())["command"] for file in earlier)]
    write_atomically(cell_folder / "commands.txt", "".join(f"{command}\n" for command in commands))
    for step in steps:
        done = marker(folder, cell, step.name)
        if done.exists():
            continue
        on_step(step.name)
        if step.name == "train":  # which cannot go on where it was interrupted; what was made of another model is void
            for file in (cell_folder / "steps").glob("*.json"):
                file.unlink()
            shutil.rmtree(cell_folder / cell.algo, ignore_errors=True)
        costs = _run(step, done.with_suffix(".log"))
        write_atomically(done, json.dumps({"command": step.command, **costs}, indent=1) + "\n")


def _run(step: Step, log: Path) -> dict[str, float | None]:
    """Run a command to its end, with its output in a log file. Returns what it took."""
    start, cpu_start = time.monotonic(), time.process_time()
    with log.open("w") as output:
        if step.arguments[:2] == ["-m", "sb3_camp.certify"]:  # takes no longer than the start of a process
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                status = certify(step.arguments[2:])
            if status == 130:
                raise KeyboardInterrupt
            cpu_seconds, peak_memory = time.process_time() - cpu_start, None
        else:
            status, cpu_seconds, peak_memory = _run_process(step.arguments, output)
    if status != 0:
        lines = log.read_text(errors="replace").strip().splitlines() or ["(no output)"]
        ending = f"status {status}" if status > 0 else f"signal {-status}"
        raise StepFailed(f"{step.name} failed ({ending}): {lines[-1].strip()} (log: {log}, command: {step.command})")
    return {
        "wall_seconds": round(time.monotonic() - start, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_memory_mib": peak_memory,
    }


def _run_process(arguments: list[str], output: IO[str]) -> tuple[int, float, float | None]:
    """Status, CPU seconds and peak memory in MiB, None where the system does not tell."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(os.getpid()), *arguments],
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # the networks are small, and workers share the cores
        start_new_session=True,  # Ctrl-C is for the worker: the zoo would save what it has, as if it were finished
    )
    peak_memory = None
    try:
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode, usage.ru_utime + usage.ru_stime, peak_memory
            peak_memory = _peak_memory(process.pid) or peak_memory
            time.sleep(0.05)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _peak_memory(pid: int) -> float | None:
    """Peak memory of a running process in MiB. (What wait4 reports is at least that of the worker.)"""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return None if found is None else round(int(found[1]) / 1024, 1)
    return None


@contextlib.contextmanager
def locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """
    A context in which this process alone has a lock. It goes with the process, however that ends.

    :param file: The file of the lock, made if needed
    :param wait: Whether to wait until it is free
    :return: a context with whether this process has the lock
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        yield _lock(opened, wait)


def _lock(opened: IO[str], wait: bool) -> bool:
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not wait:
                return False
        except OSError:  # a file system without locks: the study alone keeps workers apart
            return True
        time.sleep(0.5)
