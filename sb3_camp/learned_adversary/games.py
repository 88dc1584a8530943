"""
Games that an adversary can be trained in: a fixed policy plays on, and stops at each observation to ask for its perturbation.

The player runs in a greenlet of its own (in one thread, in turns with the adversary's side), so that envs, noise, frame stacks
and budgets are the very ones of an attack.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from greenlet import getcurrent, greenlet
from gymnasium.vector import VectorEnv
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.independent_actions import actor
from sb3_camp.wrappers.adversarial_observation import AdversarialObservationWrapper
from sb3_camp.wrappers.adversary import AttackAnswers, AttackedFrame, AttackRequest, AttackRequests
from sb3_camp.wrappers.batched_attack import BatchedAttackVecEnv
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.vector_adversary import VectorAdversary


class Question(NamedTuple):
    """
    :param requests: The observations of all N envs, in their order
    :param rewards: What the policy got since the last question, (N,)
    :param starts: In which envs an episode has begun since, bool (N,)
    """

    requests: AttackRequests
    rewards: np.ndarray
    starts: np.ndarray


class Game:
    """
    A policy that plays, one question for all envs at each step.

    :param play: Plays for ever, with envs of a seed, and calls its first argument with each question for the answers
    """

    def __init__(self, play: Callable[[Callable[[Question], AttackAnswers], int], None]) -> None:
        self._play = play
        self._player: greenlet | None = None
        self._hub: Any = None

    def start(self, seed: int) -> Question:
        """
        :param seed: Seed of the envs
        :return: the first question of a game that begins anew
        """
        self.stop()
        self._player = greenlet(lambda: self._play(self._ask, seed))
        return self._turn()

    def answer(self, answers: AttackAnswers) -> Question:
        """
        :param answers: What becomes of the observations
        :return: the next question
        """
        return self._turn(answers)

    def stop(self) -> None:
        if self._player is not None and not self._player.dead:
            self._player.throw()
        self._player = None

    def _turn(self, *answers: AttackAnswers) -> Question:
        assert self._player is not None
        self._hub = getcurrent()
        question = self._player.switch(*answers)
        if not isinstance(question, Question):
            raise InputError("the policy that is attacked has stopped to play")
        return question

    def _ask(self, question: Question) -> AttackAnswers:
        return self._hub.switch(question)


def native_game(model: PolicyPredictor, envs: VectorEnv, adversary: VectorAdversary, deterministic: bool) -> Game:
    """
    :param model: The policy that plays
    :param envs: Its vector environment
    :param adversary: The adversary in it
    :param deterministic: Whether it acts without random choices
    :return: the game
    """

    def play(ask: Callable[[Question], AttackAnswers], seed: int) -> None:
        adversary.always = True
        adversary.attacker = lambda requests: ask(Question(requests, adversary.rewards, adversary.starts))
        act = actor(model, deterministic)
        observations, _ = envs.reset(seed=seed)
        states = None
        while True:
            actions, states = act(observations, state=states, episode_start=adversary.starts)
            observations, *_ = envs.step(actions)

    return Game(play)


def single_game(model: PolicyPredictor, env: VecEnv, deterministic: bool) -> Game:
    """
    :param model: The policy that plays
    :param env: Its envs, a :class:`BatchedAttackVecEnv` or a wrapper of one
    :param deterministic: Whether it acts without random choices
    :return: the game
    """
    batched = env.unwrapped
    assert isinstance(batched, BatchedAttackVecEnv)
    adversaries = list(adversaries_of(env))

    def play(ask: Callable[[Question], AttackAnswers], seed: int) -> None:
        def answer(requests: list[AttackRequest]) -> list[AttackedFrame]:
            if len(requests) != len(adversaries):
                raise InputError("an env gives other than one observation at a step: no adversary can learn in it")
            rewards, starts = np.array([one.reward for one in adversaries]), np.array([one.starts for one in adversaries])
            answers = ask(Question(AttackRequests.of(requests), rewards, starts))
            return [AttackedFrame(*one) for one in zip(*answers, strict=True)]

        for one in adversaries:
            one.always = True
        batched.answer = answer
        act = actor(model, deterministic)
        env.seed(seed)
        observations = env.reset()
        states, starts = None, np.ones(env.num_envs, dtype=bool)
        while True:
            actions, states = act(observations, state=states, episode_start=starts)
            observations, _, starts, _ = env.step(actions)

    return Game(play)


def adversaries_of(env: VecEnv) -> Iterator[AdversarialObservationWrapper]:
    """
    :param env: A :class:`BatchedAttackVecEnv` or a wrapper of one
    :return: the adversaries of its envs
    """
    batched = env.unwrapped
    assert isinstance(batched, BatchedAttackVecEnv)
    for one in batched.envs:
        yield next(wrapper for wrapper in wrapper_chain(one) if isinstance(wrapper, AdversarialObservationWrapper))
