"""The scripts of zoo_scripts/, which are no package, as modules."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ZOO_SCRIPTS = Path(__file__).parents[2] / "zoo_scripts"


@contextmanager
def imported_script(name: str) -> Iterator[ModuleType]:
    """The module of a script, while the folder of the scripts is where modules are looked for."""
    sys.path.insert(0, str(ZOO_SCRIPTS))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(ZOO_SCRIPTS))
