import math

import numpy as np
import pytest
from scipy import stats

from sb3_camp.certification.bands import METHODS, berk_jones_level, largest_ratio, lower_band
from sb3_camp.errors import InputError

# To the printed digits.
LEVELS = [
    (1, 0.05, 0.05),
    (2, 0.05, 0.02715994),
    (10, 0.05, 0.00794338),
    (100, 0.05, 0.00246093),
    (1000, 0.05, 0.00121695),
    (10_000, 0.05, 0.00076376),
    (100, 0.001, 0.00003116),
]


def failure_by_last_crossing(bounds: np.ndarray) -> float:
    """
    P(some U_(k) < bounds[k - 1]) by splitting at the last k that fails, in O(m^2).

    There U_(k) < b_k <= U_(k+1), so exactly k points lie in [0, b_k] and the other m - k are uniform on the rest. With
    safe[j] = P(no failure after j, given exactly j points in [0, b_j]):
    1 - safe[j] = sum over k > j of P(exactly k points in [0, b_k], given those j) * safe[k].
    """
    m = len(bounds)
    bounds = np.concatenate(([0.0], bounds))
    safe = np.ones(m + 1)
    for j in range(m - 1, -1, -1):
        later = np.arange(j + 1, m + 1)
        share = (bounds[later] - bounds[j]) / (1 - bounds[j])
        safe[j] = 1 - stats.binom.pmf(later - j, m - j, share) @ safe[later]
    return 1 - safe[0]


def beta_quantiles(m: int, level: float) -> np.ndarray:
    k = np.arange(1, m + 1)
    return stats.beta.ppf(level, k, m - k + 1)


@pytest.mark.parametrize("m, alpha, level", LEVELS)
def test_berk_jones_level_has_the_known_values(m, alpha, level):
    assert berk_jones_level(m, alpha) == pytest.approx(level, abs=0.5e-8 + 1e-12)


@pytest.mark.parametrize("alpha", [1e-6, 0.001, 0.05, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("m", [2, 3, 7, 40, 300])
def test_the_band_fails_with_probability_alpha_and_never_more(m, alpha):
    failure = failure_by_last_crossing(beta_quantiles(m, berk_jones_level(m, alpha)))
    assert failure == pytest.approx(alpha, rel=1e-6, abs=1e-11)
    assert failure <= alpha + 1e-13  # rounding of the reference itself


def test_two_uniforms_in_closed_form():
    # P(U_(1) >= b, U_(2) >= c) = (1 - b)^2 - (c - b)^2
    level = berk_jones_level(2, 0.2)
    b, c = 1 - math.sqrt(1 - level), math.sqrt(level)
    assert (1 - b) ** 2 - (c - b) ** 2 == pytest.approx(0.8, abs=1e-8)


def test_berk_jones_level_falls_with_m_and_lies_between_the_union_bound_and_alpha():
    levels = np.array([berk_jones_level(m, 0.05) for m in range(1, 60)])
    assert np.all(np.diff(levels) < 0)
    assert np.all(levels >= 0.05 / np.arange(1, 60))
    assert berk_jones_level(50, 1e-12) == 1e-12 / 50


@pytest.mark.parametrize("m, alpha", [(1_000_000, 1e-8), (1_000_000, 1.38e-6), (200_000, 2.4e-7), (100_000, 1.1e-7)])
def test_the_union_bound_takes_over_where_rounding_comes_near_alpha(m, alpha):
    assert berk_jones_level(m, alpha) == alpha / m


@pytest.mark.parametrize("rounding", [1e-15, 1e-12, 1e-9])
@pytest.mark.parametrize("m", [2, 50, 300])
def test_the_level_is_right_on_both_sides_of_the_border_to_the_union_bound(monkeypatch, m, rounding):
    monkeypatch.setattr("sb3_camp.certification.bands._ROUNDING", rounding)
    border = max(1e-8, 100 * rounding * m * math.log(m))
    for alpha in (border * (1 - 1e-9), border * (1 + 1e-9), 1.5 * border):
        level = berk_jones_level.__wrapped__(m, alpha)
        assert level == alpha / m if alpha < border else alpha / m <= level <= alpha
        assert level > alpha / m or alpha < border or m == 2  # where the union bound is all but exact
        assert failure_by_last_crossing(beta_quantiles(m, level)) <= alpha + 1e-13


def test_the_level_is_never_below_the_union_bound_for_an_allowance_as_large_as_alpha(monkeypatch):
    monkeypatch.setattr("sb3_camp.certification.bands._SMALLEST_ALPHA_IN_ALLOWANCES", 0)
    monkeypatch.setattr("sb3_camp.certification.bands._ROUNDING", 1e-6)
    assert berk_jones_level.__wrapped__(50, 1e-5) == 1e-5 / 50


def test_a_band_on_a_grid_of_counts_is_exact_too_and_close_to_the_band_on_all(monkeypatch):
    m, alpha, counts = 1000, 0.05, np.arange(1001)
    every = lower_band(counts, m, alpha, "berk-jones")
    monkeypatch.setattr("sb3_camp.certification.bands._ALL_COUNTS_UP_TO", 100)
    monkeypatch.setattr("sb3_camp.certification.bands._GRID_STEP", 0.3)
    monkeypatch.setattr("sb3_camp.certification.bands.berk_jones_level", berk_jones_level.__wrapped__)
    grid = lower_band(counts, m, alpha, "berk-jones")
    assert len(np.unique(grid)) < 0.5 * m
    assert failure_by_last_crossing(grid[1:]) == pytest.approx(alpha, rel=1e-6)
    spread = np.sqrt(counts * (m - counts) / m**3)
    assert np.all(np.abs(grid - every) <= 0.4 * spread + 1 / m)
    assert grid[m] >= every[m]  # fewer tests share alpha


def test_bands_against_their_formulas():
    counts = np.array([0, 1, 3, 6, 9, 10])
    dkw = lower_band(counts, 10, 0.05, "dkw")
    np.testing.assert_allclose(dkw, np.maximum(0, counts / 10 - math.sqrt(math.log(40) / 20)), rtol=1e-14)
    for method, n_thresholds, level in [("clopper-pearson", 4, 0.0125), ("berk-jones", None, berk_jones_level(10, 0.05))]:
        band = lower_band(counts, 10, 0.05, method, n_thresholds)
        # At its lower bound p, a count as high as the one seen has probability `level`.
        np.testing.assert_allclose(stats.binom.sf(counts[1:] - 1, 10, band[1:]), level, rtol=1e-9)
        assert band[0] == 0


@pytest.mark.parametrize("method", METHODS)
def test_bands_rise_with_the_count_and_fall_with_the_confidence_and_stay_below_the_frequency(method):
    n_thresholds = 7 if method == "clopper-pearson" else None
    for m in (1, 2, 13, 200):
        counts = np.arange(m + 1)
        bands = [lower_band(counts, m, alpha, method, n_thresholds) for alpha in (0.001, 0.05, 0.4)]
        assert all(np.all(np.diff(band) >= 0) for band in bands)
        assert np.all(bands[0] <= bands[1]) and np.all(bands[1] <= bands[2])
        assert np.all(bands[2] <= counts / m)


def test_largest_ratio_is_where_perfect_episodes_keep_one_half():
    assert largest_ratio(10_000, 0.05, "dkw") == pytest.approx(2.2, abs=0.05)
    assert largest_ratio(10_000, 0.05, "berk-jones") == pytest.approx(3.2, abs=0.05)
    ratio = largest_ratio(500, 0.05, "clopper-pearson", 20)
    assert stats.norm.cdf(stats.norm.ppf(0.0025 ** (1 / 500)) - ratio) == pytest.approx(0.5, abs=1e-12)
    assert largest_ratio(1, 0.05, "dkw") == 0


LAWS = {
    "continuous": stats.uniform(),
    "two-point": stats.bernoulli(0.93),
    "rarely right": stats.bernoulli(0.02),
    "ties": stats.binom(6, 0.8),
    "heavy left tail": stats.levy_l(),
}


@pytest.mark.parametrize("m", [20, 200])
@pytest.mark.parametrize("law", LAWS)
def test_bands_fail_for_at_most_a_share_alpha_of_all_samples(law, m):
    alpha, repetitions = 0.1, 4000
    returns = LAWS[law].rvs(size=(repetitions, m), random_state=np.random.default_rng(m))
    # P(return >= r): for a discrete law, its point r counts too.
    truth = LAWS[law].sf(returns - 1) if hasattr(LAWS[law].dist, "pmf") else LAWS[law].sf(returns)
    counts = np.array([m - np.searchsorted(np.sort(row), row, side="left") for row in returns])
    failures = {}
    for method in METHODS:
        n_thresholds = 6 if method == "clopper-pearson" else None
        if n_thresholds and law in ("continuous", "heavy left tail"):
            continue  # for thresholds known beforehand only
        table = lower_band(np.arange(m + 1), m, alpha, method, n_thresholds)
        failures[method] = np.mean(np.any(table[counts] > truth + 1e-12, axis=1))
    error = math.sqrt(alpha * (1 - alpha) / repetitions)
    assert all(share <= alpha + 4 * error for share in failures.values()), failures
    if law == "continuous":  # where the Berk-Jones band is exact
        assert failures["berk-jones"] >= alpha - 4 * error


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((10, 0.05, "hoeffding", None), "hoeffding.*berk-jones, dkw, clopper-pearson"),
        ((0, 0.05, "dkw", None), "at least one episode"),
        ((10, 0.0, "dkw", None), "alpha"),
        ((10, 1.0, "berk-jones", None), "alpha"),
        ((10, math.nan, "berk-jones", None), "alpha"),
        ((10, 1e-300, "clopper-pearson", 1), "alpha must be at least 1e-50"),
        ((10, 0.05, "clopper-pearson", None), "n_thresholds"),
        ((10, 0.05, "clopper-pearson", 0), "n_thresholds"),
        ((10, 0.05, "dkw", 3), "clopper-pearson only"),
    ],
)
def test_unusable_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        largest_ratio(*arguments)
