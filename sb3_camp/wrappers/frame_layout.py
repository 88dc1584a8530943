"""How the frames of an environment are put together to what a policy observes."""

import math
from dataclasses import dataclass

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

from sb3_camp.errors import InputError


@dataclass(frozen=True)
class FrameLayout:
    """
    A stack of frames of one shape, the newest last.

    :param n_stack: Number of frames
    :param frame_shape: Shape of a frame
    :param axis: Axis of the frame along which the frames lie one after the other
    :param shape: Shape of the stack, in the environment's layout
    :param transpose: Whether the policy has the channels of images first where the environment has them last
    :param is_stacked: Whether the environment gives the whole stack, and not one frame at a time
    """

    n_stack: int
    frame_shape: tuple[int, ...]
    axis: int
    shape: tuple[int, ...]
    transpose: bool
    is_stacked: bool

    @classmethod
    def between(cls, given: spaces.Box, observed: spaces.Box, n_stack: int) -> "FrameLayout":
        """
        :param given: What the environment gives: a frame, or a stack of ``n_stack``
        :param observed: What the policy observes: a stack of ``n_stack`` frames
        :param n_stack: Number of frames
        :return: the layout that leads from one to the other
        :raises InputError: if there is none
        """
        layouts = _stacks_of_frames(given, n_stack)
        if n_stack > 1:
            layouts += _given_stacks(given, n_stack)
        for layout in layouts:
            for transpose in (False, True) if is_image_space(observed) else (False,):
                shape = _channels_first(layout.shape) if transpose else layout.shape
                if shape == observed.shape:
                    return cls(n_stack, layout.frame_shape, layout.axis, layout.shape, transpose, layout.is_stacked)
        frames = "one frame" if n_stack == 1 else f"a stack of n_stack={n_stack} frames"
        raise InputError(
            f"AdversarialObservationWrapper: the model observes the shape {observed.shape}, the environment gives "
            f"{given.shape}, which is neither {frames} of it nor a frame of it: check model and n_stack."
        )

    @property
    def is_identity(self) -> bool:
        """Whether the policy observes just the frame that the environment gives."""
        return self.n_stack == 1 and self.shape == self.frame_shape and not self.transpose

    def split(self, stack: np.ndarray) -> np.ndarray:
        """
        :param stack: A stack, in the environment's layout
        :return: copies of its frames, shape (n_stack, \\*frame_shape)
        """
        before, after = self.frame_shape[: self.axis], self.frame_shape[self.axis :]
        return np.moveaxis(stack.reshape(*before, self.n_stack, *after), self.axis, 0).copy()

    def join(self, frames: np.ndarray) -> np.ndarray:
        """
        :param frames: shape (n_stack, \\*frame_shape)
        :return: a copy of them as a stack, in the environment's layout
        """
        return np.moveaxis(frames, 0, self.axis).reshape(self.shape).copy()

    def observed(self, frames: th.Tensor) -> th.Tensor:
        """
        :param frames: shape (N, n_stack, \\*frame_shape)
        :return: what the policy observes, in its layout, shape (N, ...)
        """
        stacks = frames.movedim(1, 1 + self.axis).reshape(-1, *self.shape)
        return stacks.permute(0, 3, 1, 2) if self.transpose else stacks


def _stacks_of_frames(frame: spaces.Box, n_stack: int) -> list[FrameLayout]:
    """What can come out of stacking frames: first as SB3's VecFrameStack does it, then along a new axis, flattened or not."""
    shape = frame.shape
    axis = 0 if is_image_space(frame) and is_image_space_channels_first(frame) else max(len(shape) - 1, 0)
    stacked = [*shape[:axis], n_stack * shape[axis], *shape[axis + 1 :]] if shape else [n_stack]
    shapes = [(axis, tuple(stacked)), (0, (n_stack, *shape)), (0, (n_stack * math.prod(shape),))]
    return [FrameLayout(n_stack, shape, axis, stack, False, False) for axis, stack in shapes]


def _given_stacks(stack: spaces.Box, n_stack: int) -> list[FrameLayout]:
    """What frames a stack may consist of: along a first axis of their own, or along the axis of the channels, or the last."""
    shape = stack.shape
    layouts = []
    if len(shape) > 1 and shape[0] == n_stack:
        layouts.append(FrameLayout(n_stack, shape[1:], 0, shape, False, True))
    axis = 0 if is_image_space(stack) and is_image_space_channels_first(stack) else len(shape) - 1
    if shape and shape[axis] % n_stack == 0:
        frame_shape = (*shape[:axis], shape[axis] // n_stack, *shape[axis + 1 :])
        layouts.append(FrameLayout(n_stack, frame_shape, axis, shape, False, True))
    return layouts


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[2], *shape[:2]) if len(shape) == 3 else shape
