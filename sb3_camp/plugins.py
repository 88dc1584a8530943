"""Installed packages that add bands, attacks, tasks, references or algorithms of the zoo, by an entry point."""

import warnings
from functools import cache
from importlib.metadata import entry_points

GROUP = "sb3_camp.plugins"
"""
The entry-point group; in the ``pyproject.toml`` of the other package::

    [project.entry-points."sb3_camp.plugins"]
    my_package = "my_package.plugin:register"
"""


@cache
def load_plugins() -> None:
    """
    Call the functions that installed packages name in :data:`GROUP`, once; the commands and the zoo's do this at their start.

    One that fails is a warning with its name, and the others go on.
    """
    for entry_point in entry_points(group=GROUP):
        try:
            entry_point.load()()
        except (Exception, SystemExit) as error:  # of any kind, as it is anybody's code
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"sb3_camp goes on without the plugin {entry_point.value} ({reason})", RuntimeWarning, stacklevel=2)
