"""What the adversaries of several environments may still spend in their episodes."""

import math
from numbers import Real

import numpy as np

from sb3_camp.errors import InputError
from sb3_camp.threat_models import Threat, is_per_step


class EpisodeBudgets:
    """
    An l2 budget for all perturbations of an episode together: the squares of their norms sum up to at most its square. Each
    environment has one of its own, of the same size.

    Every float64 operation is rounded to the safe side, so that this holds for the exact sum of the exact squares.

    :param total: The budget
    :param n_envs: Number of environments
    :param spread: At one observation, at most total / sqrt(spread) may be spent
    :raises InputError: if it is not a finite number >= 0
    """

    def __init__(self, total: float, n_envs: int = 1, spread: float = 1) -> None:
        if isinstance(total, bool) or not isinstance(total, Real) or not math.isfinite(total) or total < 0:
            raise InputError(f"AdversarialObservationWrapper: budget must be a finite number >= 0, not {total!r}.")
        self.total: float = float(total)
        self.left: np.ndarray = np.full(n_envs, self.total)
        """What is left in each environment, float64 (n_envs,)"""
        self._spent_squares: np.ndarray = np.zeros(n_envs)
        self._most: float = self.total / math.sqrt(spread)

    @property
    def allowed(self) -> np.ndarray:
        """The largest l2 norm of a perturbation now, (n_envs,)."""
        return np.minimum(self.left, self._most)

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
        _check_norms(norms, left)
        spends = norms > 0
        squares = np.where(spends, np.nextafter(squares + norms * norms, np.inf), squares)
        rest = np.nextafter(self.total * self.total, 0.0) - squares
        root = np.nextafter(np.sqrt(np.maximum(np.nextafter(rest, 0.0), 0.0)), 0.0)
        self._spent_squares[envs] = squares
        self.left[envs] = np.where(spends, np.where(rest > 0, root, 0.0), left)

    def shorten(self, shares: np.ndarray) -> None:
        """
        :param shares: To which share the budgets are cut in this episode, which has just begun; 1 leaves them, (n_envs,)
        """
        self.spend(np.minimum(self.total * np.sqrt(1 - shares**2), self.left))


class StepBounds(EpisodeBudgets):
    """
    A bound on the norm of each single perturbation, which is there again at the next observation.

    :param total: The bound
    :param n_envs: Number of environments
    :raises InputError: if it is not a finite number >= 0
    """

    def __init__(self, total: float, n_envs: int = 1) -> None:
        super().__init__(total, n_envs)
        self._largest = np.zeros(n_envs)

    @property
    def spent(self) -> np.ndarray:
        """The largest norms since the last refill, (n_envs,)."""
        return self._largest.copy()

    def refill(self, envs: np.ndarray | slice = slice(None)) -> None:
        self._largest[envs] = 0.0
        self.left[envs] = self.total

    def spend(self, norms: np.ndarray, envs: np.ndarray | slice = slice(None)) -> None:
        _check_norms(norms, self.left[envs])
        self._largest[envs] = np.maximum(self._largest[envs], norms)

    def shorten(self, shares: np.ndarray) -> None:
        self.left = np.where(shares < 1, self.total * shares, self.left)


def budgets_of(threat: Threat, size: float, n_envs: int = 1, spread: float = 1) -> EpisodeBudgets:
    """
    :param threat: The threat model
    :param size: Its budget, or its bound on each step
    :param n_envs: Number of environments
    :param spread: See :class:`EpisodeBudgets`
    :return: what their adversaries may spend
    :raises InputError: if it is not a finite number >= 0
    """
    return StepBounds(size, n_envs) if is_per_step(threat) else EpisodeBudgets(size, n_envs, spread)


def _check_norms(norms: np.ndarray, left: np.ndarray) -> None:
    inside = (norms >= 0) & (norms <= left)
    if not np.all(inside):
        i = int(np.argmin(inside))
        raise RuntimeError(f"The attack spent {norms[i]!r}, of the budget only {left[i]!r} was left.")
