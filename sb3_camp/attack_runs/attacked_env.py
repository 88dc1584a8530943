"""
The environment of an attack: that of an evaluation, with an adversary in each env.

The adversary sits directly inside of the smoothing noise, which is the certificate's threat model, wherever in the chain of
wrappers that is. Without noise, it sits outside of everything but the frame stack.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, TimeLimit
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from sb3_camp.attack_runs.observation_path import check_observation_path
from sb3_camp.errors import InputError
from sb3_camp.evaluation.checkpoint import check_spaces
from sb3_camp.evaluation.environment import EvaluationEnv, vec_wrappers
from sb3_camp.runs.layers import layer_of
from sb3_camp.runs.noise_placement import noise_positions
from sb3_camp.threat_models import Threat
from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
from sb3_camp.wrappers.attacked_space import attacked_entry
from sb3_camp.wrappers.batched_attack import BatchedAttackVecEnv
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.channel import Channel
from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper


class AttackedFrames(NamedTuple):
    """
    What the adversary of an environment sees and changes.

    :param space: Space of a frame, of its attacked entry if it is a Dict
    :param n_stack: How many of them the policy observes at once
    :param padding: What stands in the stack at the start of an episode: copies of the first frame, or zeros
    :param key: The entry of a Dict observation that is attacked, None if it is no Dict
    :param sensor_sigma: Standard deviation of each entry of it, or one for the entry of a Dict, where each has its own; None
        where all of the observation has the same
    :param normalization: What a frozen normaliser outside subtracts, what it divides by, and the largest value that it shows;
        None if there is none
    """

    space: spaces.Box
    n_stack: int
    padding: Literal["reset", "zero"]
    key: str | None
    sensor_sigma: Any = None
    normalization: tuple[Any, Any, float] | None = None

    def channel(self, sigma: float, draws: int) -> Channel:
        """
        :param sigma: Standard deviation of the noise outside, 1 where each entry has its own, 0 for none
        :param draws: Over how many draws of it an attack averages
        :return: what an adversary reckons with
        """
        noise = sigma if self.sensor_sigma is None or sigma == 0 else self.sensor_sigma
        return Channel(noise, draws, *(self.normalization or ()))


def attacked_frames(
    environment: EvaluationEnv, model: BaseAlgorithm, model_path: Path, key: str | None = None
) -> AttackedFrames:
    """
    :param environment: The environment, without the adversary
    :param model: The policy that is to be attacked
    :param model_path: Its file, for messages
    :param key: The entry of a Dict observation to attack. Default: the only one that has noise, or that can be attacked
    :return: what an adversary of this policy would attack
    :raises InputError: if the policy does not fit the environment, or if the adversary could not tell what the policy would
        see of its frames
    """
    with replace(environment, vec_env="dummy").opened(1) as env:
        check_spaces(model, env, model_path)
        assert isinstance(env.unwrapped, DummyVecEnv)
        chain = list(wrapper_chain(env.unwrapped.envs[0]))
        base = env.unwrapped.envs[0].unwrapped
        outer = vec_wrappers(env)
    vec_stacks = [wrapper for wrapper in outer if isinstance(wrapper, VecFrameStack)]
    if any(isinstance(wrapper, AdversarialObservationWrapper) for wrapper in chain):
        raise InputError(
            "the environment has an adversary of its own, and two would spend more than the budget: take "
            "AdversarialObservationWrapper out of it (env_wrapper)"
        )
    n_outside = _n_outside(chain)
    outside = chain[:n_outside]
    check_observation_path([*outer, *outside])
    stacks = [wrapper for wrapper in outside if isinstance(wrapper, FrameStackObservation)]
    if len(stacks) + len(vec_stacks) > 1:
        raise InputError("frames are stacked twice, and the adversary cannot tell which are the same: use one frame stack")
    space = (chain[n_outside] if n_outside < len(chain) else base).observation_space
    n_stack, padding = 1, "reset"
    if stacks:
        n_stack, padding = stacks[0].stack_size, stacks[0].padding_type
        if padding not in ("reset", "zero"):
            raise InputError('FrameStackObservation: an adversary knows the padding types "reset" and "zero" only')
    elif vec_stacks:
        n_stack, padding = vec_stacks[0].stacked_obs.n_stack, "zero"
    key, box = attacked_entry(space, _only_noisy_entry(space, outside) if key is None else key)
    normalization = _normalization(outside, key, n_stack)
    return AttackedFrames(box, n_stack, padding, key, _sensor_sigma(outside, key), normalization)  # type: ignore[arg-type]


def _sensor_sigma(outside: Sequence[gym.Wrapper], key: str | None) -> Any:
    for wrapper in outside:
        if isinstance(wrapper, NoisyObservationWrapper) and wrapper.sensor_sigma is not None:
            return wrapper.sensor_sigma if key is None else wrapper.sensor_sigma.get(key)
    return None


def _normalization(outside: Sequence[gym.Wrapper], key: str | None, n_stack: int) -> tuple[Any, Any, float] | None:
    normalisers = [wrapper for wrapper in outside if isinstance(wrapper, FrozenNormalizeObservation)]
    if not normalisers:
        return None
    if len(normalisers) > 1 or n_stack > 1 or key is not None:
        raise InputError(
            "behind a frozen normaliser, only policies that observe one frame that is no Dict can be attacked: put the noise "
            "on the normalised observations (--noise-on normalized)"
        )
    statistics = normalisers[0].statistics(key)
    assert statistics is not None
    mean, deviation = statistics
    return mean.tolist(), deviation.tolist(), normalisers[0].clip_obs


def attacked_environment(
    environment: EvaluationEnv,
    model: BaseAlgorithm,
    frames: AttackedFrames,
    *,
    sigma: float,
    budget: float,
    attack: str,
    settings: dict[str, Any],
    threat: Threat = "episode-l2",
    draws: int = 0,
    spread: float = 1,
) -> EvaluationEnv:
    """
    :param environment: The environment, without the adversary
    :param model: The policy that is attacked
    :param frames: What :func:`attacked_frames` returned for these
    :param sigma: Standard deviation of its smoothing noise, whatever it was before
    :param budget: What the adversary may spend, in the threat model
    :param attack: Name of the attack
    :param settings: Arguments of the attack
    :param threat: The threat model
    :param draws: Over how many draws of the noise the attack averages
    :param spread: See :class:`sb3_camp.wrappers.AdversarialObservationWrapper`
    :return: the same environment with an adversary in each env, all of which attack in one batch
    """
    adversary: dict[str, Any] = {
        "model": model,
        "budget": budget,
        "attack": attack,
        "n_stack": frames.n_stack,
        "stack_padding": frames.padding,
        "attack_kwargs": settings,
        "device": model.device,
        "key": frames.key,
        "threat": threat,
        "sensor_sigma": frames.sensor_sigma,
        "channel": frames.channel(sigma, draws),
        "spread": spread,
    }
    name = f"{insert_adversary.__module__}.{insert_adversary.__name__}"
    return replace(environment, outermost=[{name: {"sigma": sigma, **adversary}}], vec_env=BatchedAttackVecEnv)


def insert_adversary(env: gym.Env, *, sigma: float, **adversary: Any) -> gym.Env:
    """
    Put the adversary where it belongs in an environment, see the module, and set the smoothing noise.

    :param env: The environment, with at most one smoothing noise
    :param sigma: Standard deviation of its smoothing noise, if it has any
    :param adversary: Arguments of :class:`sb3_camp.wrappers.AdversarialObservationWrapper`
    :return: the environment with the adversary
    :raises InputError: if there is no noise whose sigma could be set, or more than one
    """
    chain = list(wrapper_chain(env))
    noises = [chain[i] for i in noise_positions(list(map(layer_of, chain)))]
    if sigma > 0 and len(noises) != 1:
        raise InputError(f"{len(noises)} smoothing noises on the observations where one of sigma {sigma:g} is expected")
    for noise in noises:
        assert isinstance(noise, NoisyObservationWrapper)
        if noise.sensor_sigma is None or sigma == 0:
            noise.noise.become(sigma)
    n_outside = _n_outside(chain)
    if n_outside == 0:
        return AdversarialObservationWrapper(env, **adversary)
    chain[n_outside - 1].env = inserted = AdversarialObservationWrapper(chain[n_outside - 1].env, **adversary)
    # No action follows an observation at which a limit outside ends the episode
    inserted.limits = [wrapper for wrapper in chain[:n_outside] if isinstance(wrapper, TimeLimit)]
    return env


def _n_outside(chain: Sequence[gym.Wrapper]) -> int:
    """How many wrappers of a chain, the outermost first, belong outside of the adversary."""
    stacks = [i for i, wrapper in enumerate(chain) if isinstance(wrapper, FrameStackObservation)]
    return max([-1, *noise_positions(list(map(layer_of, chain))), *stacks]) + 1


def _only_noisy_entry(space: spaces.Space, outside: Sequence[gym.Wrapper]) -> str | None:
    """The entry of a Dict observation that has noise, if it is only one."""
    if not isinstance(space, spaces.Dict):
        return None
    clean = {key for wrapper in outside if isinstance(wrapper, NoisyObservationWrapper) for key in wrapper.clean_keys}
    noisy = [key for key in space.spaces if key not in clean]
    return noisy[0] if len(noisy) == 1 else None
