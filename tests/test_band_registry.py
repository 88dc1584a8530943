"""Bands that are added to those of the package: whether they hold is computed, not believed."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats
from support.attacked_results import POLICY, attacked
from support.band_oracles import failure_by_last_crossing
from support.report_pages import least_certificate

from sb3_camp.attack_runs.consistency import compare
from sb3_camp.certification import Band, band_registry, certified_return, plan_episodes, register_band
from sb3_camp.certification.band_checks import checked_bounds
from sb3_camp.certification.bands import METHODS, largest_ratio, lower_band
from sb3_camp.errors import InputError


@pytest.fixture(autouse=True)
def own_registry():
    before = dict(band_registry.BANDS)
    yield
    band_registry.BANDS.clear()
    band_registry.BANDS.update(before)


def massart(counts, m, alpha):
    """The one-sided inequality of Massart (1990), for alpha up to 1/2."""
    return np.maximum(0.0, counts / m - math.sqrt(math.log(1 / alpha) / (2 * m)))


def shifted(counts, m, alpha, by):
    return np.clip(counts / m - by, 0.0, 1 - 1e-9)


def clopper_pearson(counts, m, alpha):
    return np.where(counts > 0, stats.beta.ppf(alpha, np.maximum(counts, 1), m - counts + 1), 0.0)


def test_a_registered_band_certifies_as_its_formula_says():
    register_band("massart", Band(massart))
    counts = np.arange(501)
    assert np.array_equal(lower_band(counts, 500, 0.05, "massart"), massart(counts, 500, 0.05))
    returns = np.repeat([3.0, 5.0], [200, 300])
    p_high, p_low = massart(300, 500, 0.05), massart(500, 500, 0.05)
    bound = certified_return(returns, 1.0, [0.0, 1.0], method="massart")
    under = [stats.norm.cdf(stats.norm.ppf([p_low, p_high]) - ratio) for ratio in (0.0, 1.0)]
    assert bound == pytest.approx([3 * low + 2 * high for low, high in under])
    assert largest_ratio(500, 0.05, "massart") > largest_ratio(500, 0.05, "dkw")
    assert plan_episodes(returns, 1.0, 2.0, 0.5, method="massart").n_episodes > 1


@pytest.mark.parametrize("m", [1, 2, 7, 100, 3000])
@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("method", METHODS)
def test_the_bands_of_the_package_pass_the_checks(method, m, alpha):
    n_thresholds = 5 if band_registry.BANDS[method].pointwise else None
    bounds = checked_bounds(method, band_registry.BANDS[method], m, alpha, n_thresholds)
    assert np.array_equal(bounds, lower_band(np.arange(m + 1), m, alpha, method, n_thresholds))


@pytest.mark.parametrize("m", [5, 60, 700])
def test_the_computed_probability_is_that_of_kolmogorov(m):
    """The one-sided distance of an empirical distribution has a known distribution: just above it a band is refused."""
    for alpha in (0.01, 0.2):
        distance = stats.ksone.isf(alpha, m)
        register_band(f"enough {m} {alpha}", Band(partial(shifted, by=distance * (1 + 1e-6))))
        register_band(f"too little {m} {alpha}", Band(partial(shifted, by=distance * (1 - 1e-4))))
        assert lower_band(m, m, alpha, f"enough {m} {alpha}") == pytest.approx(1 - distance, rel=1e-4)
        with pytest.raises(InputError, match="wrong with probability"):
            lower_band(m, m, alpha, f"too little {m} {alpha}")


def test_bounds_of_single_counts_hold_alone_but_not_together():
    register_band("alone", Band(clopper_pearson, pointwise=True))
    register_band("together", Band(clopper_pearson))
    own = lower_band(np.arange(101), 100, 0.05, "clopper-pearson", 4)
    assert lower_band(np.arange(101), 100, 0.05, "alone", 4) == pytest.approx(own)
    failure = failure_by_last_crossing(clopper_pearson(np.arange(1, 101), 100, 0.05))
    assert failure > 0.3
    with pytest.raises(InputError, match=f"wrong with probability {failure:.6g}"):
        lower_band([50], 100, 0.05, "together")
    register_band("twice the risk", Band(lambda counts, m, alpha: clopper_pearson(counts, m, 2 * alpha), pointwise=True))
    with pytest.raises(InputError, match=r"wrong with probability 0\.02, with 100 episodes and alpha 0\.01"):
        certified_return(np.ones(100), 1.0, [0.0], method="twice the risk", support=[1, 2, 3, 4, 5])


WRONG = {
    "falls": (
        lambda counts, m, alpha: massart(counts, m, alpha)[::-1],
        "not a probability|below that of a smaller|above the share",
    ),
    "above": (lambda counts, m, alpha: np.minimum(counts / m * 1.01, 0.99), "above the share"),
    "certain": (lambda counts, m, alpha: counts / m, "not a probability below 1"),
    "negative": (lambda counts, m, alpha: counts / m - 0.6, "not a probability"),
    "nan": (lambda counts, m, alpha: np.where(counts == m, np.nan, 0.0), "not a probability"),
    "one number": (lambda counts, m, alpha: 0.0, "bounds of shape"),
    "text": (lambda counts, m, alpha: "high", "could not convert"),
    "dips": (lambda counts, m, alpha: np.where(counts == 7, 0.0, massart(counts, m, alpha)), "below that of a smaller count"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_band_is_refused_with_its_name_and_the_reason(name):
    function, reason = WRONG[name]
    register_band(name, Band(function))
    with pytest.raises(InputError, match=f"the band '{name}' cannot be used: .*({reason})"):
        certified_return(np.ones(10), 1.0, [0.0], method=name, alpha=0.4)


def test_a_name_is_given_once():
    register_band("massart", Band(massart))
    register_band("massart", Band(massart))  # as when a module is imported twice
    for name in ("massart", "dkw"):
        with pytest.raises(InputError, match="there is a band"):
            register_band(name, Band(clopper_pearson))


def test_where_it_cannot_be_computed_whether_a_band_holds_it_is_refused():
    register_band("massart", Band(massart))
    with pytest.raises(InputError, match="100,000 episodes"):
        lower_band(1, 100_001, 0.05, "massart")


@pytest.mark.parametrize("name", ["massart", "alone"])
def test_attacks_are_compared_with_certificates_of_registered_bands(name):
    evaluated = np.repeat([50.0, 100.0], [300, 700])
    register_band("massart", Band(massart))
    register_band("alone", Band(clopper_pearson, pointwise=True))
    support = [50.0, 100.0] if name == "alone" else None
    bounds = certified_return(evaluated, 0.4, [0.0, 0.1], method=name, support=support)
    known = {key: POLICY[key] for key in ("env_id", "env_kwargs", "env_wrappers", "algo", "model_sha256", "deterministic")}
    certificate = least_certificate(
        **known,
        alpha=0.05,
        method=name,
        support=support,
        n_episodes=1000,
        mean_return=85.0,
        radii=[0.0, 0.1],
        certified_return=bounds.tolist(),
    )
    contradicted = compare(attacked((0.1,), [[0.0] * 200]), certificate, evaluated)
    in_line = compare(attacked((0.1,), [evaluated.tolist()]), certificate, evaluated)
    assert len(contradicted.violations) == 1 and not in_line.violations
