"""
Playing independent episodes of one fixed policy, for a certificate: the parts of ``python -m sb3_camp.evaluate``.

The public names load on first use, so that the command line can be parsed without PyTorch.
"""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.evaluation.checkpoint import load_checkpoint
    from sb3_camp.evaluation.environment import EvaluationEnv
    from sb3_camp.evaluation.episode_seeds import EpisodeSeeder
    from sb3_camp.evaluation.episodes import Episodes, play_episodes
    from sb3_camp.evaluation.recorder import EpisodeRecorder
    from sb3_camp.evaluation.smoothed_episodes import smoothed_episodes
    from sb3_camp.evaluation.vector_episodes import play_vector_episodes
    from sb3_camp.runs.normalization import read_normalization

__all__ = [
    "EpisodeRecorder",
    "EpisodeSeeder",
    "Episodes",
    "EvaluationEnv",
    "load_checkpoint",
    "play_episodes",
    "play_vector_episodes",
    "read_normalization",
    "smoothed_episodes",
]

_HOME_OF = {
    "EpisodeRecorder": "sb3_camp.evaluation.recorder",
    "EpisodeSeeder": "sb3_camp.evaluation.episode_seeds",
    "Episodes": "sb3_camp.evaluation.episodes",
    "EvaluationEnv": "sb3_camp.evaluation.environment",
    "load_checkpoint": "sb3_camp.evaluation.checkpoint",
    "play_episodes": "sb3_camp.evaluation.episodes",
    "play_vector_episodes": "sb3_camp.evaluation.vector_episodes",
    "read_normalization": "sb3_camp.runs.normalization",
    "smoothed_episodes": "sb3_camp.evaluation.smoothed_episodes",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
