"""
Certified-radius-maximizing policies (CAMP) and policy-smoothing certificates for Stable-Baselines3.

The import registers the tasks (``camp/...``) with Gymnasium. The public names load on first use, so that ``import sb3_camp``
alone needs neither PyTorch nor Stable-Baselines3.
"""

from sb3_camp.working_folder import leave_working_folder

leave_working_folder()  # before the working folder can be asked for what is imported next

from typing import TYPE_CHECKING  # noqa: E402

from sb3_camp.command_line import interruptible_start  # noqa: E402
from sb3_camp.lazy_imports import lazy_imports  # noqa: E402
from sb3_camp.version import __version__  # noqa: E402

with interruptible_start():
    from sb3_camp.tasks import register_tasks

if TYPE_CHECKING:
    from sb3_camp.camp_dqn import CAMPDQN, train_seeds
    from sb3_camp.certification import certified_radius, certified_return
    from sb3_camp.evaluation import EvaluationEnv
    from sb3_camp.noisy_net import NoisyNetDQN
    from sb3_camp.tuning import CertifiedReturnCallback
    from sb3_camp.wrappers import AdversarialObservationWrapper, NoisyObservationWrapper

__all__ = [
    "CAMPDQN",
    "AdversarialObservationWrapper",
    "CertifiedReturnCallback",
    "EvaluationEnv",
    "NoisyNetDQN",
    "NoisyObservationWrapper",
    "__version__",
    "certified_radius",
    "certified_return",
    "train_seeds",
]

_HOME_OF = {
    "CAMPDQN": "sb3_camp.camp_dqn",
    "AdversarialObservationWrapper": "sb3_camp.wrappers",
    "CertifiedReturnCallback": "sb3_camp.tuning",
    "EvaluationEnv": "sb3_camp.evaluation",
    "NoisyNetDQN": "sb3_camp.noisy_net",
    "NoisyObservationWrapper": "sb3_camp.wrappers",
    "certified_radius": "sb3_camp.certification",
    "certified_return": "sb3_camp.certification",
    "train_seeds": "sb3_camp.camp_dqn",
}

register_tasks()

__getattr__ = lazy_imports(globals(), _HOME_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
