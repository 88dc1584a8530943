"""
Commands of the zoo, one after the other in one interpreter, each as ``python -m`` would run it: to import the zoo takes longer
than a small training. Arguments: a JSON file with the commands, and where to write their exit statuses.
"""

import json
import runpy
import sys
import traceback
from pathlib import Path


def main(commands_file: str, status_file: str) -> None:
    status = []
    for command in json.loads(Path(commands_file).read_text()):
        sys.argv = sys.orig_argv = list(command)
        # A module that was imported once more as __main__ is a warning of runpy, for nothing
        sys.modules.pop(command[0], None)
        try:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
            status.append(0)
        except SystemExit as end:
            status.append(end.code or 0)
        except Exception:
            traceback.print_exc()
            status.append(1)
        sys.stdout.flush()
    Path(status_file).write_text(json.dumps(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
