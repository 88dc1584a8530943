"""The policy of a trained agent, of whatever SB3 algorithm, on parameters that no training changes."""

import inspect
import os
from collections.abc import Mapping
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
    def of_algorithm(cls, members: Mapping[str, Any]) -> "PolicyRecipe":
        """
        :param members: Attributes of a model, of which the class of its policy, its spaces and ``policy_kwargs`` are used
        """
        policy_class = members["policy_class"]
        kwargs = dict(members.get("policy_kwargs") or {})
        kwargs.update(observation_space=members["observation_space"], action_space=members["action_space"])
        # ARS has neither a learning rate nor an optimizer
        if "lr_schedule" in inspect.signature(policy_class.__init__).parameters:
            kwargs["lr_schedule"] = BasePolicy._dummy_schedule
        return cls(policy_class, kwargs)

    @classmethod
    def of_policy(cls, policy: BasePolicy) -> "PolicyRecipe":
        """
        :param policy: A policy whose class tells all arguments of its constructor, or keeps them as attributes
        """
        known = policy._get_constructor_parameters()
        # SB3 leaves out some, and lists others that a class for linear policies does not take
        parameters = inspect.signature(type(policy).__init__).parameters
        kept = {name: getattr(policy, name) for name in parameters if name not in known and hasattr(policy, name)}
        return cls(type(policy), {name: value for name, value in {**known, **kept}.items() if name in parameters})

    def build(self, device: th.device) -> BasePolicy:
        return _freeze(self.policy_class(**self.kwargs), device)


def load_frozen_policy(agent: TrainedAgent, device: th.device, role: str = "reference") -> BasePolicy:
    """
    The policy of a trained agent, see :func:`frozen_agent`.
    """
    return frozen_agent(agent, device, role)[1]


def frozen_agent(agent: TrainedAgent, device: th.device, role: str = "reference") -> tuple[PolicyRecipe, BasePolicy]:
    """
    The policy of a trained agent, on its own parameters that no training changes, and how to build it again.

    The initial weights that are overwritten are drawn from PyTorch's global generator.

    :param agent: A model or a policy of SB3 (copied), or the path of a checkpoint of any SB3 algorithm (with or without
        ``.zip``)
    :param device: Device to put it on
    :param role: Name of the argument that the agent was given as, for the messages
    :raises InputError: if the file is missing or is not a checkpoint, or if a policy cannot be copied
    """
    if isinstance(agent, BaseAlgorithm | BasePolicy):
        # Not a deepcopy: a policy that has just been trained may hold tensors that cannot be copied
        original = agent.policy if isinstance(agent, BaseAlgorithm) else agent
        recipes = [PolicyRecipe.of_policy(original)]
        if isinstance(agent, BaseAlgorithm):
            recipes.insert(0, PolicyRecipe.of_algorithm(vars(agent)))
        for recipe in recipes:
            policy = _built(recipe, device)
            if policy is not None and _structure(policy) == _structure(original):
                policy.load_state_dict(original.state_dict())
                return recipe, policy
        raise InputError(
            f"{role}: this {type(original).__name__} cannot be built again from what it keeps of its arguments: give the path "
            "of its checkpoint."
        )
    path = checkpoint_file(agent, role)
    try:
        data, params, _ = load_from_zip_file(path, device=device, custom_objects=dict(TRAINING_ONLY))
    except ValueError as error:
        raise InputError(f"{role}: {path} is not an SB3 checkpoint: {error}") from error
    if data is None or "policy_class" not in data or "policy" not in params:
        raise InputError(f"{role}: {path} is not an SB3 checkpoint: it holds no policy.")
    recipe = PolicyRecipe.of_algorithm(data)
    policy = recipe.build(device)
    policy.load_state_dict(params["policy"])  # type: ignore[arg-type]
    return recipe, policy


def _built(recipe: PolicyRecipe, device: th.device) -> BasePolicy | None:
    try:
        return recipe.build(device)
    except (TypeError, ValueError, AssertionError):  # arguments that its constructor does not take
        return None


def _structure(policy: BasePolicy) -> Any:
    """
    What two policies have in common for the parameters of one to mean the same in the other: their modules, the shapes of
    their parameters, and which of these are one and the same under several names (extractors that actor and critic share).
    """
    names: dict[int, list[str]] = {}
    for name, parameter in policy.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    shapes = {name: values.shape for name, values in policy.state_dict().items()}
    return type(policy), repr(policy), shapes, sorted(names.values())


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
