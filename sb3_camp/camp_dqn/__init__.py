from stable_baselines3.dqn.policies import CnnPolicy, MlpPolicy, MultiInputPolicy

from sb3_camp.camp_dqn.camp_dqn import CAMPDQN
from sb3_camp.camp_dqn.replay_buffers import AlternatingDictReplayBuffer, AlternatingReplayBuffer

__all__ = ["CAMPDQN", "AlternatingDictReplayBuffer", "AlternatingReplayBuffer", "CnnPolicy", "MlpPolicy", "MultiInputPolicy"]
