"""Several environments whose adversaries attack in one batch."""

import contextvars
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium as gym
from greenlet import getcurrent, greenlet
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_camp.errors import InputError
from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
from sb3_camp.wrappers.adversary import AttackedFrame, AttackRequest
from sb3_camp.wrappers.chain import wrapper_chain


class BatchedAttackVecEnv(DummyVecEnv):
    """
    SB3's ``DummyVecEnv`` for environments with an :class:`AdversarialObservationWrapper` somewhere in their chains of
    wrappers: the attacks on all environments are computed as one batch.

    Seeds, resets and episodes are those of a ``DummyVecEnv``, and so are the attacks, up to the rounding of batched matrix
    products. Each environment runs in a greenlet of its own (in one thread, one after the other, always in the same order).
    Where its adversary needs an attack, in a step or in a reset, and however often in one step, it waits until each of the
    others has ended or waits too.

    :param env_fns: Functions that make the environments
    :raises InputError: if an environment has no adversary, or if two adversaries differ in model, attack or settings
    """

    def __init__(self, env_fns: list[Callable[[], gym.Env]]) -> None:
        super().__init__(env_fns)
        self._hub: greenlet | None = None
        self.answer: Callable[[list[AttackRequest]], list[AttackedFrame]] = self._perturb
        """Computes the attacks of a batch"""
        wrappers = [_adversary(env, i) for i, env in enumerate(self.envs)]
        self._first = wrappers[0]
        for wrapper in wrappers:
            _check_alike(self._first, wrapper)
            wrapper.attacker = self._attack

    def step_wait(self) -> VecEnvStepReturn:
        self._run_together(self._step_env)
        return self._obs_from_buf(), self.buf_rews.copy(), self.buf_dones.copy(), deepcopy(self.buf_infos)

    def reset(self) -> VecEnvObs:
        self._run_together(self._reset_env)
        self._reset_seeds()
        self._reset_options()
        return self._obs_from_buf()

    def _step_env(self, i: int) -> None:
        observation, reward, terminated, truncated, info = self.envs[i].step(self.actions[i])
        done = terminated or truncated
        info["TimeLimit.truncated"] = truncated and not terminated
        if done:
            info["terminal_observation"] = observation
            observation, self.reset_infos[i] = self.envs[i].reset()
        self.buf_rews[i], self.buf_dones[i], self.buf_infos[i] = reward, done, info
        self._save_obs(i, observation)

    def _reset_env(self, i: int) -> None:
        options: dict[str, Any] = {"options": self._options[i]} if self._options[i] else {}
        observation, self.reset_infos[i] = self.envs[i].reset(seed=self._seeds[i], **options)
        self._save_obs(i, observation)

    def _run_together(self, function: Callable[[int], None]) -> None:
        """Run ``function(i)`` for each environment, their attacks in batches."""
        workers = [greenlet(function) for _ in self.envs]
        for worker in workers:
            worker.gr_context = contextvars.copy_context()
        self._hub = getcurrent()
        try:
            # A switch returns when the worker ends, or when it waits for its attack: then with its request
            requests = [(worker, worker.switch(i)) for i, worker in enumerate(workers)]
            while waiting := [(worker, request) for worker, request in requests if not worker.dead]:
                answers = self.answer([request for _, request in waiting])
                requests = [(worker, worker.switch(answer)) for (worker, _), answer in zip(waiting, answers, strict=True)]
        finally:
            self._hub = None
            for worker in workers:  # after an exception, others may still wait
                if not worker.dead:
                    worker.throw()

    def _attack(self, request: AttackRequest) -> AttackedFrame:
        if self._hub is None:  # the environment was called directly, not by a step or reset of all
            return self.answer([request])[0]
        return self._hub.switch(request)

    def _perturb(self, requests: list[AttackRequest]) -> list[AttackedFrame]:
        return self._first.adversary.perturb(requests, self._first.layout, self._first.key)


def _adversary(env: gym.Env, i: int) -> AdversarialObservationWrapper:
    for wrapper in wrapper_chain(env):
        if isinstance(wrapper, AdversarialObservationWrapper):
            return wrapper  # the only one, or it would not have been built
    raise InputError(f"BatchedAttackVecEnv: environment {i} has no AdversarialObservationWrapper: use DummyVecEnv.")


def _check_alike(one: AdversarialObservationWrapper, other: AdversarialObservationWrapper) -> None:
    differences = one.adversary.differences(other.adversary)
    differences += [name for name in ("layout", "key") if getattr(one, name) != getattr(other, name)]
    if differences:
        raise InputError(
            f"BatchedAttackVecEnv: the adversaries of its environments differ in {', '.join(differences)}: to attack in one "
            "batch they must be alike."
        )
