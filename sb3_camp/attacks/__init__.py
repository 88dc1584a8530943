"""
Attacks on the observations of discrete policies under an l2 budget (paper, Algorithm 2), for a batch of rows at once.

They are pure functions of tensors: what an adversary does over an episode is
:class:`sb3_camp.wrappers.AdversarialObservationWrapper`'s matter.
"""

from sb3_camp.attacks.batch import Assemble, Perturbation, Scores
from sb3_camp.attacks.gradient_attacks import apgd, fgsm, pgd
from sb3_camp.attacks.random_direction import random

__all__ = ["Assemble", "Perturbation", "Scores", "apgd", "fgsm", "pgd", "random"]
