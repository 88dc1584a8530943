"""How much of an episode an adversary can perturb: its most steps, and the numbers of an observation that have noise."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.runs.layers import Shows, layer_of
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper


def perturbed_numbers(environment: EvaluationEnv) -> dict[str, int]:
    """
    :param environment: The environment of an evaluation, with its smoothing noise
    :return: ``step_limit``, the most steps of an episode, where a ``TimeLimit`` tells it; ``noisy_numbers``, how many numbers
        of each observation (of each frame, where they are stacked) have noise
    :raises InputError: if it cannot be built
    """
    found = {}
    with environment.single() as env:
        limit = _step_limit(env)
        if limit is not None:
            found["step_limit"] = limit
        for wrapper in wrapper_chain(env):
            if type(wrapper) is NoisyObservationWrapper and wrapper.sigma > 0:
                found["noisy_numbers"] = _noisy_numbers(wrapper)
    return found


def _step_limit(env: gym.Env) -> int | None:
    """The lowest limit of noisy observations, of those outside of which nothing may join several episodes to one."""
    limits, outside_of_noise = [], True
    for wrapper in wrapper_chain(env):
        shows = layer_of(wrapper).shows
        if type(wrapper) is gym.wrappers.TimeLimit:
            limits.append(wrapper._max_episode_steps)
        elif shows is Shows.UNKNOWN:
            break
        elif shows is Shows.NOISY:
            outside_of_noise = False
        elif shows is Shows.FUNCTION and outside_of_noise and type(wrapper).step is not gym.ObservationWrapper.step:
            limits.clear()  # it may take several noisy observations for one step of the limit, as those that skip frames do
    return min(limits, default=None)


def _noisy_numbers(wrapper: NoisyObservationWrapper) -> int:
    space, sigma = wrapper.noise.space, wrapper.sensor_sigma  # not observation_space, which HistoryWrapper overwrites
    if not isinstance(space, spaces.Dict):
        return _positive(sigma, space)
    return sum(
        _positive(sigma.get(key, 0.0) if isinstance(sigma, Mapping) else None, entry)
        for key, entry in space.spaces.items()
        if key not in wrapper.clean_keys
    )


def _positive(sigma: Any, space: spaces.Space) -> int:
    """How many numbers of an entry have a sigma above 0, None for one sigma on all of them."""
    assert space.shape is not None
    if sigma is None:
        return math.prod(space.shape)
    return int(np.count_nonzero(np.broadcast_to(np.asarray(sigma), space.shape)))
