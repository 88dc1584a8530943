"""
Attacks on the observations of policies, for a batch of rows at once: those of the paper (Algorithm 2) on discrete actions, and
others on all actions.

They are pure functions of tensors: what an adversary does over an episode is
:class:`sb3_camp.wrappers.AdversarialObservationWrapper`'s matter.
"""

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores
from sb3_camp.attacks.gradient_attacks import apgd, fgsm, pgd
from sb3_camp.attacks.maximize import critic, mad
from sb3_camp.attacks.random_direction import random
from sb3_camp.attacks.registry import ATTACKS, Attack, register_attack
from sb3_camp.attacks.robust_sarsa import robust_sarsa
from sb3_camp.attacks.transfer import transfer

__all__ = [
    "ATTACKS",
    "Assemble",
    "Attack",
    "Perturbation",
    "Scores",
    "apgd",
    "critic",
    "fgsm",
    "mad",
    "pgd",
    "random",
    "register_attack",
    "robust_sarsa",
    "transfer",
]
