"""Playing independent episodes of one fixed policy, for a certificate: the rooms of ``python -m sb3_camp.evaluate``."""

from sb3_camp.evaluation.checkpoint import load_checkpoint
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_seeds import EpisodeSeeder
from sb3_camp.evaluation.episodes import Episodes, play_episodes
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.evaluation.vector_episodes import play_vector_episodes

__all__ = [
    "EpisodeRecorder",
    "EpisodeSeeder",
    "Episodes",
    "EvaluationEnv",
    "load_checkpoint",
    "play_episodes",
    "play_vector_episodes",
]
