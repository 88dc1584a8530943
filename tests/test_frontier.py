"""The best of several evaluations at each radius."""

import math

import numpy as np
import pytest
from scipy import stats

from sb3_camp.certification import certified_frontier, certified_return
from sb3_camp.errors import InputError

SIGMAS = [0.1, 0.2, 0.4, 0.8, 1.6]
RADII = np.array([0.0, 0.1, 0.3, 0.6, 1.2])


def play(rng, sigma, m):
    """Rises with what is seen, 1 + noise; a large noise makes more mistakes."""
    seen = 1 + sigma * rng.normal(size=(m, 1))
    return (seen > [0.0, 0.5, 0.9]).sum(axis=1).astype(float)


def test_the_best_at_each_radius_is_that_of_the_curves_at_a_share_of_alpha():
    rng = np.random.default_rng(0)
    returns = [play(rng, sigma, 300 + 10 * number) for number, sigma in enumerate(SIGMAS)]
    frontier = certified_frontier(returns, SIGMAS, RADII, alpha=0.1)
    expected = [certified_return(played, sigma, RADII, alpha=0.02) for played, sigma in zip(returns, SIGMAS, strict=True)]
    np.testing.assert_array_equal(frontier.curves, expected)
    np.testing.assert_array_equal(frontier.certified_return, np.max(expected, axis=0))
    for column, best in enumerate(frontier.best):
        assert frontier.curves[best, column] == frontier.certified_return[column]
    assert len(set(frontier.best)) >= 3  # the noise that is best at one radius is not so at another


def test_one_evaluation_is_its_own_frontier():
    returns = play(np.random.default_rng(0), 0.4, 100)
    frontier = certified_frontier([returns], [0.4], RADII)
    np.testing.assert_array_equal(frontier.certified_return, certified_return(returns, 0.4, RADII))
    np.testing.assert_array_equal(frontier.best, 0)
    assert certified_frontier([returns], [0.4], []).best.shape == (0,)


def test_options_are_those_of_the_certified_return():
    returns = [np.repeat([-1.0, 1.0], [5, 95]), np.repeat([-1.0, 1.0], [1, 99])]
    options = {"method": "clopper-pearson", "min_return": -1.0, "support": [-1, 1]}
    frontier = certified_frontier(returns, [1.0, 1.0], RADII, alpha=0.02, **options)
    np.testing.assert_array_equal(frontier.curves[1], certified_return(returns[1], 1.0, RADII, alpha=0.01, **options))
    np.testing.assert_array_equal(frontier.best, 1)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_frontier_of_five_sigmas_is_wrong_for_at_most_a_share_alpha(alpha):
    # An episode succeeds where its noise, in units of sigma, is above -0.8; the worst attack takes R from what is seen.
    # Without an attack the five are equally good, and differ by luck alone.
    repetitions, m = 2000, 200
    true = stats.norm.cdf(0.8 - RADII / np.array(SIGMAS)[:, np.newaxis])
    counts = np.random.default_rng(3).binomial(m, stats.norm.cdf(0.8), (repetitions, len(SIGMAS)))
    options = {"method": "clopper-pearson", "support": [1]}

    def successes(n):
        return (np.arange(m) < n).astype(float)

    def share_of_wrong(joint):
        level = joint / len(SIGMAS)
        known = {
            n: [certified_return(successes(n), sigma, RADII, alpha=level, **options) for sigma in SIGMAS]
            for n in set(counts.ravel().tolist())
        }
        curves = np.array([[known[n][i] for i, n in enumerate(row)] for row in counts.tolist()])
        best = curves.argmax(axis=1)
        frontier = certified_frontier([successes(n) for n in counts[0]], SIGMAS, RADII, alpha=joint, **options)
        np.testing.assert_array_equal(frontier.curves, curves[0])
        np.testing.assert_array_equal(frontier.best, best[0])
        return np.any(curves.max(axis=1) > true[best, np.arange(len(RADII))] + 1e-12, axis=1).mean()

    error = math.sqrt(alpha * (1 - alpha) / repetitions)
    assert 0 < share_of_wrong(alpha) <= alpha + 3 * error
    # Each at alpha itself is wrong too often
    assert share_of_wrong(min(0.99, alpha * len(SIGMAS))) > alpha + 4 * error


@pytest.mark.parametrize(
    "returns, sigmas, radii, message",
    [
        ([], [], [0.0], "at least one evaluation"),
        ([[1.0]], [0.1, 0.2], [0.0], "one sigma for each, got 1 and 2"),
        ([[1.0]], [0.1], 0.0, "radii must be one-dimensional"),
        ([[1.0], [-1.0]], [0.1, 0.2], [0.0], "below min_return"),
    ],
)
def test_unusable_input_is_named(returns, sigmas, radii, message):
    with pytest.raises(InputError, match=message):
        certified_frontier(returns, sigmas, radii)
