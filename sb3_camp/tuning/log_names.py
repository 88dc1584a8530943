"""Names of what is logged for each of several numbers: short, and never one name for two of them."""

from collections.abc import Iterable

from sb3_camp.errors import InputError

# As many digits as "%g" has, and as many as SB3's table has room for
_DIGITS = range(6, 11)


def distinct_names(what: str, values: Iterable[float]) -> list[str]:
    """
    :param what: What the numbers are, for the message
    :param values: Some numbers
    :return: each in as few digits as tell all of them apart, at least six
    :raises InputError: if two are equal, or differ only after the tenth digit
    """
    numbers = [float(value) for value in values]
    for digits in _DIGITS:
        names = [f"{number:.{digits}g}" for number in numbers]
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    raise InputError(f"{what} holds {twice} more than once (numbers are told apart by ten digits): leave one of them")
