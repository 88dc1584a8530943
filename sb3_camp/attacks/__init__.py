"""
Attacks on the observations of discrete policies under an l2 budget (paper, Algorithm 2), for a batch of rows at once.

They are pure functions of tensors: what an adversary does over an episode is
:class:`sb3_camp.wrappers.AdversarialObservationWrapper`'s matter.
"""

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores
from sb3_camp.attacks.gradient_attacks import apgd, fgsm, pgd
from sb3_camp.attacks.random_direction import random
from sb3_camp.attacks.registry import ATTACKS, Attack, register_attack

__all__ = ["ATTACKS", "Assemble", "Attack", "Perturbation", "Scores", "apgd", "fgsm", "pgd", "random", "register_attack"]
