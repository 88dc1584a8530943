"""Which frames a policy sees at the moment, after an adversary has changed some of them."""

from typing import Literal

import numpy as np

from sb3_camp.errors import InputError
from sb3_camp.wrappers.frame_layout import FrameLayout

StackPadding = Literal["reset", "zero"]


class SentFrames:
    """
    The environment gives one frame at a time; a wrapper outside stacks the frames that it is sent.

    :param layout: How the frames are stacked
    :param padding: What that wrapper puts in front of the first frame: copies of it (Gymnasium's ``FrameStackObservation``)
        or zeros (SB3's ``VecFrameStack``)
    """

    def __init__(self, layout: FrameLayout, padding: StackPadding) -> None:
        self._layout = layout
        self._padding = padding
        self.frames = np.zeros((0, *layout.frame_shape))
        """The stack, shape (n_stack, \\*frame_shape), the newest last"""
        self.is_newest = np.zeros(layout.n_stack, dtype=bool)
        """Which of them are the newest frame or a copy of it, shape (n_stack,)"""

    def start(self, observation: np.ndarray, is_new_game: bool) -> None:
        """
        :param observation: The frame after a reset
        :param is_new_game: Whether the game was reset too; a lost life restarts the stack all the same
        """
        self.frames = np.repeat(observation[None], self._layout.n_stack, axis=0)
        self.is_newest[:] = True
        if self._padding == "zero":
            self.frames[:-1] = 0
            self.is_newest[:-1] = False

    def follow(self, observation: np.ndarray) -> None:
        """
        :param observation: The frame after a step
        """
        self.frames = np.concatenate([self.frames[1:], observation[None]])
        self.is_newest = _only_last(self._layout.n_stack)

    def receive(self, frame: np.ndarray) -> np.ndarray:
        """
        :param frame: What the newest frame has become
        :return: what is sent on
        """
        self.frames[self.is_newest] = frame
        return frame.copy()


class GivenStack:
    """
    The environment gives the whole stack; what older frames have become is put in their place again.

    :param layout: What frames the stack consists of
    :param padding: Whether a stack of equal frames after a reset is one frame and its copies ("reset"), or not ("zero")
    """

    def __init__(self, layout: FrameLayout, padding: StackPadding) -> None:
        self._layout = layout
        self._padding = padding
        self._clean = np.zeros((0, *layout.frame_shape))
        self.frames = self._clean
        """The stack, shape (n_stack, \\*frame_shape), the newest last"""
        self.is_newest = np.zeros(layout.n_stack, dtype=bool)
        """Which of them are the newest frame or a copy of it, shape (n_stack,)"""

    def start(self, observation: np.ndarray, is_new_game: bool) -> None:
        """
        :param observation: The stack after a reset
        :param is_new_game: Whether the game was reset too; after a lost life the stack may have gone on
        """
        clean = self._layout.split(observation)
        n_new = self._layout.n_stack if is_new_game else self._count_new(clean)
        if n_new < self._layout.n_stack:
            self._shift(clean, n_new)
            return
        self._clean, self.frames = clean, clean.copy()
        self.is_newest = _only_last(self._layout.n_stack)
        if self._padding == "reset" and all(_equal(frame, clean[-1]) for frame in clean):
            self.is_newest[:] = True

    def follow(self, observation: np.ndarray) -> None:
        """
        :param observation: The stack after a step
        :raises InputError: if no frame of it was in the stack before, where it was expected
        """
        clean = self._layout.split(observation)
        n_new = self._count_new(clean)
        if n_new == self._layout.n_stack:
            raise InputError(
                f"AdversarialObservationWrapper: the observation, of shape {observation.shape}, is not a stack of "
                f"n_stack={self._layout.n_stack} frames with the newest last: its older frames are not those of the step "
                "before; check n_stack, and that noise comes before the stack."
            )
        self._shift(clean, n_new)

    def receive(self, frame: np.ndarray) -> np.ndarray:
        """
        :param frame: What the newest frame has become
        :return: what is sent on, a whole stack
        """
        self.frames[self.is_newest] = frame
        return self._layout.join(self.frames)

    def _shift(self, clean: np.ndarray, n_new: int) -> None:
        self.frames = np.concatenate([self.frames[n_new:], clean[-n_new:]])
        self._clean = clean
        self.is_newest = _only_last(self._layout.n_stack)

    def _count_new(self, clean: np.ndarray) -> int:
        """How many frames have come in: more than one where a wrapper inside makes several steps at once."""
        n_stack = self._layout.n_stack
        return next((k for k in range(1, n_stack) if _equal(clean[:-k], self._clean[k:])), n_stack)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _only_last(n_stack: int) -> np.ndarray:
    mask = np.zeros(n_stack, dtype=bool)
    mask[-1] = True
    return mask
