"""
Transfer attacks: the way is that of another agent, a surrogate, and what it is worth is judged by the attacked policy.

An attack whose gradients lead nowhere (rounded observations, saturated outputs) looks harmless, and proves nothing. The
surrogate has been trained for the same task and has gradients of its own: they take the place of the policy's, as in the
backward pass differentiable approximation (Athalye, Carlini and Wagner, "Obfuscated Gradients Give a False Sense of Security",
ICML 2018).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch as th

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores, per_row
from sb3_camp.attacks.gradient_attacks import pgd
from sb3_camp.attacks.maximize import StepSettings, maximize
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.attacks.search import ObjectiveName
from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView


def transfer(
    scores: Scores,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    surrogate: PolicyView | None = None,
    step_size: float = 0.01,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    objective: ObjectiveName = "targeted",
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    :func:`sb3_camp.attacks.pgd` along the gradients of another agent. Its targets are those of the policy, and a row is
    content when the policy itself takes one, so nothing is spent on what only the other agent would fall for.

    :param scores: Action scores of the policy, which need not be differentiable; the rest is as in ``pgd``
    :param surrogate: The other agent, with the same actions
    :return: what is received, what is spent, and which action the policy takes
    :raises InputError: as ``pgd``, or if there is no surrogate, or one without action scores
    """
    others = _checked(surrogate).scores
    if others is None:
        raise InputError("the attack transfer needs a surrogate with action scores, as the policy has")
    straight = _straight_through(scores, others)
    settings = dict(step_size=step_size, multiplier=multiplier, q_threshold=q_threshold)
    return pgd(straight, observations, budget, objective=objective, assemble=assemble, norm=norm, **settings)


def transfer_actions(
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    generators: Sequence[np.random.Generator],
    surrogate: PolicyView | None = None,
    step_size: float | None = None,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    :func:`sb3_camp.attacks.mad` along the gradients of another agent, for actions that are not discrete. Of the points on the
    way, that counts which moves the actions of the policy most.

    :param view: What is known of the policy; the rest is as in ``mad``
    :param surrogate: The other agent, with the same actions
    :return: what is received and what is spent
    :raises InputError: as ``mad``, or if there is no surrogate
    """
    other = _checked(surrogate)

    def objective(clean: Any) -> Callable[[Any], th.Tensor]:
        return _straight_through(view.action_distance(clean), other.action_distance(clean))

    steps = StepSettings(step_size, multiplier, q_threshold)
    return maximize(objective, view, observations, budget, steps, assemble, norm, generators)


def _checked(surrogate: PolicyView | None) -> PolicyView:
    if surrogate is None:
        raise InputError("the attack transfer needs another agent, a surrogate: name its checkpoint with --transfer-from")
    return surrogate


def _straight_through(values: Callable[[Any], th.Tensor], gradients: Callable[[Any], th.Tensor]) -> Callable[[Any], th.Tensor]:
    """The values of the first function, with the gradients of the second. Of several draws of noise, means count."""

    def both(observed: Any) -> th.Tensor:
        with th.no_grad():
            value = values(observed)
        gradient = per_row(gradients(observed), len(value))
        return value + (gradient - gradient.detach())

    return both
