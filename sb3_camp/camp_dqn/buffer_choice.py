"""Which replay buffer a CAMPDQN can use."""

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_camp.camp_dqn.replay_buffers import (
    AlternatingDictReplayBuffer,
    AlternatingReplayBuffer,
    AlternatingSampling,
    CleanReplayBuffer,
)
from sb3_camp.errors import InputError


def buffer_class(
    given: type[ReplayBuffer] | None, observation_space: spaces.Space, is_clean: bool, optimize_memory_usage: bool
) -> type[AlternatingSampling]:
    """
    :param given: The class that the user chose, None for the usual one
    :param observation_space: Space of the noisy observations
    :param is_clean: Whether the reference sees the clean ones
    :param optimize_memory_usage: Whether each observation is stored only once
    :return: the class of the buffer
    :raises InputError: if the class cannot be used
    """
    is_dict = isinstance(observation_space, spaces.Dict)
    if is_dict and optimize_memory_usage:
        raise InputError("optimize_memory_usage is not supported for Dict observations.")
    if given is None:
        if is_clean:
            return CleanReplayBuffer
        return AlternatingDictReplayBuffer if is_dict else AlternatingReplayBuffer
    if not issubclass(given, AlternatingSampling):
        raise InputError(
            f"CAMPDQN cannot use {given.__name__}, as its buffer must tell apart the steps of its two networks: "
            "leave out replay_buffer_class (hindsight relabelling and files of other algorithms are not supported)."
        )
    if is_clean and not issubclass(given, CleanReplayBuffer):
        raise InputError(f"A reference without noise needs a CleanReplayBuffer or a subclass, not {given.__name__}.")
    if not is_clean and issubclass(given, CleanReplayBuffer):
        raise InputError(f"{given.__name__} is for references without noise: choose one of those, or leave this out.")
    return given


def check_loaded(buffer: Any, n_envs: int, is_clean: bool, path: Any) -> None:
    """
    :param buffer: What a file held
    :param n_envs: Number of envs of the model
    :param is_clean: Whether its reference sees the clean observations
    :param path: The file, for the message
    :raises InputError: if the model cannot go on with it
    """
    if not isinstance(buffer, AlternatingSampling):
        problem = f"it is a {type(buffer).__name__}, not a buffer of CAMPDQN"
    elif is_clean and not isinstance(buffer, CleanReplayBuffer):
        problem = "it does not hold the observations without noise that this reference needs"
    elif not is_clean and isinstance(buffer, CleanReplayBuffer):
        problem = "it was filled for a reference that sees observations without noise, which this model does not have"
    elif buffer.n_envs != n_envs:
        problem = f"it was filled by {buffer.n_envs} envs, this model has {n_envs}"
    else:
        return
    raise InputError(f"Cannot use the replay buffer {path}: {problem}.")
