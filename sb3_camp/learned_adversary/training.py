"""Training of an adversary with SB3's PPO."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.learned_adversary.vec_env import AdversaryVecEnv

_PILOT_STEPS = 200
_STEPS_PER_UPDATE = 32_768


class StandardizedExtractor(BaseFeaturesExtractor):
    """
    Passes on observations in units of their standard deviation in a pilot, so that the saved adversary needs no other file.

    :param observation_space: A Box of one dimension
    :param mean: (n,)
    :param std: (n,)
    """

    def __init__(self, observation_space: spaces.Box, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(observation_space, len(mean))
        self.register_buffer("_constants", th.tensor([mean, std], dtype=th.float32))

    def forward(self, observations: th.Tensor) -> th.Tensor:
        mean, std = self.get_buffer("_constants")
        return ((observations - mean) / std).clamp(-10, 10)


def train_adversary(
    env: AdversaryVecEnv,
    n_timesteps: int,
    *,
    seed: int = 0,
    log_std_init: float = -1.2,
    callback: BaseCallback | None = None,
    **ppo: Any,
) -> PPO:
    """
    Train an adversary by PPO (Schulman et al., 2017), with settings that were found for CartPole.

    The observations are standardised by those of a pilot in which nothing is spent, and the rewards by their running variance.

    :param env: Its environment
    :param n_timesteps: Number of steps, over all envs
    :param seed: Seed of the adversary, not of the game
    :param log_std_init: Logarithm of the standard deviation of the actions at the start
    :param callback: Called as SB3 does
    :param ppo: Other arguments of ``PPO``
    :return: the model, which acts in the environment as it is
    """
    mean, std = _pilot(env)
    n_steps = max(1, _STEPS_PER_UPDATE // env.num_envs)
    settings: dict[str, Any] = {
        "n_steps": n_steps,
        "batch_size": min(4096, n_steps * env.num_envs),
        "n_epochs": 4,
        "gamma": 1.0,  # the return that is taken from the policy is not discounted
        "gae_lambda": 0.97,
        "learning_rate": lambda progress: 1e-3 * progress,
        "max_grad_norm": 0.5,
        "ent_coef": 0.0,
        "device": "cpu",
    }
    policy_kwargs = {
        "features_extractor_class": StandardizedExtractor,
        "features_extractor_kwargs": {"mean": mean, "std": std},
        "log_std_init": log_std_init,
    }
    normalized = VecNormalize(env, norm_obs=False, gamma=1.0)
    model = PPO("MlpPolicy", normalized, policy_kwargs=policy_kwargs, seed=seed % 2**32, **{**settings, **ppo})
    return model.learn(n_timesteps, callback=callback)


def _pilot(env: AdversaryVecEnv) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each entry of the observations, over some steps in which next to nothing is spent."""
    actions = np.tile(env.view.idle_action, (env.num_envs, 1))
    seen = [np.asarray(env.reset())]
    for _ in range(_PILOT_STEPS):
        seen.append(np.asarray(env.step(actions)[0]))
    values = np.concatenate(seen).astype(np.float64)
    mean, std = values.mean(axis=0), values.std(axis=0)
    # How much is left varies in training only
    mean[-2], std[-2] = 0.0, max(float(values[:, -2].max()), 1e-6)
    return mean.tolist(), np.maximum(std, 1e-6).tolist()
