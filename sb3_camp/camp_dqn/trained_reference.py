"""Whether a trained agent can be what the primary imitates."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.action_scores import action_scores
from sb3_camp.camp_dqn.references import FrozenReference
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import PolicyRecipe, TrainedAgent, checkpoint_file, frozen_agent
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.space_signature import space_signature


def frozen_reference(
    agent: TrainedAgent, primary: DQNPolicy, normalizer: VecNormalize | None
) -> tuple[PolicyRecipe, FrozenReference]:
    """
    :param agent: A trained agent, see :func:`~sb3_camp.frozen_policy.frozen_agent`
    :param primary: The policy that shall imitate it
    :param normalizer: What normalises the observations of this training
    :return: how to build it again, and the reference
    :raises InputError: if it cannot be read, cannot act on these spaces, or if its actions depend on more than an observation
    """
    recipe, policy = frozen_agent(agent, primary.device)
    if not all(th.isfinite(parameter).all() for parameter in policy.parameters()):
        raise InputError("reference: its weights are not finite numbers, so it has nothing to teach.")
    # Bounds may differ (noise makes a bounded space unbounded); shapes, dtypes and actions may not
    if space_signature(policy.observation_space) != space_signature(primary.observation_space):
        raise InputError(
            f"reference: it observes {policy.observation_space}, this environment gives {primary.observation_space}: "
            "shapes and dtypes must be the same."
        )
    if policy.action_space != primary.action_space:
        raise InputError(f"reference: its actions are {policy.action_space}, this environment has {primary.action_space}.")
    try:
        scores_of = action_scores(policy)
    except InputError as error:
        raise InputError(f"reference: it cannot be imitated. {error}") from error
    if not _acts_by(scores_of, policy):
        raise InputError(
            f"reference: it cannot be imitated. {type(policy).__name__} does not take the action with the highest score, so "
            "its scores do not tell what it does."
        )
    _warn_of_normalisation(agent, normalizer)
    return recipe, FrozenReference(policy)


def _acts_by(scores_of: Callable[[Any], th.Tensor], policy: BasePolicy) -> bool:
    """Whether the greedy actions are those with the highest scores, on random observations."""
    observations = batch_space(policy.observation_space, 32)
    observations.seed(0)
    batch: Any = observations.sample()
    actions, _ = policy.predict(batch, deterministic=True)
    with th.no_grad():
        scores = scores_of(policy.obs_to_tensor(batch)[0]).cpu().numpy()
    finite = np.isfinite(scores).all(axis=1)  # bounds of a space may be the largest float, from where networks overflow
    scores, actions = scores[finite], actions[finite]
    chosen = np.take_along_axis(scores, actions.reshape(-1, 1), axis=1)[:, 0]
    return bool(np.all(chosen >= scores.max(axis=1) - 1e-4 * (1 + np.abs(scores).max(axis=1))))


def _warn_of_normalisation(agent: TrainedAgent, own: VecNormalize | None) -> None:
    """An agent that learned from normalised observations does not act as it did."""
    told = _told_of_normalisation(agent, own)
    if told is not None:
        warnings.warn(
            f"reference: {told}, so it learned from normalised observations; here it gets those of this training as they are. "
            "Imitate an agent that was trained on the same observations.",
            stacklevel=2,
        )


def _told_of_normalisation(agent: TrainedAgent, own: VecNormalize | None) -> str | None:
    """What tells that the observations of an agent were normalised by another normaliser than that of this training."""
    if isinstance(agent, BaseAlgorithm):
        normalizer = agent.get_vec_normalize_env()
        return None if normalizer in (None, own) or not normalizer.norm_obs else "it was trained in a VecNormalize"
    if isinstance(agent, BasePolicy):
        return None
    statistics = statistics_beside(Path(checkpoint_file(agent, "reference")))
    if statistics is None:
        return None
    try:
        normalises = read_normalization(statistics) is not None
    except InputError:
        normalises = True  # what cannot be read may do it
    return f"{statistics} lies beside it" if normalises else None
