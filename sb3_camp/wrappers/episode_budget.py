"""What the adversaries of several environments may still spend in their episodes."""

import math
from numbers import Real

import numpy as np

from sb3_camp.errors import InputError


class EpisodeBudgets:
    """
    An l2 budget for all perturbations of an episode together: the squares of their norms sum up to at most its square. Each
    environment has one of its own, of the same size.

    Every float64 operation is rounded to the safe side, so that this holds for the exact sum of the exact squares.

    :param total: The budget
    :param n_envs: Number of environments
    :raises InputError: if it is not a finite number >= 0
    """

    def __init__(self, total: float, n_envs: int = 1) -> None:
        if isinstance(total, bool) or not isinstance(total, Real) or not math.isfinite(total) or total < 0:
            raise InputError(f"AdversarialObservationWrapper: budget must be a finite number >= 0, not {total!r}.")
        self.total: float = float(total)
        self.left: np.ndarray = np.full(n_envs, self.total)
        """What is left in each environment, float64 (n_envs,)"""
        self._spent_squares: np.ndarray = np.zeros(n_envs)

    @property
    def spent(self) -> np.ndarray:
        """The l2 norms of all perturbations since the last refill, (n_envs,)."""
        return np.minimum(np.sqrt(self._spent_squares), self.total)

    def refill(self, envs: np.ndarray | slice = slice(None)) -> None:
        """
        :param envs: The environments in which an episode begins, as an index (default: all)
        """
        self.left[envs] = self.total
        self._spent_squares[envs] = 0.0

    def spend(self, norms: np.ndarray, envs: np.ndarray | slice = slice(None)) -> None:
        """
        :param norms: l2 norm of a perturbation for each of the environments
        :param envs: The environments, as an index (default: all)
        :raises RuntimeError: if that is more than what is left in one of them
        """
        left, squares = self.left[envs], self._spent_squares[envs]
        if not np.all((norms >= 0) & (norms <= left)):
            i = int(np.argmin((norms >= 0) & (norms <= left)))
            raise RuntimeError(f"The attack spent {norms[i]!r}, of the budget only {left[i]!r} was left.")
        spends = norms > 0
        squares = np.where(spends, np.nextafter(squares + norms * norms, np.inf), squares)
        rest = np.nextafter(self.total * self.total, 0.0) - squares
        root = np.nextafter(np.sqrt(np.maximum(np.nextafter(rest, 0.0), 0.0)), 0.0)
        self._spent_squares[envs] = squares
        self.left[envs] = np.where(spends, np.where(rest > 0, root, 0.0), left)
