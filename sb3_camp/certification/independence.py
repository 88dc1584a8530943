"""
Whether the returns of an evaluation can be those of independent episodes.

A certificate stands on it. An env that repeats a level, one level for all envs, or statistics that move along with the
episodes leave a trace: returns that belong together, by their env or by their turn, are more alike than any two. Independent
episodes of one distribution could have come in any order, so the returns are compared with themselves in random orders (a
permutation test: Fisher, "The Design of Experiments", 1935). That holds for returns of any distribution, ties included.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from scipy import stats

from sb3_camp.errors import InputError

EPISODES_PER_ENV = 25
"""Episodes per env in a chunk, at most: what an interruption can cost, against the wait for the slowest env of each chunk."""

FALSE_ALARM = 1e-7
"""Probability, at most, with which one of eight comparisons is wrong: four of the returns, four of the lengths."""

_MOST_EPISODES = 20_000
_N_PARTS, _CELLS_OF_A_PART = 8, 20
_MOST_ORDERS, _MOST_DRAWS = 100_000, 4_000_000
_BATCH = 1_000_000


class Dependence(NamedTuple):
    """
    :param what: What is alike that should not be
    :param p_value: Probability, at most, that independent episodes look so dependent
    """

    what: str
    p_value: float


_p_value = attrgetter("p_value")


def chunk_sizes(n_episodes: int, n_envs: int, looks: Sequence[int] = ()) -> list[int]:
    """
    The chunks in which an evaluation plays its episodes, and in which its file holds them. Within each they are ordered by
    turns: the first episode of each env, then the second of each ...; where the last turn is not full, the first envs lack it.

    :param n_episodes: Number of episodes in all
    :param n_envs: Number of envs that play at once
    :param looks: Numbers of episodes that are each the end of a chunk, ascending
    :return: Number of episodes of each chunk, nearly equal (between two looks)
    """
    ends = [0, *(look for look in looks if look < n_episodes), n_episodes]
    sizes = []
    for n in np.diff(ends).tolist():
        n_chunks = -(-n // (EPISODES_PER_ENV * n_envs))
        sizes += [(n + i) // n_chunks for i in range(n_chunks)]
    return sizes


def find_dependence(
    returns: np.ndarray, lengths: np.ndarray, n_envs: int, sizes: Sequence[int] | None = None
) -> Dependence | None:
    """
    Compare the episodes of one env, those of one turn, each episode with the one before it in its env, and those of one chunk.

    The episodes are divided into parts, with as many whole envs or turns in each as can be. Each part gives a p-value by
    random orders of its episodes, and as those are independent, Fisher's method combines them. Very few episodes cannot show
    anything: from about 40 on, returns that are the same in all episodes of an env, or in all of a turn, are found, from 1,000
    on one env of 64 that differs from all others. Of many only the first 20,000 or so are looked at. Where a single env has
    played all, its chunks take the place of the envs.

    :param returns: Returns, in the order of the file, shape (n,)
    :param lengths: Lengths of the episodes, shape (n,)
    :param n_envs: Number of envs that played them
    :param sizes: Numbers of episodes of the chunks, by default those of :func:`chunk_sizes`
    :return: The first that cannot be chance, None if there is nothing. For independent episodes that is so with probability at
        least 1 - 1e-6, whatever their distribution
    """
    sizes = chunk_sizes(len(returns), n_envs) if sizes is None else sizes
    rng = np.random.default_rng(0)
    found = []
    columns = {name: _ranks(values) for name, values in (("returns", returns), ("lengths", lengths))}
    if np.array_equal(columns["returns"], columns["lengths"]):
        del columns["lengths"]
    for name, ranks in columns.items():
        tables = [table for table in _tables(ranks, n_envs, sizes) if table.shape[0] > 1]
        for axis, alike in _ALIKE.items():
            found += _compared(_parts(tables, axis), alike, (name, "chunk" if n_envs == 1 else "env"), rng)
    if len(sizes) > 1 and min(found, key=_p_value).p_value >= FALSE_ALARM:
        for name, ranks in columns.items():
            found += _compared(_side_by_side(ranks, sizes), _ALIKE[0], (name, "chunk"), rng)
    return next((one for one in found if one.p_value < FALSE_ALARM), None)


def check_independent(
    returns: np.ndarray, lengths: np.ndarray, n_envs: int, where: str = "", looks: Sequence[int] = ()
) -> None:
    """
    :param returns: Returns of an evaluation, in the order of its file, shape (n,)
    :param lengths: Lengths of the episodes, shape (n,)
    :param n_envs: Number of envs that played them
    :param where: The file, in front of the message
    :param looks: Numbers of episodes at which the evaluation might stop
    :raises InputError: if they cannot be those of independent episodes, see :func:`find_dependence`
    """
    dependence = find_dependence(returns, lengths, n_envs, chunk_sizes(len(returns), n_envs, looks))
    if dependence is not None:
        raise InputError(
            f"{where and where + ': '}the episodes are not independent: {dependence.what} (by chance with a probability of "
            f"{dependence.p_value:.0e} at most), so there is nothing that they could certify: see to it that each reset of "
            "the environment draws its level anew, from the seed of that reset"
        )


def _same_env(x: np.ndarray) -> np.ndarray:
    return (x.sum(axis=1) ** 2).sum(axis=1)


def _same_turn(x: np.ndarray) -> np.ndarray:
    return (x.sum(axis=2) ** 2).sum(axis=1)


def _next_turn(x: np.ndarray) -> np.ndarray:
    return (x[:, 1:] * x[:, :-1]).sum(axis=(1, 2))


# Each takes ranks (n_orders, n_turns, n_envs), centred, and is the larger, the more is alike
_Alike = dict[str, Callable[[np.ndarray], np.ndarray]]
# By the axis along which to divide a table (n_turns, n_envs) for them: few envs that differ from all others are in each part
_ALIKE: dict[int, _Alike] = {
    0: {"the {0} of one {1} are more alike than those of different {1}s": _same_env},
    1: {
        "the {0} of all {1}s in one turn are more alike than those of different turns": _same_turn,
        "the {0} of one episode and of the next in the same {1} are more alike than those of any two": _next_turn,
    },
}


def _ranks(values: np.ndarray) -> np.ndarray:
    """Twice the ranks, ties sharing theirs, as whole numbers whose sum is zero, int64 (n,)."""
    return np.rint(2 * stats.rankdata(values)).astype(np.int64) - (len(values) + 1)


def _tables(values: np.ndarray, n_envs: int, sizes: Sequence[int]) -> Iterator[np.ndarray]:
    """The full turns of each chunk (n_turns, n_envs), of as many episodes as are looked at."""
    if n_envs == 1:
        n_turns, n_chunks = min(sizes), min(len(sizes), -(-_MOST_EPISODES // min(sizes)))
        starts = np.cumsum([0, *sizes[:-1]])[:n_chunks]
        yield values[starts + np.arange(n_turns)[:, np.newaxis]]
        return
    start = 0
    for size in sizes:
        n_turns = size // n_envs
        yield values[start : start + n_turns * n_envs].reshape(n_turns, n_envs)
        start += size
        if start >= _MOST_EPISODES:
            return


def _side_by_side(values: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """The first episodes of each chunk, in parts (n_episodes, n_chunks): a drift over chunks does not show inside of one."""
    n_rows = min(*sizes, max(2, _MOST_EPISODES // len(sizes)))
    table = values[np.cumsum([0, *sizes[:-1]]) + np.arange(n_rows)[:, np.newaxis]]
    return _split(table, 0, _N_PARTS)


def _parts(tables: list[np.ndarray], axis: int) -> list[np.ndarray]:
    """Divide tables along an axis, and where that makes few parts along the other too, into parts that can show something."""
    parts = []
    for table in tables:
        most = -(-_N_PARTS // len(tables))
        divided = _split(table, axis, most)
        parts += [part for one in divided for part in _split(one, 1 - axis, most // len(divided))]
    return parts


def _split(table: np.ndarray, axis: int, most: int) -> list[np.ndarray]:
    return np.array_split(table, max(1, min(most, table.size // _CELLS_OF_A_PART, table.shape[axis] // 2)), axis=axis)


def _compared(parts: list[np.ndarray], alike: _Alike, words: tuple[str, str], rng: np.random.Generator) -> list[Dependence]:
    """What each comparison finds in all parts together."""
    n_orders = int(min(_MOST_ORDERS, _MOST_DRAWS / max(1, sum(part.size for part in parts)))) - 1
    p_values = np.array([_p_values(part, n_orders, alike, rng) for part in parts]).reshape(-1, len(alike))
    combined = [float(stats.chi2.sf(-2 * np.log(p).sum(), 2 * p.size)) if p.size else 1.0 for p in p_values.T]
    return [Dependence(what.format(*words), p) for what, p in zip(alike, combined, strict=True)]


def _p_values(part: np.ndarray, n_orders: int, alike: _Alike, rng: np.random.Generator) -> list[float]:
    """How often the episodes of a part (n_turns, n_envs) look as dependent in a random order, for each comparison."""
    own = [measure(part[np.newaxis])[0] for measure in alike.values()]
    as_large = np.ones(len(own))
    batch = max(1, _BATCH // part.size)
    for start in range(0, n_orders, batch):
        n = min(batch, n_orders - start)
        orders = rng.permuted(np.broadcast_to(part.ravel(), (n, part.size)), axis=1).reshape(n, *part.shape)
        as_large += [np.count_nonzero(measure(orders) >= value) for measure, value in zip(alike.values(), own, strict=True)]
    return list(as_large / (n_orders + 1))
