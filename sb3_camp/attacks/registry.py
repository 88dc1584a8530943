"""The attacks by name: those of this package, and whatever is added to them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from sb3_camp.attack_names import ALL, LEARNED, ROBUST_SARSA, TRANSFER
from sb3_camp.attacks.batch import Perturbation
from sb3_camp.attacks.gradient_attacks import apgd, fgsm, pgd
from sb3_camp.attacks.maximize import critic, mad
from sb3_camp.attacks.random_direction import random, random_in_ball
from sb3_camp.attacks.robust_sarsa import robust_sarsa
from sb3_camp.attacks.transfer import transfer, transfer_actions
from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView
from sb3_camp.threat_models import Threat, is_per_step


@dataclass(frozen=True)
class Attack:
    """
    :param function: Takes action scores, clean frames and budgets as :func:`sb3_camp.attacks.pgd` does, and has its other
        arguments by keyword; ``assemble`` is among them, and may be ``norm``, without which it knows the l2 norm only
    :param step_of_budget: Share of the budget of an episode that is the default step size; None for 0.01 (images: 2.55)
    :param draws: Whether it takes ``generators``, one for each row
    :param asks: What it asks of the policy, one of these or another: see :attr:`sb3_camp.policy_view.PolicyView.serves`. If
        that is not the scores, its first argument is a :class:`~sb3_camp.policy_view.PolicyView` in their place
    :param step_of_bound: Share of the bound on a step that is the default step size in such a threat model
    :param goes_on: Whether it climbs as far as it may, whatever the action, so that it would spend the budget of an episode at
        the first step
    """

    function: Callable[..., Perturbation]
    step_of_budget: float | None = None
    draws: bool = False
    asks: tuple[str, ...] = ("scores",)
    step_of_bound: float = 0.1
    goes_on: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its keyword arguments."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)

    @property
    def has_norm(self) -> bool:
        """Whether it knows other norms than l2 in the units of the observation."""
        return "norm" in self.arguments

    def serves(self, view: PolicyView) -> bool:
        """
        :param view: What is known of a policy
        :return: whether it can attack it
        """
        return not self.asks or any(one in view.serves for one in self.asks)


ATTACKS = {
    "pgd": Attack(pgd),
    "apgd": Attack(apgd, step_of_budget=0.05),
    "fgsm": Attack(fgsm, step_of_budget=0.05, step_of_bound=1.0),
    "random": Attack(random, draws=True),
    "mad": Attack(mad, draws=True, asks=("distance",), goes_on=True),
    "critic": Attack(critic, asks=("q", "value"), goes_on=True),
    ROBUST_SARSA: Attack(robust_sarsa, asks=("actions",), goes_on=True),
    TRANSFER: Attack(transfer),
}
"""The attacks by name"""


def register_attack(name: str, attack: Attack) -> None:
    """
    Add an attack: for ``AdversarialObservationWrapper(attack=name)``, and as :class:`Attack` for whatever asks by name.

    :param name: Its name
    :param attack: The attack
    :raises InputError: if another attack has this name
    """
    if name in (LEARNED, ALL) or ATTACKS.get(name, attack) != attack:
        raise InputError(f"there is an attack {name!r} already: choose another name")
    ATTACKS[name] = attack


RANDOM_IN_BALL = Attack(random_in_ball, draws=True, asks=(), goes_on=True)
"""The control where no attack stops before its bound: policies without scores, and bounds on each step"""

TRANSFER_OF_ACTIONS = Attack(transfer_actions, draws=True, asks=("distance",), goes_on=True)
"""The transfer attack on policies without scores"""


def check_name(name: str) -> None:
    """
    :param name: Name of an attack
    :raises InputError: if there is none of this name
    """
    if name not in ATTACKS:
        raise InputError(f"attack must be one of {', '.join([*ATTACKS, LEARNED])}, not {name!r}.")


def chosen_attack(name: str, view: PolicyView, threat: Threat) -> Attack:
    """
    :param name: Name of an attack
    :param view: What is known of the policy
    :param threat: The threat model
    :return: the attack
    :raises InputError: if there is none of this name, if the policy does not serve it, or if it does not know the threat model
    """
    check_name(name)
    attack = ATTACKS[name]
    if name == "random" and (is_per_step(threat) or not attack.serves(view)):
        attack = RANDOM_IN_BALL
    if name == TRANSFER and not attack.serves(view):
        attack = TRANSFER_OF_ACTIONS
    if not attack.serves(view):
        usable = [other for other, one in ATTACKS.items() if one.serves(view) or other in ("random", TRANSFER)]
        raise InputError(
            f"the attack {name} asks for {' or '.join(_WORDS[one] for one in attack.asks)}, which {_described(view)} has not: "
            f"use {', '.join([*usable, LEARNED])}"
        )
    if threat != "episode-l2" and not attack.has_norm:
        raise InputError(f"the attack {name} knows the threat model episode-l2 only, not {threat}")
    return attack


_WORDS = {
    "scores": "action scores, those of a policy with discrete actions",
    "distance": "a distance of actions",
    "actions": "actions that can be differentiated",
    "q": "a critic with action values",
    "value": "a value function",
}


def _described(view: PolicyView) -> str:
    return f"{type(view.policy).__name__} with the action space {view.policy.action_space}"
