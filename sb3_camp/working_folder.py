"""Keeping the working folder out of the module search path of commands that need no module of the user."""

import os
import sys

# They read files that may come from elsewhere, in a folder that may. `evaluate` and `attack` load agents and environments,
# which may be modules of the working folder
_NEED_NONE = ("certify", "plot", "report", "card")


def leave_working_folder() -> None:
    """
    Take the working folder off ``sys.path`` if Python is about to run the module of a command that needs none of the user.

    ``python -m`` puts it in front, so that a ``yaml.py`` in the folder of a run would be imported in place of the library. To
    be called before anything else is imported. (What Python itself imports before it comes to this package cannot be kept
    from there: ``sb3-camp`` and ``python -P -m`` are safe from that too.)
    """
    # While Python looks for the module to run, this is its first argument
    if sys.argv[:1] != ["-m"] or not sys.path or sys.path[0] not in ("", os.getcwd()):
        return
    arguments = [argument.removeprefix("-m") for argument in sys.orig_argv]
    runs_module = any(f"sb3_camp.{name}" in arguments for name in _NEED_NONE)
    overview = arguments.index("sb3_camp") if "sb3_camp" in arguments else len(arguments)
    runs_command = any(arguments[overview + 1 : overview + 2] == [name] for name in _NEED_NONE)
    if runs_module or runs_command:
        del sys.path[0]
