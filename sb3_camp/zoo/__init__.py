"""The plugin for the RL Zoo: its algorithms, search spaces and what its trainings learn of certificates."""

from sb3_camp.zoo.registration import register

__all__ = ["register"]
