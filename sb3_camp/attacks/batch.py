"""What all attacks take and give: a batch of rows, each with an observation and a budget of its own."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch as th

from sb3_camp.errors import InputError, NoGradients

Scores = Callable[[Any], th.Tensor]
"""From what the policy observes to its action scores (N, n_actions), see :func:`sb3_camp.action_scores.action_scores`."""

Assemble = Callable[[th.Tensor, th.Tensor], Any]
"""
What the policy observes when the attacked frame of row ``rows[i]`` of the batch looks like ``frames[i]``: from frames, float32
``(N, *frame)``, of images too (whole numbers in 0..255), and rows, int64 (N,), to observations of the policy. N may be
anything.
"""


class Perturbation(NamedTuple):
    """What an attack gives, for each of B rows."""

    received: th.Tensor
    """What the policy's side receives, ``(B, *frame)``, of the dtype of the observations: clipped and rounded."""
    spent: th.Tensor
    """Norm of ``received - observations``, computed in float64, (B,) float64; never more than the row's budget."""
    target: th.Tensor
    """The action that the policy takes now, (B,) int64; -1 where the attack did not reach any."""
    flipped: th.Tensor
    """Whether the greedy action on ``received`` is another than on the clean observation, (B,) bool."""
    gain: th.Tensor = th.zeros(0)
    """What is gained in the eyes of the attack: of scores, how much lower that of the action is on the clean observation; of a
    distance or a critic its change. (B,) float64, 0 where nothing was done; empty if the attack
    does not tell"""


MAX_STEPS = 1_000_000
"""More steps than this for one observation are a mistake: nobody could wait for them."""


def frames_alone(frames: th.Tensor, rows: th.Tensor) -> th.Tensor:
    """The policy observes the attacked frame and nothing else."""
    return frames


def check_rows(observations: th.Tensor, budget: th.Tensor) -> th.Tensor:
    """
    :param observations: ``(B, *frame)``, float32 or uint8
    :param budget: (B,)
    :return: the budget in float64, on the device of the observations
    :raises InputError: if these are not such tensors, or hold numbers that cannot be used
    """
    if observations.dtype not in (th.float32, th.uint8):
        raise InputError(f"the observations to attack are {observations.dtype}: give float32, or uint8 for images")
    if budget.shape != observations.shape[:1]:
        raise InputError(
            f"one budget for each row is needed: {observations.shape[0]} rows, budget of shape {tuple(budget.shape)}"
        )
    if observations.is_floating_point():
        _refuse_rows("the observation", ~observations.isfinite().flatten(1).all(dim=1), "is not finite")
    budget = budget.to(observations.device, th.float64)
    _refuse_rows("the budget", ~(budget.isfinite() & (budget >= 0)), "is not a finite number of at least 0")
    return budget


def _refuse_rows(what: str, wrong: th.Tensor, why: str) -> None:
    if wrong.any():
        raise InputError(f"{what} of row {int(wrong.int().argmax())} {why}")


def check_settings(**settings: float) -> None:
    """
    :param settings: ``step_size`` and ``multiplier`` must be positive, ``q_threshold`` at least 0, all finite
    :raises InputError: if one is not
    """
    for name, value in settings.items():
        if not (math.isfinite(value) and (value > 0 or (name == "q_threshold" and value == 0))):
            least = "at least 0" if name == "q_threshold" else "positive"
            raise InputError(f"{name} must be a finite number, {least}; it is {value!r}")


def whole_steps(budget: th.Tensor, step_size: float, multiplier: float) -> th.Tensor:
    """
    :param budget: c, (B,) float64
    :param step_size: alpha
    :param multiplier: beta
    :return: floor(beta * c / alpha), int64 (B,); a quotient like 57.999999999999993, for 2 * 0.29 / 0.01, counts as 58
    :raises InputError: if that is more than :data:`MAX_STEPS`
    """
    n_steps = (multiplier * budget / step_size * (1 + 1e-12)).floor()
    if (n_steps > MAX_STEPS).any():
        raise InputError(
            f"multiplier {multiplier:g} * budget {budget.max().item():g} / step_size {step_size:g} is more than {MAX_STEPS} "
            "steps for one observation: use a larger step_size, or a smaller budget or multiplier"
        )
    return n_steps.long()


def per_row(values: th.Tensor, n_rows: int) -> th.Tensor:
    """
    :param values: Several for each row, one after the other, (N * K, ...)
    :param n_rows: N
    :return: their means, (N, ...)
    """
    return values if len(values) == n_rows else values.unflatten(0, (n_rows, -1)).mean(dim=1)


def gradient_of(outputs: th.Tensor, frames: th.Tensor, weights: th.Tensor | None = None) -> th.Tensor:
    """
    :param outputs: What was computed from the frames, (N, ...)
    :param frames: (N, ...)
    :param weights: Of the outputs in the sum that is differentiated, of their shape (default: 1)
    :return: gradient with respect to the frames, (N, D) float64; the gradients of parameters stay as they are
    :raises InputError: if there is none
    """
    if not outputs.requires_grad:
        raise NoGradients(
            "what the policy gives cannot be differentiated by the observations, and this attack follows gradients: use "
            "transfer, along those of another agent, or learned"
        )
    weights = th.ones_like(outputs) if weights is None else weights
    (gradient,) = th.autograd.grad(outputs, frames, weights, allow_unused=True)
    if gradient is None:
        gradient = th.zeros_like(frames)
    return gradient.flatten(1).double()


def checked_scores(scores: th.Tensor, n_rows: int) -> th.Tensor:
    """
    :param scores: what a function of scores returned for ``n_rows`` observations
    :param n_rows: their number
    :return: the same
    :raises InputError: if the shape is not (n_rows, n_actions), or scores are not finite
    """
    if scores.ndim != 2 or scores.shape[0] != n_rows:
        raise InputError(f"the action scores of {n_rows} observations have the shape {tuple(scores.shape)}")
    # one sum is faster than one look at each; it can be infinite although they are not
    if not math.isfinite(scores.detach().sum().item()) and not scores.isfinite().all():
        raise InputError("the policy gives action scores that are not finite numbers")
    return scores
