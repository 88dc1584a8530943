"""The search that PGD, APGD and FGSM share: Algorithm 2 of the paper, for all rows and all their targets in one batch."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch as th

from sb3_camp.attacks.ball import Ball, PerRow
from sb3_camp.attacks.batch import Assemble, Perturbation, Scores, checked_scores, frames_alone, gradient_of
from sb3_camp.attacks.norm import Norm
from sb3_camp.attacks.objectives import JeffreysDivergence, Objective, TargetedCrossEntropy
from sb3_camp.attacks.steps import Steps
from sb3_camp.errors import InputError

ObjectiveName = Literal["targeted", "jeffreys"]

# a batch is made smaller when no more than this share of its pairs is live: taking out each at once costs more than it saves
_CROWDED = 0.875


def search(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    n_steps: th.Tensor,
    new_steps: Callable[[th.Tensor, th.Tensor], Steps],
    q_threshold: float,
    objective: ObjectiveName,
    assemble: Assemble | None,
    norm: Norm,
) -> Perturbation:
    """
    :param scores: Action scores of what the policy observes
    :param observations: Checked, ``(B, *frame)``
    :param budget: Checked, (B,) float64
    :param n_steps: How many steps each row may take, (B,) int64; rows with 0 are left alone
    :param new_steps: From perturbations (N, D) and their numbers of steps (N,) to how they move
    :param q_threshold: Least loss of clean score that counts
    :param objective: "targeted" or "jeffreys"
    :param assemble: What the policy observes (default: the frames)
    :param norm: In which the budget is
    :return: what each row receives
    :raises InputError: if there is no such objective, or scores are not finite or cannot be differentiated
    """
    if objective not in ("targeted", "jeffreys"):
        raise InputError(f"objective must be 'targeted' or 'jeffreys'; it is {objective!r}")
    assemble = assemble or frames_alone
    with th.inference_mode(False), th.enable_grad():
        outcome = Perturbation(
            received=observations.clone(),
            spent=th.zeros_like(budget),
            target=th.full_like(n_steps, -1),
            flipped=th.zeros_like(n_steps, dtype=th.bool),
            gain=th.zeros_like(budget),
        )
        rows = n_steps.nonzero().squeeze(1)
        if len(rows):
            with th.no_grad():
                clean = checked_scores(scores(assemble(observations[rows].float(), rows)), len(rows))
            position, rank, climbed = _pairs(clean, q_threshold, objective)
            row = rows[position]
            frames = observations.flatten(1)[row]
            delta = th.zeros_like(frames, dtype=th.float64)
            steps = new_steps(delta, n_steps[row])
            pairs = _Pairs(row, rank, n_steps[row], norm.ball(frames, budget[row]), climbed, steps, delta)
            _run(pairs, lambda frames, rows: scores(assemble(frames, rows)), outcome)
            lost = clean.amax(dim=1) - clean.gather(1, outcome.target[rows].clamp(min=0)[:, None]).squeeze(1)
            outcome.gain[rows] = th.where(outcome.flipped[rows], lost.double(), 0.0)
    return outcome


def _pairs(clean: th.Tensor, q_threshold: float, objective: ObjectiveName) -> tuple[th.Tensor, th.Tensor, Objective]:
    """
    Which pairs of a row and a target are searched for.

    :param clean: Scores on the clean observations, (B, n_actions)
    :return: row of each pair (N,); its rank in the row, the lowest clean score first and the first action of equal ones (N,);
        what it climbs
    """
    loss = clean.amax(dim=1, keepdim=True).double() - clean
    worthwhile = (loss > 0) & (loss >= q_threshold)
    if objective == "jeffreys":
        row = worthwhile.any(dim=1).nonzero().squeeze(1)
        gap = loss.where(worthwhile, th.inf).amin(dim=1)
        return row, th.zeros_like(row), JeffreysDivergence(clean[row], worthwhile[row], gap[row])
    order = clean.argsort(dim=1, stable=True)
    row, rank = worthwhile.gather(1, order).nonzero(as_tuple=True)
    target = order[row, rank]
    return row, rank, TargetedCrossEntropy(target, clean.shape[1], loss[row, target])


class _Pairs(PerRow):
    """
    The pairs that are searched for, and how far they are. All that are live have taken the same number of steps.

    :param row: Row of the batch, (N,)
    :param rank: See :func:`_pairs`, (N,)
    :param n_steps: How many steps each may take, (N,)
    :param ball: Where its perturbations may be
    :param objective: What it climbs
    :param steps: How it climbs
    :param delta: Where it starts, (N, D) float64
    """

    def __init__(
        self,
        row: th.Tensor,
        rank: th.Tensor,
        n_steps: th.Tensor,
        ball: Ball,
        objective: Objective,
        steps: Steps,
        delta: th.Tensor,
    ) -> None:
        self.row, self.rank, self.n_steps = row, rank, n_steps
        self.ball, self.objective, self.steps = ball, objective, steps
        self.delta = delta
        self.live = th.ones_like(row, dtype=th.bool)
        self.reached = th.full_like(row, -1)  # the action, once there is one

    def __len__(self) -> int:
        return len(self.row)


def _run(pairs: _Pairs, scores_of: Callable[[th.Tensor, th.Tensor], th.Tensor], outcome: Perturbation) -> None:
    """
    Step until every pair has reached its target, or has no step left, or cannot win its row any more.

    Pairs that are done stay where they are, and are taken out of the batch when there are enough of them to be worth it.
    """
    won_by = th.full_like(outcome.target, th.iinfo(th.int64).max)  # rank of the best pair of each row that reached its target
    ends = set(pairs.n_steps.tolist())
    n_live, step = len(pairs), 0
    while n_live:
        flat = pairs.ball.received(pairs.delta)
        frames = flat.view(-1, *outcome.received.shape[1:]).requires_grad_()
        scores = checked_scores(scores_of(frames, pairs.row), len(pairs))
        values = scores.detach()
        spent = partial(pairs.ball.spent, flat)
        actions = values.argmax(dim=1)
        arrived = pairs.objective.reached(actions) & pairs.live
        stay = None
        if step in ends or arrived.any():
            arrived &= spent() > 0  # the clean scores may differ in the last digit in another batch
            pairs.reached = th.where(arrived, actions, pairs.reached)
            won_by.scatter_reduce_(0, pairs.row[arrived], pairs.rank[arrived], "amin")
            pairs.live &= ~arrived & (pairs.n_steps > step) & (pairs.rank <= won_by[pairs.row])
            n_live = int(pairs.live.sum())
            if n_live <= _CROWDED * len(pairs):
                _settle(pairs, flat, spent(), won_by, outcome)
                if n_live == 0:
                    return
                stay = pairs.live.nonzero().squeeze(1)
        gradient = gradient_of(scores, frames, pairs.objective.ascent(values, spent))
        if stay is not None:
            pairs.keep(stay)
            values, gradient = values[stay], gradient[stay]
        delta = pairs.steps.advance(step, pairs.delta, gradient, pairs.ball, partial(pairs.objective.value, values))
        pairs.delta = delta if n_live == len(pairs) else th.where(pairs.live[:, None], delta, pairs.delta)
        step += 1


def _settle(pairs: _Pairs, frames: th.Tensor, spent: th.Tensor, won_by: th.Tensor, outcome: Perturbation) -> None:
    """
    Give rows what the pairs that won them reached.

    :param frames: Where the pairs are, (N, D)
    :param spent: What they spent, (N,)
    :param won_by: Rank of the pair that has won each row
    """
    winners = ((pairs.reached >= 0) & (pairs.rank == won_by[pairs.row])).nonzero().squeeze(1)
    rows = pairs.row[winners]
    outcome.received[rows] = frames[winners].view(-1, *outcome.received.shape[1:]).to(outcome.received.dtype)
    outcome.spent[rows] = spent[winners]
    outcome.target[rows] = pairs.reached[winners]
    outcome.flipped[rows] = True
