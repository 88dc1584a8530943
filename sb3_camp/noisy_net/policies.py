"""Policies for DQN whose linear layers are noisy."""

import math
from numbers import Real
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy, MultiInputPolicy, QNetwork

from sb3_camp.errors import InputError
from sb3_camp.noisy_net.layers import make_linear_layers_noisy, set_weight_noise, weight_noise


class NoisyQNetwork(QNetwork):
    """
    Q-network with noise on the weights of all its linear layers, those of the features extractor included.

    Called directly, as DQN does while it trains, it draws the weights once for the batch in training mode, and takes the mean
    weights in evaluation mode.

    :param args: as SB3's ``QNetwork``
    :param sigma_init: Initial noise, see :class:`~sb3_camp.noisy_net.layers.NoisyLinear`
    :param kwargs: as SB3's ``QNetwork``
    """

    def __init__(self, *args: Any, sigma_init: float = 0.5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sigma_init = sigma_init
        make_linear_layers_noisy(self, sigma_init)

    def mean_q_values(self, obs: PyTorchObs) -> th.Tensor:
        """
        The Q-values at the mean weights, in training mode too: the greedy action of a deterministic policy is their argmax.

        :param obs: Observations, shape (batch, ...)
        :return: shape (batch, n_actions)
        """
        with weight_noise(self, "off"):
            return self(obs)

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        # Whatever the mode: SB3 collects steps in evaluation mode
        with weight_noise(self, "off" if deterministic else "row"):
            return super()._predict(observation, deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "sigma_init": self.sigma_init}


class NoisyMlpPolicy(DQNPolicy):
    """
    Policy for DQN that explores by noise on the weights of all linear layers of its Q-network instead of random actions.

    - ``predict(deterministic=False)``, which collects the steps of the training: fresh weights at each call, independently for
      each observation of the batch.
    - ``predict(deterministic=True)``, the default of evaluations: the mean weights.
    - Each forward pass of DQN's training: fresh weights, once for the batch; online and target network independently.

    It needs no epsilon-greedy exploration on top: :class:`~sb3_camp.noisy_net.NoisyNetDQN` has none by default; SB3's ``DQN``
    has, unless told ``exploration_initial_eps=0, exploration_final_eps=0``.

    Paper: Fortunato et al.: Noisy Networks for Exploration, ICLR 2018.

    :param observation_space: Observation space
    :param action_space: Action space
    :param lr_schedule: Learning rate schedule (could be constant)
    :param args: as SB3's policy for DQN
    :param sigma_init: Initial noise, the paper's sigma_0: the sigmas of a layer with p inputs start as sigma_0 / sqrt(p)
    :param kwargs: as SB3's policy for DQN
    :raises InputError: (a ValueError) if sigma_init is not a number that is at least 0
    """

    q_net: NoisyQNetwork
    q_net_target: NoisyQNetwork

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        *args: Any,
        sigma_init: float = 0.5,
        **kwargs: Any,
    ) -> None:
        if isinstance(sigma_init, bool) or not isinstance(sigma_init, Real) or not 0 <= sigma_init < math.inf:
            raise InputError(f"policy_kwargs: sigma_init must be a number that is at least 0, not {sigma_init!r}.")
        self.sigma_init: float = float(sigma_init)  # before the networks are built
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def make_q_net(self) -> NoisyQNetwork:
        net_args = self._update_features_extractor(self.net_args, features_extractor=None)
        return NoisyQNetwork(**net_args, sigma_init=self.sigma_init).to(self.device)

    def set_training_mode(self, mode: bool) -> None:
        super().set_training_mode(mode)
        # SB3 keeps the target network in evaluation mode
        set_weight_noise(self.q_net_target, "batch" if mode else "off")

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "sigma_init": self.sigma_init}


class NoisyCnnPolicy(NoisyMlpPolicy, CnnPolicy):
    """
    The same for images: the linear layer of SB3's ``NatureCNN`` and those after it are noisy, the convolutions are not.
    """


class NoisyMultiInputPolicy(NoisyMlpPolicy, MultiInputPolicy):
    """
    The same for Dict observations: the linear layers behind the convolutions of image entries are noisy too.
    """
