"""
Environment wrappers: smoothing noise on the observations, frozen normalisation, and adversaries.

The twin of the noise for Gymnasium's vector environments is in ``wrappers.vector``. The adversaries load on first use, as they
need PyTorch and Stable-Baselines3, which the noise does not.
"""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports
from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

if TYPE_CHECKING:
    from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
    from sb3_camp.wrappers.batched_attack import BatchedAttackVecEnv

__all__ = ["AdversarialObservationWrapper", "BatchedAttackVecEnv", "FrozenNormalizeObservation", "NoisyObservationWrapper"]

_HOME_OF = {
    "AdversarialObservationWrapper": "sb3_camp.wrappers.adversarial_observation",
    "BatchedAttackVecEnv": "sb3_camp.wrappers.batched_attack",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)
