"""Views of policies whose actions, distances, critics and values are linear or quadratic, so that worst cases are known."""

import numpy as np
import torch as th

from sb3_camp.policy_view import PolicyView

WEIGHTS = th.tensor([[1.0, -2.0, 0.5], [0.3, 0.4, -1.2]])
"""Of the actions, (2, 3)"""
SLOPE = th.tensor([0.8, -1.5])
"""Of the critic in the action"""
VALUE = th.tensor([0.2, -0.7, 1.1])
"""Of the value in the observation"""


def linear_view(weights: th.Tensor = WEIGHTS) -> PolicyView:
    """
    :param weights: (n_dims, n_inputs)
    :return: a policy with the actions weights @ s, the critic SLOPE @ a, and the value VALUE @ s
    """
    return PolicyView(
        None,
        means=lambda observed: observed @ weights.T,
        q=lambda observed, actions: actions @ SLOPE + observed.sum(dim=1),
        value=lambda observed: observed @ VALUE,
    )


def linear_scores(observed: th.Tensor) -> th.Tensor:
    """Three actions, whose scores are linear in the observation."""
    return observed @ th.tensor([[0.7, -0.2, 0.4], [-0.5, 0.3, 1.1], [0.1, 0.1, -0.9]]).T + th.tensor([0.1, -0.2, 0.0])


def generators(n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(n)]
