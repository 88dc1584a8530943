"""Adversaries that are trained: policies of SB3 whose actions are the perturbations of another policy's observations."""

from sb3_camp.learned_adversary.training import train_adversary
from sb3_camp.learned_adversary.vec_env import AdversaryVecEnv

__all__ = ["AdversaryVecEnv", "train_adversary"]
