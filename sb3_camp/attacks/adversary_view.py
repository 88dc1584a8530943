"""What a learned adversary observes, and what its actions mean."""

import math
from dataclasses import dataclass

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_camp.attacks.norm import L2, Norm

_LARGEST = 10.0


@dataclass(frozen=True)
class AdversaryView:
    """
    The observation and action space of an adversary, which any algorithm of SB3 for continuous actions can learn in.

    It observes the clean frame, what is left of the budget of the episode, and how far the episode is. Its action is a
    direction, one number for each entry of the frame, and a last number s for the share sigmoid(2 s + s_0) of what is left
    that is spent in this direction. At s = 0 that is 1 / sqrt(step_limit), but at most a half: about what a budget that is
    spread evenly over the episode has for a step.

    Where each step has a bound of its own, there is no such last number: the action is the perturbation in units of the bound,
    cut off at it (l2: projected).

    :param frame_shape: Shape of the frames that are attacked
    :param is_image: Whether they are uint8 images, which are shown divided by 255
    :param unit: What budgets are divided by: the sigma of the noise, 1 without noise
    :param step_limit: What numbers of steps are divided by
    :param norm: The norm of the budget
    :param per_step: Whether the budget is there again at each step
    """

    frame_shape: tuple[int, ...]
    is_image: bool
    unit: float
    step_limit: int
    norm: Norm = L2
    per_step: bool = False

    @property
    def frame_size(self) -> int:
        """Number of entries of a frame."""
        return math.prod(self.frame_shape)

    @property
    def usual_share(self) -> float:
        """s_0, the logit of the share that is spent at s = 0."""
        share = min(0.5, self.step_limit**-0.5)
        return math.log(share / (1 - share))

    @property
    def observation_space(self) -> spaces.Box:
        """Frame, budget left and progress: float32, shape (frame_size + 2,)."""
        return spaces.Box(-np.inf, np.inf, (self.frame_size + 2,), np.float32)

    @property
    def action_space(self) -> spaces.Box:
        """Direction and size: float32, shape (frame_size + 1,); with a bound on each step both in one, (frame_size,)."""
        return spaces.Box(-_LARGEST, _LARGEST, (self.frame_size + (not self.per_step),), np.float32)

    @property
    def idle_action(self) -> np.ndarray:
        """An action that spends next to nothing, float32."""
        action = np.zeros(self.action_space.shape, np.float32)
        if not self.per_step:
            action[-1] = -_LARGEST
        return action

    def observations(self, frames: np.ndarray, left: np.ndarray, step: np.ndarray) -> np.ndarray:
        """
        :param frames: Clean frames, (N, \\*frame_shape)
        :param left: What is left of the budgets, (N,)
        :param step: Steps since the episodes began, (N,)
        :return: what the adversary observes, float32 (N, frame_size + 2)
        """
        unit = 255 if self.is_image else 1
        columns = (frames.reshape(len(frames), -1) / unit, left[:, None] / self.unit, step[:, None] / self.step_limit)
        return np.concatenate(columns, axis=1).astype(np.float32)

    def perturbed(self, actions: np.ndarray, frames: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        :param actions: (N, n), n as in :attr:`action_space`
        :param frames: Clean frames, (N, \\*frame_shape), float32 or uint8
        :param left: What is left of the budgets, (N,)
        :return: the perturbed frames, of the same shape and dtype, and the norms of what was added, float64 (N,), at most
            ``left``
        """
        received, norms = frames.copy(), np.zeros(len(frames))
        rows = np.flatnonzero(left > 0)
        if not rows.size:
            return received, norms
        clean = th.from_numpy(frames[rows]).flatten(1)
        radius, delta = self._wanted(th.from_numpy(actions[rows].astype(np.float64)), th.from_numpy(left[rows]))
        ball = self.norm.ball(clean, radius)
        attacked = ball.received(ball.project(delta))
        received[rows] = attacked.numpy().reshape(-1, *self.frame_shape).astype(frames.dtype)
        norms[rows] = ball.spent(attacked).numpy()
        return received, norms

    def _wanted(self, actions: th.Tensor, left: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """The radius in which perturbations are to be, (N,), and the perturbations, before they are projected on it."""
        if self.per_step:
            return left, actions * left[:, None]
        direction = actions[:, :-1]
        radius = th.sigmoid(2 * actions[:, -1] + self.usual_share) * left
        norm = th.linalg.vector_norm(direction, dim=1).clamp(min=1e-12)
        return radius, direction * (radius / norm)[:, None]
