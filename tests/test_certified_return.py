import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sb3_camp.certification import certified_radius, certified_return
from sb3_camp.certification.bands import METHODS, berk_jones_level
from sb3_camp.certification.return_band import return_band
from sb3_camp.errors import InputError

DATA = Path(__file__).parent / "data"
RADII = np.linspace(0, 1, 11)


def twin(returns, sigma, radius, alpha, method, min_return, support):
    """The sum of the certificate, written out literally."""
    m = len(returns)
    total, previous = min_return, min_return
    thresholds = sorted(set(support if support is not None else returns))
    n_thresholds = sum(c > min_return for c in thresholds)
    for c in thresholds:
        if c <= min_return:
            continue
        n = sum(r >= c for r in returns)
        if method == "dkw":
            p = n / m - math.sqrt(math.log(2 / alpha) / (2 * m))
        else:
            level = alpha / n_thresholds if method == "clopper-pearson" else berk_jones_level(m, alpha)
            p = stats.beta.ppf(level, n, m - n + 1) if n > 0 else 0
        if p > 0:
            total += (c - previous) * stats.norm.cdf(stats.norm.ppf(p) - radius / sigma)
        previous = c
    return total


def samples():
    """Returns of very different laws, with the support of the discrete ones."""
    rng = np.random.default_rng(3)
    yield "ties", rng.integers(0, 8, 60).astype(float), np.arange(8.0), 0.0
    yield "continuous", rng.gamma(2.0, 30.0, 150), None, 0.0
    yield "negative", rng.choice([-1.0, 1.0], 300, p=[0.1, 0.9]), np.array([-1.0, 1.0]), -1.0
    yield "one", np.array([4.0]), np.array([2.0, 4.0]), 0.5
    yield "all equal", np.full(40, 200.0), np.arange(1.0, 201.0), 0.0
    yield "all at the lowest", np.zeros(30), np.array([0.0]), 0.0
    yield "far from 0", 1e6 + rng.integers(0, 5, 80), 1e6 + np.arange(5), 1e6 - 3.0
    yield "heavy left tail", 100 - rng.pareto(1.2, 200), None, -1e4


CASES = [
    pytest.param(returns, method, min_return, support if method == "clopper-pearson" else None, id=f"{name}, {method}")
    for name, returns, support, min_return in samples()
    for method in METHODS
    if support is not None or method != "clopper-pearson"
]


@pytest.mark.parametrize("returns, method, min_return, support", CASES)
def test_certified_return_is_the_literal_sum(returns, method, min_return, support):
    got = certified_return(returns, 0.3, RADII, alpha=0.02, method=method, min_return=min_return, support=support)
    assert got.dtype == np.float64
    expected = [twin(returns, 0.3, radius, 0.02, method, min_return, support) for radius in RADII]
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("returns, method, min_return, support", CASES)
def test_certified_return_falls_with_the_radius_and_the_confidence_from_below_the_mean_to_the_lowest(
    returns, method, min_return, support
):
    curves = [
        certified_return(
            returns, 0.3, [*RADII, 5, 50, math.inf], alpha=a, method=method, min_return=min_return, support=support
        )
        for a in (0.001, 0.05, 0.4)
    ]
    rounding = 1e-12 * np.abs(returns).max()
    for curve in curves:
        assert np.all(np.diff(curve) <= rounding)
        assert curve[0] <= returns.mean() + rounding
        assert curve[-1] == min_return
    assert np.all(curves[0] <= curves[1] + rounding)
    assert np.all(curves[1] <= curves[2] + rounding)


@pytest.mark.parametrize("returns, method, min_return, support", CASES)
def test_only_distances_between_returns_and_ratios_of_radius_and_sigma_matter(returns, method, min_return, support):
    def certify(scale, shift, unit):
        moved = None if support is None else scale * support + shift
        lowest = scale * min_return + shift
        return certified_return(
            scale * returns + shift, 0.3 * unit, RADII * unit, method=method, min_return=lowest, support=moved
        )

    scale, shift, unit = 0.25, -64.0, 12.75
    expected = scale * certify(1.0, 0.0, 1.0) + shift
    np.testing.assert_allclose(certify(scale, shift, unit), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("returns, method, min_return, support", CASES)
def test_certified_radius_inverts_the_certified_return(returns, method, min_return, support):
    options = {"method": method, "min_return": min_return, "support": support}
    top = float(certified_return(returns, 0.3, 0, **options))
    for share in (1e-9, 0.1, 0.5, 0.9, 1.0):
        target = min_return + share * (top - min_return)
        radius = certified_radius(returns, 0.3, target, **options)
        if target <= min_return:
            assert radius == math.inf
        elif target > top:  # by rounding
            assert math.isnan(radius)
        else:
            assert certified_return(returns, 0.3, radius, **options) >= target
            assert certified_return(returns, 0.3, radius + 1e-6, **options) < target
    assert math.isnan(certified_radius(returns, 0.3, top + 1e-3, **options))
    assert certified_radius(returns, 0.3, min_return, **options) == math.inf


def test_equal_returns_have_the_closed_form():
    m, sigma = 50, 0.4
    p = berk_jones_level(m, 0.05) ** (1 / m)
    expected = -2 + 9 * stats.norm.cdf(stats.norm.ppf(p) - RADII / sigma)
    np.testing.assert_allclose(certified_return(np.full(m, 7), sigma, RADII, min_return=-2), expected, rtol=1e-12)
    radius = certified_radius(np.full(m, 7), sigma, 2.5, min_return=-2)
    assert radius == pytest.approx(sigma * stats.norm.ppf(p), abs=1e-8)  # 2.5 is half-way up: the quantile there is 0


def test_two_returns_have_the_closed_form_of_the_binomial():
    returns = np.repeat([0, 1], [13, 87])
    p = stats.beta.ppf(0.05, 87, 14)
    expected = stats.norm.cdf(stats.norm.ppf(p) - RADII)
    options = {"method": "clopper-pearson", "support": [0, 1]}
    np.testing.assert_allclose(certified_return(returns, 1, RADII, **options), expected, rtol=1e-12)


def test_every_support_point_above_the_lowest_shares_alpha_whether_it_was_seen_or_not():
    returns = np.repeat([0.0, 1.0], [13, 87])
    few = certified_return(returns, 1, 0, method="clopper-pearson", support=[0, 1])
    many = certified_return(returns, 1, 0, method="clopper-pearson", support=[0, 0.5, 1, 1.5, 2, 2])
    assert many < few
    assert many == pytest.approx(stats.beta.ppf(0.05 / 4, 87, 14), rel=1e-12)


def test_rounding_noise_around_support_points_changes_nothing():
    support = np.arange(1, 11) * 0.1
    returns = np.random.default_rng(0).choice(support, 90)
    noisy = returns * (1 + 1e-10 * np.random.default_rng(1).choice([-1, 1], 90))
    clean = certified_return(returns, 1, RADII, method="clopper-pearson", support=support)
    np.testing.assert_array_equal(certified_return(noisy, 1, RADII, method="clopper-pearson", support=support), clean)


def test_returns_count_as_the_highest_declared_threshold_that_they_reach():
    options = {"method": "clopper-pearson", "min_return": -1.0, "support": [0.5, 2, 7]}
    returns = [-1.0, -0.7, 0.49, 0.5, 1.9, 2.0, 6.999, 7.0, 1e9]
    floored = [-1.0, -1.0, -1.0, 0.5, 0.5, 2.0, 2.0, 7.0, 7.0]
    np.testing.assert_array_equal(
        certified_return(returns * 20, 1, RADII, **options), certified_return(floored * 20, 1, RADII, **options)
    )
    none_reached = certified_return([-0.5] * 20, 1, RADII, **options)
    np.testing.assert_array_equal(none_reached, -1)
    np.testing.assert_array_equal(certified_return([5.0] * 20, 1, RADII, method="clopper-pearson", support=[0]), 0)


def test_few_thresholds_certify_more_where_one_of_them_says_nearly_all():
    perfect = np.full(10_000, 200.0)
    whole = {"method": "clopper-pearson", "support": range(1, 201)}
    certified = [
        float(certified_return(perfect, 1.0, 2.0, **options))
        for options in ({}, whole, whole | {"support": [200]}, whole | {"support": [100, 200]})
    ]
    expected = [200 * stats.norm.cdf(stats.norm.ppf((0.05 / tests) ** 1e-4) - 2) for tests in (200, 1, 2)]
    np.testing.assert_allclose(certified[1:], expected, rtol=1e-12)
    assert round(certified[2]) == 185 and certified[0] == pytest.approx(176.498, abs=1e-3)
    assert certified[1] < certified[0] < certified[3] < certified[2]


def test_a_coarse_support_is_wrong_for_at_most_a_share_alpha_whatever_the_returns_are():
    # The episode returns exp(z) for z ~ N(0, 1), and the worst attack takes R from z.
    rng, radii = np.random.default_rng(0), np.array([0.0, 0.5, 1.5])
    repetitions, alpha = 500, 0.2
    for support in ([0.7], [0.3, 1.0, 2.5], [1e-3, 50.0]):
        wrong = 0
        for _ in range(repetitions):
            band = return_band(np.exp(rng.normal(size=60)), alpha=alpha, method="clopper-pearson", support=support)
            truth = [stats.norm.sf(np.log(band.returns) + radius) for radius in radii]
            wrong += any(np.any(band.under_attack(r) > p + 1e-12) for r, p in zip(radii, truth, strict=True))
        assert wrong / repetitions <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / repetitions)


HUGE = 1.7e308


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("low", [-HUGE, 0.0])
def test_returns_as_large_as_numbers_can_be_do_not_overflow(method, low):
    returns = np.repeat([low, HUGE], [5, 95])
    options = {"method": method, "min_return": low, "support": [HUGE] if method == "clopper-pearson" else None}
    with np.errstate(over="raise", invalid="raise"):
        got = certified_return(returns, 1.0, [0.0, 1.0, math.inf], **options)
        small = {"min_return": low / 2**1000, "support": [HUGE / 2**1000] if method == "clopper-pearson" else None}
        expected = certified_return(returns / 2**1000, 1.0, [0.0, 1.0, math.inf], **options | small)
        np.testing.assert_allclose(got / 2**1000, expected, rtol=1e-14)
        assert got[2] == low
        radius = certified_radius(returns, 1.0, HUGE / 100, **options)
        assert radius == pytest.approx(
            certified_radius(returns / 2**1000, 1.0, HUGE / 100 / 2**1000, **options | small), abs=1e-8
        )


def test_the_recorded_linear_policies_have_their_recorded_certificates():
    with (DATA / "linear_policies.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    with np.load(DATA / "linear_policy_returns.npz") as recorded:
        for row in rows:
            returns = recorded[f"{row['task']}_sigma{row['sigma']}"]
            support = range(1, 201) if row["method"] == "clopper-pearson" else None
            got = certified_return(returns, float(row["sigma"]), RADII, method=row["method"], support=support)
            expected = [float(row[f"certified_at_{radius:.1f}"]) for radius in RADII]
            np.testing.assert_allclose(got, expected, rtol=0, atol=0.005 + 1e-9, err_msg=str(row))


def test_berk_jones_certifies_more_than_dkw_and_most_where_the_radius_is_large():
    with np.load(DATA / "linear_policy_returns.npz") as recorded:
        returns = recorded["CartPole1_sigma0.8"]
    ratios = np.array([0.0, 1.0, 2.0, 3.0])
    gain = certified_return(returns, 1.0, ratios) / certified_return(returns, 1.0, ratios, method="dkw")
    assert np.all(gain > 1) and np.all(np.diff(gain) > 0)


@pytest.mark.parametrize("method", ["berk-jones", "dkw"])
def test_certificates_hold_against_the_worst_attack_and_come_close_to_it(method):
    # The episode sees one noisy number z ~ N(0, 1) and returns g(z), g rising: the worst attack shifts z down by the radius.
    rng = np.random.default_rng(5)
    rise, radii = np.linspace(-1.5, 1.5, 7), np.array([0.0, 0.5, 1.0, 2.0])
    attacked = stats.norm.sf(rise[:, None] + radii).sum(axis=0)  # E g(z - R) for g(z) = number of steps of `rise` below z
    repetitions, alpha = 400, 0.1
    curves = np.array(
        [
            certified_return((rng.normal(size=(100, 1)) >= rise).sum(axis=1), 1.0, radii, alpha=alpha, method=method)
            for _ in range(repetitions)
        ]
    )
    wrong = np.mean(np.any(curves > attacked, axis=1))
    assert wrong <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / repetitions)
    large = certified_return((rng.normal(size=(20_000, 1)) >= rise).sum(axis=1), 1.0, radii, alpha=alpha, method=method)
    assert np.all(large <= attacked) and np.all(large[:3] >= 0.93 * attacked[:3])


def test_radii_keep_their_shape():
    returns = np.arange(30)
    scalar = certified_return(returns, 1.0, 0.25)
    assert isinstance(scalar, np.ndarray) and scalar.shape == ()
    grid = certified_return(returns, 1.0, [[0.0, 0.25], [0.5, 1.0]])
    assert grid.shape == (2, 2) and grid[0, 1] == scalar
    assert certified_return(returns, 1.0, []).shape == (0,)


def test_the_order_of_the_returns_does_not_matter_and_they_are_left_as_they_are():
    returns = np.random.default_rng(2).integers(0, 30, 500)
    shuffled = np.random.default_rng(3).permutation(returns)
    before = shuffled.copy()
    np.testing.assert_array_equal(certified_return(returns, 1.0, RADII), certified_return(shuffled.tolist(), 1.0, RADII))
    certified_return(shuffled, 1.0, RADII)
    np.testing.assert_array_equal(shuffled, before)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"returns": []}, "returns must be a non-empty one-dimensional"),
        ({"returns": [[1.0, 2.0], [3.0, 4.0]]}, r"one-dimensional array, got shape \(2, 2\)"),
        ({"returns": ["a"]}, "returns must be numbers"),
        ({"returns": [1.0, math.nan]}, r"returns\[1\] is nan"),
        ({"returns": [1.0, 2.0, -math.inf]}, r"returns\[2\] is -inf"),
        ({"returns": [1.0, -1.0]}, "holds -1.0, below min_return=0.0: pass min_return, the lowest return an episode can have"),
        ({"min_return": -math.inf}, "min_return must be finite"),
        ({"sigma": 0.0}, "sigma.*finite and positive, got 0.0"),
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": math.inf}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"method": "berk_jones"}, "unknown method 'berk_jones'"),
        ({"method": "clopper-pearson"}, "needs support"),
        ({"support": [1.0, 2.0]}, "support is for pointwise bands like clopper-pearson, not for berk-jones"),
        ({"method": "clopper-pearson", "support": [-1, 1, 2, 3]}, "support holds -1.0, below min_return"),
        ({"method": "clopper-pearson", "support": [1, math.nan]}, r"support\[1\] is nan"),
        ({"method": "clopper-pearson", "support": []}, "support must be a non-empty"),
    ],
)
def test_unusable_input_is_named(changes, message):
    arguments = {"returns": [1.0, 2.0, 3.0], "sigma": 1.0} | changes
    with pytest.raises(InputError, match=message):
        certified_return(radii=RADII, **arguments)
    with pytest.raises(InputError, match=message):
        certified_radius(target=1.0, **arguments)


@pytest.mark.parametrize("radii", [[0.0, -0.1], [math.nan], -1.0])
def test_radii_must_be_numbers_from_0_up(radii):
    with pytest.raises(InputError, match="radii must be numbers >= 0, got"):
        certified_return([1.0, 2.0], 1.0, radii)


def test_a_target_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="target"):
        certified_radius([1.0, 2.0], 1.0, math.nan)
