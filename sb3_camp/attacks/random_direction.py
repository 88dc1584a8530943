"""The control that every attack must beat: the norm of an attack, in a direction that knows nothing."""

from collections.abc import Sequence

import numpy as np
import torch as th

from sb3_camp.attacks.ball import Ball
from sb3_camp.attacks.batch import Assemble, Perturbation, Scores, checked_scores, frames_alone
from sb3_camp.attacks.gradient_attacks import pgd
from sb3_camp.attacks.search import ObjectiveName
from sb3_camp.errors import InputError


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
    if len(generators) != len(observations):
        raise InputError(f"one generator for each row is needed: {len(observations)} rows, {len(generators)} generators")
    assemble = assemble or frames_alone
    settings = dict(step_size=step_size, multiplier=multiplier, q_threshold=q_threshold)
    attack = pgd(scores, observations, budget, objective=objective, assemble=assemble, **settings)
    rows = (attack.spent > 0).nonzero().squeeze(1)
    if not len(rows):
        return attack
    clean = observations[rows]
    norm = attack.spent[rows]
    directions = np.stack([generators[row].standard_normal(clean[0].numel()) for row in rows.tolist()])
    delta = th.from_numpy(directions).to(norm.device)
    delta = delta * (norm / th.linalg.vector_norm(delta, dim=1))[:, None]
    ball = Ball(clean.flatten(1), norm)
    frames = ball.received(ball.project(delta), norm)
    received, spent, target = attack.received.clone(), attack.spent.clone(), th.full_like(attack.target, -1)
    received[rows] = frames.view(clean.shape).to(received.dtype)
    spent[rows] = ball.spent(frames)
    with th.no_grad():
        before, after = (
            checked_scores(scores(assemble(seen, rows)), len(rows)).argmax(dim=1)
            for seen in (clean.float(), received[rows].float())
        )
    target[rows] = th.where(before == after, target[rows], after)
    return Perturbation(received, spent, target, target >= 0)
