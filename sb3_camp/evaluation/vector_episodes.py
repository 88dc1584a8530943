"""Exactly N independent episodes of one fixed policy in a vector environment of Gymnasium, whose envs step as one array."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.utils import set_random_seed

from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_seeds import NOT_PASSED_ON, SEEDED_AGAIN
from sb3_camp.evaluation.episodes import Episodes, by_turns
from sb3_camp.evaluation.exact_sums import exact_sum, rounded_sum
from sb3_camp.evaluation.independent_actions import actor
from sb3_camp.evaluation.records import Kept, VectorRecords, as_arrays
from sb3_camp.runs.recorded_key import RecordedKey
from sb3_camp.wrappers.vector import NoisyObservationWrapper, resets_at_next_step


def play_vector_episodes(
    model: PolicyPredictor,
    env: VectorEnv,
    n_episodes: int,
    *,
    seed: int,
    deterministic: bool = True,
    step_limit: float = np.inf,
    keys: Sequence[RecordedKey] = (),
    on_episode: Callable[[int], object] | None = None,
    on_step: Callable[[Any, np.ndarray], object] | None = None,
) -> Episodes:
    """
    What :func:`sb3_camp.evaluation.episodes.play_episodes` does, with the same shares of the envs and the same order, for a
    vector env of Gymnasium. Rewards, steps and ends of episodes are those that the vector env tells.

    All envs are seeded once, by the first reset: one random generator serves all episodes of all envs, so none repeats the
    draws of another. The noise has one of its own.

    :param model: The policy, anything with SB3's ``predict``, recurrent or not
    :param env: The envs, which reset at the next step (Gymnasium's autoreset mode ``NEXT_STEP``); they are seeded and reset
    :param n_episodes: Number of episodes, at least 1
    :param seed: Seeds the envs and the random choices of the policy, less than 2^32
    :param deterministic: Whether the policy is to act without random choices
    :param step_limit: Number of steps that no episode may exceed
    :param keys: Keys of ``info`` to record
    :param on_episode: Called after each finished episode that counts, with the index of its env
    :param on_step: Called before each step with the observations that the policy acts on, and with a bool array (n_envs,) that
        tells which envs are in an episode that counts; not among them is an env that is about to be reset
    :return: the episodes by turns of the envs: the first episode of each env, then the second of each ...; any first part of
        them is as unbiased as the whole
    :raises InputError: if the vector env resets in another way, if it exceeds the limit, or if its noise is not seeded once
    """
    if not resets_at_next_step(env):
        raise InputError(f"{env} does not reset at the next step after an episode (autoreset mode NEXT_STEP)")
    tally = _Tally(n_episodes, env.num_envs, keys)
    set_random_seed(seed)
    act = actor(model, deterministic)  # before an env is reset, which may seed the global generators
    before = _n_noise_seedings(env)
    observations, _ = env.reset(seed=seed)
    seeded = _n_noise_seedings(env)
    if any(count == previous for count, previous in zip(seeded, before, strict=True)):
        raise InputError(NOT_PASSED_ON)
    states = None
    starts, ended = np.ones(env.num_envs, dtype=bool), np.zeros(env.num_envs, dtype=bool)
    while tally.n_missing > 0:
        counted = tally.is_missing & ~ended
        if on_step is not None:
            on_step(observations, counted)
        # For an env that has ended, this is the last observation of the episode, and the action is not taken
        actions, states = act(observations, state=states, episode_start=starts)
        observations, rewards, terminations, truncations, infos = env.step(actions)
        starts, ended = ended, np.logical_or(terminations, truncations)
        if np.any(starts & ended):
            raise InputError(f"{env} ends an episode with its reset, before any step")
        tally.add(rewards, infos, counted, ended)
        if tally.lengths.max() >= step_limit:  # of episodes that go on
            raise InputError(f"{env} does not end an episode after {step_limit} steps")
        if on_episode is not None:
            for i in np.flatnonzero(counted & ended):
                on_episode(int(i))
    if _n_noise_seedings(env) != seeded:
        raise InputError(SEEDED_AGAIN)
    return tally.episodes()


def noises(env: VectorEnv) -> Iterator[NoisyObservationWrapper]:
    """
    :param env: A vector environment
    :return: the smoothing noises in it, the outermost first
    """
    while isinstance(env, VectorWrapper):
        if isinstance(env, NoisyObservationWrapper):
            yield env
        env = env.env


def _n_noise_seedings(env: VectorEnv) -> list[int]:
    return [noise.n_noise_seedings for noise in noises(env)]


class _Tally:
    """
    Rewards and steps of the episodes, of which env i has to play the share of :func:`play_episodes`.

    :param n_episodes: Number of episodes in all
    :param n_envs: Number of envs
    :param keys: Keys of ``info`` to record
    """

    def __init__(self, n_episodes: int, n_envs: int, keys: Sequence[RecordedKey] = ()) -> None:
        self._n_keys = len(keys)
        self._records = VectorRecords(keys, n_envs)
        self._shares = (n_episodes + np.arange(n_envs)) // n_envs
        self._n_played = np.zeros(n_envs, dtype=np.int64)
        self.n_missing = n_episodes
        # Of the episodes that are under way, shape (n_envs,)
        self._totals, self._lost, self._sizes = np.zeros(n_envs), np.zeros(n_envs), np.zeros(n_envs)
        self._lowest = np.full(n_envs, np.inf)
        self.lengths = np.zeros(n_envs, dtype=np.int64)
        # Of those that are over: the k-th episode of each env in row k
        shape = (int(self._shares.max()), n_envs)
        self._played = [np.zeros(shape) for _ in range(4)] + [np.zeros(shape, dtype=np.int64)]
        self._recorded: list[list[list[Kept | None]]] = [[] for _ in range(n_envs)]

    @property
    def is_missing(self) -> np.ndarray:
        """Which envs have to play on, bool, shape (n_envs,)."""
        return self._n_played < self._shares

    def add(self, rewards: np.ndarray, infos: dict[str, Any], counted: np.ndarray, ended: np.ndarray) -> None:
        """
        :param rewards: Rewards of a step, shape (n_envs,)
        :param infos: Its ``info``
        :param counted: Which of the envs made it in an episode that counts, bool, shape (n_envs,)
        :param ended: In which of the envs an episode has ended, bool, shape (n_envs,)
        """
        rewards = np.where(counted, rewards, 0.0)
        with np.errstate(invalid="ignore"):  # of rewards that are not finite
            self._totals, lost = exact_sum(self._totals, rewards)
        self._lost += lost
        self._sizes += np.abs(rewards)
        np.minimum(self._lowest, rewards, out=self._lowest, where=counted)
        self.lengths += counted
        self._records.add(infos, counted)
        over = np.flatnonzero(counted & ended)
        if not over.size:
            return
        current = (self._totals, self._lost, self._sizes, self._lowest, self.lengths)
        for values, now, start in zip(self._played, current, (0.0, 0.0, 0.0, np.inf, 0), strict=True):
            values[self._n_played[over], over] = now[over]
            now[over] = start
        for i in over.tolist() if self._n_keys else ():
            self._recorded[i].append(self._records.take(i))
        self._n_played[over] += 1
        self.n_missing -= over.size

    def episodes(self) -> Episodes:
        """The episodes by turns of the envs."""
        played = np.arange(len(self._played[0]))[:, np.newaxis] < self._n_played
        totals, lost, sizes, lowest, lengths = (values[played] for values in self._played)
        sums = zip(totals.tolist(), lost.tolist(), sizes.tolist(), strict=True)
        returns = np.array([rounded_sum(*one) for one in sums])
        recorded = by_turns(self._recorded) if self._n_keys else [()] * returns.size
        return Episodes(returns, lengths, lowest, *as_arrays(recorded, self._n_keys))
