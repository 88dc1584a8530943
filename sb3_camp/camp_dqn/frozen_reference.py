"""A trained agent as the reference of CAMP (the paper's Atari mode): it is frozen, only the primary acts and learns."""

import inspect
import os
from typing import Any, NamedTuple

import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file

from sb3_camp.errors import InputError
from sb3_camp.space_signature import space_signature
from sb3_camp.training_only import TRAINING_ONLY


class PolicyRecipe(NamedTuple):
    """What it takes to build an (untrained) policy again: its class and the arguments of its constructor."""

    policy_class: type[BasePolicy]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, policy: BasePolicy) -> "PolicyRecipe":
        return cls(type(policy), policy._get_constructor_parameters())

    def build(self, device: th.device) -> BasePolicy:
        return _freeze(self.policy_class(**self.kwargs), device)


def load_frozen_policy(reference: "str | os.PathLike[str] | BaseAlgorithm", device: th.device) -> BasePolicy:
    """
    The policy of a trained agent, on its own parameters that no training changes.

    :param reference: An SB3 model (copied), or the path of a checkpoint of any SB3 algorithm (with or without ``.zip``)
    :param device: Device to put it on
    :raises InputError: if the file is missing or is not a checkpoint
    """
    if isinstance(reference, BaseAlgorithm):
        # Not a deepcopy: a policy that has just been trained may hold tensors that cannot be copied
        policy = PolicyRecipe.of(reference.policy).build(device)
        policy.load_state_dict(reference.policy.state_dict())
        return policy
    if not isinstance(reference, str | os.PathLike):
        raise InputError(f"reference: give an SB3 model or the path of a checkpoint, not {reference!r}.")
    path = os.fspath(reference)
    if not (os.path.isfile(path) or os.path.isfile(f"{path}.zip")):
        raise InputError(f"reference: no checkpoint at {path}: give the .zip file of a trained agent.")
    try:
        data, params, _ = load_from_zip_file(path, device=device, custom_objects=dict(TRAINING_ONLY))
    except ValueError as error:
        raise InputError(f"reference: {path} is not an SB3 checkpoint: {error}") from error
    if data is None or "policy_class" not in data or "policy" not in params:
        raise InputError(f"reference: {path} is not an SB3 checkpoint: it holds no policy.")
    policy_class = data["policy_class"]
    kwargs = dict(data.get("policy_kwargs") or {})
    # ARS has neither a learning rate nor an optimizer
    if "lr_schedule" in inspect.signature(policy_class.__init__).parameters:
        kwargs["lr_schedule"] = BasePolicy._dummy_schedule
    policy = policy_class(data["observation_space"], data["action_space"], **kwargs)
    policy.load_state_dict(params["policy"])
    return _freeze(policy, device)


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


def _freeze(policy: BasePolicy, device: th.device) -> BasePolicy:
    policy = policy.to(device)
    policy.requires_grad_(False)
    policy.set_training_mode(False)
    return policy
