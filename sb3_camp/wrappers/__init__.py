"""Environment wrappers: smoothing noise on the observations. The twins for vector environments are in ``wrappers.vector``."""

from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

__all__ = ["NoisyObservationWrapper"]
