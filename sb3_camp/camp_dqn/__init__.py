from stable_baselines3.dqn.policies import CnnPolicy, MlpPolicy, MultiInputPolicy

from sb3_camp.camp_dqn.camp_dqn import CAMPDQN
from sb3_camp.camp_dqn.losses import register_imitation
from sb3_camp.camp_dqn.population import train_seeds
from sb3_camp.camp_dqn.quantile_reference import CleanQuantileReference
from sb3_camp.camp_dqn.reference_registry import register_reference
from sb3_camp.camp_dqn.references import AlternatingReference, CleanReference, LearningReference, SharedReference
from sb3_camp.camp_dqn.replay_buffers import AlternatingDictReplayBuffer, AlternatingReplayBuffer

__all__ = [
    "CAMPDQN",
    "AlternatingDictReplayBuffer",
    "AlternatingReference",
    "AlternatingReplayBuffer",
    "CleanQuantileReference",
    "CleanReference",
    "CnnPolicy",
    "LearningReference",
    "MlpPolicy",
    "MultiInputPolicy",
    "SharedReference",
    "register_imitation",
    "register_reference",
    "train_seeds",
]
