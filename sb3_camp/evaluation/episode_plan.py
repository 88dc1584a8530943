"""
An evaluation in chunks that can be played one by one: each has seeds of its own, one for each episode.

So an evaluation that was interrupted and resumed gives the same numbers as one that ran through.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sb3_camp.certification.independence import chunk_sizes

_EVALUATION_STREAM = 0x6576616C


class Chunk(NamedTuple):
    """
    :param n_episodes: Number of episodes
    :param seed: Seed of its first episode; those of the others follow, see
        :func:`sb3_camp.evaluation.episode_seeds.seed_episodes`
    """

    n_episodes: int
    seed: int


def plan_chunks(n_episodes: int, n_envs: int, seed: int, looks: Sequence[int] = ()) -> list[Chunk]:
    """
    :param n_episodes: Number of episodes in all
    :param n_envs: Number of envs that play at once
    :param seed: Seed of the evaluation, non-negative
    :param looks: Numbers of episodes that are each the end of a chunk, ascending
    :return: The chunks, of nearly equal size (between two looks). No two of their episodes have the same seed, all seeds
        together have no gap, and none is below 2^30, so they are not those of a training with an everyday seed (the zoo seeds
        its envs with seed, seed + 1, ...)
    """
    state = np.random.SeedSequence(seed, spawn_key=(_EVALUATION_STREAM,)).generate_state(1)
    first = 2**30 + int(state[0] >> 3)
    chunks = []
    for size in chunk_sizes(n_episodes, n_envs, looks):
        chunks.append(Chunk(size, first))
        first += n_seeds(size, n_envs)
    return chunks


def n_seeds(n_episodes: int, n_envs: int) -> int:
    """
    :param n_episodes: Number of episodes that are played in one go
    :param n_envs: Number of envs that play at once
    :return: How many seeds they take: for each env as many as for the one that plays most
    """
    return n_envs * -(-n_episodes // n_envs)
