"""The control that every attack must beat: the norm of an attack, in a direction that knows nothing."""

from collections.abc import Sequence

import numpy as np
import torch as th

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores, check_rows, frames_alone
from sb3_camp.attacks.gradient_attacks import pgd
from sb3_camp.attacks.maximize import check_generators, normals, with_frames
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.attacks.search import ObjectiveName
from sb3_camp.policy_view import PolicyView


def random(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    generators: Sequence[np.random.Generator],
    step_size: float = 0.01,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    objective: ObjectiveName = "targeted",
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    A uniformly random direction of the norm that :func:`pgd` spends: what is gained against it is due to the direction.

    A row that PGD leaves alone is left alone; any other one spends that norm whether its action flips or not.

    :param scores: As in :func:`pgd`, like all that is not said here
    :param generators: One for each row, (B,), so that a batch draws what its rows draw alone; a row left alone draws nothing
    :return: what is received and what is spent, never more than by PGD and less only by rounding to float32 or whole pixels;
        ``target`` is the action taken, -1 if it is the one taken on the clean observation
    :raises InputError: as :func:`pgd`, or if there is not one generator for each row
    """
    assemble = assemble or frames_alone
    settings = dict(step_size=step_size, multiplier=multiplier, q_threshold=q_threshold)
    attack = pgd(scores, observations, budget, objective=objective, assemble=assemble, norm=norm, **settings)
    rows = (attack.spent > 0).nonzero().squeeze(1)
    nothing = attack._replace(received=observations, spent=th.zeros_like(attack.spent), target=th.full_like(attack.target, -1))
    return _random_frames(nothing, observations, attack.spent, rows, generators, norm, scores, assemble)


def random_in_ball(
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    generators: Sequence[np.random.Generator],
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    All of the budget in a random direction: uniform on the sphere for l2, uniform in the box for l-infinity.

    :param view: What is known of the policy, to tell which actions change; for the others see
        :func:`sb3_camp.attacks.mad`
    :return: what is received and what is spent
    :raises InputError: if an argument is out of its range
    """
    budget = check_rows(observations, budget)
    rows = (budget > 0).nonzero().squeeze(1)
    zero = th.zeros_like(budget)
    none = th.full((len(budget),), -1, device=budget.device)
    nothing = Perturbation(observations, zero, none, zero > 0, zero)
    return _random_frames(nothing, observations, budget, rows, generators, norm, view.scores, assemble or frames_alone)


def _random_frames(
    nothing: Perturbation,
    observations: th.Tensor,
    size: th.Tensor,
    rows: th.Tensor,
    generators: Sequence[np.random.Generator],
    norm: Norm,
    scores: Scores | None,
    assemble: Assemble,
) -> Perturbation:
    """
    :param size: The norms, (B,)
    :param rows: Those that get something, (N,) int64
    """
    check_generators(generators, observations)
    if not len(rows):
        return nothing
    ball = norm.ball(observations[rows].flatten(1), size[rows])
    frames = ball.received(ball.random(normals(generators, observations, rows)), size[rows])
    return with_frames(nothing, rows, frames, ball.spent(frames), nothing.gain[rows], scores, assemble)
