"""Probabilities, quantiles, the mean of the worst episodes, and costs: closed forms, a brute-force twin, and how often they
are wrong."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from sb3_camp.certification import (
    certified_cost,
    certified_cvar,
    certified_probability,
    certified_quantile,
    certified_return,
)
from sb3_camp.certification.bands import METHODS, berk_jones_level, lower_band
from sb3_camp.certification.return_band import return_band
from sb3_camp.errors import InputError

NORMAL = NormalDist()
RADII = [0.0, 0.1, 0.4, 1.0, 1.7]
SHARES = [0.003, 0.05, 0.3, 0.77, 1.0]


def band_twin(returns, alpha, method, min_return, support):
    """[(threshold, lower bound on P(return >= threshold))], written out literally."""
    m, thresholds = len(returns), sorted(set(returns if support is None else support))
    thresholds = [c for c in thresholds if c > min_return]
    band = []
    for c in thresholds:
        n = sum(r >= c for r in returns)
        if method == "dkw":
            p = n / m - math.sqrt(math.log(2 / alpha) / (2 * m))
        else:
            level = alpha / len(thresholds) if method == "clopper-pearson" else berk_jones_level(m, alpha)
            p = stats.beta.ppf(level, n, m - n + 1) if n else 0.0
        band.append((c, max(0.0, p)))
    return band


def attacked_twin(band, ratio, min_return):
    """The worst distribution, as (return, probability) from the lowest return to the highest."""
    reached = [(c, NORMAL.cdf(NORMAL.inv_cdf(p) - ratio) if p > 0 else 0.0) for c, p in band]
    values = [min_return, *(c for c, _ in reached)]
    at_least = [1.0, *(p for _, p in reached), 0.0]
    return [(value, above - beyond) for value, (above, beyond) in zip(values, pairwise(at_least), strict=True)]


def mean_of_worst(distribution, q):
    total, missing = 0.0, q
    for value, probability in distribution:
        taken = min(probability, missing)
        total, missing = total + taken * value, missing - taken
    return (total + missing * distribution[-1][0]) / q


def quantile_twin(distribution, q):
    best, at_least = distribution[0][0], 1.0
    for value, probability in distribution:
        if at_least >= 1 - q:
            best = value
        at_least -= probability
    return best


def random_law(seed):
    rng = np.random.default_rng(seed)
    m, min_return = int(rng.integers(1, 150)), float(rng.integers(-5, 3))
    kind = seed % 4
    if kind == 0:
        returns = min_return + rng.integers(0, 6, m)
    elif kind == 1:
        returns = min_return + rng.gamma(rng.uniform(0.3, 5), 20, m)
    elif kind == 2:
        returns = min_return + 50 * (rng.random(m) < rng.uniform(0.5, 1))
    else:
        returns = min_return + np.minimum(200, np.round(rng.pareto(1.1, m) * 40))
    method = METHODS[seed % 3]
    options = {"alpha": float(rng.choice([0.001, 0.05, 0.3])), "method": method, "min_return": min_return}
    support = [*returns.tolist(), *(min_return + rng.uniform(0, 60, 3)).tolist()] if method == "clopper-pearson" else None
    return returns.astype(float), options | {"support": support}


@pytest.mark.parametrize("seed", range(24))
def test_all_are_those_of_the_worst_distribution_written_out(seed):
    returns, options = random_law(seed)
    sigma = 0.6
    band = band_twin(returns.tolist(), **options)
    worst = [attacked_twin(band, radius / sigma, options["min_return"]) for radius in RADII]
    size = 1 + np.abs(returns).max()

    def close(got, expected):
        assert got.shape == (len(RADII),) and got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9 * size)

    close(certified_return(returns, sigma, RADII, **options), [mean_of_worst(law, 1.0) for law in worst])
    for threshold in [options["min_return"] - 1, options["min_return"], *np.unique(returns)[:4], returns.max() + 1e-6, 17.3]:
        expected = [sum(p for value, p in law if value >= threshold) for law in worst]
        close(certified_probability(returns, sigma, threshold, RADII, **options), expected)
    for q in SHARES:
        close(certified_cvar(returns, sigma, q, RADII, **options), [mean_of_worst(law, q) for law in worst])
        if q < 1:
            close(certified_quantile(returns, sigma, q, RADII, **options), [quantile_twin(law, q) for law in worst])


def test_equal_returns_have_closed_forms():
    m, sigma, radii = 400, 0.5, np.array([0.0, 0.5, 1.0])
    kept = stats.norm.cdf(stats.norm.ppf(berk_jones_level(m, 0.05) ** (1 / m)) - radii / sigma)
    returns = np.full(m, 8.0)
    np.testing.assert_allclose(certified_probability(returns, sigma, 8, radii), kept, rtol=1e-12)
    np.testing.assert_array_equal(certified_probability(returns, sigma, 8.001, radii), 0)
    np.testing.assert_array_equal(certified_probability(returns, sigma, 0, radii), 1)
    np.testing.assert_allclose(certified_cvar(returns, sigma, 0.2, radii), 8 * np.maximum(0, kept - 0.8) / 0.2, rtol=1e-11)
    np.testing.assert_array_equal(certified_quantile(returns, sigma, 0.2, radii), np.where(kept >= 0.8, 8, 0))


def test_a_rare_event_has_the_closed_form_of_the_binomial():
    crashed = np.zeros(1000, dtype=bool)
    crashed[:3] = True
    sigma, radii = 0.4, np.array([0.0, 0.4, 0.8])
    upper = stats.beta.ppf(0.95, 4, 997)
    expected = stats.norm.cdf(stats.norm.ppf(upper) + radii / sigma)
    got = certified_cost(crashed, sigma, radii, method="clopper-pearson", support=[0, 1])
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    options = {"method": "clopper-pearson", "support": [0], "min_return": -1}
    reached = certified_probability(-crashed.astype(float), sigma, 0, radii, **options)
    np.testing.assert_allclose(1 - reached, expected, rtol=1e-10)


def test_costs_are_negative_returns():
    costs = np.random.default_rng(0).gamma(2.0, 3.0, 200)
    got = certified_cost(costs, 1.0, RADII, max_cost=100.0)
    np.testing.assert_array_equal(got, -certified_return(-costs, 1.0, RADII, min_return=-100.0))
    assert np.all(np.diff(got) > 0) and costs.mean() < got[0] and got[-1] < 100
    assert certified_cost(costs, 1.0, math.inf, max_cost=100.0) == 100
    coarse = certified_cost(costs, 1.0, RADII, max_cost=100.0, method="clopper-pearson", support=[5, 20])
    up = np.select([costs <= 5, costs <= 20], [5.0, 20.0], 100.0)  # a cost counts as what it does not exceed
    np.testing.assert_array_equal(
        coarse, certified_cost(up, 1.0, RADII, max_cost=100.0, method="clopper-pearson", support=[5, 20])
    )


@pytest.mark.parametrize("seed", range(6))
def test_they_fall_with_the_radius_and_agree_with_each_other(seed):
    returns, options = random_law(seed)
    radii = np.linspace(0, 3, 13)
    curves = [certified_cvar(returns, 1.0, q, radii, **options) for q in SHARES]
    quantiles = [certified_quantile(returns, 1.0, q, radii, **options) for q in SHARES[:-1]]
    rounding = 1e-12 * (1 + np.abs(returns).max())
    assert np.all(np.diff(curves, axis=1) <= rounding) and np.all(np.diff(quantiles, axis=1) <= 0)
    assert np.all(np.diff(curves, axis=0) >= -rounding) and np.all(np.diff(quantiles, axis=0) >= 0)
    np.testing.assert_allclose(curves[-1], certified_return(returns, 1.0, radii, **options), atol=rounding)
    for q, curve, quantile in zip(SHARES, curves, quantiles, strict=False):
        assert np.all(curve <= quantile + rounding)  # the mean of what lies below a return
        kept = [float(certified_probability(returns, 1.0, c, r, **options)) for c, r in zip(quantile, radii, strict=True)]
        assert np.all(np.array(kept) >= 1 - q - 1e-15)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("method", ["berk-jones", "dkw"])
def test_they_are_wrong_together_for_at_most_a_share_alpha(alpha, method):
    # An episode sees z ~ N(0, 1) and returns exp(z), which rises, so the worst attack of norm R takes R from z.
    m, repetitions = 100, 2000
    ratios, shares = (0.0, 0.3, 1.0, 2.0), (0.02, 0.1, 0.5, 1.0)
    z = np.sort(np.random.default_rng(1).normal(size=(repetitions, m)), axis=1)
    returns, steps = np.exp(z), np.diff(np.exp(z), axis=1, prepend=0)
    band = lower_band(np.arange(m, 0, -1), m, alpha, method)  # without ties, the same for all samples
    one = return_band(returns[0], alpha=alpha, method=method)
    wrong = {name: np.zeros(repetitions, dtype=bool) for name in ("probability", "quantile", "cvar")}
    for ratio in ratios:
        kept = stats.norm.cdf(stats.norm.ppf(band) - ratio)
        wrong["probability"] |= np.any(kept > stats.norm.sf(z + ratio) + 1e-12, axis=1)
        for q in shares:
            cvar = steps @ np.maximum(0, 1 - (1 - kept) / q)
            wrong["cvar"] |= cvar > np.exp(0.5 - ratio) * stats.norm.cdf(stats.norm.ppf(q) - 1) / q
            assert cvar[0] == pytest.approx(one.cvar(q, ratio), rel=1e-10, abs=1e-12)
            enough = np.flatnonzero(1 - kept <= q)
            if q < 1 and enough.size:
                quantile = returns[:, enough[-1]]
                wrong["quantile"] |= quantile > np.exp(stats.norm.ppf(q) - ratio)
                assert quantile[0] == one.quantile(q, ratio)
    any_wrong = np.any(list(wrong.values()), axis=0)
    share, error = any_wrong.mean(), math.sqrt(alpha * (1 - alpha) / repetitions)
    assert share <= alpha + 3 * error
    assert np.array_equal(any_wrong, wrong["probability"])  # the others are never wrong where the band is right
    assert wrong["quantile"].any()
    if method == "berk-jones":  # where the band is exact
        assert share >= alpha - 4 * error


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_an_upper_bound_on_a_rare_event_is_wrong_for_at_most_a_share_alpha(alpha):
    # It happens where z ~ N(0, 1) is above 2, and the worst attack adds R to z.
    repetitions, m, radii = 2000, 300, np.array([0.0, 0.5, 1.5])
    truth = stats.norm.sf(2 - radii)
    counts = np.random.default_rng(2).binomial(m, truth[0], repetitions)
    options = {"alpha": alpha, "method": "clopper-pearson", "support": [0, 1]}
    curves = {n: certified_cost(np.arange(m) < n, 1.0, radii, **options) for n in set(counts.tolist())}
    error = math.sqrt(alpha * (1 - alpha) / repetitions)
    share = np.mean([np.any(curves[n] < truth - 1e-12) for n in counts.tolist()])
    assert 0 < share <= alpha + 3 * error


def test_radii_keep_their_shape():
    returns = np.arange(30.0)
    for certify, argument in ((certified_probability, 7.0), (certified_quantile, 0.1), (certified_cvar, 0.1)):
        assert certify(returns, 1.0, argument, 0.25).shape == ()
        assert certify(returns, 1.0, argument, [[0.0, 0.25], [0.5, 1.0]]).shape == (2, 2)
        assert certify(returns, 1.0, argument, []).shape == (0,)
    assert certified_cost(returns, 1.0, 0.25, max_cost=30.0).shape == ()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: certified_probability([1.0], 1.0, math.nan, 0.0), "threshold must be finite, got nan"),
        (lambda: certified_quantile([1.0], 1.0, 1.0, 0.0), "q, the share.*strictly between 0 and 1, got 1"),
        (lambda: certified_quantile([1.0], 1.0, math.nan, 0.0), "q, the share"),
        (lambda: certified_cvar([1.0], 1.0, 0.0, 0.0), "q, the share of the worst.*got 0"),
        (lambda: certified_cvar([1.0], 1.0, 1.1, 0.0), "q, the share of the worst"),
        (lambda: certified_cvar([1.0], 0.0, 0.1, 0.0), "sigma"),
        (lambda: certified_probability([1.0], 1.0, 1.0, [-1.0]), "radii must be numbers >= 0"),
        (lambda: certified_quantile([1.0, -1.0], 1.0, 0.1, 0.0), "below min_return"),
        (lambda: certified_cost([0.5, 1.5], 1.0, 0.0), r"costs\[1\] is 1.5, not at most max_cost=1: pass the highest"),
        (lambda: certified_cost([0.5, math.nan], 1.0, 0.0), r"costs\[1\] is nan"),
        (lambda: certified_cost(["a"], 1.0, 0.0), "costs must be numbers"),
        (lambda: certified_cost([], 1.0, 0.0), "non-empty"),
        (lambda: certified_cost([0.5], 1.0, 0.0, max_cost=math.inf), "max_cost, the highest cost.*got inf"),
    ],
)
def test_unusable_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
