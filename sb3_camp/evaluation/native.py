"""
Gymnasium's native vector environments, whose envs step as one array: when an evaluation may use them, and how to build them.

They are another implementation of the task. What can be compared with the single environment is compared; that the returns
have the same distribution is known for some only.
"""

import contextlib
import copy
import math
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv, VectorWrapper

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episode_seeds import EpisodeSeeder
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.evaluation.vector_episodes import noises
from sb3_camp.tasks.registry import n_native_episodes
from sb3_camp.wrappers import vector
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

# Wrappers of a single environment that have a twin for vector environments, with the same arguments
_TWINS: dict[type[gym.Wrapper], type[VectorWrapper]] = {NoisyObservationWrapper: vector.NoisyObservationWrapper}
# Vector environments, and what does the same and can also reset some of its envs, as trainings need it
_SAME_WITH_PARTIAL_RESET: dict[Any, str] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": "sb3_camp.tasks.cartpole:PartialResetCartPoleVectorEnv"
}


class NotNative(InputError):
    """Why an evaluation cannot use a native vector environment."""


def has_known_native(environment: EvaluationEnv) -> bool:
    """
    :param environment: The environment of an evaluation
    :return: whether there is a native vector environment for it whose returns are known to have the same distribution
    """
    if n_native_episodes(environment.env_id) is None:
        return False
    try:
        with opened_native(environment, 1):
            return True
    except NotNative:
        return False


@contextlib.contextmanager
def opened_native(environment: EvaluationEnv, n_envs: int) -> Iterator[VectorEnv]:
    """
    :param environment: The environment of an evaluation
    :param n_envs: Number of envs
    :return: A context with its native vector environment, closed at its end
    :raises NotNative: if there is none, or if it does not fit the single environment
    """
    step_limit(environment)
    with contextlib.closing(built_native(environment, n_envs)) as envs:
        yield envs


def built_native(environment: EvaluationEnv, n_envs: int) -> VectorEnv:
    """
    :param environment: The environment of an evaluation or a training
    :param n_envs: Number of envs
    :return: its native vector environment
    :raises NotNative: if there is none, or if it does not fit the single environment
    """
    for key in ("vec_env_wrapper", "frame_stack"):
        if environment.wrappers.get(key):
            raise NotNative(f"{key} is for the vectorized environments of SB3")
    if gym.spec(environment.env_id).vector_entry_point is None:
        raise NotNative(f"{environment.env_id} has no native vector environment (vector_entry_point in its registration)")
    with environment.single() as env:
        envs = _build(environment, env, n_envs)
        try:
            _check_alike(environment, env, envs)
        except NotNative:
            envs.close()
            raise
    return envs


def step_limit(environment: EvaluationEnv) -> float:
    """
    :param environment: The environment of an evaluation
    :return: number of steps after which it ends an episode; infinite for tasks of this package that have none: their vector
        environments end episodes as the single ones do
    :raises NotNative: if there is no such limit, so that its vector environment would take one of its own
    """
    spec = gym.spec(environment.env_id)
    limit = environment.env_kwargs.get("max_episode_steps", spec.max_episode_steps)
    if limit is None and isinstance(spec.vector_entry_point, str) and spec.vector_entry_point.startswith("sb3_camp.tasks."):
        return math.inf
    if not isinstance(limit, int) or limit < 1:
        raise NotNative(f"{environment.env_id} has no step limit that its vector environment could be given")
    return limit


def _build(environment: EvaluationEnv, env: gym.Env, n_envs: int) -> VectorEnv:
    """The vector environment, in the twins of the wrappers that ``env``, one of its single environments, has."""
    try:
        spec = copy.deepcopy(gym.spec(environment.env_id))
        spec.vector_entry_point = _SAME_WITH_PARTIAL_RESET.get(spec.vector_entry_point, spec.vector_entry_point)
        envs = gym.make_vec(spec, n_envs, vectorization_mode=gym.VectorizeMode.VECTOR_ENTRY_POINT, **environment.env_kwargs)
    except Exception as error:  # of any kind, as it is anybody's code
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise NotNative(f"cannot build the vector environment of {environment.env_id}: {reason}") from error
    if not vector.resets_at_next_step(envs):
        envs.close()
        raise NotNative(f"the vector environment of {environment.env_id} does not reset at the next step (NEXT_STEP)")
    # What is inside of the recorder is part of the environment itself
    outside = list(takewhile(lambda wrapper: not isinstance(wrapper, EpisodeRecorder), wrapper_chain(env)))
    for wrapper in reversed(outside):
        if isinstance(wrapper, EpisodeSeeder):
            continue
        if type(wrapper) not in _TWINS:
            envs.close()
            raise NotNative(f"{wrapper.class_name()} has no twin for vector environments")
        assert wrapper.spec is not None
        envs = _TWINS[type(wrapper)](envs, **wrapper.spec.additional_wrappers[-1].kwargs)
    return envs


def _check_alike(environment: EvaluationEnv, env: gym.Env, envs: VectorEnv) -> None:
    name = f"the vector environment of {environment.env_id}"
    for one, single in ((envs.single_observation_space, env.observation_space), (envs.single_action_space, env.action_space)):
        if one != single:
            raise NotNative(f"{name} has the space {one}, the single one {single}")
    noise = environment.smoothing_noise()
    expected = [] if noise is None or noise.sigma == 0 else [tuple(noise)]
    if [(twin.sigma, twin.clean_keys, twin.sensor_sigma) for twin in noises(envs) if twin.sigma > 0] != expected:
        raise NotNative(f"{name} has not the smoothing noise of the single one")
