"""Playing episodes amid a training without a trace in its random numbers."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch as th


@contextlib.contextmanager
def kept_random_state(device: th.device) -> Iterator[None]:
    """
    A context at whose end the global generators of Python, NumPy and PyTorch go on as if nothing had been drawn from them.

    :param device: Device of the training; the generator of a GPU is kept too
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with th.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
