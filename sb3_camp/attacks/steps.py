"""How an attack moves: from a gradient to the next perturbation."""

from collections.abc import Callable

import torch as th

from sb3_camp.attacks.ball import Ball, PerRow

MOMENTUM = 0.75  # alpha of the APGD paper
PROGRESS = 0.75  # its rho


class Steps(PerRow):
    """The rule of an attack, with what it remembers of each row."""

    def advance(
        self, step: int, delta: th.Tensor, gradient: th.Tensor, ball: Ball, value: Callable[[], th.Tensor]
    ) -> th.Tensor:
        """
        :param step: How many steps were taken, the same for all rows
        :param delta: Where they led to, (N, D) float64
        :param gradient: Of what is to be maximised, at what is received for ``delta``, (N, D) float64
        :param ball: Where perturbations may be
        :param value: Gives what is to be maximised, (N,), there
        :return: the next perturbations
        :raises InputError: if a gradient is not finite
        """
        raise NotImplementedError


class NormalizedSteps(Steps):
    """
    PGD with normalised gradients: each step has the same length, in the norm of the ball.

    :param step_size: Length of a step, one for all rows or one for each, float64 (N, 1)
    """

    def __init__(self, step_size: float | th.Tensor) -> None:
        self._step_size = step_size

    def advance(
        self, step: int, delta: th.Tensor, gradient: th.Tensor, ball: Ball, value: Callable[[], th.Tensor]
    ) -> th.Tensor:
        return ball.project(delta + self._step_size * ball.steepest(gradient))


class AutoSteps(Steps):
    """
    The steps of APGD (Croce and Hein 2020, Algorithm 1): momentum, and at checkpoints, where progress was too slow, a return
    to the best point with half the step size.

    :param step_size: Length of the first step, in the norm of the ball
    :param delta: Where the rows start, (N, D) float64
    :param n_steps: How many steps they may take, (N,) int64
    """

    def __init__(self, step_size: float, delta: th.Tensor, n_steps: th.Tensor) -> None:
        self._step_size = delta.new_full((len(delta), 1), step_size)
        self._previous = self._best_delta = self._best_gradient = delta
        self._last = self._best = self._best_when_checked = delta.new_zeros(n_steps.shape)
        self._rises = self._checked = th.zeros_like(n_steps)  # rises since, and step of, the last checkpoint
        self._halved_when_checked = th.zeros_like(n_steps, dtype=th.bool)
        self._checkpoints = checkpoints(n_steps)
        self._moments = set(self._checkpoints.unique().tolist())

    def advance(
        self, step: int, delta: th.Tensor, gradient: th.Tensor, ball: Ball, value: Callable[[], th.Tensor]
    ) -> th.Tensor:
        now = value().double()
        if step == 0:
            self._last = self._best = self._best_when_checked = now
            self._best_gradient = gradient
        self._rises = self._rises + (now > self._last)
        self._last = now
        better = now > self._best
        self._best = th.where(better, now, self._best)
        self._best_delta = th.where(better[:, None], delta, self._best_delta)
        self._best_gradient = th.where(better[:, None], gradient, self._best_gradient)
        if step in self._moments:
            delta, gradient = self._check(step, delta, gradient)
        new = ball.project(delta + self._step_size * ball.steepest(gradient))
        if step > 0:
            new = ball.project(delta + MOMENTUM * (new - delta) + (1 - MOMENTUM) * (delta - self._previous))
        self._previous = delta
        return new

    def _check(self, step: int, delta: th.Tensor, gradient: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        due = (self._checkpoints == step).any(dim=1)
        slow = self._rises < PROGRESS * (step - self._checked)
        stalled = ~self._halved_when_checked & (self._best == self._best_when_checked)
        halved = due & (slow | stalled)
        self._halved_when_checked = th.where(due, halved, self._halved_when_checked)
        self._best_when_checked = th.where(due, self._best, self._best_when_checked)
        self._checked = self._checked.masked_fill(due, step)
        self._rises = self._rises.masked_fill(due, 0)
        back = halved[:, None]
        self._step_size = th.where(back, self._step_size / 2, self._step_size)
        return th.where(back, self._best_delta, delta), th.where(back, self._best_gradient, gradient)


def checkpoints(n_steps: th.Tensor) -> th.Tensor:
    """
    :param n_steps: (N,) int64
    :return: after how many steps each row is checked: ceil(p_j * n_steps) for the p_j below 1, (N, 8) int64
    """
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    inside = th.tensor(shares[1:-1], dtype=th.float64, device=n_steps.device)
    return (inside * n_steps[:, None] * (1 - 1e-12)).ceil().long()  # 0.57 * 100 is 57.00000000000001
