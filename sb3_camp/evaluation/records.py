"""What ``info`` tells of an episode besides its rewards, such as a success, a crash, a cost: ``evaluate --record``."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sb3_camp.certification.episode_logs import MOST
from sb3_camp.errors import InputError
from sb3_camp.evaluation.exact_sums import exact_sum, rounded_sum
from sb3_camp.runs.recorded_key import RecordedKey


class Unrecordable(InputError):
    """Why a value in ``info`` cannot be recorded."""


class Kept(NamedTuple):
    """
    What the steps of an episode that had a key make of its values.

    :param reduction: One of :data:`sb3_camp.runs.recorded_key.REDUCTIONS`
    :param value: The last, the sum, the largest, or 1 if any was not 0
    :param is_boolean: Whether all of them were booleans
    :param size: For a sum, the sum of the absolute values
    :param lost: For a sum, what the additions rounded off
    """

    reduction: str
    value: float
    is_boolean: bool
    size: float = 0.0
    lost: float = 0.0

    @classmethod
    def of_step(cls, reduction: str, value: Any) -> "Kept":
        """
        :param reduction: How the values of an episode become one
        :param value: The value of one step
        :return: what is kept of it
        :raises Unrecordable: if it is neither a finite number nor a boolean
        """
        number, is_boolean = _number(value)
        return cls(reduction, float(number != 0) if reduction == "any" else number, is_boolean, abs(number))

    def followed_by(self, other: "Kept") -> "Kept":
        """
        :param other: What comes after it
        :return: both as one
        """
        is_boolean = self.is_boolean and other.is_boolean
        if self.reduction == "last":
            return other._replace(is_boolean=is_boolean)
        if self.reduction in ("max", "any"):
            return self._replace(value=max(self.value, other.value), is_boolean=is_boolean)
        total, lost = exact_sum(self.value, other.value)
        return Kept(self.reduction, total, is_boolean, self.size + other.size, self.lost + other.lost + lost)

    def result(self) -> float:
        """
        :return: the value of the episode
        """
        return rounded_sum(self.value, self.lost, self.size) if self.reduction == "sum" else self.value


def can_record(value: Any) -> bool:
    """
    :param value: A value of ``info``
    :return: whether it is a finite number or a boolean
    """
    try:
        _number(value)
    except Unrecordable:
        return False
    return True


def kept_of_step(keys: Sequence[RecordedKey], info: Mapping[str, Any]) -> tuple[Kept | None, ...]:
    """
    :param keys: What is recorded
    :param info: The ``info`` of a step
    :return: what is kept of each, None where it has no such key
    :raises Unrecordable: if a value is neither a finite number nor a boolean
    """
    return tuple(_of_key(key, info[key.name]) if key.name in info else None for key in keys)


def kept_of_both(first: Sequence[Kept | None], second: Sequence[Kept | None]) -> tuple[Kept | None, ...]:
    """
    :param first: What was kept of some steps of an episode; empty if of none
    :param second: The same of those that follow
    :return: what is kept of all
    """
    if not first or not second:
        return tuple(first or second)
    pairs = zip(first, second, strict=True)
    return tuple(a if b is None else b if a is None else a.followed_by(b) for a, b in pairs)


def _of_key(key: RecordedKey, value: Any) -> Kept:
    try:
        return Kept.of_step(key.reduction, value)
    except Unrecordable as error:
        raise Unrecordable(f"--record {key.name}: {error}") from None


def _number(value: Any) -> tuple[float, bool]:
    """A value of ``info`` as a number, and whether it is a boolean."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    is_boolean = isinstance(value, bool | np.bool_)
    if not is_boolean and not isinstance(value, int | float | np.integer | np.floating):
        raise Unrecordable(f"info has {reprlib.repr(value)} there, which is neither a number nor a boolean")
    try:
        number = float(value)
    except OverflowError:  # of an integer
        number = math.inf
    if not abs(number) <= MOST:
        raise Unrecordable(f"info has {number} there: only finite numbers up to {MOST:g} can be recorded")
    return number, is_boolean


class VectorRecords:
    """
    Records of a vector environment of Gymnasium, whose ``info`` has an array for each key, and ``_key`` for which of the envs.

    :param keys: What is recorded
    :param n_envs: Number of envs
    """

    def __init__(self, keys: Sequence[RecordedKey], n_envs: int) -> None:
        self._keys = keys
        self._kept: list[list[Kept | None]] = [[None] * len(keys) for _ in range(n_envs)]

    def add(self, infos: Mapping[str, Any], counted: np.ndarray) -> None:
        """
        :param infos: The ``info`` of a step
        :param counted: Which of the envs made it in an episode that counts, bool, shape (n_envs,)
        :raises Unrecordable: if a value is neither a finite number nor a boolean
        """
        for column, key in enumerate(self._keys):
            if key.name not in infos:
                continue
            values, told = infos[key.name], np.asarray(infos.get(f"_{key.name}", True), dtype=bool)
            if not isinstance(values, np.ndarray | Sequence) or len(values) != len(counted) or isinstance(values, str):
                raise Unrecordable(f"--record {key.name}: info has no array there with a value for each env")
            for i in np.flatnonzero(counted & told).tolist():
                new, row = _of_key(key, values[i]), self._kept[i]
                before = row[column]
                row[column] = new if before is None else before.followed_by(new)

    def take(self, i: int) -> list[Kept | None]:
        """
        :param i: Index of an env whose episode has ended
        :return: what was kept of it, for each key
        """
        kept, self._kept[i] = self._kept[i], [None] * len(self._keys)
        return kept


def as_arrays(episodes: Sequence[Sequence[Kept | None]], n_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """
    :param episodes: What was kept of each of n episodes, for each key
    :param n_keys: Number k of keys
    :return: its value, nan where no step had the key, float64 (n, k); and whether all its values were booleans, bool (n, k)
    """
    values = np.array([[math.nan if one is None else one.result() for one in kept] for kept in episodes], dtype=np.float64)
    booleans = np.array([[one is None or one.is_boolean for one in kept] for kept in episodes], dtype=bool)
    return values.reshape(len(episodes), n_keys), booleans.reshape(len(episodes), n_keys)
