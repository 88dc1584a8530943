"""CartPole with noise: one frame (Cartpole-1 of the paper) or a flat stack of frames (Cartpole-5)."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import flatten_space
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import FlattenObservation
from gymnasium.wrappers.vector import TransformObservation

from sb3_camp.tasks.noisy_frames import stack_noisy_frames
from sb3_camp.wrappers import vector
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper


class PartialResetCartPoleVectorEnv(CartPoleVectorEnv):
    """Gymnasium's vector environment of CartPole, which can also reset some of its envs (``options={"reset_mask": ...}``)."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return super().reset(seed=seed, options=options)
        assert self.state is not None, "the first reset is one of all envs"
        self.state[:, mask] = self.np_random.uniform(self.low, self.high, size=(4, np.count_nonzero(mask)))
        self.steps[mask] = 0
        self.prev_done[mask] = False
        return self.state.T.astype(np.float32), {}


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


def make_cartpole1_vec(num_envs: int, max_episode_steps: int, sigma: float, render_mode: str | None = None) -> VectorEnv:
    """
    :param num_envs: Number of environments that step as one array
    :param max_episode_steps: Step limit
    :param sigma: As in :func:`make_cartpole1`
    :param render_mode: As in Gymnasium
    :return: The vector environment of :func:`make_cartpole1`
    """
    return vector.NoisyObservationWrapper(PartialResetCartPoleVectorEnv(num_envs, max_episode_steps, render_mode), sigma)


def make_cartpole5_vec(
    num_envs: int, max_episode_steps: int, sigma: float, n_stack: int, render_mode: str | None = None
) -> VectorEnv:
    """
    :param num_envs: Number of environments that step as one array
    :param max_episode_steps: Step limit
    :param sigma: As in :func:`make_cartpole1`, drawn once for each frame
    :param n_stack: Number of frames
    :param render_mode: As in Gymnasium
    :return: The vector environment of :func:`make_cartpole5`
    """
    noisy = make_cartpole1_vec(num_envs, max_episode_steps, sigma, render_mode)
    stacked = vector.FrameStackObservation(noisy, n_stack)
    flat = flatten_space(stacked.single_observation_space)
    return TransformObservation(stacked, _flattened, single_observation_space=flat)


def _flattened(stacks: np.ndarray) -> np.ndarray:
    return stacks.reshape(len(stacks), -1)


# What gym.make looks for, to offer render modes like "rgb_array_list"
make_cartpole1.metadata = CartPoleEnv.metadata  # type: ignore[attr-defined]
make_cartpole5.metadata = CartPoleEnv.metadata  # type: ignore[attr-defined]
