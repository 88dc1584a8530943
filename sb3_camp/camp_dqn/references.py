"""
What the primary network of CAMP imitates: a network that learns alongside, or a trained agent.

==============  ==================  ==================  ==========================  =================
reference       who acts            who learns from     what the reference sees     bootstraps from
==============  ==================  ==================  ==========================  =================
alternating     both, in turn       own steps each      the primary's observations  its own maximum
shared          both, in turn       all steps           the primary's observations  its own maximum
clean           the primary         all steps           what is under the noise     the primary's action
clean_quantiles the primary         all steps           what is under the noise     the primary's action
frozen          the primary         (only the primary)  the primary's observations  (does not learn)
==============  ==================  ==================  ==========================  =================
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples, Schedule
from stable_baselines3.common.utils import get_parameters_by_name, polyak_update
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn import functional as F

from sb3_camp.action_scores import action_scores
from sb3_camp.camp_dqn.clean_observations import CleanObservations
from sb3_camp.camp_dqn.reference_registry import FROZEN, register_reference
from sb3_camp.camp_dqn.replay_buffers import Actor, AlternatingSampling, CleanReplayBufferSamples
from sb3_camp.errors import InputError
from sb3_camp.space_signature import space_signature

# Enough to make the cost of a call small, few enough for batches of images to fit into memory
STEPS_SAMPLED_AT_ONCE = 16


class Reference:
    """
    What the primary imitates.

    :param policy: Its policy
    """

    #: Its name among the references, see :func:`register_reference`
    kind: ClassVar[str]
    learns: ClassVar[bool] = True
    #: Whether it acts in every other step
    acts: ClassVar[bool] = False
    #: Whose transitions each update samples: those that the reference learns from, if it does; those of the primary
    learns_from: ClassVar[tuple[Actor | None, ...]]
    #: Whether it sees what is under the noise
    sees_clean: ClassVar[bool] = False

    def __init__(self, policy: BasePolicy) -> None:
        self.policy = policy

    def observations(self, batch: ReplayBufferSamples) -> PyTorchObs:
        """What the reference sees of a batch."""
        return batch.observations

    def scores(self, batch: ReplayBufferSamples) -> th.Tensor:
        """
        :return: its action scores, by which it is imitated, without gradient, shape (batch, n_actions)
        """
        with th.no_grad():
            return action_scores(self.policy)(self.observations(batch))

    def batches(
        self, buffer: AlternatingSampling, gradient_steps: int, batch_size: int, env: VecNormalize | None = None
    ) -> Iterator[tuple[ReplayBufferSamples | None, ReplayBufferSamples]]:
        """
        :param buffer: Where to sample
        :param gradient_steps: Number of updates
        :param batch_size: Number of transitions in each batch
        :param env: to normalize observations and rewards
        :return: for each update the batch of the reference, None if it does not learn, and that of the primary
        """
        for done in range(0, gradient_steps, STEPS_SAMPLED_AT_ONCE):
            n_steps = min(STEPS_SAMPLED_AT_ONCE, gradient_steps - done)
            batches = buffer.sample_batches(batch_size, self.learns_from * n_steps, env)
            for batch in batches:
                yield (batch, next(batches)) if self.learns else (None, batch)

    def update_target(self, tau: float) -> None:
        """
        :param tau: share of the network's weights in the new weights of its target network, if it has one
        """

    # What it follows of the environment

    def prepare(self, env: VecEnv) -> bool:
        """
        Called before a training in this environment.

        :return: whether the environment must be reset first
        """
        return False

    def begin(self) -> None:
        """Called when the environment was reset."""

    def complete(self, infos: list[dict[str, Any]], dones: np.ndarray) -> None:
        """
        Called before a step is stored, to complete its infos.

        :param infos: of one step of each env
        :param dones: Whether the episode ended, shape (n_envs,)
        """


class FrozenReference(Reference):
    """A trained agent (the paper's Atari mode): it is frozen, only the primary acts and learns."""

    kind = FROZEN
    learns = False
    learns_from = (None,)

    def start(self, primary: DQNPolicy) -> bool:
        """
        Let the primary start as the reference, if that is a DQN.

        :return: whether it does; a reference of another kind has nothing to start from, which is no failure
        """
        if not isinstance(self.policy, DQNPolicy):
            return True
        weights = self.policy.q_net.state_dict()
        own = primary.q_net.state_dict()
        # A noisy network has the scales of its noise besides: its greedy policy is that of the mean weights alone
        if not own.keys() <= weights.keys() or any(weights[key].shape != own[key].shape for key in own):
            return False
        primary.q_net.load_state_dict({key: weights[key] for key in own})
        return True


class LearningReference(Reference):
    """
    A network that learns the values of actions by temporal differences, with a target network and an optimizer of its own.

    A reference of another kind is a subclass of :class:`AlternatingReference`, :class:`SharedReference` or
    :class:`CleanReference` with a ``kind`` of its own, given to :func:`register_reference`. As far as it is no DQN it
    overrides :meth:`make_policy` (the policy keeps its optimizer in ``optimizer``), :meth:`networks` and :meth:`td_loss`, and
    :meth:`scores` if :func:`~sb3_camp.action_scores.action_scores` does not know the policy.

    :param policy: What :meth:`make_policy` made
    """

    policy: Any

    @classmethod
    def make_policy(
        cls,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        policy_class: type[DQNPolicy],
        policy_kwargs: dict[str, Any],
    ) -> BasePolicy:
        """
        :param observation_space: What the reference sees
        :param action_space: Discrete
        :param lr_schedule: Learning rate, of the progress that remains
        :param policy_class: Class of the primary's policy
        :param policy_kwargs: Its further arguments
        :return: a new policy; CAMPDQN saves, loads and schedules its ``optimizer``
        """
        return policy_class(observation_space, action_space, lr_schedule, **policy_kwargs)

    def networks(self) -> tuple[th.nn.Module, th.nn.Module]:
        """
        :return: the network that learns, and its target network
        """
        return self.policy.q_net, self.policy.q_net_target

    def update_target(self, tau: float) -> None:
        network, target = self.networks()
        polyak_update(network.parameters(), target.parameters(), tau)
        stats, target_stats = (get_parameters_by_name(one, ["running_"]) for one in (network, target))
        polyak_update(stats, target_stats, 1.0)

    def td_loss(self, batch: ReplayBufferSamples, primary: DQNPolicy, gamma: float) -> th.Tensor:
        """
        Huber loss of the temporal differences (paper, Eq. MSBE_dqn, with SB3's loss).

        :param batch: n-step transitions
        :param primary: Policy of the primary network, for references that evaluate it
        :param gamma: Discount factor, for buffers whose batches have no ``discounts``
        :return: Mean over the batch, scalar
        """
        targets = self.targets(batch, primary, gamma)
        q_values = self.policy.q_net(self.observations(batch)).gather(1, batch.actions.long())
        return F.smooth_l1_loss(q_values, targets)

    def targets(self, batch: ReplayBufferSamples, primary: DQNPolicy, gamma: float) -> th.Tensor:
        """
        :param batch: as for :meth:`td_loss`, like the others
        :return: what the network shall learn, without gradient: the rewards and what follows, of the shape of that
        """
        with th.no_grad():
            discounts = batch.discounts if batch.discounts is not None else gamma
            return batch.rewards + (1 - batch.dones) * discounts * self._next_values(batch, primary)

    def _next_values(self, batch: ReplayBufferSamples, primary: DQNPolicy) -> th.Tensor:
        """What the target network expects from the next observation on, shape (batch, 1)."""
        return self.policy.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values


@register_reference
class AlternatingReference(LearningReference):
    """The paper's Algorithm 1: both networks act in turn, and each learns from the steps where it acted."""

    kind = "alternating"
    acts = True
    learns_from = (Actor.REFERENCE, Actor.PRIMARY)


@register_reference
class SharedReference(LearningReference):
    """Both networks act in turn, and both learn from all steps."""

    kind = "shared"
    acts = True
    learns_from = (None, None)


@register_reference
class CleanReference(LearningReference):
    """
    A reference that sees the observations without noise, and learns the values of the primary, which acts alone.

    :param policy: Its policy
    :param space: Space of the clean observations
    :param clean_observations: Follows those of the envs that the model is trained in; None if there are none yet
    """

    kind = "clean"
    sees_clean = True
    learns_from = (None, None)

    def __init__(self, policy: BasePolicy, space: spaces.Box, clean_observations: CleanObservations | None = None) -> None:
        super().__init__(policy)
        self._space = space
        self._clean_observations = clean_observations

    def observations(self, batch: ReplayBufferSamples) -> PyTorchObs:
        return cast(CleanReplayBufferSamples, batch).clean_observations

    def next_observations(self, batch: ReplayBufferSamples) -> PyTorchObs:
        """What the reference sees next."""
        return cast(CleanReplayBufferSamples, batch).clean_next_observations

    def next_actions(self, batch: ReplayBufferSamples, primary: DQNPolicy) -> th.Tensor:
        """
        What the primary does next. A maximum over the actions at the clean observation would be the value of a policy that
        sees it.

        :param batch: Transitions
        :param primary: Policy of the primary network
        :return: its actions as it acts, without dropout or batch statistics, shape (batch, 1)
        """
        primary.set_training_mode(False)
        actions = primary.q_net(batch.next_observations).argmax(dim=1, keepdim=True)
        primary.set_training_mode(True)
        return actions

    def _next_values(self, batch: ReplayBufferSamples, primary: DQNPolicy) -> th.Tensor:
        return self.policy.q_net_target(self.next_observations(batch)).gather(1, self.next_actions(batch, primary))

    def prepare(self, env: VecEnv) -> bool:
        """
        :raises InputError: if the envs do not report what is under their noise, or if that is of another kind
        """
        if self._clean_observations is not None and self._clean_observations.env is env:
            return False
        clean_observations = CleanObservations(env)
        own, new = self._space, clean_observations.space
        if space_signature(own) != space_signature(new):
            raise InputError(
                f"reference={self.kind!r}: under the noise of this environment are observations of shape {new.shape} "
                f"({new.dtype}), the reference sees {own.shape} ({own.dtype}): put the noise where it was when the model was "
                "trained."
            )
        self._clean_observations = clean_observations
        return True  # what is under the noise of the observations at hand has not been reported

    def begin(self) -> None:
        assert self._clean_observations is not None
        self._clean_observations.begin()

    def complete(self, infos: list[dict[str, Any]], dones: np.ndarray) -> None:
        assert self._clean_observations is not None
        self._clean_observations.complete(infos, dones)


def learning_reference(
    kind: type[LearningReference],
    policy: BasePolicy,
    space: spaces.Space,
    clean_observations: CleanObservations | None,
    kwargs: dict[str, Any] | None,
) -> LearningReference:
    """
    :param kind: What it is
    :param policy: What its :meth:`~LearningReference.make_policy` made
    :param space: Space of what it sees
    :param clean_observations: Follows what is under the noise, for references that see that; None if there are no envs yet
    :param kwargs: The user's settings of this reference
    :return: the reference
    :raises InputError: if it has no such settings, or for their values
    """
    given = (policy, space, clean_observations) if issubclass(kind, CleanReference) else (policy,)
    if not isinstance(kwargs, Mapping | None):
        raise InputError(f"reference_kwargs: a dict of settings of reference={kind.kind!r} is needed, not {kwargs!r}")
    try:
        inspect.signature(kind).bind(*given, **(kwargs or {}))
    except TypeError as error:
        raise InputError(f"reference_kwargs: {kwargs} are no settings of reference={kind.kind!r}: {error}") from None
    return kind(*given, **(kwargs or {}))
