"""
Run one step of a study: commands one after the other, in this process.

    python run_step.py --engine PID --lock FILE [--whole FOLDER | --resume FOLDER] -- COMMAND [--then COMMAND] ...

A COMMAND is ``-m MODULE ARGUMENT ...``. The step ends with the engine that started it, however that ends, and two for the same
output wait for each other. ``--whole``: what the commands write into FOLDER appears there at the end, or not at all.
``--resume``: what an earlier attempt left in FOLDER is kept, if the same release made it by the same commands from the same
models.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import runpy
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psutil

_KILLED = 137
_POLL = 0.3


def _end_with(engine: int) -> None:
    """
    End at once if the engine or its shell is killed, and by Ctrl-C: the zoo would save what it has as if it were finished.
    Nothing is lost: files are written whole.
    """
    parent = os.getppid()

    def watch() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(engine)
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and os.getppid() == parent:
                time.sleep(_POLL)
        os._exit(_KILLED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(_KILLED))
    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """A context in which this process alone has a lock, which goes with it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _forget_others(folder: Path, commands: list[list[str]]) -> None:
    """Delete what was begun with other commands or from other models."""
    models = sorted(Path(*folder.parts[:2]).glob("train/*/*/*.zip"))  # of cells/NAME
    digests = (hashlib.sha256(model.read_bytes()).hexdigest() for model in models)
    parts = [version("sb3_camp"), *map(shlex.join, commands), *digests]
    note, text = folder / "begun_by.txt", "".join(f"{part}\n" for part in parts)
    if folder.exists() and not (note.is_file() and note.read_text() == text):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(text)


def _run(words: list[str]) -> None:
    """Run a command. A failure ends the process with its status."""
    print(f"$ python {shlex.join(words)}", flush=True)
    sys.argv = words[1:]
    try:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise


def _is_in(word: str, folder: str | None) -> bool:
    return folder is not None and (word == folder or word.startswith(f"{folder}/"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", type=Path, required=True, help="the file of a lock that only one step may have")
    parser.add_argument("--whole", metavar="FOLDER", help="folder that appears at the end, or not at all")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="folder in which an earlier attempt is continued")
    parser.add_argument("--engine", type=int, required=True, metavar="PID", help="the step ends with this process")
    own, _, words = shlex.join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_args(shlex.split(own))
    commands = [shlex.split(text) for text in words.split(" --then ")]
    _end_with(args.engine)
    sys.path.pop(0)  # the folder of this script, whose modules are not for the commands
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # programs that train in place of the zoo
    with _locked(args.lock):
        if args.resume is not None:
            _forget_others(args.resume, commands)
        part = f"{args.whole}.part"
        shutil.rmtree(part, ignore_errors=True)  # what an earlier attempt left
        for command in commands:
            _run([part + word.removeprefix(args.whole) if _is_in(word, args.whole) else word for word in command])
        if args.whole is not None:
            shutil.rmtree(args.whole, ignore_errors=True)
            os.replace(part, args.whole)


if __name__ == "__main__":
    main()
