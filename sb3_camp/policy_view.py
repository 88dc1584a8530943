"""What an attack may ask of a policy of SB3, whatever its algorithm: one view of all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from sb3_contrib.ars.policies import ARSPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.crossq.policies import CrossQPolicy
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from sb3_contrib.tqc.policies import TQCPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy

from sb3_camp.action_scores import action_scores, refuse_masks

# How far the best action of a Q-network is ahead of the second on the clean observation, in units of its softmax
_SHARPNESS = 10.0

LstmStates = tuple[th.Tensor, th.Tensor]
"""Hidden and cell state of N sequences, (n_layers, N, hidden_size) each"""


class Remembering(NamedTuple):
    """What a recurrent policy acts on."""

    observation: PyTorchObs
    states: LstmStates


Observed = Any
"""A batch of N observations, as tensors in the policy's observation space, not normalised; of a recurrent policy
:class:`Remembering`"""


@dataclass(frozen=True)
class PolicyView:
    """
    What is known of a policy, as functions that can be differentiated by what it observes. What it does not have is None.

    :param policy: The policy
    :param scores: From observations to action scores (N, n_actions), whose argmax is the greedy action
    :param distributions: From observations to the distributions of the actions, one or more of PyTorch, of N rows each
    :param means: From observations to the greedy actions, scaled to -1 .. 1 where the action space is bounded, (N, n_dims)
    :param q: The algorithm's own critic: from observations and such actions to action values, (N,); of discrete actions from
        shares of each, (N, n_actions)
    :param value: The algorithm's own critic: from observations to values, (N,)
    :param advance: Of a recurrent policy: from :class:`Remembering` to its next states
    """

    policy: BasePolicy
    scores: Callable[[Observed], th.Tensor] | None = None
    distributions: Callable[[Observed], list[Any]] | None = None
    means: Callable[[Observed], th.Tensor] | None = None
    q: Callable[[Observed, th.Tensor], th.Tensor] | None = None
    value: Callable[[Observed], th.Tensor] | None = None
    advance: Callable[[Remembering], LstmStates] | None = None

    @property
    def serves(self) -> tuple[str, ...]:
        """What it can be asked for: some of scores, distance, actions, q, value."""
        known = {
            "scores": self.scores,
            "distance": self.distributions or self.means or self.scores,
            "actions": self.means or self.scores,
            "q": self.q,
            "value": self.value,
        }
        return tuple(name for name, function in known.items() if function is not None)

    def action_distance(self, clean: Observed) -> Callable[[Observed], th.Tensor]:
        """
        How far the actions are from those on clean observations: the Kullback-Leibler divergence KL(clean || other) of their
        distributions; for policies without one the squared distance of the (scaled) greedy actions; for Q-networks the
        divergence of softmaxes in which the best action is ten units ahead of the second on the clean observation.

        :param clean: N observations
        :return: function of N others to N distances
        """
        if self.distributions is not None:
            distributions = self.distributions
            with th.no_grad():
                before = distributions(clean)
            return lambda other: sum(map(_divergence, before, distributions(other)))  # type: ignore[return-value]
        if self.means is not None:
            means = self.means
            with th.no_grad():
                start = means(clean)
            return lambda other: (means(other) - start).square().sum(dim=1)
        logits = self._logits(clean)
        with th.no_grad():
            logs = logits(clean).log_softmax(dim=1)
        return lambda other: (logs.exp() * (logs - logits(other).log_softmax(dim=1))).sum(dim=1)

    def soft_actions(self, clean: Observed) -> Callable[[Observed], th.Tensor]:
        """
        The actions as something that moves smoothly.

        :param clean: N observations
        :return: function of N others to the scaled greedy actions (N, n_dims), or, of discrete actions, to their probabilities
            (N, n_actions); those of Q-networks as in :meth:`action_distance`
        """
        if self.means is not None:
            return self.means
        logits = self._logits(clean)
        return lambda other: logits(other).softmax(dim=1)

    def _logits(self, clean: Observed) -> Callable[[Observed], th.Tensor]:
        """Of the probabilities of discrete actions, or of what stands for them."""
        scores = self.scores
        assert scores is not None
        if self.distributions is not None:
            return scores
        with th.no_grad():
            best, second = scores(clean).topk(2, dim=1).values.unbind(dim=1)
            unit = ((best - second) / _SHARPNESS).clamp_min(1e-30)[:, None]
        return lambda other: scores(other) / unit


def policy_view(policy: BasePolicy) -> PolicyView:
    """
    :param policy: A policy of SB3 or sb3-contrib
    :return: what an attack may ask of it
    :raises InputError: if it masks actions, or is of an unknown kind
    """
    refuse_masks(policy)
    if isinstance(policy, RecurrentActorCriticPolicy):
        return _recurrent_view(policy)
    if isinstance(policy, ActorCriticPolicy):
        return _actor_critic_view(policy)
    if isinstance(policy, SACPolicy | TQCPolicy | CrossQPolicy):
        return PolicyView(
            policy,
            distributions=partial(_squashed_gaussians, policy.actor),
            means=lambda observed: policy.actor(observed, deterministic=True),
            q=partial(_mean_q, policy.critic),
        )
    if isinstance(policy, TD3Policy):
        return PolicyView(policy, means=policy.actor, q=partial(_mean_q, policy.critic))
    if isinstance(policy, ARSPolicy) and isinstance(policy.action_space, spaces.Box):
        return PolicyView(policy, means=lambda observed: _scaled(policy(observed), policy))
    scores = action_scores(policy)
    if isinstance(policy, DQNPolicy | QRDQNPolicy):
        return PolicyView(policy, scores=scores, q=partial(_q_of_shares, scores))
    return PolicyView(policy, scores=scores)


def _actor_critic_view(policy: ActorCriticPolicy) -> PolicyView:
    def distribution(observed: Observed) -> Any:
        return policy.get_distribution(observed)

    def value(observed: Observed) -> th.Tensor:
        return policy.predict_values(observed).squeeze(1)

    return PolicyView(policy, value=value, **_of_distribution(policy, distribution))


def _recurrent_view(policy: RecurrentActorCriticPolicy) -> PolicyView:
    def both(observed: Remembering) -> Any:
        starts = th.zeros(observed.states[0].shape[1], device=policy.device)
        return policy.get_distribution(observed.observation, observed.states, starts)  # type: ignore[arg-type]

    return PolicyView(
        policy,
        advance=lambda observed: both(observed)[1],
        **_of_distribution(policy, lambda observed: both(observed)[0]),
    )


def _of_distribution(policy: ActorCriticPolicy, distribution: Callable[[Observed], Any]) -> dict[str, Any]:
    def distributions(observed: Observed) -> list[Any]:
        # SB3 gives the same object at each call, with another distribution in it
        found = distribution(observed).distribution
        return found if isinstance(found, list) else [found]

    served: dict[str, Any] = {"distributions": distributions}
    if isinstance(policy.action_space, spaces.Discrete):
        served["scores"] = lambda observed: distribution(observed).distribution.logits
    elif isinstance(policy.action_space, spaces.Box):
        served["means"] = lambda observed: _scaled(distribution(observed).mode(), policy)
    return served


def _squashed_gaussians(actor: Any, observed: Observed) -> list[Any]:
    """The Gaussians below the tanh, whose divergences are those above it."""
    mean, log_std, more = actor.get_action_dist_params(observed)
    return [actor.action_dist.proba_distribution(mean, log_std, **more).distribution]


def _q_of_shares(scores: Callable[[Observed], th.Tensor], observed: Observed, shares: th.Tensor) -> th.Tensor:
    """Of discrete actions that are taken with these probabilities, (N, n_actions)."""
    return (scores(observed) * shares).sum(dim=1)


def _mean_q(critic: Any, observed: Observed, actions: th.Tensor) -> th.Tensor:
    """Mean over the networks of a critic, and over their quantiles."""
    values = critic(observed, actions)
    if isinstance(values, tuple):
        values = th.stack(values, dim=1)
    return values.flatten(1).mean(dim=1)


def _scaled(actions: th.Tensor, policy: BasePolicy) -> th.Tensor:
    """
    Greedy actions as what is left of them when they are clipped, scaled to -1 .. 1. Gradients pass as if they were not
    clipped, for an attack has to see how an action comes back from beyond the bounds.
    """
    space = policy.action_space
    assert isinstance(space, spaces.Box)
    actions = actions.flatten(1)
    if policy.squash_output or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return actions
    low, high = (th.as_tensor(end, device=actions.device).flatten() for end in (space.low, space.high))
    scaled = 2 * (actions - low) / (high - low) - 1
    return scaled + (scaled.clamp(-1, 1) - scaled).detach()


def _divergence(one: Any, other: Any) -> th.Tensor:
    divergence = th.distributions.kl_divergence(one, other)
    return divergence.reshape(len(divergence), -1).sum(dim=1)
