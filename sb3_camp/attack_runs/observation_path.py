"""
Whether the policy sees what the adversary sends.

An adversary that attacks other frames than the policy observes is weak, and nobody would notice. So what is not known to leave
the frames alone may not stand between the two, and while they play, what the policy observes is compared with what was sent.
"""

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_camp.errors import InputError
from sb3_camp.runs.layers import Shows, layer_of
from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation

# What these classes themselves do to a frame the adversary knows: a subclass may do anything
_FOLLOWED = (FrameStackObservation, FlattenObservation, VecFrameStack)


def check_observation_path(wrappers: Iterable[gym.Wrapper | VecEnvWrapper]) -> None:
    """
    :param wrappers: What stands between the adversary and the policy
    :raises InputError: if one of them may change what the policy sees of the adversary's frames, or which of them it sees
    """
    for wrapper in wrappers:
        if type(wrapper) in (*_FOLLOWED, FrozenNormalizeObservation) or layer_of(wrapper).shows in (Shows.SAME, Shows.NOISY):
            continue
        raise InputError(
            f"{type(wrapper).__name__} is between the adversary and the policy, and may change what the policy sees of the "
            "attacked frames: put it inside of the noise and of the frame stack (in env_wrapper: before them; not in "
            "vec_env_wrapper)"
        )


class ObservationPathCheck(VecEnvWrapper):
    """
    Compares what the policy observes with what the adversaries sent, at every step and reset: one frame for each observation,
    and without noise the very same numbers.

    :param venv: The vectorized environment as the policy sees it, in one process, with an adversary in each env
    :param model: The policy
    :param exact: Whether there is no noise, so that the numbers can be compared too
    """

    def __init__(self, venv: VecEnv, model: BaseAlgorithm, exact: bool) -> None:
        super().__init__(venv)
        self._policy, self._exact = model.policy, exact
        self._adversaries = [_adversary(env) for env in venv.unwrapped.envs]  # type: ignore[attr-defined]

    def reset(self) -> VecEnvObs:
        before = self._counts()
        observations = self.venv.reset()
        self._check(observations, before, np.ones(self.num_envs, dtype=np.int64))
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        before = self._counts()
        result = self.venv.step_wait()
        self._check(result[0], before, 1 + result[2])  # the last of an episode and the first of the next
        return result

    def _counts(self) -> np.ndarray:
        return np.array([adversary.n_sent for adversary in self._adversaries])

    def _check(self, observations: Any, before: np.ndarray, expected: np.ndarray) -> None:
        n_sent = self._counts() - before
        if np.any(n_sent != expected):
            i = int(np.argmax(n_sent != expected))
            self._refuse(f"it sent {n_sent[i]} frames where the policy sees {expected[i]}")
        if self._exact and not self._sees_what_was_sent(observations):
            self._refuse("the numbers differ")

    def _sees_what_was_sent(self, observations: Any) -> bool:
        one = self._adversaries[0]
        seen: Any = self._policy.obs_to_tensor(observations)[0]
        if one.key is not None:
            seen = seen[one.key]
        sent = one.channel.normalised(th.as_tensor(np.stack([adversary.sent for adversary in self._adversaries])))
        sent = one.layout.observed(sent)
        return np.array_equal(seen.cpu().numpy(), sent.numpy(), equal_nan=sent.is_floating_point())

    def _refuse(self, how: str) -> None:
        raise InputError(
            f"the policy does not see what the adversary sent ({how}), so the attack would be weak: a wrapper between them "
            "changes observations, or which of them the policy gets: put it inside of the noise (in env_wrapper: before it)"
        )


def _adversary(env: gym.Env) -> AdversarialObservationWrapper:
    (found,) = [wrapper for wrapper in wrapper_chain(env) if isinstance(wrapper, AdversarialObservationWrapper)]
    return found
