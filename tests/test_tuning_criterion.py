"""The number out of a certified curve that tuning goes by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from sb3_camp.certification import certified_radius, certified_return
from sb3_camp.errors import InputError
from sb3_camp.tuning import CertifiedCriterion


def test_area_of_a_constant_return_is_the_integral_of_the_paper_bound():
    """All m episodes return c: the curve is c * Phi(q - R / sigma), with q from the band of the m-th of m episodes."""
    c, sigma, radius = 30.0, 0.4, 0.7
    at_zero = float(certified_return(np.full(100, c), sigma, 0.0))
    q = norm.ppf(at_zero / c)
    integral, _ = quad(lambda r: c * norm.cdf(q - r / sigma), 0, radius)
    assert CertifiedCriterion("area", radius)(np.full(100, c), sigma) == pytest.approx(integral / radius, rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.floats(0.05, 2), st.floats(0, 3))
def test_area_lies_between_the_ends_of_the_curve_and_value_is_its_end(returns, sigma, radius):
    value, area = (CertifiedCriterion(objective, radius)(returns, sigma) for objective in ("value", "area"))
    assert value == certified_return(returns, sigma, radius)
    assert value - 1e-9 <= area <= certified_return(returns, sigma, 0.0) + 1e-9


def test_all_settings_of_the_certificate_reach_it():
    returns, sigma = [-1.0, 1.0, 1.0, 0.0] * 20, 0.5
    bound = {"alpha": 0.2, "method": "clopper-pearson", "min_return": -1.0, "support": [-1.0, 0.0, 1.0]}
    criterion = CertifiedCriterion("value", 0.3, **bound)
    assert criterion(returns, sigma) == certified_return(returns, sigma, 0.3, **bound)
    assert criterion.radii(returns, sigma, [0.1, 0.9])[0] == certified_radius(returns, sigma, 0.1, **bound)
    assert np.isnan(criterion.radii(returns, sigma, [0.1, 0.9])[1])


@pytest.mark.parametrize("wrong", [("mean", 0.1), ("value", -0.1), ("area", float("inf")), ("area", float("nan"))])
def test_unknown_objectives_and_impossible_radii_are_refused(wrong):
    with pytest.raises(InputError, match="objective"):
        CertifiedCriterion(*wrong)
