"""What a command does about an earlier result in its folder, whole or interrupted: continue it, keep it or replace it."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def begin(
    what: str,
    file: Path,
    partial: Path,
    resume: bool,
    read_partial: Callable[[], tuple[_T, str]],
    check_finished: Callable[[], str],
) -> tuple[bool, _T | None]:
    """
    Decide how to begin, and print it.

    :param what: What is made, such as "evaluation"
    :param file: The finished result
    :param partial: What is kept of an interrupted one
    :param resume: Whether to go on with what there is (``--resume``)
    :param read_partial: Reads the interrupted one: what has been played, and in words how much it is; raises an InputError if
        it was made with other settings
    :param check_finished: Says in words what the finished one has; raises an InputError if it was made with other settings
    :return: whether nothing is left to do; and what has been played already, None if nothing
    """
    played = None
    if resume and partial.exists():
        played, how_much = read_partial()
        print(f"Resuming after {how_much}")
    elif resume and file.exists():
        print(f"Nothing to resume: {file} has {check_finished()}")
        return True, None
    elif partial.exists():
        print(f"Replacing the interrupted {what} in {partial}")
    if file.exists():
        print(f"Replacing the {what} in {file}")
    return False, played
