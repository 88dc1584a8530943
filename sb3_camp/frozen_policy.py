"""The policy of a trained agent, of whatever SB3 algorithm, on parameters that no training changes."""

import inspect
import os
from typing import Any, NamedTuple

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file

from sb3_camp.errors import InputError
from sb3_camp.training_only import TRAINING_ONLY

TrainedAgent = str | os.PathLike[str] | BaseAlgorithm | BasePolicy
"""The path of a checkpoint (with or without ``.zip``), a model, or its policy"""


class PolicyRecipe(NamedTuple):
    """What it takes to build an (untrained) policy again: its class and the arguments of its constructor."""

    policy_class: type[BasePolicy]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, policy: BasePolicy) -> "PolicyRecipe":
        return cls(type(policy), policy._get_constructor_parameters())

    def build(self, device: th.device) -> BasePolicy:
        return _freeze(self.policy_class(**self.kwargs), device)


def load_frozen_policy(agent: TrainedAgent, device: th.device, role: str = "reference") -> BasePolicy:
    """
    The policy of a trained agent, on its own parameters that no training changes.

    The initial weights that are overwritten are drawn from PyTorch's global generator.

    :param agent: A model or a policy of SB3 (copied), or the path of a checkpoint of any SB3 algorithm (with or without
        ``.zip``)
    :param device: Device to put it on
    :param role: Name of the argument that the agent was given as, for the messages
    :raises InputError: if the file is missing or is not a checkpoint
    """
    if isinstance(agent, BaseAlgorithm):
        agent = agent.policy
    if isinstance(agent, BasePolicy):
        # Not a deepcopy: a policy that has just been trained may hold tensors that cannot be copied
        policy = PolicyRecipe.of(agent).build(device)
        policy.load_state_dict(agent.state_dict())
        return policy
    path = checkpoint_file(agent, role)
    try:
        data, params, _ = load_from_zip_file(path, device=device, custom_objects=dict(TRAINING_ONLY))
    except ValueError as error:
        raise InputError(f"{role}: {path} is not an SB3 checkpoint: {error}") from error
    if data is None or "policy_class" not in data or "policy" not in params:
        raise InputError(f"{role}: {path} is not an SB3 checkpoint: it holds no policy.")
    policy_class = data["policy_class"]
    kwargs = dict(data.get("policy_kwargs") or {})
    # ARS has neither a learning rate nor an optimizer
    if "lr_schedule" in inspect.signature(policy_class.__init__).parameters:
        kwargs["lr_schedule"] = BasePolicy._dummy_schedule
    policy = policy_class(data["observation_space"], data["action_space"], **kwargs)
    policy.load_state_dict(params["policy"])
    return _freeze(policy, device)


def checkpoint_file(path: str | os.PathLike[str], role: str) -> str:
    """
    :param path: Path of a checkpoint, with or without ``.zip``
    :param role: Name of the argument that it was given as, for the messages
    :return: the path of the file
    :raises InputError: if there is none, or if it is not a path at all
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{role}: give an SB3 model or the path of a checkpoint, not {path!r}.")
    name = os.fspath(path)
    for file in (name, f"{name}.zip"):
        if os.path.isfile(file):
            return file
    raise InputError(f"{role}: no checkpoint at {name}: give the .zip file of a trained agent.")


def _freeze(policy: BasePolicy, device: th.device) -> BasePolicy:
    policy = policy.to(device)
    policy.requires_grad_(False)
    policy.set_training_mode(False)
    return policy
