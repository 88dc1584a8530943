"""
Certified-radius-maximizing policies (CAMP) and policy-smoothing certificates for Stable-Baselines3.

The import registers the tasks (``camp/...``) with Gymnasium. The public names load on first use, so that ``import sb3_camp``
alone needs neither PyTorch nor Stable-Baselines3.
"""

from typing import TYPE_CHECKING

from sb3_camp.lazy_names import lazy_names
from sb3_camp.tasks import register_tasks

if TYPE_CHECKING:
    from sb3_camp.camp_dqn import CAMPDQN
    from sb3_camp.tuning import CertifiedReturnCallback
    from sb3_camp.wrappers import AdversarialObservationWrapper, NoisyObservationWrapper

__version__ = "0.1.0"

__all__ = ["CAMPDQN", "AdversarialObservationWrapper", "CertifiedReturnCallback", "NoisyObservationWrapper", "__version__"]

_HOME_OF = {
    "CAMPDQN": "sb3_camp.camp_dqn",
    "AdversarialObservationWrapper": "sb3_camp.wrappers",
    "CertifiedReturnCallback": "sb3_camp.tuning",
    "NoisyObservationWrapper": "sb3_camp.wrappers",
}

register_tasks()

__getattr__ = lazy_names(globals(), _HOME_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
