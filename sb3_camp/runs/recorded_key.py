"""Which entry of ``info`` is recorded of an episode, and how its values become one."""

from collections.abc import Sequence
from typing import NamedTuple

from sb3_camp.errors import InputError

REDUCTIONS = ("last", "sum", "max", "any")


class RecordedKey(NamedTuple):
    """
    :param name: Key of ``info``
    :param reduction: What counts of an episode: the ``last`` value, the ``sum``, the largest (``max``), or 1 if ``any`` was
        not 0, else 0; of those steps whose ``info`` has the key
    """

    name: str
    reduction: str = "last"

    def __str__(self) -> str:
        return f"{self.name}:{self.reduction}"


def parse_keys(words: Sequence[str], option: str = "--record") -> list[RecordedKey]:
    """
    :param words: ``KEY`` or ``KEY:REDUCTION``; a key with a colon in it needs its reduction
    :param option: Where they stand, for the message
    :return: the keys
    :raises InputError: if a reduction is unknown, or a key is named twice
    """
    keys: list[RecordedKey] = []
    for word in words:
        name, colon, reduction = word.rpartition(":")
        key = RecordedKey(name, reduction) if colon else RecordedKey(word)
        if not key.name or key.reduction not in REDUCTIONS:
            raise InputError(f"{option} takes KEY or KEY:REDUCTION with {', '.join(REDUCTIONS)}, not {word!r}")
        if key.name in {other.name for other in keys}:
            raise InputError(f"{option}: {key.name} is named twice")
        keys.append(key)
    return keys
