"""PGD, APGD and FGSM, targeted at every other action at once or untargeted."""

import torch as th

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores, check_rows, check_settings, whole_steps
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.attacks.search import ObjectiveName, search
from sb3_camp.attacks.steps import AutoSteps, NormalizedSteps


def pgd(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    step_size: float = 0.01,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    objective: ObjectiveName = "targeted",
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    Projected gradient descent with l2-normalised steps (Madry et al. 2018), as Algorithm 2 of the CAMP paper uses it at one
    time step of an episode.

    For each row, every action that is worth it is a target: from the clean frame, steps go down the cross-entropy with the
    target, projected on the ball of the row's budget, until the policy takes the target on what it would receive, or all steps
    are used up. Of the targets reached, the one with the lowest score on the clean observation wins (of equal ones, the first
    action). If none is reached, nothing is spent. What a row gets does not depend on the others, but for the last digits of
    the network's outputs.

    Images (uint8) move continuously within 0..255, but the policy is asked, and gradients are taken, at whole pixel values
    that have the norm of the perturbation and nearly its direction. Frames of float32 are rounded so that they stay in the
    ball.

    :param scores: Action scores (N, n_actions) of what the policy observes, differentiable; its greedy action is the largest,
        the first of equal ones. :func:`sb3_camp.action_scores.action_scores` gives them for a policy
    :param observations: Clean frames, ``(B, *frame)``, float32, or uint8 images; as the policy gets them, not normalised
    :param budget: c, the largest l2 norm for each row, in the unit of the observations (of images: pixel values), (B,)
    :param step_size: alpha, l2 length of a step, in the same unit
    :param multiplier: beta: a row may take ``floor(multiplier * budget / step_size)`` steps; one without a step is left alone,
        and its scores are not asked for
    :param q_threshold: q: targets whose clean score is less than this below the best are skipped, and equal ones always
    :param objective: "targeted", or "jeffreys": one untargeted search for each row, up the Jeffreys divergence between the
        softmax of the scores on the clean and on the received observation, until the policy takes any action that is worth it.
        At the clean observation, where the divergence is flat, it goes down the log-probability of the greedy action
    :param assemble: From frames, float32 ``(N, *frame)``, and the rows of the batch that they are for, int64 (N,), to what the
        policy observes: stacked with older frames, transposed, in a dict (default: the frames)
    :param norm: The norm of budget and steps (default: l2)
    :return: what is received, what is spent, and which action is reached, for each row
    :raises InputError: if an argument is out of its range, if a row may take more than a million steps, if observations,
        scores or their gradients are not finite, or if scores cannot be differentiated
    """
    check_settings(step_size=step_size, multiplier=multiplier, q_threshold=q_threshold)
    budget = check_rows(observations, budget)
    n_steps = whole_steps(budget, step_size, multiplier)
    steps = NormalizedSteps(step_size)
    return search(scores, observations, budget, n_steps, lambda delta, n_steps: steps, q_threshold, objective, assemble, norm)


def apgd(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    step_size: float,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    objective: ObjectiveName = "targeted",
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    Auto-PGD (Croce and Hein 2020, Algorithm 1) in the place of PGD: momentum, and a step size that is halved where progress
    is slow. As in the CAMP paper, it starts from the clean frame with a small step and stops at the target.

    :param scores: As in :func:`pgd`, like all that is not said here
    :param step_size: l2 length of the first step; the paper's is 0.05 times the budget of the whole episode, in Bank Heist 0.5
        times
    :param multiplier: A row may take ``floor(multiplier * budget / step_size)`` steps, of this ``step_size``
    :return: what is received, what is spent, and which action is reached, for each row
    :raises InputError: as :func:`pgd`
    """
    check_settings(step_size=step_size, multiplier=multiplier, q_threshold=q_threshold)
    budget = check_rows(observations, budget)
    n_steps = whole_steps(budget, step_size, multiplier)

    def new_steps(delta: th.Tensor, n_steps: th.Tensor) -> AutoSteps:
        return AutoSteps(step_size, delta, n_steps)

    return search(scores, observations, budget, n_steps, new_steps, q_threshold, objective, assemble, norm)


def fgsm(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    step_size: float,
    q_threshold: float = 0.0,
    objective: ObjectiveName = "targeted",
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    The fast gradient method (Goodfellow et al. 2015) in l2: one step along the normalised gradient, not its sign.

    :param scores: As in :func:`pgd`, like all that is not said here
    :param step_size: l2 length of the step; a row with a smaller budget goes as far as that allows
    :return: what is received, what is spent, and which action is reached, for each row
    :raises InputError: as :func:`pgd`
    """
    check_settings(step_size=step_size, q_threshold=q_threshold)
    budget = check_rows(observations, budget)
    steps = NormalizedSteps(step_size)
    n_steps = (budget > 0).long()
    return search(scores, observations, budget, n_steps, lambda delta, n_steps: steps, q_threshold, objective, assemble, norm)
