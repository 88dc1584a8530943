"""The Q-gap (paper, Sec. on the gap between top-1 and runner-up): by how much a policy prefers its action to the next best."""

import numpy as np
import torch as th
from stable_baselines3.common.policies import BasePolicy

from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)


class QGaps:
    """
    Collects, at the steps of an evaluation, the gap between the two highest action scores (of a DQN: Q-values) at the noisy
    observation that the policy acts on. It keeps every gap, 4 bytes each, since quantiles need them all.

    :param policy: Policy of the model, see :func:`sb3_camp.action_scores.action_scores`
    :raises InputError: if its actions are not discrete, if it has only one, or if it is recurrent or of an unknown kind
    """

    def __init__(self, policy: BasePolicy) -> None:
        try:
            self._scores = action_scores(policy)
        except InputError as error:
            raise InputError(f"--q-gap: {error}") from error
        if policy.action_space.n < 2:  # type: ignore[attr-defined]
            raise InputError("--q-gap: the policy has one action only, so there is no second best")
        self._policy = policy
        self._gaps: list[np.ndarray] = []

    def add(self, observations: np.ndarray | dict[str, np.ndarray], counted: np.ndarray) -> None:
        """
        :param observations: What the policy is about to act on, one for each env
        :param counted: Whether each env is in an episode that counts, bool, shape (n_envs,)
        :raises InputError: if scores are not finite
        """
        with th.no_grad():
            tensors, _ = self._policy.obs_to_tensor(observations)
            best = self._scores(tensors).topk(2, dim=1).values
            gaps = (best[:, 0] - best[:, 1]).cpu().numpy().astype(np.float32)
        if not np.all(np.isfinite(gaps)):
            raise InputError("--q-gap: the policy gives action scores that are not finite numbers")
        self._gaps.append(gaps[counted])

    def extend(self, gaps: np.ndarray) -> None:
        """
        :param gaps: Gaps that were collected earlier, as :meth:`values` returns them
        """
        self._gaps.append(gaps)

    def values(self) -> np.ndarray:
        """
        :return: all gaps so far, in the order of the steps, float32, shape (n,)
        """
        self._gaps = [np.concatenate([np.empty(0, dtype=np.float32), *self._gaps])]
        return self._gaps[0]


def q_gap_statistics(gaps: np.ndarray) -> dict[str, int | float | np.ndarray]:
    """
    :param gaps: Gaps at all counted steps, shape (n,), n at least 1
    :return: entries of ``evaluations.npz``: ``q_gap_min``, ``q_gap_mean`` and ``q_gap_steps`` (their number n), and
        ``q_gap_quantiles`` (6,) float64 at ``q_gap_levels`` (6,), interpolated linearly as ``numpy.quantile`` does
    """
    gaps = gaps.astype(np.float64)
    return {
        "q_gap_min": float(gaps.min()),
        "q_gap_mean": float(gaps.mean()),
        "q_gap_steps": gaps.size,
        "q_gap_levels": np.array(LEVELS),
        "q_gap_quantiles": np.quantile(gaps, LEVELS),
    }
