"""
Whether the policy sees what the adversary sends.

An adversary that attacks other frames than the policy observes is weak, and nobody would notice. So what is not known to leave
the frames alone may not stand between the two, and while they play, what the policy observes is compared with what was sent.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import wrappers
from rl_zoo3.wrappers import ActionNoiseWrapper, ActionSmoothingWrapper, DelayedRewardWrapper, TruncatedOnSuccessWrapper
from stable_baselines3.common.atari_wrappers import StickyActionEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_camp.errors import InputError
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

# These classes themselves: a subclass may do anything
_SEEN_THROUGH = {
    # the adversary knows what these do to a frame
    *(NoisyObservationWrapper, wrappers.FrameStackObservation, wrappers.FlattenObservation),
    # these pass on each observation as it is
    *(wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.RecordEpisodeStatistics),
    *(wrappers.RecordVideo, wrappers.HumanRendering, wrappers.RenderCollection),
    *(wrappers.NormalizeReward, wrappers.StickyAction),
    *(Monitor, EpisodeRecorder, StickyActionEnv),
    *(ActionNoiseWrapper, ActionSmoothingWrapper, DelayedRewardWrapper, TruncatedOnSuccessWrapper),
}
_SEEN_THROUGH_VEC = {VecFrameStack, VecTransposeImage, VecMonitor, VecCheckNan, VecVideoRecorder}
_STEPS_THAT_LEAVE_OBSERVATIONS = (gym.Wrapper.step, gym.RewardWrapper.step, gym.ActionWrapper.step)


def check_sight(chain: Sequence[gym.Wrapper], vec_wrappers: Sequence[VecEnvWrapper]) -> None:
    """
    :param chain: The wrappers of an env that stand between the adversary and the policy
    :param vec_wrappers: The wrappers of the vectorized environment
    :raises InputError: if one of them may change what the policy sees of the adversary's frames, or which of them it sees
    """
    for wrapper in chain:
        if not _leaves_observations(wrapper):
            raise InputError(
                f"{type(wrapper).__name__} is between the adversary and the policy, and may change what the policy sees of "
                "the attacked frames: put it inside of the noise and of the frame stack (in env_wrapper: before them)"
            )
    for vec_wrapper in vec_wrappers:
        normalizes_no_observations = type(vec_wrapper) is VecNormalize and not vec_wrapper.norm_obs
        if type(vec_wrapper) not in _SEEN_THROUGH_VEC and not normalizes_no_observations:
            raise InputError(
                f"{type(vec_wrapper).__name__} is between the adversary and the policy, and may change what the policy sees "
                "of the attacked frames: do the same in env_wrapper, inside of the noise (before it), not in vec_env_wrapper"
            )


def _leaves_observations(wrapper: gym.Wrapper) -> bool:
    cls = type(wrapper)
    inherits_both = cls.step in _STEPS_THAT_LEAVE_OBSERVATIONS and cls.reset is gym.Wrapper.reset
    return cls in _SEEN_THROUGH or inherits_both


class SightCheck(VecEnvWrapper):
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
        sent = one.layout.observed(th.as_tensor(np.stack([adversary.sent for adversary in self._adversaries])))
        return np.array_equal(seen.cpu().numpy(), sent.numpy(), equal_nan=sent.is_floating_point())

    def _refuse(self, how: str) -> None:
        raise InputError(
            f"the policy does not see what the adversary sent ({how}), so the attack would be weak: a wrapper between them "
            "changes observations, or which of them the policy gets: put it inside of the noise (in env_wrapper: before it)"
        )


def _adversary(env: gym.Env) -> AdversarialObservationWrapper:
    (found,) = [wrapper for wrapper in wrapper_chain(env) if isinstance(wrapper, AdversarialObservationWrapper)]
    return found
