"""A reference that learns the distribution of the return, and is imitated by what of it can be certified."""

import inspect

import torch as th
from gymnasium import spaces
from sb3_contrib.common.utils import quantile_huber_loss
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import ReplayBufferSamples, Schedule
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.camp_dqn.clean_observations import CleanObservations
from sb3_camp.camp_dqn.reference_registry import register_reference
from sb3_camp.camp_dqn.references import CleanReference
from sb3_camp.risk.wang_transform import episode_weights

N_QUANTILES = 32


@register_reference
class CleanQuantileReference(CleanReference):
    """
    A reference that sees the observations without noise, and learns quantiles of the primary's return (QR-DQN: Dabney et al.,
    2018, with one atom for each of :data:`N_QUANTILES` levels, and the primary's action in place of the best).

    Its action scores are Wang transforms of these quantiles: with ``wang_parameter`` R / sigma, what would be certified at
    radius R if they were those of a whole episode. With 0 they are the means.

    :param policy: Its policy
    :param space: Space of the clean observations
    :param clean_observations: Follows those of the envs that the model is trained in; None if there are none yet
    :param wang_parameter: Parameter of the Wang transform, at least 0 (see :mod:`sb3_camp.risk.wang_transform`)
    :raises InputError: if the parameter is not finite and at least 0
    """

    kind = "clean_quantiles"
    policy: QRDQNPolicy

    def __init__(
        self,
        policy: BasePolicy,
        space: spaces.Box,
        clean_observations: CleanObservations | None = None,
        wang_parameter: float = 0.0,
    ) -> None:
        super().__init__(policy, space, clean_observations)
        # The lowest quantile is that of the worst episodes. No tensor: what is compiled may hold none that are not its own
        self._weights = episode_weights(range(N_QUANTILES), wang_parameter) / N_QUANTILES

    @classmethod
    def make_policy(
        cls,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        policy_class: type[DQNPolicy],
        policy_kwargs: dict,
    ) -> BasePolicy:
        # A subclass of DQNPolicy may take more than its networks are made of
        taken = inspect.signature(QRDQNPolicy.__init__).parameters
        kwargs = {name: value for name, value in policy_kwargs.items() if name in taken} | {"n_quantiles": N_QUANTILES}
        return QRDQNPolicy(observation_space, action_space, lr_schedule, **kwargs)

    def networks(self) -> tuple[th.nn.Module, th.nn.Module]:
        return self.policy.quantile_net, self.policy.quantile_net_target

    def scores(self, batch: ReplayBufferSamples) -> th.Tensor:
        with th.no_grad():
            # What the levels have learned need not be in order, but a distribution it is
            quantiles = self.policy.quantile_net(self.observations(batch)).sort(dim=1).values
            weights = th.as_tensor(self._weights, dtype=quantiles.dtype, device=quantiles.device)
            return (quantiles * weights[:, None]).sum(dim=1)

    def td_loss(self, batch: ReplayBufferSamples, primary: DQNPolicy, gamma: float) -> th.Tensor:
        """
        Quantile Huber loss of the temporal differences (Dabney et al., 2018, Eq. 10), by the implementation of sb3-contrib.

        :param batch: n-step transitions
        :param primary: Policy of the primary network, whose return it is
        :param gamma: Discount factor, for buffers whose batches have no ``discounts``
        :return: Mean over batch and quantiles, scalar
        """
        targets = self.targets(batch, primary, gamma)
        quantiles = self._of(self.policy.quantile_net(self.observations(batch)), batch.actions.long())
        return quantile_huber_loss(quantiles, targets, sum_over_quantiles=False)

    def _next_values(self, batch: ReplayBufferSamples, primary: DQNPolicy) -> th.Tensor:
        following = self.policy.quantile_net_target(self.next_observations(batch))
        return self._of(following, self.next_actions(batch, primary))

    @staticmethod
    def _of(quantiles: th.Tensor, actions: th.Tensor) -> th.Tensor:
        """Quantiles (batch, n_quantiles, n_actions) of actions (batch, 1): shape (batch, n_quantiles)."""
        return quantiles.gather(2, actions[..., None].expand(-1, quantiles.shape[1], -1)).squeeze(2)
