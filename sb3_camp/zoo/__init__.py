"""Registration of the algorithms in the RL Zoo."""

from sb3_camp.zoo.registration import register

__all__ = ["register"]
