"""CartPole with noise: one frame (Cartpole-1 of the paper) or a flat stack of frames (Cartpole-5)."""

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import FlattenObservation

from sb3_camp.tasks.noisy_frames import stack_noisy_frames
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

# CartPoleEnv itself, not gym.make("CartPole-v0"), which warns in every worker that its id is out of date


def make_cartpole1(sigma: float, render_mode: str | None = None) -> gym.Env:
    """
    :param sigma: Standard deviation of the noise, the same on position (m), velocity (m/s), angle (rad) and angular velocity
    :param render_mode: As in Gymnasium
    :return: CartPole without a step limit; observations: float32, shape (4,)
    """
    return NoisyObservationWrapper(CartPoleEnv(render_mode=render_mode), sigma)


def make_cartpole5(sigma: float, n_stack: int, render_mode: str | None = None) -> gym.Env:
    """
    :param sigma: As in :func:`make_cartpole1`, drawn once for each frame
    :param n_stack: Number of frames
    :param render_mode: As in Gymnasium
    :return: CartPole without a step limit; observations: float32, shape (4 * n_stack,), the newest frame at the end
    """
    return FlattenObservation(stack_noisy_frames(CartPoleEnv(render_mode=render_mode), sigma, n_stack))


# What gym.make looks for, to offer render modes like "rgb_array_list"
make_cartpole1.metadata = CartPoleEnv.metadata  # type: ignore[attr-defined]
make_cartpole5.metadata = CartPoleEnv.metadata  # type: ignore[attr-defined]
