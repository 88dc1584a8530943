"""Ctrl-C at a chosen point of a command that runs in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import sb3_camp

_CODE = """
import importlib, os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
imported, command, name, function, count, *arguments = sys.argv[1:]
importlib.import_module(imported)
module = importlib.import_module(name)
original, calls = getattr(module, function), []


def interrupting(*args, **kwargs):
    result = original(*args, **kwargs) if int(count) else None
    calls.append(1)
    if len(calls) >= int(count):
        os.kill(os.getpid(), signal.SIGINT)
    return result if int(count) else original(*args, **kwargs)


setattr(module, function, interrupting)
sys.exit(importlib.import_module(command).main(arguments))
"""


def run_interrupted(
    module: str, function: str, count: int, arguments: list[Any], imported: str = "sys", where: str | None = None
) -> subprocess.CompletedProcess:
    """
    :param module: Module of the command, which has a ``main``
    :param function: Name of a function that it calls
    :param count: After which call of it the interrupt comes; 0: before the first
    :param arguments: Command line
    :param imported: Module to import before, which registers environments
    :param where: Module that calls the function, by default that of the command
    :return: what became of the process
    """
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(sb3_camp.__file__).parents[1])])
    command = [sys.executable, "-c", _CODE, imported, module, where or module, function, str(count), *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300)
