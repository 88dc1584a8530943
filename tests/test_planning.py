"""How many episodes a certificate needs, and looks that were planned beforehand."""

import math

import numpy as np
import pytest
from scipy import stats

from sb3_camp.certification import certified_return, plan_episodes, planned_looks
from sb3_camp.certification.bands import lower_band
from sb3_camp.errors import InputError


def of_the_same_distribution(returns, m):
    """m returns, of which no larger share is at least c than of the pilot, for any c; the rest is 0."""
    values, tally = np.unique(returns, return_counts=True)
    at_least = np.cumsum(tally[::-1])[::-1] * m // len(returns)
    played = np.repeat(values, -np.diff(at_least, append=0))
    return np.append(played, np.zeros(m - len(played)))


@pytest.mark.parametrize("method, support", [("berk-jones", None), ("dkw", None), ("clopper-pearson", [50, 120, 200])])
@pytest.mark.parametrize("target, radius", [(100.0, 0.4), (130.0, 0.2), (60.0, 0.8)])
def test_so_many_episodes_certify_the_target_and_clearly_fewer_do_not(method, support, target, radius):
    pilot = np.minimum(200, np.random.default_rng(1).gamma(9, 25, 250).round())
    options = {"method": method, "support": support, "alpha": 0.02}
    plan = plan_episodes(pilot, 0.4, target, radius, **options)
    assert plan.n_episodes is not None

    def certified(m):
        return float(certified_return(of_the_same_distribution(pilot, m), 0.4, radius, **options))

    assert certified(int(1.01 * plan.n_episodes) + 1) >= target
    assert certified(int(0.97 * plan.n_episodes) - 2) < target
    assert plan.certified == pytest.approx(certified_return(pilot, 0.4, radius, **options), rel=1e-12)
    assert certified(100_000) < plan.ceiling


def test_a_perfect_pilot_has_the_closed_form():
    # Of m perfect episodes, the binomial bound for "200 or not" is the m-th root of alpha.
    plan = plan_episodes([200.0] * 50, 1.0, 150.0, 2.0, method="clopper-pearson", support=[200])
    needed = math.log(0.05) / math.log(stats.norm.cdf(stats.norm.ppf(0.75) + 2))
    assert needed <= plan.n_episodes <= 1.02 * needed + 2
    assert plan.ceiling == 200
    assert plan.certified == pytest.approx(200 * stats.norm.cdf(stats.norm.ppf(0.05 ** (1 / 50)) - 2), rel=1e-12)


@pytest.mark.parametrize("target, radius", [(130.0, 0.2), (60.0, 0.8)])
def test_a_third_more_episodes_of_the_distribution_of_the_pilot_certify_the_target_nearly_always(target, radius):
    rng = np.random.default_rng(2)
    pilot = np.minimum(200, rng.gamma(9, 25, 2000).round())
    n_episodes = plan_episodes(pilot, 0.4, target, radius).n_episodes
    played = [rng.choice(pilot, int(share * n_episodes)) for share in (0.6, 4 / 3) for _ in range(60)]
    reached = np.array([certified_return(returns, 0.4, radius) >= target for returns in played]).reshape(2, 60).mean(axis=1)
    assert reached[0] <= 0.4 and reached[1] >= 0.9


def test_what_no_number_of_episodes_certifies_has_no_plan():
    pilot = np.repeat([0.0, 100.0], [10, 90])
    ceiling = 100 * stats.norm.cdf(stats.norm.ppf(0.9) - 1)
    beyond = plan_episodes(pilot, 1.0, ceiling + 1e-6, 1.0)
    assert beyond.n_episodes is None and beyond.ceiling == pytest.approx(ceiling, rel=1e-12)
    assert plan_episodes(pilot, 1.0, ceiling - 1, 1.0, most=1000).n_episodes is None
    assert plan_episodes(pilot, 1.0, ceiling - 5, 1.0).n_episodes < 10_000
    assert plan_episodes(pilot, 1.0, 1e-3, 0.0).n_episodes <= 5


@pytest.mark.parametrize(
    "first, most, n_looks", [(1000, 200_000, 6), (10, 10, 1), (1, 5, 5), (3, 9, 7), (2, 1000, 40), (5, 9, 2)]
)
def test_looks_rise_by_a_constant_factor_from_the_first_to_the_last_and_share_alpha(first, most, n_looks):
    looks = planned_looks(first, most, n_looks, alpha=0.06)
    numbers = [look.n_episodes for look in looks]
    assert len(numbers) == n_looks and numbers[-1] == most
    assert numbers[0] == (first if n_looks > 1 else most)
    assert np.all(np.diff(numbers) >= 1)
    assert sum(look.alpha for look in looks) == pytest.approx(0.06, rel=1e-12)
    assert len({look.alpha for look in looks}) == 1
    if first >= 1000:
        factors = np.array(numbers[1:]) / numbers[:-1]
        np.testing.assert_allclose(factors, (most / first) ** (1 / (n_looks - 1)), rtol=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_all_planned_looks_hold_together_for_all_but_a_share_alpha(alpha):
    # Continuous returns, where one band alone is wrong with probability alpha exactly.
    looks, repetitions = planned_looks(20, 640, 6, alpha), 2000
    reached = np.random.default_rng(5).random((repetitions, looks[-1].n_episodes))  # P(return >= that of the episode)

    def share_of_wrong(levels):
        wrong = np.zeros(repetitions, dtype=bool)
        for look, level in zip(looks, levels, strict=True):
            m = look.n_episodes
            band = lower_band(np.arange(1, m + 1), m, level, "berk-jones")
            wrong |= np.any(band > np.sort(reached[:, :m], axis=1), axis=1)
        return wrong.mean()

    error = math.sqrt(alpha * (1 - alpha) / repetitions)
    assert 0 < share_of_wrong([look.alpha for look in looks]) <= alpha + 3 * error
    # Looking six times without a plan is wrong too often
    assert share_of_wrong([alpha] * len(looks)) > alpha + 4 * error


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: plan_episodes([1.0], 1.0, 0.0, 0.5), "target must be finite and above min_return=0"),
        (lambda: plan_episodes([1.0], 1.0, math.nan, 0.5), "target must be finite"),
        (lambda: plan_episodes([1.0], 1.0, 0.5, -0.5), "radii must be numbers >= 0"),
        (lambda: plan_episodes([1.0], 1.0, 0.5, math.inf), "nothing can be certified at the radius inf"),
        (lambda: plan_episodes([1.0], 1.0, 0.5, 0.5, most=0), "most, the largest number"),
        (lambda: plan_episodes([1.0], 1.0, 0.5, 0.5, alpha=2.0), "alpha"),
        (lambda: planned_looks(10, 100, 0), "0 looks from 10 to 100"),
        (lambda: planned_looks(10, 12, 4), "4 looks from 10 to 12"),
        (lambda: planned_looks(100, 10, 2), "not possible"),
        (lambda: planned_looks(0, 10, 2), "not possible"),
        (lambda: planned_looks(1, 10, 2, 1.0), "alpha"),
    ],
)
def test_unusable_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
