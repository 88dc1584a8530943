"""NoisyNet: DQN that explores by noise on its weights."""

from typing import Any, ClassVar, TypeVar

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.dqn import DQN

from sb3_camp.buffer_on_first_use import buffer_on_first_use
from sb3_camp.errors import InputError
from sb3_camp.noisy_net.policies import NoisyCnnPolicy, NoisyMlpPolicy, NoisyMultiInputPolicy

SelfNoisyNetDQN = TypeVar("SelfNoisyNetDQN", bound="NoisyNetDQN")


class NoisyNetDQN(DQN):
    """
    SB3's DQN with a NoisyNet policy, and without epsilon-greedy exploration by default.

    That is all the difference: the noise is in the policies, which SB3's ``DQN`` can use as well, and ``DQN.load`` reads what
    this class has saved. The first ``learning_starts`` steps are random actions, as in DQN.

    Paper: Fortunato et al.: Noisy Networks for Exploration, ICLR 2018.

    :param policy: The policy model to use (NoisyMlpPolicy, NoisyCnnPolicy, NoisyMultiInputPolicy; the names of SB3's
        policies, MlpPolicy and so on, mean these too)
    :param env: The environment to learn from
    :param exploration_fraction: fraction of entire training period over which the exploration rate is reduced
    :param exploration_initial_eps: initial value of random action probability
    :param exploration_final_eps: final value of random action probability
    :param policy_kwargs: additional arguments to be passed to the policy on creation, ``sigma_init`` among them
    :raises InputError: (a ValueError) if the policy has no noisy layers

    All other arguments are those of SB3's ``DQN``.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "NoisyMlpPolicy": NoisyMlpPolicy,
        "NoisyCnnPolicy": NoisyCnnPolicy,
        "NoisyMultiInputPolicy": NoisyMultiInputPolicy,
        "MlpPolicy": NoisyMlpPolicy,
        "CnnPolicy": NoisyCnnPolicy,
        "MultiInputPolicy": NoisyMultiInputPolicy,
    }

    def __init__(
        self,
        policy: str | type[NoisyMlpPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 0.0,
        exploration_final_eps: float = 0.0,
        max_grad_norm: float = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            tau=tau,
            gamma=gamma,
            train_freq=train_freq,
            gradient_steps=gradient_steps,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            target_update_interval=target_update_interval,
            exploration_fraction=exploration_fraction,
            exploration_initial_eps=exploration_initial_eps,
            exploration_final_eps=exploration_final_eps,
            max_grad_norm=max_grad_norm,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def _setup_model(self) -> None:
        if not issubclass(self.policy_class, NoisyMlpPolicy):
            raise InputError(
                f"NoisyNetDQN would not explore with {self.policy_class.__name__}, which has no noisy layers: use "
                "NoisyMlpPolicy, NoisyCnnPolicy, NoisyMultiInputPolicy or a subclass, or SB3's DQN."
            )
        with buffer_on_first_use(self):
            super()._setup_model()

    def learn(
        self: SelfNoisyNetDQN,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "NoisyNetDQN",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfNoisyNetDQN:
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
