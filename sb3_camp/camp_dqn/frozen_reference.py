"""A trained agent as the reference of CAMP (the paper's Atari mode): it is frozen, only the primary acts and learns."""

from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy

from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import PolicyRecipe  # older checkpoints look for it in this module
from sb3_camp.space_signature import space_signature

__all__ = ["PolicyRecipe", "check_same_spaces"]


def check_same_spaces(policy: BasePolicy, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """
    Bounds may differ (noise makes a bounded space unbounded); shapes, dtypes and actions may not.

    :raises InputError: if the reference cannot act on these spaces
    """
    if space_signature(policy.observation_space) != space_signature(observation_space):
        raise InputError(
            f"reference: it observes {policy.observation_space}, this environment gives {observation_space}: "
            "shapes and dtypes must be the same."
        )
    if policy.action_space != action_space:
        raise InputError(f"reference: its actions are {policy.action_space}, this environment has {action_space}.")
