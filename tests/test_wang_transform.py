"""The Wang transform of a return, and the weights of its episodes."""

import numpy as np
import pytest
from scipy.stats import norm

from sb3_camp.certification.bounds import certified_return
from sb3_camp.errors import InputError
from sb3_camp.risk import episode_weights, wang_distortion


def test_the_distortion_is_the_shift_of_a_normal_quantile():
    for shift in (0.0, 0.5, 2.0, 4.0):
        assert wang_distortion(0.5, shift) == pytest.approx(norm.cdf(-shift))
        assert wang_distortion(norm.cdf(shift), shift) == pytest.approx(0.5)
        assert wang_distortion([0.0, 1.0], shift).tolist() == [0.0, 1.0]
    twice = wang_distortion(wang_distortion(0.97, 0.6), 1.1)
    assert twice == pytest.approx(wang_distortion(0.97, 1.7))  # one attack after another


@pytest.mark.parametrize("parameter", [0.3, 1.0, 2.0, 4.0])
def test_the_mean_of_the_weighted_returns_is_the_wang_transform(parameter):
    rng = np.random.default_rng(1)
    for returns in (rng.integers(1, 6, 40), rng.normal(50, 9, 300).clip(0), np.array([200.0] * 99 + [30.0])):
        weights = episode_weights(returns, parameter)
        assert weights.mean() == pytest.approx(1)
        thresholds = returns.max() * (np.arange(20_000) + 0.5) / 20_000
        survival = 1 - np.searchsorted(np.sort(returns), thresholds) / len(returns)
        integral = returns.max() * norm.cdf(norm.ppf(survival) - parameter).mean()
        assert np.mean(weights * returns) == pytest.approx(integral, rel=1e-3)


def test_many_episodes_certify_about_the_mean_of_the_weighted_returns():
    returns = np.random.default_rng(0).integers(0, 11, 200_000)
    sigma, radius = 0.2, 0.3
    (certified,) = certified_return(returns, sigma, [radius])
    transform = np.mean(episode_weights(returns, radius / sigma) * returns)
    assert certified < transform < certified + 0.1


def test_of_normal_returns_the_transform_is_the_mean_less_parameter_times_deviation():
    returns = norm.ppf((np.arange(100_000) + 0.5) / 100_000, 70, 8)
    for parameter in (0.5, 1.0, 2.0):
        assert np.mean(episode_weights(returns, parameter) * returns) == pytest.approx(70 - 8 * parameter, abs=0.1)


def test_equal_returns_share_what_their_ranks_count():
    returns = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    apart = episode_weights(returns + 1e-6 * np.arange(5), 1.0)
    together = episode_weights(returns, 1.0)
    assert np.allclose(together[[0, 2, 4]], apart[[0, 2, 4]].mean())
    assert np.allclose(together[[1, 3]], apart[[1, 3]])
    assert together[1] > together[3] > together[0] > 0
    assert np.allclose(episode_weights(np.full(7, 200.0), 3.0), 1)


def test_ranks_may_be_those_in_a_larger_sample():
    sample = np.arange(100.0)
    assert np.array_equal(episode_weights([4.0, 90.0], 2.0, sample), episode_weights(sample, 2.0)[[4, 90]])
    with pytest.raises(InputError, match="sample"):
        episode_weights([4.5], 2.0, sample)


def test_with_parameter_0_every_weight_is_exactly_1():
    assert np.all(episode_weights(np.random.default_rng(0).random(9), 0.0) == 1)


@pytest.mark.parametrize("parameter", [-0.1, np.nan, np.inf])
def test_a_parameter_that_cannot_be_used_is_refused(parameter):
    with pytest.raises(InputError, match="parameter"):
        wang_distortion(0.5, parameter)
    with pytest.raises(InputError, match="parameter"):
        episode_weights([1.0], parameter)
