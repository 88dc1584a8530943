"""Noise on every frame, then the frame stack."""

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

from sb3_camp.errors import InputError
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper


def stack_noisy_frames(env: gym.Env, sigma: float, n_stack: int) -> gym.Env:
    """
    Noise each new frame once, and show the last ``n_stack`` noisy frames: the oldest first, the newest last.

    After a reset all of them are the one noisy frame that there is.

    :param env: An environment that shows one frame, a Box of shape (\\*frame)
    :param sigma: Standard deviation of the noise, in the units of the frame
    :param n_stack: Number of frames
    :return: The environment with observations of shape (n_stack, \\*frame)
    :raises InputError: (a ValueError) if ``n_stack`` is not a positive whole number, or if ``sigma`` is not finite and >= 0
    """
    if isinstance(n_stack, bool) or not isinstance(n_stack, int | np.integer) or n_stack < 1:
        raise InputError(f"n_stack must be a whole number that is at least 1, not {n_stack!r}.")
    return FrameStackObservation(NoisyObservationWrapper(env, sigma), n_stack)
