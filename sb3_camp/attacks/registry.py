"""The attacks by name: those of this package, and whatever is added to them."""

from collections.abc import Callable
from dataclasses import dataclass

from sb3_camp.attacks.batch import Perturbation
from sb3_camp.attacks.gradient_attacks import apgd, fgsm, pgd
from sb3_camp.attacks.random_direction import random
from sb3_camp.errors import InputError

LEARNED = "learned"
"""The name of the attack by a trained adversary, which is no function of scores"""


@dataclass(frozen=True)
class Attack:
    """
    :param function: Takes action scores, clean frames and budgets as :func:`sb3_camp.attacks.pgd` does, and has its other
        arguments by keyword; ``step_size`` and ``assemble`` are among them
    :param step_of_budget: Share of the budget of an episode that is the default step size; None for 0.01 (images: 2.55)
    :param draws: Whether it takes ``generators``, one for each row
    """

    function: Callable[..., Perturbation]
    step_of_budget: float | None = None
    draws: bool = False


ATTACKS = {
    "pgd": Attack(pgd),
    "apgd": Attack(apgd, step_of_budget=0.05),
    "fgsm": Attack(fgsm, step_of_budget=0.05),
    "random": Attack(random, draws=True),
}
"""The attacks by name"""


def register_attack(name: str, attack: Attack) -> None:
    """
    Add an attack: for ``AdversarialObservationWrapper(attack=name)``, and as :class:`Attack` for whatever asks by name.

    :param name: Its name
    :param attack: The attack
    :raises InputError: if another attack has this name
    """
    if name == LEARNED or ATTACKS.get(name, attack) != attack:
        raise InputError(f"there is an attack {name!r} already: choose another name")
    ATTACKS[name] = attack
