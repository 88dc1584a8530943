import math

import numpy as np
import pytest
from scipy import stats
from support.band_oracles import beta_quantiles, failure_by_last_crossing

from sb3_camp.certification.bands import METHODS, berk_jones_level, forecast_level, largest_ratio, lower_band
from sb3_camp.certification.crossing import holding_probability, knots
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


@pytest.mark.parametrize("alpha", [1e-50, 1e-12, 0.99e-8])
@pytest.mark.parametrize("m", [2, 10_000, 1_000_000])
def test_the_union_bound_takes_over_where_rounding_comes_near_alpha(m, alpha):
    assert berk_jones_level(m, alpha) == alpha / m


@pytest.mark.parametrize("alpha", [0.999, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53])
@pytest.mark.parametrize("m", [1, 2, 50, 700])
def test_an_alpha_next_to_1_has_a_level_that_is_not_too_large(m, alpha):
    level = berk_jones_level(m, alpha)
    assert 0.999 / m <= level <= alpha
    assert level == alpha or level == berk_jones_level(m, 0.999)
    assert failure_by_last_crossing(beta_quantiles(m, level)) <= alpha + 1e-13
    band = lower_band(np.arange(m + 1), m, alpha, "berk-jones")
    assert np.all(np.diff(band) > 0) and band[-1] < 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("alpha", [1e-50, 1e-17, 1 - 1e-16, 1 - 2**-53])
def test_no_bound_is_1_or_no_number_however_extreme_alpha_is(method, alpha):
    for m in (1, 7, 10_000, 10**9 if method != "berk-jones" else 20_000):
        band = lower_band([0, 1, m], m, alpha, method, 3 if method == "clopper-pearson" else None)
        assert np.all((band >= 0) & (band < 1)) and band[0] == 0


@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.6])
def test_a_band_that_is_straight_between_some_counts_holds_too_and_is_close_to_the_band_on_all(monkeypatch, alpha):
    m, counts = 1000, np.arange(1001)
    exact_level = berk_jones_level(m, alpha)
    every = lower_band(counts, m, alpha, "berk-jones")
    monkeypatch.setattr("sb3_camp.certification.bands._ALL_COUNTS_UP_TO", 100)
    monkeypatch.setattr("sb3_camp.certification.bands.berk_jones_level", berk_jones_level.__wrapped__)
    level = berk_jones_level.__wrapped__(m, alpha)
    assert exact_level * (1 - 1.5e-3) <= level <= exact_level
    band = lower_band(counts, m, alpha, "berk-jones")
    failure = failure_by_last_crossing(band[1:])
    assert failure == pytest.approx(alpha, rel=1e-4)
    assert failure <= alpha + 1e-13
    own_quantiles = lower_band(counts, m, level, "clopper-pearson", 1)
    assert np.all(band >= own_quantiles - 1e-15)  # convex in the count, so the level is safe for these too
    spread = np.sqrt(counts * (m - counts) / m**3)
    np.testing.assert_allclose(band, every, rtol=0, atol=0.004 * spread.max())
    assert np.all(np.diff(band) > 0) and np.all(band <= counts / m)


# Of the exact recursion over every count, by the Poisson process of `holding_step_by_step`
@pytest.mark.parametrize(
    "m, alpha, level", [(20_000, 0.05, 0.00068254487), (20_000, 1e-4, 6.4234224e-7), (100_000, 0.05, 0.00054378136)]
)
def test_levels_of_many_episodes_are_just_below_those_of_the_band_on_every_count(m, alpha, level):
    assert (1 - 1.1e-3) * level <= berk_jones_level(m, alpha) <= level


@pytest.mark.parametrize("m", [10_001, 54_321, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_levels_of_many_episodes_fail_with_the_wanted_probability(m):
    for alpha in (1e-7, 0.05):
        counts = knots(m)
        level = berk_jones_level(m, alpha)
        failure = 1 - holding_probability(m, counts, beta_quantiles(m, level, counts))
        assert (1 - 0.02) * alpha <= failure <= alpha * (1 + 1e-8)  # the quantiles here are those of another function


def test_levels_fall_with_the_number_of_episodes_and_rise_with_alpha_across_the_change_of_the_band():
    numbers = [9_950, 10_000, 10_001, 20_000, 200_000]
    levels = np.array([[berk_jones_level(m, alpha) for alpha in (0.05, 0.0502)] for m in numbers])
    assert np.all(np.diff(levels, axis=0) < 0)
    assert np.all(np.diff(levels, axis=1) > 0)


@pytest.mark.parametrize("alpha", [1e-9, 1e-3, 0.05, 0.5])
def test_a_forecast_of_the_level_is_close_to_it(alpha):
    for m in (1, 2, 3, 11, 100, 777, 4000, 5000, 30_000):
        assert forecast_level(m, alpha) == pytest.approx(berk_jones_level(m, alpha), rel=0.03 if m >= 100 else 0.1)


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
        ((10, 0.05, "dkw", 3), "pointwise bands like clopper-pearson, not for dkw"),
    ],
)
def test_unusable_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        largest_ratio(*arguments)
