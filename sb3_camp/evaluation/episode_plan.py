"""
An evaluation in chunks that can be played one by one: each starts by resetting the envs with seeds of its own.

So an evaluation that was interrupted and resumed gives the same numbers as one that ran through.
"""

from typing import NamedTuple

import numpy as np

EPISODES_PER_ENV = 25
"""Episodes per env in a chunk, at most: what an interruption can cost, against the wait for the slowest env of each chunk."""

_EVALUATION_STREAM = 0x6576616C


class Chunk(NamedTuple):
    """
    :param n_episodes: Number of episodes
    :param seed: Seed of its first env; the others follow
    """

    n_episodes: int
    seed: int


def plan_chunks(n_episodes: int, n_envs: int, seed: int) -> list[Chunk]:
    """
    :param n_episodes: Number of episodes in all
    :param n_envs: Number of envs that play at once
    :param seed: Seed of the evaluation, non-negative
    :return: The chunks, of nearly equal size. No two of their envs have the same seed, and no seed is below 2^30, so they are
        not those of a training with an everyday seed (the zoo seeds its envs with seed, seed + 1, ...)
    """
    n_chunks = -(-n_episodes // (EPISODES_PER_ENV * n_envs))
    state = np.random.SeedSequence(seed, spawn_key=(_EVALUATION_STREAM,)).generate_state(1)
    first = 2**30 + int(state[0] >> 3)
    return [Chunk((n_episodes + i) // n_chunks, first + i * n_envs) for i in range(n_chunks)]
