"""Where checkpoints of version 0.1 look for the class of what they hold."""

from sb3_camp.frozen_policy import PolicyRecipe

__all__ = ["PolicyRecipe"]
