"""NoisyNet (Fortunato et al. 2018) for Stable-Baselines3's DQN: a baseline of the paper."""

from sb3_camp.noisy_net.layers import NoisyLinear
from sb3_camp.noisy_net.noisy_net_dqn import NoisyNetDQN
from sb3_camp.noisy_net.policies import NoisyCnnPolicy, NoisyMlpPolicy, NoisyMultiInputPolicy

__all__ = ["NoisyCnnPolicy", "NoisyLinear", "NoisyMlpPolicy", "NoisyMultiInputPolicy", "NoisyNetDQN"]
