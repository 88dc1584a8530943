"""A stream of random numbers that no environment reaches."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch as th


class OwnGenerators:
    """
    A continuation of the global generators of Python, NumPy and PyTorch from where they are now.

    Policies draw from the global generators. An environment that seeds these in its ``reset`` would repeat the choices of the
    policy in each episode, and the episodes would not be independent.

    :param device: PyTorch's, of the policy; of CUDA its generator is one of them
    """

    def __init__(self, device: Any = None) -> None:
        self._cuda = th.device(device) if device is not None and th.device(device).type == "cuda" else None
        self._states = self._global()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which the global generators are these, and after which they are what they were before it."""
        outside = self._global()
        self._restore(self._states)
        try:
            yield
        finally:
            self._states = self._global()
            self._restore(outside)

    def _global(self) -> tuple[Any, ...]:
        cuda = None if self._cuda is None else th.cuda.get_rng_state(self._cuda)
        return random.getstate(), np.random.get_state(legacy=False), th.get_rng_state(), cuda

    def _restore(self, states: tuple[Any, ...]) -> None:
        of_python, of_numpy, of_torch, of_cuda = states
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        th.set_rng_state(of_torch)
        if of_cuda is not None:
            assert self._cuda is not None
            th.cuda.set_rng_state(of_cuda, self._cuda)
