"""One update of CAMP: the reference learns, the primary imitates it and widens its Q-gap."""

from dataclasses import dataclass
from typing import Literal

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.camp_dqn.losses import adaptive_eta, agreement, imitation_loss, q_gap, robustness_loss
from sb3_camp.camp_dqn.references import LearningReference, Reference

#: What :meth:`Update.primary_losses` gives besides the loss, in this order
PRIMARY_LOGS = ("imitation_loss", "robustness_loss", "eta", "q_gap_mean", "q_gap_min", "agreement")


@dataclass
class Update:
    """
    :param policy: Policy of the primary network
    :param reference: What it imitates
    :param camp_lambda: Weight of the hinge loss against imitation
    :param camp_eta: Offset of the hinge, or "adaptive"
    :param imitation: "soft", "hard" or one that was added, see :func:`~sb3_camp.camp_dqn.losses.imitation_loss`
    :param gamma: Discount factor, for buffers whose batches have no ``discounts``
    :param max_grad_norm: Maximum l2 norm of the gradients of each network
    """

    policy: DQNPolicy
    reference: Reference
    camp_lambda: float | th.Tensor
    camp_eta: float | th.Tensor | Literal["adaptive"]
    imitation: str
    gamma: float
    max_grad_norm: float

    def __call__(
        self, reference_batch: ReplayBufferSamples | None, primary_batch: ReplayBufferSamples
    ) -> tuple[th.Tensor | None, th.Tensor]:
        """
        One gradient step of each network that learns.

        :param reference_batch: What the reference learns from, None if it is frozen
        :param primary_batch: What the primary learns from
        :return: the loss of the reference, scalar, None if it is frozen; the ``PRIMARY_LOGS``, shape (6,)
        """
        td_loss = None
        if reference_batch is not None:
            assert isinstance(self.reference, LearningReference)
            # Only for its own update: the primary imitates the reference as it acts, without dropout or batch statistics
            self.reference.policy.set_training_mode(True)
            td_loss = self.reference.td_loss(reference_batch, self.policy, self.gamma)
            self._gradient_step(self.reference.policy.optimizer, td_loss)
            self.reference.policy.set_training_mode(False)
            td_loss = td_loss.detach()

        loss, logs = self.primary_losses(primary_batch)
        self._gradient_step(self.policy.optimizer, loss)
        return td_loss, logs

    def primary_losses(self, batch: ReplayBufferSamples) -> tuple[th.Tensor, th.Tensor]:
        """
        Imitation + lambda * hinge (Eq. CAMP_loss, the terms that depend on the primary).

        :return: the loss, scalar; the ``PRIMARY_LOGS`` without gradient, shape (6,)
        """
        scores = self.reference.scores(batch)
        q_values = self.policy.q_net(batch.observations)
        if isinstance(self.camp_eta, str):
            eta = adaptive_eta(q_values)
        else:
            eta = th.as_tensor(self.camp_eta, dtype=q_values.dtype, device=q_values.device)
        imitation = imitation_loss(q_values, scores, self.imitation)
        robustness = robustness_loss(q_values, scores, eta)
        gaps, agrees = q_gap(q_values.detach()), agreement(q_values.detach(), scores)
        logs = th.stack([imitation.detach(), robustness.detach(), eta.detach(), gaps.mean(), gaps.min(), agrees])
        return imitation + self.camp_lambda * robustness, logs

    def _gradient_step(self, optimizer: th.optim.Optimizer, loss: th.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        th.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        optimizer.step()


def fuse_adam(optimizer: th.optim.Optimizer) -> None:
    """
    Let Adam update all parameters in one kernel, unless the user chose an implementation: for small networks it is the calls
    that cost.

    :param optimizer: Changed if it is an Adam
    """
    if type(optimizer) is th.optim.Adam:
        for group in optimizer.param_groups:
            if group["fused"] is None and group["foreach"] is None:
                group["fused"] = True
