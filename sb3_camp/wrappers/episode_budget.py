"""What an adversary may still spend in an episode."""

import math
from numbers import Real

from sb3_camp.errors import InputError


class EpisodeBudget:
    """
    An l2 budget for all perturbations of an episode together: the squares of their norms sum up to at most its square.

    Every float64 operation is rounded to the safe side, so that this holds for the exact sum of the exact squares.

    :param total: The budget
    :raises InputError: if it is not a finite number >= 0
    """

    def __init__(self, total: float) -> None:
        if isinstance(total, bool) or not isinstance(total, Real) or not math.isfinite(total) or total < 0:
            raise InputError(f"AdversarialObservationWrapper: budget must be a finite number >= 0, not {total!r}.")
        self.total: float = float(total)
        self.left: float = self.total
        self._spent_squares: float = 0.0

    @property
    def spent(self) -> float:
        """The l2 norm of all perturbations since the last refill."""
        return min(math.sqrt(self._spent_squares), self.total)

    def refill(self) -> None:
        self.left = self.total
        self._spent_squares = 0.0

    def spend(self, norm: float) -> None:
        """
        :param norm: l2 norm of a perturbation
        :raises RuntimeError: if that is more than what is left
        """
        if not 0 <= norm <= self.left:
            raise RuntimeError(f"The attack spent {norm!r}, of the budget only {self.left!r} was left.")
        if norm == 0:
            return
        self._spent_squares = math.nextafter(self._spent_squares + norm * norm, math.inf)
        square = math.nextafter(self.total * self.total, 0.0) - self._spent_squares
        self.left = math.nextafter(math.sqrt(math.nextafter(square, 0.0)), 0.0) if square > 0 else 0.0
