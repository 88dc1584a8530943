"""Returns that cannot be those of independent episodes are found, whatever their distribution; independent ones never are."""

import numpy as np
import pytest

from sb3_camp.certification import independence
from sb3_camp.certification.independence import check_independent, chunk_sizes, find_dependence
from sb3_camp.errors import InputError

SHAPES = [(1024, 10_240), (64, 10_000), (64, 700), (1, 10_000), (8, 40), (2, 60), (5, 333)]
HONEST = {
    "normal": lambda rng, n: rng.normal(size=n),
    "one value": lambda rng, n: np.full(n, 7.0),
    "0 or 1": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "rarely 0": lambda rng, n: 1.0 - (rng.random(n) < 3 / n),
    "steps up to a limit": lambda rng, n: np.minimum(rng.geometric(0.02, n), 200).astype(float),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
}


def by_turns(value, n_envs, n_episodes):
    """The returns of an evaluation, in the order of its file: value(chunk, turn, env) for each episode."""
    returns = []
    for chunk, size in enumerate(chunk_sizes(n_episodes, n_envs)):
        shares = [(size + i) // n_envs for i in range(n_envs)]
        returns += [value(chunk, k, i) for k in range(max(shares)) for i in range(n_envs) if k < shares[i]]
    return np.array(returns)


class Levels(dict):
    """A random level for each key."""

    def __missing__(self, key):
        rng = np.random.default_rng([1, *key])
        self[key] = rng.normal()
        return self[key]


DEPENDENT = {
    "an env repeats its level": lambda chunk, turn, env: (chunk, env),
    "all envs play the same level": lambda chunk, turn, env: (chunk, turn),
}


def many_envs(shapes):
    return [shape for shape in shapes if shape[0] > 1]


# What is found


@pytest.mark.parametrize(("n_envs", "n_episodes"), SHAPES)
def test_an_env_that_repeats_its_level_is_found(n_envs, n_episodes):
    levels = Levels()
    returns = by_turns(lambda chunk, turn, env: levels[chunk, env], n_envs, n_episodes)
    found = find_dependence(returns, np.ones(n_episodes), n_envs)
    assert found.what.startswith(f"the returns of one {'chunk' if n_envs == 1 else 'env'} are more alike")
    assert found.p_value < 1e-7
    with pytest.raises(InputError, match=r"^a\.npz: the episodes are not independent: the lengths of one"):
        check_independent(np.ones(n_episodes), np.round(returns, 2), n_envs, where="a.npz")


@pytest.mark.parametrize(("n_envs", "n_episodes"), many_envs(SHAPES))
def test_envs_that_all_play_one_level_in_each_turn_are_found(n_envs, n_episodes):
    levels = Levels()
    returns = by_turns(lambda chunk, turn, env: levels[chunk, turn], n_envs, n_episodes)
    found = find_dependence(returns, np.ones(n_episodes), n_envs)
    assert "of all envs in one turn" in found.what


@pytest.mark.parametrize(("n_envs", "n_episodes"), many_envs(SHAPES)[:3])
@pytest.mark.parametrize("key", DEPENDENT.values(), ids=DEPENDENT)
@pytest.mark.parametrize("as_returns", [lambda values: values, lambda values: values > 0], ids=["numbers", "0 or 1"])
def test_levels_that_decide_half_of_the_variance_are_found(key, n_envs, n_episodes, as_returns):
    levels, rng = Levels(), np.random.default_rng(0)
    values = by_turns(lambda *place: levels[key(*place)] + rng.normal(), n_envs, n_episodes)
    assert find_dependence(as_returns(values).astype(float), np.ones(n_episodes), n_envs) is not None


@pytest.mark.parametrize(
    ("n_envs", "n_episodes", "bad"),
    [
        *((64, n_episodes, bad) for n_episodes in (1000, 10_000, 100_000) for bad in ([5], [5, 6], range(5, 11), [1, 5, 60])),
        *((n_envs, 10_000, [1]) for n_envs in (2, 3, 16, 256)),
        (1000, 10_000, [3, 4, 5]),
    ],
)
def test_few_envs_that_differ_from_all_others_are_found_wherever_they_stand(n_envs, n_episodes, bad):
    returns = by_turns(lambda chunk, turn, env: 0.0 if env in bad else 20.0, n_envs, n_episodes)
    assert "of one env" in find_dependence(returns, np.ones(n_episodes), n_envs).what


@pytest.mark.parametrize(("n_envs", "n_episodes", "bad"), [(64, 10_000, [5]), (256, 10_000, [0]), (1000, 10_000, [3])])
def test_few_turns_that_differ_from_all_others_are_found(n_envs, n_episodes, bad):
    returns = by_turns(lambda chunk, turn, env: 0.0 if turn in bad else 20.0, n_envs, n_episodes)
    assert find_dependence(returns, np.ones(n_episodes), n_envs) is not None


@pytest.mark.parametrize("n_envs", [1, 2, 64])
def test_statistics_that_move_along_with_the_episodes_are_found(n_envs):
    state, rng = np.zeros(n_envs), np.random.default_rng(0)

    def value(chunk, turn, env):
        state[env] = 0.95 * state[env] + rng.normal()
        return state[env]

    returns = by_turns(value, n_envs, 2000)
    assert find_dependence(returns, np.ones(2000), n_envs) is not None


DRIFTS = {
    "a level for each chunk": lambda share, chunk: 10.0 * (chunk % 2),
    "all is lost half-way": lambda share, chunk: 10.0 * (share < 0.5),
    "it wears out slowly": lambda share, chunk: 10.0 - 10.0 * share,
}


@pytest.mark.parametrize("drift", DRIFTS.values(), ids=DRIFTS)
@pytest.mark.parametrize(("n_envs", "n_episodes"), [(64, 10_000), (64, 4000), (2, 1000), (8, 100_000), (1, 10_000)])
def test_what_changes_from_chunk_to_chunk_is_found(n_envs, n_episodes, drift):
    rng = np.random.default_rng(0)
    sizes = chunk_sizes(n_episodes, n_envs)
    chunks = np.repeat(np.arange(len(sizes)), sizes)
    # Inside of a chunk all are of one distribution, so that only the chunks can show it
    starts = np.cumsum([0, *sizes[:-1]]) / n_episodes
    returns = drift(starts[chunks], chunks) + 3 * rng.normal(size=n_episodes)
    found = find_dependence(returns, np.ones(n_episodes), n_envs)
    assert found is not None and "of one chunk" in found.what


# What is not


@pytest.mark.parametrize("draw", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize(("n_envs", "n_episodes"), [*SHAPES, (1, 1), (7, 7), (64, 100), (1024, 2000)])
def test_independent_episodes_are_never_taken_for_dependent(n_envs, n_episodes, draw):
    rng = np.random.default_rng(0)
    check_independent(draw(rng, n_episodes), rng.integers(1, 50, n_episodes), n_envs)


@pytest.mark.parametrize("draw", HONEST.values(), ids=HONEST)
def test_false_alarms_are_as_rare_as_is_said(draw, monkeypatch):
    # At a probability that can be counted: 0.01 for each of eight comparisons
    monkeypatch.setattr(independence, "FALSE_ALARM", 0.01)
    monkeypatch.setattr(independence, "_MOST_DRAWS", 40_000)
    rng = np.random.default_rng(0)
    shapes = [(8, 200), (3, 200), (1, 200), (40, 200), (2, 200)]
    alarms = [
        find_dependence(draw(rng, n_episodes), draw(rng, n_episodes), n_envs) is not None
        for _ in range(60)
        for n_envs, n_episodes in shapes
    ]
    assert np.mean(alarms) < 0.08 + 3 * np.sqrt(0.08 * 0.92 / 300)


def test_the_same_episodes_are_judged_in_the_same_way():
    returns = np.random.default_rng(0).normal(size=300)
    returns[::3] += 2
    assert find_dependence(returns, np.ones(300), 3) == find_dependence(returns, np.ones(300), 3) is not None


def test_chunks_are_nearly_equal_and_hold_all_episodes():
    assert chunk_sizes(10_000, 64) == [1428, 1428, 1428, 1429, 1429, 1429, 1429]
    assert chunk_sizes(7, 64) == [7]
