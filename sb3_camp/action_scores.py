"""One view of every discrete SB3 policy: a differentiable function from observations to action scores."""

from collections.abc import Callable

import torch as th
from gymnasium import spaces
from sb3_contrib.ars.policies import ARSPolicy
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.errors import InputError
from sb3_camp.noisy_net.policies import NoisyMlpPolicy

ActionScores = Callable[[PyTorchObs], th.Tensor]


def action_scores(policy: BasePolicy) -> ActionScores:
    """
    The scores by which a policy ranks its actions: its greedy action is their argmax.

    DQN and CAMPDQN: Q-values; NoisyNet: Q-values at the mean weights; QR-DQN: means of the quantiles; PPO, A2C, TRPO: logits;
    ARS: outputs of the network.

    :param policy: Policy of an SB3 or sb3-contrib model with a Discrete action space
    :return: Function of a batch of observations, as tensors in the policy's observation space (not yet normalised), to scores
        of shape (batch, n_actions); gradients flow to observations and parameters
    :raises InputError: if the actions are not discrete or the policy is recurrent, masks actions or is of an unknown kind
    """
    if not isinstance(policy.action_space, spaces.Discrete):
        raise InputError(
            f"{type(policy).__name__} has the action space {policy.action_space}; action scores need Discrete actions. "
            "Between continuous or several actions there is no gap."
        )
    if isinstance(policy, RecurrentActorCriticPolicy):
        raise InputError(
            f"{type(policy).__name__} (RecurrentPPO) remembers earlier observations, so one observation does not tell its "
            "action: use a policy that is not recurrent, with a frame stack where it needs the past."
        )
    refuse_masks(policy)
    if isinstance(policy, NoisyMlpPolicy):
        return policy.q_net.mean_q_values
    if isinstance(policy, DQNPolicy):
        return policy.q_net
    if isinstance(policy, QRDQNPolicy):
        quantile_net = policy.quantile_net
        return lambda obs: quantile_net(obs).mean(dim=1)
    if isinstance(policy, ActorCriticPolicy):
        actor_critic = policy
        return lambda obs: actor_critic.get_distribution(obs).distribution.logits  # type: ignore[union-attr]
    if isinstance(policy, ARSPolicy):
        ars_policy = policy
        return lambda obs: ars_policy.action_net(ars_policy.extract_features(obs, ars_policy.features_extractor))
    raise InputError(
        f"Action scores of {type(policy).__name__} are not known: use a model of DQN, QR-DQN, PPO, A2C, TRPO or ARS."
    )


def refuse_masks(policy: BasePolicy) -> None:
    """
    :param policy: Policy of an SB3 or sb3-contrib model
    :raises InputError: if it masks actions
    """
    if isinstance(policy, MaskableActorCriticPolicy):
        raise InputError(
            f"{type(policy).__name__} (MaskablePPO) chooses among the actions that a mask allows, so the observation does not "
            "tell its action: use a policy without action masks."
        )
