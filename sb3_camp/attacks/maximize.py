"""Attacks that go as far as they may: up an objective that is a number for each row, and no action is a goal."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch as th

from sb3_camp.attacks.ball import Ball
from sb3_camp.attacks.batch import (
    Assemble,
    Perturbation,
    Scores,
    check_rows,
    check_settings,
    frames_alone,
    gradient_of,
    per_row,
    whole_steps,
)
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.attacks.steps import NormalizedSteps
from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView

Objective = Callable[[Any], Callable[[Any], th.Tensor]]
"""From what the policy observes of clean frames to a function of what it observes of perturbed ones, to be maximised, (N,)"""

# Steps of a tenth of the radius, unless a step size is given
_SHARE = 0.1


class StepSettings(NamedTuple):
    """
    :param step_size: Length of a step; None for a tenth of the budget of the row
    :param multiplier: A row may take ``floor(multiplier * budget / step_size)`` steps
    :param q_threshold: Rows where no more than this is gained are left alone
    """

    step_size: float | None
    multiplier: float
    q_threshold: float


def mad(
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    generators: Sequence[np.random.Generator],
    step_size: float | None = None,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    The maximal action difference attack (Zhang et al., "Robust Deep Reinforcement Learning against Adversarial Perturbations
    on State Observations", NeurIPS 2020, section 3.3): projected gradient ascent on how far the actions move, see
    :meth:`sb3_camp.policy_view.PolicyView.action_distance`.

    The distance is flat at the clean frame, so each row starts from a random point a tenth of the radius away.

    :param view: What is known of the policy
    :param observations: Clean frames, ``(B, *frame)``, float32, or uint8 images
    :param budget: The largest norm for each row, (B,); rows with 0 are left alone
    :param generators: One for each row, (B,)
    :param step_size: Length of a step; None for a tenth of the budget of the row
    :param multiplier: A row may take ``floor(multiplier * budget / step_size)`` steps
    :param q_threshold: Rows where no more than this is gained are left alone
    :param assemble: See :func:`sb3_camp.attacks.pgd`
    :param norm: The norm of budget and steps
    :return: what is received and what is spent; ``gain`` is the distance
    :raises InputError: if an argument is out of its range, or the policy has no such distance
    """
    steps = StepSettings(step_size, multiplier, q_threshold)
    return maximize(view.action_distance, view, observations, budget, steps, assemble, norm, generators)


def critic(
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    step_size: float | None = None,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    Down the algorithm's own critic: to the action whose Q-value is lowest at the clean observation, min Q(s, pi(s + delta))
    (Pattanaik et al., "Robust Deep Reinforcement Learning with Adversarial Attacks", AAMAS 2018). Where the critic is a value
    function, as that of PPO, to what looks like the state of the lowest value, min V(s + delta), as Zhang et al. (2020) do.

    A Q-network is its own critic: what counts is the action that it takes, averaged over the draws of noise if there are any,
    so nothing is spent where no action changes. The gradients are those of a softmax of the Q-values.

    :param view: What is known of the policy; see :func:`mad` for what is not said here
    :return: what is received and what is spent; ``gain`` is what the critic says is lost
    :raises InputError: as :func:`mad`
    """
    steps = StepSettings(step_size, multiplier, q_threshold)
    return maximize(_critic_objective(view), view, observations, budget, steps, assemble, norm)


def _critic_objective(view: PolicyView) -> Objective:
    q, value = view.q, view.value
    if q is not None:

        def objective(clean: Any) -> Callable[[Any], th.Tensor]:
            actions = view.soft_actions(clean)
            if view.means is None:
                return lambda other: -q(clean, _taken(actions(other)))
            return lambda other: -q(clean, actions(other))

        return objective
    if value is None:
        raise InputError(f"{type(view.policy).__name__} has no critic")
    return lambda clean: lambda other: -value(other)


def _taken(probabilities: th.Tensor) -> th.Tensor:
    """The likeliest action alone, (N, n_actions), with the gradients of the probabilities."""
    taken = th.nn.functional.one_hot(probabilities.argmax(dim=1), probabilities.shape[1])
    return taken + (probabilities - probabilities.detach())  # in this order, so that the digits are those of the action


def maximize(
    objective: Objective,
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    settings: StepSettings,
    assemble: Assemble | None,
    norm: Norm,
    generators: Sequence[np.random.Generator] | None = None,
) -> Perturbation:
    """
    Projected gradient ascent from the clean frames. Of all points on the way, each row gets the best; nothing, if none is
    better than the clean frame.

    :param objective: What to climb. If it gives several numbers for each row, one after the other, their means count
    :param view: What is known of the policy, to tell which actions change; for the others see :func:`mad`
    :param settings: Length and number of steps, and how much is worth it
    :param generators: If given, rows start at random points, a tenth of the radius away
    :return: what is received and what is spent
    :raises InputError: as :func:`mad`
    """
    step_size, multiplier, q_threshold = settings
    check_settings(multiplier=multiplier, q_threshold=q_threshold, **({} if step_size is None else {"step_size": step_size}))
    budget = check_rows(observations, budget)
    assemble = assemble or frames_alone
    if step_size is None:
        n_steps, lengths = (budget > 0) * whole_steps(budget.new_ones(()), _SHARE, multiplier), _SHARE * budget
    else:
        n_steps, lengths = whole_steps(budget, step_size, multiplier), th.full_like(budget, step_size)
    rows = n_steps.nonzero().squeeze(1)
    nothing = Perturbation(
        received=observations,
        spent=th.zeros_like(budget),
        target=th.full_like(n_steps, -1),
        flipped=th.zeros_like(n_steps, dtype=th.bool),
        gain=th.zeros_like(budget),
    )
    if not len(rows):
        return nothing
    with th.inference_mode(False), th.enable_grad():
        climb = _Climb(objective, observations, rows, norm.ball(observations[rows].flatten(1), budget[rows]), assemble)
        start = None
        if generators is not None:
            check_generators(generators, observations)
            start = _SHARE * climb.ball.random(normals(generators, observations, rows))
        frames, gain = climb.best(start, n_steps[rows], lengths[rows])
        keep = (gain > q_threshold).nonzero().squeeze(1)
        rows, frames, gain = rows[keep], frames[keep], gain[keep]
        climb.ball.keep(keep)
    if not len(rows):
        return nothing
    return with_frames(nothing, rows, frames, climb.ball.spent(frames), gain, view.scores, assemble)


class _Climb:
    def __init__(self, objective: Objective, observations: th.Tensor, rows: th.Tensor, ball: Ball, assemble: Assemble) -> None:
        self.ball, self._rows, self._assemble = ball, rows, assemble
        self._clean = observations[rows].float()
        with th.no_grad():
            observed = assemble(self._clean, rows)
        self._objective = objective(observed)

    def best(self, delta: th.Tensor | None, n_steps: th.Tensor, lengths: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """
        :param delta: Where to start, (N, D) float64; None for the clean frames
        :param n_steps: How many steps each row may take, (N,) int64
        :param lengths: Their lengths, (N,) float64
        :return: the best frames on the way, float32 (N, D), and what is gained there, float64 (N,)
        """
        steps = NormalizedSteps(lengths[:, None])
        best = self._clean.flatten(1)
        with th.no_grad():
            start = highest = self._values(best)
        delta = th.zeros_like(best, dtype=th.float64) if delta is None else delta
        for step in range(int(n_steps.max()) + 1):
            frames = self.ball.received(delta).requires_grad_()
            values = self._values(frames)
            better = (values > highest) & (n_steps >= step)
            highest = th.where(better, values.detach(), highest)
            best = th.where(better[:, None], frames.detach(), best)
            gradient = gradient_of(values, frames)
            delta = steps.advance(step, delta, gradient, self.ball, values.detach)
        return best, (highest - start).double()

    def _values(self, flat: th.Tensor) -> th.Tensor:
        observed = self._assemble(flat.view(self._clean.shape), self._rows)
        values = per_row(self._objective(observed), len(self._rows))
        if not values.isfinite().all():
            raise InputError("the policy or its critic gives values that are not finite numbers")
        return values


def check_generators(generators: Sequence[np.random.Generator], observations: th.Tensor) -> None:
    """
    :param generators: Generators of an attack
    :param observations: Clean frames, ``(B, *frame)``
    :raises InputError: if there is not one generator for each row
    """
    if len(generators) != len(observations):
        raise InputError(f"one generator for each row is needed: {len(observations)} rows, {len(generators)} generators")


def normals(generators: Sequence[np.random.Generator], observations: th.Tensor, rows: th.Tensor) -> th.Tensor:
    """
    :param generators: One for each row of the batch
    :param observations: Clean frames, ``(B, *frame)``
    :param rows: Those that are drawn for, (N,) int64
    :return: standard normal numbers, float64 (N, D)
    """
    size = observations[0].numel()
    values = np.stack([generators[row].standard_normal(size) for row in rows.tolist()])
    return th.from_numpy(values).to(observations.device)


def with_frames(
    nothing: Perturbation,
    rows: th.Tensor,
    frames: th.Tensor,
    spent: th.Tensor,
    gain: th.Tensor,
    scores: Scores | None,
    assemble: Assemble,
) -> Perturbation:
    """
    :param nothing: What the rows get so far
    :param rows: Those that get something, (N,) int64
    :param frames: What they receive, float32 (N, D)
    :param spent: Its norm, (N,)
    :param gain: What is gained by it, (N,)
    :param scores: Action scores of the policy, to tell which actions change; None where they are not discrete
    :param assemble: What it observes
    :return: the same with these
    """
    clean = nothing.received[rows]
    seen = frames.view(clean.shape)
    target = nothing.target[rows]
    flipped = spent > 0
    if scores is not None:
        with th.no_grad():
            before, after = (per_row(scores(assemble(one, rows)), len(rows)).argmax(dim=1) for one in (clean.float(), seen))
        flipped = before != after
        target = th.where(flipped, after, target)
    result = Perturbation(*(values.clone() for values in nothing))
    result.received[rows] = seen.to(clean.dtype)
    for values, new in ((result.spent, spent), (result.target, target), (result.flipped, flipped), (result.gain, gain)):
        values[rows] = new
    return result
