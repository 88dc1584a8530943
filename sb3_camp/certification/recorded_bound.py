"""A bound on what an evaluation recorded besides the returns, as a record."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AT_LEAST, AT_MOST = "at_least", "at_most"


@dataclass(frozen=True)
class RecordedBound:
    """
    A bound on an entry of ``info``, for all radii, from a band with its own share of alpha.

    :param key: The key of ``info``
    :param reduction: How its values in an episode become one, see :class:`sb3_camp.runs.recorded_key.RecordedKey`
    :param side: ``"at_least"`` for a lower bound, ``"at_most"`` for an upper one
    :param is_event: Whether it happens (1) or not (0), so that the bound is on a probability; else on an expected value
    :param worst: A value that no episode is worse than
    :param mean: Mean over the episodes, without any attack
    :param n_missing: In how many episodes the key was missing; they count as ``worst``, also in the mean
    :param alpha: The share of alpha of this bound
    :param method: How its band was computed
    :param certified: The bound at each radius of the certificate
    """

    key: str
    reduction: str
    side: str
    is_event: bool
    worst: float
    mean: float
    n_missing: int
    alpha: float
    method: str
    certified: list[float]

    @property
    def name(self) -> str:
        """For the header of a table: ``crashed_last_at_most``."""
        return f"{self.key}_{self.reduction}_{self.side}"


def is_recorded_bound(value: Any, is_number: Callable[[Any], bool]) -> bool:
    """
    :param value: A value from a JSON file
    :param is_number: Tells finite numbers
    :return: whether it can be a :class:`RecordedBound`
    """
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), str) for name in ("key", "reduction", "method"))
        and value.get("side") in (AT_LEAST, AT_MOST)
        and isinstance(value.get("is_event"), bool)
        and all(is_number(value.get(name)) for name in ("worst", "mean", "n_missing", "alpha"))
        and isinstance(value.get("certified"), list)
        and all(map(is_number, value["certified"]))
    )
