"""
Train, evaluate, certify and attack the agents of a study, with tables, figures and a report: ``FOLDER/report.html``.

Snakemake does it: what is done is not done again, what a changed setting of the study concerns is, and the same command goes
on where it was interrupted or killed. Its options may follow: -n shows what would be done, --cores 4 takes four at a time,
--workflow-profile zoo_scripts/experiments/profiles/slurm makes each step a job of Slurm.

Example:
  python zoo_scripts/sweep.py zoo_scripts/experiments/studies/cartpole.yml -o cartpole
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

WORKFLOW = Path(__file__).with_name("experiments")
sys.path.insert(0, str(WORKFLOW))


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 1 if a step failed, 2 for bad input, 130 if interrupted
    """
    parser = argparse.ArgumentParser(
        prog="sweep",
        usage="sweep.py STUDY.yml -o FOLDER [options of Snakemake]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("study", type=Path, metavar="STUDY.yml", help="what to do: see zoo_scripts/experiments/README.md")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder of the results")
    args, options = parser.parse_known_args(argv)
    failed: list[str] = []

    def command() -> None:
        if not _run(args.study, args.output, options):
            failed.append("a step")

    return exit_status("sweep", command, interrupted="the same command goes on from here") or len(failed)


def _run(file: Path, folder: Path, options: list[str]) -> bool:
    """Whether all steps are done."""
    if importlib.util.find_spec("snakemake") is None:
        raise InputError("Snakemake is not installed: pip install '.[experiments]' (Python 3.11 or newer)")
    from collect import write_tables
    from study import read_study

    study = read_study(file)
    snakemake = [*("-s", str(WORKFLOW / "Snakefile")), *("--configfile", str(file.resolve())), *("--directory", str(folder))]
    dry = bool({"-n", "--dry-run", "--dryrun"} & set(options))
    with _alone_in(folder):
        # Snakemake's own lock would outlive a killed process
        report = [] if dry else ["--report", "report.html", "--report-after-run"]
        done = _engine([*snakemake, "--nolock", "--logger", "study", *report, *_slurm(folder), *options])
    if dry:
        return done
    so_far = folder / "results_so_far.csv"  # another name, so that it is never taken for the whole
    if done:
        so_far.unlink(missing_ok=True)
        print(f"{len(study.cells)} cells are done: {folder / 'results.csv'}, {folder / 'figures'}, {folder / 'report.html'}")
    else:
        write_tables(study, folder, so_far.name)
        print(f"sweep: not all is done; what there is: {so_far}", file=sys.stderr)
    return done


def _engine(arguments: list[str]) -> bool:
    """Run Snakemake in this process, so that both end together. Returns whether it did all."""
    import progress
    from snakemake.cli import main as snakemake
    from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

    LoggerPluginRegistry().register_plugin("snakemake_logger_plugin_study", progress)
    home = Path.cwd()

    def interrupt(*_: object) -> None:
        progress.interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        snakemake(arguments)
    except SystemExit as end:
        if progress.interrupted.is_set():  # for Snakemake one of many failures
            raise KeyboardInterrupt from None
        return not end.code
    finally:
        signal.signal(signal.SIGINT, before)
        os.chdir(home)
    return True


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """A context in which no other sweep works in a folder. The lock goes with the process, however it ends."""
    known = any((folder / name).exists() for name in (".study.lock", ".snakemake"))
    if not known and folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: not empty, and not the folder of a study: choose another one with -o")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".study.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process works on it: wait for it, or choose another folder") from None
        except OSError:  # a file system without locks
            pass
        yield


def _slurm(folder: Path) -> list[str]:
    """Where there is a Slurm: cancel what a killed process left in its queue, and name the jobs so that this can be done."""
    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None or shutil.which("sacct") is None:
        return []
    name = f"study{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"

    def left() -> list[str]:
        jobs = subprocess.run(["squeue", "--me", "-h", "-o", "%i %j"], capture_output=True, text=True).stdout.splitlines()
        return [job.split()[0] for job in jobs if name in job]

    if jobs := left():
        print(f"Cancelling {len(jobs)} jobs that an earlier run left", file=sys.stderr)
        subprocess.run(["scancel", *jobs], check=False)
        while left():
            time.sleep(1)
    # Without accounting, sacct is there and fails, and the plugin would wait for ever
    accounting = subprocess.run(["sacct", "-n"], capture_output=True).returncode == 0
    return ["--slurm-jobname-prefix", name, *([] if accounting else ["--slurm-status-command", "squeue"])]


if __name__ == "__main__":
    sys.exit(main())
