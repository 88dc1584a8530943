"""
A replay buffer takes its memory when the first transition comes, if the model was loaded without an environment.

Whoever loads a model to play needs no buffer, and for images the arrays are so large that the system may refuse to promise
their memory. The zoo asks for a small buffer when it plays, but only for the algorithms that stand in lists of its own.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer


@contextlib.contextmanager
def buffer_on_first_use(model: OffPolicyAlgorithm) -> Iterator[None]:
    """
    A context for ``_setup_model``: the replay buffer that is made in it by ``model.replay_buffer_class`` is a small one, which
    takes its full size when the first transition is added. In a model with an environment it is made as ever.

    :param model: The model that is set up
    """
    chosen = model.replay_buffer_class
    # A buffer for hindsight needs the environment anyway; a model that was saved knows its class
    if model.env is not None or chosen is None or issubclass(chosen, HerReplayBuffer):
        yield
        return
    model.replay_buffer_class = _small_at_first(chosen)
    yield
    model.replay_buffer_class = chosen


def _small_at_first(buffer_class: type[ReplayBuffer]) -> type[ReplayBuffer]:
    def __init__(buffer: ReplayBuffer, buffer_size: int, *args: Any, **kwargs: Any) -> None:
        # From here on it is an ordinary buffer, which can be saved and loaded as one
        buffer.__class__ = buffer_class
        buffer_class.__init__(buffer, 1, *args, **kwargs)
        buffer.add = partial(_add_first, buffer, buffer_size, args, kwargs)  # type: ignore[method-assign]

    return type(buffer_class.__name__, (buffer_class,), {"__init__": __init__})


def _add_first(buffer: ReplayBuffer, buffer_size: int, args: tuple, kwargs: dict[str, Any], *transition: Any) -> None:
    vars(buffer).clear()
    type(buffer).__init__(buffer, buffer_size, *args, **kwargs)
    buffer.add(*transition)
