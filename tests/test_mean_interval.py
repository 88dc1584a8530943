"""The confidence intervals of mean returns under attack."""

import numpy as np
import pytest
from scipy import stats

from sb3_camp.attack_runs.mean_interval import mean_interval, mean_return


def test_interval_agrees_with_student_where_that_is_right():
    returns = np.random.default_rng(0).normal(50, 10, 400)
    student = stats.t.interval(0.95, 399, returns.mean(), stats.sem(returns))
    np.testing.assert_allclose(mean_interval(returns), student, atol=0.05)


def test_interval_is_skewed_as_the_returns_and_stays_within_them():
    low, high = mean_interval(np.array([200.0] * 98 + [10.0, 20.0]))
    assert low < 196.3 - (high - 196.3) and high <= 200
    returns = np.random.default_rng(0).exponential(size=(150, 40))
    covered = np.mean([low <= 1 <= high for low, high in map(mean_interval, returns)])
    assert covered > 0.88


def test_interval_of_two_different_returns_is_exact():
    exact = stats.binomtest(3, 40).proportion_ci(method="exact")
    returns = np.full(40, -2.0)
    returns[5:8] = 8.0
    np.testing.assert_allclose(mean_interval(returns), [10 * exact.low - 2, 10 * exact.high - 2])
    rng = np.random.default_rng(0)
    samples = [sample for sample in (rng.random((2000, 30)) < 0.05).astype(float) if sample.any()]
    assert np.mean([low <= 0.05 <= high for low, high in map(mean_interval, samples)]) >= 0.95


def test_interval_of_equal_returns_does_not_claim_that_they_always_are():
    assert mean_interval(np.full(50, 0.1)) is None
    assert mean_interval(np.array([3.0])) is None
    low, high = mean_interval(np.array([1.0, 2.0]))
    assert 1 <= low < 1.1 and 1.9 < high <= 2
    returns = np.arange(20.0)
    assert mean_interval(returns) == mean_interval(returns)


@pytest.mark.parametrize("most", [1e-310, 1e-200, 1e160, 1e307])
def test_interval_does_not_depend_on_the_unit_of_the_returns(most):
    returns = np.random.default_rng(0).integers(0, 10, 50) / 9
    low, high = mean_interval(returns)
    assert mean_interval(most * returns) == pytest.approx((most * low, most * high), rel=1e-6, abs=0)
    assert mean_interval(-most * returns) == pytest.approx((-most * high, -most * low), rel=0.05, abs=0)


@pytest.mark.parametrize(("usual", "other"), [(999.999999999, 1000.0), (500.000000001, 500.0), (-1.0, 1.0)])
@pytest.mark.parametrize("n", [2, 40, 1000])
def test_interval_of_returns_that_are_nearly_all_the_same_has_its_two_ends_among_them(usual, other, n):
    returns = np.full(n, usual)
    returns[0] = other
    low, high = mean_interval(returns)
    assert returns.min() <= low <= high <= returns.max()
    assert low <= returns.mean() + 1e-12 and high >= returns.mean() - 1e-12


def test_mean_return_is_not_moved_by_rounding():
    assert mean_return(np.full(50, 0.1)) == 0.1
    assert mean_return(np.array([1e307] * 40)) == 1e307
    assert mean_return(np.array([0.0])) == 0
    assert mean_return(np.array([1.0, 2.0, 6.0])) == 3
    assert mean_return(np.array([-1e16, 1.0, 1e16])) == pytest.approx(1 / 3)
