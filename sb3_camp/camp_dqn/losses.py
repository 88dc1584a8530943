"""
The two losses of the primary network (paper, section "Provable Robustness via CAMP").

Both compare the primary's Q-values with the reference's on the same noisy observations. They are means over the batch, and no
gradient may reach the reference: pass its Q-values without a graph.
"""

from collections.abc import Callable

import torch as th
from torch.nn import functional as F

from sb3_camp.errors import InputError

ImitationLoss = Callable[[th.Tensor, th.Tensor], th.Tensor]
"""
From the Q-values of the primary network, float, shape (batch, n_actions), and the action scores of the reference, same shape,
no gradient, to the mean over the batch, scalar
"""


def soft_imitation(q_values: th.Tensor, reference_q_values: th.Tensor) -> th.Tensor:
    """The target is Softmax(reference Q-values), as in the paper."""
    return F.cross_entropy(q_values, reference_q_values.softmax(dim=1))


def hard_imitation(q_values: th.Tensor, reference_q_values: th.Tensor) -> th.Tensor:
    """The target is the greedy action of the reference."""
    return F.cross_entropy(q_values, reference_q_values.argmax(dim=1))


IMITATION_LOSSES: dict[str, ImitationLoss] = {"soft": soft_imitation, "hard": hard_imitation}
"""The losses by which the primary network can imitate the reference, by name"""


def register_imitation(name: str, loss: ImitationLoss) -> None:
    """
    Add a loss: for ``CAMPDQN(imitation=name)``, and for ``imitation: name`` in the zoo.

    :param name: Its name, which a saved model holds: whoever loads it must have registered the loss before
    :param loss: The loss, of tensor operations only if updates shall be compiled
    :raises InputError: if another loss has this name
    """
    if IMITATION_LOSSES.get(name, loss) != loss:
        raise InputError(f"there is an imitation loss {name!r} already: choose another name")
    IMITATION_LOSSES[name] = loss


def imitation_loss(q_values: th.Tensor, reference_q_values: th.Tensor, imitation: str = "soft") -> th.Tensor:
    """
    Cross-entropy of the primary's Softmax(Q) with the reference's choice of action (paper, Eq. imitation_loss).

    :param q_values: Q-values of the primary network, float, shape (batch, n_actions)
    :param reference_q_values: Q-values (or other action scores) of the reference network, same shape, no gradient
    :param imitation: "soft" (:func:`soft_imitation`), "hard" (:func:`hard_imitation`), or what was added with
        :func:`register_imitation`, which may be another loss altogether
    :return: Mean over the batch, scalar
    """
    return IMITATION_LOSSES[imitation](q_values, reference_q_values)


def adaptive_eta(q_values: th.Tensor) -> th.Tensor:
    """
    The range of the primary's Q-values over the batch, the adaptive offset of the hinge.

    It keeps its gradient, on purpose: a wider gap then has to be won within the range instead of by scaling all Q-values up,
    which would go on without bound.

    :param q_values: Q-values of the primary network, shape (batch, n_actions)
    :return: max - min over batch and actions, scalar
    """
    return q_values.max() - q_values.min()


def q_gap(q_values: th.Tensor) -> th.Tensor:
    """
    :param q_values: Q-values, shape (batch, n_actions), at least two actions
    :return: The best minus the second-best Q-value of each row, shape (batch,)
    """
    best = q_values.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def agreement(q_values: th.Tensor, reference_q_values: th.Tensor) -> th.Tensor:
    """
    :param q_values: Q-values of the primary network, float, shape (batch, n_actions)
    :param reference_q_values: Q-values (or other action scores) of the reference network, same shape
    :return: The share of the observations on which the primary's greedy action is one of the best of the reference, scalar
    """
    chosen = reference_q_values.gather(1, q_values.argmax(dim=1, keepdim=True)).squeeze(1)
    return (chosen >= reference_q_values.amax(dim=1)).to(q_values.dtype).mean()


def robustness_loss(q_values: th.Tensor, reference_q_values: th.Tensor, eta: th.Tensor | float) -> th.Tensor:
    """
    Hinge loss that widens the Q-gap of the primary up to ``eta`` (paper, the loss l_ro without its factor lambda).

    It acts only on observations where the reference does not prefer the primary's runner-up to the primary's choice: elsewhere
    a wider gap would make a mistake more robust.

    :param q_values: Q-values of the primary network, float, shape (batch, n_actions)
    :param reference_q_values: Q-values (or other action scores) of the reference network, same shape, no gradient
    :param eta: Offset of the hinge, in units of the Q-values
    :return: Mean over the batch (rows that the gate excludes count as 0), scalar
    """
    best, actions = q_values.topk(2, dim=1)
    reference_best = reference_q_values.gather(1, actions)
    agrees = reference_best[:, 0] >= reference_best[:, 1]
    return (agrees * F.relu(eta - (best[:, 0] - best[:, 1]))).mean()
