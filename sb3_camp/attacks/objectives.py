"""
What an attack climbs, as a function of the action scores, and which actions it is content with.

Scores have no unit: Q-values in cents rank actions as those in dollars do. So a softmax of them is taken in units of a row's
own: a tenth of what the best action is ahead on the clean observation. An attack is then the same at every scale.

Gradients with respect to the scores are written out: the steps are normalised, so each row's may be scaled as is best for the
numbers, and no softmax that is saturated makes them vanish.
"""

from collections.abc import Callable

import torch as th

from sb3_camp.attacks.ball import PerRow

SHARPNESS = 10.0
"""How many units the best action is ahead on the clean observation: so many that the softmax is about the leading actions. On
random networks with five actions, 1 to 100 flip as many rows, and 10 or more spend 2 to 3 % less than 1."""


class Objective(PerRow):
    """What is climbed, with what it must know of each row."""

    def reached(self, actions: th.Tensor) -> th.Tensor:
        """
        :param actions: Greedy actions on what is received, int64 (N,)
        :return: which rows are content, bool (N,)
        """
        raise NotImplementedError

    def value(self, scores: th.Tensor) -> th.Tensor:
        """
        :param scores: (N, n_actions), on what is received
        :return: what is to be maximised, or an increasing function of it, (N,)
        """
        raise NotImplementedError

    def ascent(self, scores: th.Tensor, spent: Callable[[], th.Tensor]) -> th.Tensor:
        """
        :param scores: As above
        :param spent: Gives the distance of what is received from the clean observation, (N,)
        :return: gradient of :meth:`value` with respect to the scores, each row times some positive number
        """
        raise NotImplementedError


class TargetedCrossEntropy(Objective):
    """
    Minus the cross-entropy of the softmax of the scores with one target action (paper, Algorithm 2).

    :param target: (N,) int64
    :param n_actions: Number of actions
    :param gap: What the best action is ahead of the target on the clean observation, positive, (N,)
    """

    def __init__(self, target: th.Tensor, n_actions: int, gap: th.Tensor) -> None:
        self._target = target
        self._one_hot = th.nn.functional.one_hot(target, n_actions).float()
        self._per_score = (SHARPNESS / gap.double())[:, None]

    def reached(self, actions: th.Tensor) -> th.Tensor:
        return actions == self._target

    def value(self, scores: th.Tensor) -> th.Tensor:
        return self._logits(scores).log_softmax(dim=1).gather(1, self._target[:, None]).squeeze(1)

    def ascent(self, scores: th.Tensor, spent: Callable[[], th.Tensor]) -> th.Tensor:
        return self._one_hot - self._logits(scores).softmax(dim=1).float()

    def _logits(self, scores: th.Tensor) -> th.Tensor:
        return self._per_score * scores.double()


class JeffreysDivergence(Objective):
    """
    The Jeffreys divergence (both Kullback-Leibler divergences added) between the softmax of the scores on the clean and on the
    received observation: untargeted. The value is its logarithm.

    On the clean observation it is least and flat, so its gradient shows no way. There, the way is down the log-odds of the
    greedy action, which is, up to its length, the gradient of minus the logarithm of its probability.

    :param scores: On the clean observations, (N, n_actions)
    :param accepted: Actions with which the attack is content, bool (N, n_actions)
    :param gap: What the best action is ahead of the first of these, positive, (N,)
    """

    def __init__(self, scores: th.Tensor, accepted: th.Tensor, gap: th.Tensor) -> None:
        self._accepted = accepted
        self._per_score = (SHARPNESS / gap.double())[:, None]
        self._clean = (self._per_score * scores.double()).log_softmax(dim=1)
        self._best = th.nn.functional.one_hot(scores.argmax(dim=1), scores.shape[1]).bool()

    def reached(self, actions: th.Tensor) -> th.Tensor:
        return self._accepted.gather(1, actions[:, None]).squeeze(1)

    def value(self, scores: th.Tensor) -> th.Tensor:
        now, unit, clean, likely = self._probabilities(scores)
        growth = likely - clean  # of all actions but the best, which loses their sum
        growth = th.where(self._best, -growth.sum(dim=1, keepdim=True), growth)
        return unit.squeeze(1) + (growth * (now - self._clean)).sum(dim=1).clamp_(min=0).log()

    def ascent(self, scores: th.Tensor, spent: Callable[[], th.Tensor]) -> th.Tensor:
        now, _, clean, likely = self._probabilities(scores)
        change = now - self._clean
        slope = likely * (change - (now.exp() * change).sum(dim=1, keepdim=True)) + likely - clean
        flat = (spent() == 0)[:, None] | (slope == 0).all(dim=1, keepdim=True)
        slope = th.where(flat, (self._per_score * scores.double()).masked_fill(self._best, -th.inf).softmax(dim=1), slope)
        # a constant added to all scores changes nothing, so the slopes add up to 0
        return th.where(self._best, -slope.sum(dim=1, keepdim=True), slope).float()

    def _probabilities(self, scores: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor, th.Tensor]:
        """
        :return: log-probabilities (N, n_actions); logarithm of a unit, (N, 1): the probability of the likeliest action but the
            best, which may be too small to be told from 0; in this unit, the probabilities on the clean and on the received
            observation, 0 for the best action, (N, n_actions)
        """
        now = (self._per_score * scores.double()).log_softmax(dim=1)
        clean, likely = (logs.masked_fill(self._best, -th.inf) for logs in (self._clean, now))
        unit = th.maximum(clean, likely).amax(dim=1, keepdim=True)
        return now, unit, (clean - unit).exp(), (likely - unit).exp()
