"""
How the commands of the package begin and end: negative numbers are values; status 2 for bad input, 3 for a contradicted
certificate, 130 if interrupted.
"""

import argparse
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sb3_camp.errors import CertificateViolation, InputError
from sb3_camp.text import printable

INTERRUPTED = 130
_VIOLATION = 3  # not 1, with which Python ends for an error of the program
_BROKEN_PIPE = 128 + 13
"""What a shell reports for a program that SIGPIPE has ended."""


class CommandParser(argparse.ArgumentParser):
    """A parser to which ``-1e6`` and ``-150@0.4`` are values and no options, as to that of Python 3.14."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\.?\d")


def invocation(command: str) -> str:
    """
    :param command: Name of a command
    :return: how the user calls it, for its usage: as a command of ``sb3-camp`` or as a module
    """
    return f"sb3-camp {command}" if Path(sys.argv[0]).stem == "sb3-camp" else f"python -m sb3_camp.{command}"


def spelled(command: str) -> str:
    """
    :param command: Name of a command
    :return: what to type for it: a command of ``sb3-camp`` where that is installed with this Python and found, else a module
    """
    script = shutil.which("sb3-camp")
    found = script is not None and Path(script).parent.resolve() == Path(sys.executable).parent.resolve()
    return f"sb3-camp {command}" if found else f"python -m sb3_camp.{command}"


@contextlib.contextmanager
def interruptible_start() -> Iterator[None]:
    """
    To import what takes long before a command has begun: Ctrl-C ends the process with status 130 and one line if it was
    started for a command of this package, and is what it ever is in all others.
    """
    try:
        yield
    except KeyboardInterrupt:
        # While Python looks for the module to run, that is its first argument
        module = sys.argv[:1] == ["-m"] and any(name.removeprefix("-m").startswith("sb3_camp") for name in sys.orig_argv[1:])
        if not module and Path(sys.argv[0]).stem != "sb3-camp":
            raise
        print("sb3_camp: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def exit_status(name: str, command: Callable[[], None], interrupted: str = "") -> int:
    """
    Run a command for the shell.

    :param name: Name of the command, in front of its messages
    :param command: What to run
    :param interrupted: What to tell a user who pressed Ctrl-C
    :return: 0; 2 for input that cannot be used and 3 for a contradicted certificate, with one line on stderr; 130 if
        interrupted; 141, in silence, if nobody reads the output any more (``| head``). Any other exception is a bug and passes
        through with its traceback.
    """
    try:
        status = _status(name, command, interrupted)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def _status(name: str, command: Callable[[], None], interrupted: str) -> int:
    try:
        command()
    except BrokenPipeError:
        raise
    except (CertificateViolation, InputError, OSError) as error:
        print(f"{name}: error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return _VIOLATION if isinstance(error, CertificateViolation) else 2
    except KeyboardInterrupt as error:
        left = str(error) or interrupted  # a command that knows more has raised it again
        print(f"{name}: interrupted{left and ': ' + left}", file=sys.stderr)
        return INTERRUPTED
    return 0
