"""Wrong input ends the zoo's commands with one line, as it ends the commands of this package."""

import contextlib
import sys
from collections.abc import Iterator

from sb3_camp.errors import InputError


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """
    A context in which an :class:`InputError`, or what was raised from one, ends ``python -m rl_zoo3.train`` with one line and
    exit status 2. Other errors pass, and in other programs, which may want to catch it, this one passes too.
    """
    try:
        yield
    except (InputError, RuntimeError) as error:
        wrong_input = error if isinstance(error, InputError) else error.__cause__
        program = _running_module()
        if not isinstance(wrong_input, InputError) or program.partition(".")[0] != "rl_zoo3":
            raise
        print(f"{program}: error: {' '.join(str(wrong_input).split())}", file=sys.stderr)
        raise SystemExit(2) from None


def _running_module() -> str:
    """The module that ``python -m`` runs, "" without it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else spec.name
