"""The probability that order statistics stay above a boundary: closed forms, and two recursions of other kinds."""

import math

import numpy as np
import pytest
from support.band_oracles import beta_quantiles, failure_by_last_crossing, holding_step_by_step

from sb3_camp.certification import crossing
from sb3_camp.certification.crossing import holding_probability, knots


def straight(m: int, counts: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return np.interp(np.arange(1, m + 1), counts, bounds)


@pytest.mark.parametrize("level", [1e-12, 1e-6, 1e-3, 0.1, 0.6, 0.99])
@pytest.mark.parametrize("m", [2, 3, 7, 40, 300, 1500])
def test_of_beta_quantiles_at_every_count(m, level):
    bounds = beta_quantiles(m, level)
    holds, expected = holding_probability(m, np.arange(1, m + 1), bounds), 1 - failure_by_last_crossing(bounds)
    assert holds == pytest.approx(expected, abs=1e-10)
    assert holds <= expected + 1e-13  # rounding of the reference


@pytest.mark.parametrize("level", [1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("m", [300, 2100])
def test_of_a_boundary_that_is_straight_between_knots(m, level):
    counts = knots(m)
    bounds = beta_quantiles(m, level, counts)
    holds, expected = holding_probability(m, counts, bounds), 1 - failure_by_last_crossing(straight(m, counts, bounds))
    assert holds == pytest.approx(expected, abs=1e-10)
    assert holds <= expected + 1e-13


@pytest.mark.parametrize("seed", range(5))
def test_of_boundaries_that_nobody_picked(seed):
    # Some are near the diagonal and some far off it, with pieces much steeper or flatter than it, of any length.
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2048, 2100))
    counts = np.unique([1, m, *rng.integers(2, m, rng.integers(1, 12))])
    bounds = np.sort(beta_quantiles(m, 0.5, counts) * rng.uniform(0.6, 0.999, len(counts)))
    holds, expected = holding_probability(m, counts, bounds), 1 - failure_by_last_crossing(straight(m, counts, bounds))
    assert holds == pytest.approx(expected, abs=1e-10)
    assert holds <= expected + 1e-13


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("m", [2, 50, 1000, 5000])
def test_of_a_straight_line_is_daniels_theorem(m, share):
    # The empirical distribution function exceeds t / share somewhere with the probability `share`, whatever m is.
    counts = np.array([1, m])
    assert holding_probability(m, counts, share * counts / m) == pytest.approx(1 - share, abs=1e-10)


def test_blocks_agree_with_single_steps_where_there_are_many(monkeypatch):
    m = 20_000
    counts = knots(m)
    bounds = beta_quantiles(m, 7e-4, counts)
    in_blocks = holding_probability(m, counts, bounds)
    monkeypatch.setattr(crossing, "_BLOCK_SIZES", ())
    one_by_one = holding_probability(m, counts, bounds)
    assert in_blocks == pytest.approx(one_by_one, abs=5e-10)  # their allowances for rounding differ
    monkeypatch.setattr(crossing, "_ROUNDING_OF_STEP", 0)
    assert in_blocks <= holding_probability(m, counts, bounds)


def test_another_recursion_agrees():
    m = 2200
    counts = knots(m)
    for level in (1e-5, 1e-3, 0.2):
        bounds = beta_quantiles(m, level, counts)
        expected = holding_step_by_step(m, straight(m, counts, bounds))
        assert holding_probability(m, counts, bounds) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("m", [1, 2, 3, 10, 11, 640, 641, 10_001, 123_457, 1_000_000])
def test_knots_hold_both_ends_and_are_few(m):
    counts = knots(m)
    assert counts[0] == 1 and counts[-1] == m
    assert np.all(np.diff(counts) > 0)
    assert len(counts) <= 20 + 45 * math.log(m)
    assert np.all(np.diff(counts)[1:-1] <= 1 + 0.11 * np.minimum(counts[1:-2], m + 1 - counts[2:-1]) + 1)
