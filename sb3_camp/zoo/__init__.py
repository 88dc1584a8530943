"""The plugin for the RL Zoo: its algorithms, search spaces and what its trainings learn of certificates."""

from sb3_camp.zoo.algorithms import Algorithm, register_algorithm
from sb3_camp.zoo.registration import register

__all__ = ["Algorithm", "register", "register_algorithm"]
