"""The scripts of zoo_scripts/, which are no package, as modules and as commands."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ZOO_SCRIPTS = Path(__file__).parents[2] / "zoo_scripts"


@contextmanager
def imported_script(name: str) -> Iterator[ModuleType]:
    """The module of a script, while the folder of the scripts is where modules are looked for."""
    sys.path.insert(0, str(ZOO_SCRIPTS))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(ZOO_SCRIPTS))


def run_python(folder: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """
    :param folder: Where to run it
    :param words: Arguments of the interpreter
    :param status: The exit status that it must have
    """
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr
    return done


def status_of(main: Callable[[], int]) -> Any:
    """Run a program's ``main`` and return its exit status, also where argparse ends it."""
    try:
        return main()
    except SystemExit as error:
        return error.code
