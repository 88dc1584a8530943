"""The three radii of the paper: their formulas, their conditions, how they relate, and how often the sampled one is wrong."""

import math

import numpy as np
import pytest
import torch as th
from scipy import stats
from stable_baselines3 import DQN

from sb3_camp.certification import certified_radius, certified_return, local_radius, soft_radius, substitute_radius
from sb3_camp.certification.bands import METHODS, berk_jones_level
from sb3_camp.errors import InputError

SAMPLES = {
    "ties": (np.random.default_rng(3).integers(4, 9, 60).astype(float), 0.0, 10.0, np.arange(11.0)),
    "negative": (np.random.default_rng(4).choice([-0.5, 1.0], 300, p=[0.1, 0.9]), -1.0, 1.0, np.array([-1.0, -0.5, 1.0])),
    "equal": (np.full(40, 200.0), 0.0, 200.0, np.arange(201.0)),
    "continuous": (20 + np.random.default_rng(5).beta(6, 1, 150) * 80, 0.0, 100.0, None),
}
CASES = [
    pytest.param(returns, low, high, method, support if method == "clopper-pearson" else None, id=f"{name}, {method}")
    for name, (returns, low, high, support) in SAMPLES.items()
    for method in METHODS
    if support is not None or method != "clopper-pearson"
]


def test_substitute_radius_of_a_sample_is_the_papers_formula():
    m, sigma, target = 50, 0.4, 30.0
    returns = np.linspace(60, 90, m)
    expected = sigma * (stats.norm.ppf(berk_jones_level(m, 0.05) ** (1 / m)) - stats.norm.ppf(30 / 60))
    assert substitute_radius(returns, sigma, target) == pytest.approx(expected, rel=1e-12)
    dkw = sigma * (stats.norm.ppf(1 - math.sqrt(math.log(2 / 0.1) / (2 * m))) - stats.norm.ppf(30 / 60))
    assert substitute_radius(returns, sigma, target, method="dkw", alpha=0.1) == pytest.approx(dkw, rel=1e-12)
    shifted = substitute_radius(returns - 100, sigma, target - 100, min_return=-100)
    assert shifted == pytest.approx(expected, rel=1e-12)


def test_substitute_radius_counts_the_thresholds_of_the_support():
    returns = np.repeat([2.0, 3.0], 30)
    expected = stats.norm.ppf((0.05 / 3) ** (1 / 60)) - stats.norm.ppf(0.5)
    radius = substitute_radius(returns, 1.0, 1.0, method="clopper-pearson", support=[0, 1, 2, 3, 3])
    assert radius == pytest.approx(expected, rel=1e-12)


def test_substitute_radius_of_a_coarse_support_keeps_the_lowest_threshold_that_was_reached():
    returns = np.repeat([1.0, 2.7, 3.0], [2, 8, 90])
    options = {"method": "clopper-pearson", "support": [2, 9]}
    expected = stats.norm.ppf(stats.beta.ppf(0.05 / 2, 98, 3)) - stats.norm.ppf(1.2 / 2)
    assert substitute_radius(returns, 1.0, 1.2, **options) == pytest.approx(expected, rel=1e-12)
    assert substitute_radius(returns, 1.0, 1.2, **options) <= certified_radius(returns, 1.0, 1.2, **options) + 1e-8


def test_ranges_as_large_as_numbers_can_be_do_not_overflow():
    scale, returns = 2.0**1020, np.repeat([-10.0, 8.0, 15.0], [1, 20, 79])
    with np.errstate(over="raise", invalid="raise"):
        soft = soft_radius(returns * scale, 1.0, -2 * scale, -15 * scale, 15 * scale)
        substitute = substitute_radius(returns * scale, 1.0, -13 * scale, min_return=-15 * scale)
    assert soft == pytest.approx(soft_radius(returns, 1.0, -2.0, -15.0, 15.0), abs=1e-9)
    assert substitute == pytest.approx(substitute_radius(returns, 1.0, -13.0, min_return=-15.0), abs=1e-9)
    assert soft > 0 and substitute > 0


def test_soft_radius_of_a_sample_is_the_papers_formula_at_the_lower_bound_of_the_mean():
    returns = np.random.default_rng(0).uniform(2, 9, 400)
    mean = float(certified_return(returns, 0.3, 0.0, min_return=-1.0))
    assert mean < returns.mean()
    expected = 0.3 * (stats.norm.ppf((mean + 1) / 11) - stats.norm.ppf((3 + 1) / 11))
    assert soft_radius(returns, 0.3, 3.0, -1.0, 10.0) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("returns, low, high, method, support", CASES)
def test_neither_closed_form_exceeds_the_certified_radius_of_the_same_episodes(returns, low, high, method, support):
    options = {"method": method, "support": support}
    rounding = 2e-9
    found = 0
    for target in np.linspace(low, high, 41):
        certified = certified_radius(returns, 1.0, target, min_return=low, **options)
        for radius in (
            substitute_radius(returns, 1.0, target, min_return=low, **options),
            soft_radius(returns, 1.0, target, low, high, **options),
        ):
            assert math.isnan(radius) or radius <= certified + rounding
            found += radius < certified
    assert found or method == "dkw" or len(set(returns)) == 1


def test_the_radii_agree_where_the_returns_leave_them_no_choice():
    full = np.full(100, 10.0)  # one term is all of the sum
    assert substitute_radius(full, 0.5, 4.0) == pytest.approx(certified_radius(full, 0.5, 4.0), abs=1e-8)
    either = np.repeat([0.0, 1.0], [10, 90])  # only the two ends of [A, B]
    assert soft_radius(either, 0.5, 0.3, 0.0, 1.0) == pytest.approx(certified_radius(either, 0.5, 0.3), abs=1e-8)


@pytest.mark.parametrize("returns, low, high, method, support", CASES)
def test_the_certified_return_at_a_closed_form_radius_keeps_the_target(returns, low, high, method, support):
    options = {"method": method, "support": support, "min_return": low}
    for target in np.linspace(low, high, 21)[1:]:
        for radius in (
            substitute_radius(returns, 1.0, target, **options),
            soft_radius(returns, 1.0, target, low, high, method=method, support=support),
        ):
            if not math.isnan(radius):
                assert certified_return(returns, 1.0, max(0.0, radius - 1e-8), **options) >= target - 1e-9


def test_targets_at_the_edges():
    returns = np.linspace(2, 4, 100)
    kept = berk_jones_level(100, 0.05) ** (1 / 100)
    assert substitute_radius(returns, 1.0, 2 * kept * (1 - 1e-12)) == pytest.approx(0, abs=1e-9)
    assert math.isnan(substitute_radius(returns, 1.0, 2 * kept * (1 + 1e-9)))
    assert math.isnan(substitute_radius(returns, 1.0, 3.0))  # reached in the mean, but not by the smallest return
    assert substitute_radius(returns, 1.0, 0.0) == math.inf
    mean = float(certified_return(returns, 1.0, 0.0))
    assert soft_radius(returns, 1.0, mean, 0.0, 5.0) == pytest.approx(0, abs=1e-12)
    assert math.isnan(soft_radius(returns, 1.0, mean + 1e-9, 0.0, 5.0))
    assert math.isnan(soft_radius(returns, 1.0, 5.0, 0.0, 5.0))
    assert soft_radius(returns, 1.0, 0.0, 0.0, 5.0) == math.inf


def test_conditions_of_the_theorems_are_checked():
    with pytest.raises(InputError, match=r"smallest return is 0.*use certified_radius"):
        substitute_radius([0.0, 1.0, 2.0], 1.0, 0.5)
    with pytest.raises(InputError, match="below min_return"):
        substitute_radius([-1.0, 1.0], 1.0, 0.5)
    with pytest.raises(InputError, match="above high=2: pass the highest return"):
        soft_radius([1.0, 3.0], 1.0, 0.5, 0.0, 2.0)
    with pytest.raises(InputError, match="below min_return"):
        soft_radius([1.0, 3.0], 1.0, 0.5, 2.0, 4.0)
    for target in (-0.1, 4.1, math.nan):
        with pytest.raises(InputError, match="target must lie between low=0 and high=4"):
            soft_radius([1.0, 3.0], 1.0, target, 0.0, 4.0)
    for low, high in ((4.0, 4.0), (0.0, math.inf), (math.nan, 4.0)):
        with pytest.raises(InputError, match="low must be below high"):
            soft_radius([4.0, 4.0], 1.0, 1.0, low, high)


def side_of_zero(observations: th.Tensor) -> th.Tensor:
    """Right or wrong side of a boundary: smoothed, these are Phi(s / sigma) and Phi(-s / sigma)."""
    right = (observations[:, 0] > 0).float()
    return th.stack((right, 1 - right), dim=1)


def test_local_radius_of_a_boundary_is_just_below_the_distance_to_it():
    states = np.array([[-1.0], [-0.3], [0.0], [0.05], [0.5], [1.2]])
    radii, actions = local_radius(side_of_zero, states, 0.8, low=0, high=1, n_samples=20_000, seed=1)
    distances = np.abs(states[:, 0])
    assert radii.dtype == np.float64 and actions.dtype == np.int64
    assert np.all(radii <= distances)
    assert radii[2] == 0 and radii[3] < 0.05
    assert np.all(radii[[0, 1, 4, 5]] >= distances[[0, 1, 4, 5]] - 0.05)
    np.testing.assert_array_equal(actions[[0, 1, 4, 5]], [1, 1, 0, 0])


WEIGHTS, OFFSETS = np.array([[1.0, -2.0], [0.5, 1.0], [-1.0, 0.3]]), np.array([0.0, 0.4, -0.2])


def linear_scores(observations: th.Tensor) -> th.Tensor:
    return observations @ th.as_tensor(WEIGHTS.T, dtype=th.float32) + th.as_tensor(OFFSETS, dtype=th.float32)


def smoothed_linear_scores(state: np.ndarray, sigma: float, low: float, high: float) -> np.ndarray:
    """E clip(X, low, high) for normal X = low + integral over c from low to high of P(X > c)."""
    mean, spread = WEIGHTS @ state + OFFSETS, sigma * np.linalg.norm(WEIGHTS, axis=1)
    a, b = (low - mean) / spread, (high - mean) / spread

    def positive_part(x: np.ndarray) -> np.ndarray:  # antiderivative of P(Z > x)
        return x * stats.norm.sf(x) - stats.norm.pdf(x)

    return low + spread * (positive_part(b) - positive_part(a))


def test_local_radius_of_a_linear_policy_is_wrong_for_at_most_a_share_alpha_and_close():
    sigma, low, high, alpha = 0.5, -2.0, 2.0, 0.2
    state, repetitions = np.array([0.6, -0.9]), 300
    smoothed = smoothed_linear_scores(state, sigma, low, high)
    ranked = np.sort((smoothed - low) / (high - low))
    true = sigma / 2 * (stats.norm.ppf(ranked[-1]) - stats.norm.ppf(ranked[-2]))
    options = {"low": low, "high": high, "n_samples": 400, "n_selection": 50, "alpha": alpha, "seed": 3}
    radii, actions = local_radius(linear_scores, np.tile(state, (repetitions, 1)), sigma, **options)
    assert np.mean(radii > true) <= alpha
    assert np.mean(actions == smoothed.argmax()) > 0.95
    closer, _ = local_radius(linear_scores, [state], sigma, **options | {"n_samples": 200_000, "batch_size": 50_000})
    assert np.median(radii) < closer[0] <= true
    assert closer[0] >= 0.97 * true
    # and the theorem itself: no perturbation of this length changes the best smoothed action
    for angle in np.linspace(0, 2 * math.pi, 73):
        moved = state + closer[0] * np.array([math.cos(angle), math.sin(angle)])
        assert smoothed_linear_scores(moved, sigma, low, high).argmax() == actions[0]


def test_bounds_on_smoothed_scores_hold_with_the_stated_confidence_where_they_are_tightest():
    # Hardly ever anything but 0: the empirical variance misses what is rare. The true radius at the boundary is 0.
    rare = stats.norm.isf(0.002)

    def scores(observations: th.Tensor) -> th.Tensor:
        z = observations[:, 0]
        return th.stack(((z > rare).float(), (z < -rare).float()), dim=1)

    radii, _ = local_radius(scores, np.zeros((2000, 1)), 1.0, low=0, high=1, n_samples=500, n_selection=20, alpha=0.2)
    assert np.mean(radii > 0) <= 0.2


def test_clipping_and_a_wider_range_lower_the_radius():
    def radius(low: float, high: float) -> float:
        return local_radius(linear_scores, [[0.6, -0.9]], 0.5, low=low, high=high, n_samples=50_000)[0][0]

    assert 0 < radius(-40, 40) < radius(-4, 4)
    assert radius(-9, -8) == 0  # all scores are clipped to the same


def test_same_seed_same_numbers_and_chunks_hold_all_samples():
    states = [[0.3], [0.4]]
    options = {"low": 0, "high": 1, "n_samples": 1000}
    first, _ = local_radius(side_of_zero, states, 0.8, seed=5, **options)
    again, _ = local_radius(side_of_zero, states, 0.8, seed=5, **options)
    other, _ = local_radius(side_of_zero, states, 0.8, seed=6, **options)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    sizes: list[int] = []

    def counting(observations: th.Tensor) -> th.Tensor:
        sizes.append(len(observations))
        return side_of_zero(observations)

    local_radius(counting, states, 0.8, n_selection=300, batch_size=400, **options)
    assert sizes == 2 * [300, 400, 400, 200]
    assert local_radius(side_of_zero, np.zeros((0, 1)), 0.8, **options)[0].shape == (0,)


def test_local_radius_of_an_sb3_policy_is_that_of_its_q_values_and_leaves_the_policy_as_it_is():
    model = DQN("MlpPolicy", "CartPole-v1", seed=2, buffer_size=1, policy_kwargs={"net_arch": [8]})
    before = [parameter.clone() for parameter in model.policy.parameters()]
    states = np.random.default_rng(0).normal(size=(5, 4))
    options = {"low": -1, "high": 1, "n_samples": 2000, "seed": 4}
    radii, actions = local_radius(model.policy, states, 0.1, **options)
    expected, expected_actions = local_radius(lambda observations: model.q_net(observations), states, 0.1, **options)
    np.testing.assert_array_equal(radii, expected)
    np.testing.assert_array_equal(actions, expected_actions)
    assert all(parameter.grad is None for parameter in model.policy.parameters())
    assert all(th.equal(one, other) for one, other in zip(before, model.policy.parameters(), strict=True))


def test_pixels_are_rounded_and_clipped_like_those_that_the_policy_sees():
    from stable_baselines3.common.envs import FakeImageEnv

    env = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=True)
    model = DQN("CnnPolicy", env, buffer_size=1, policy_kwargs={"features_extractor_kwargs": {"features_dim": 4}})
    seen: list[th.Tensor] = []
    model.policy.q_net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    states = np.zeros((1, *model.observation_space.shape), dtype=np.uint8)
    local_radius(model.policy, states, 20.0, low=-1, high=1, n_samples=20, n_selection=1)
    pixels = th.cat(seen)
    assert th.equal(pixels, pixels.round()) and pixels.min() == 0 and 40 < pixels.max() <= 255
    assert (pixels == 0).double().mean() == pytest.approx(stats.norm.cdf(0.5 / 20), abs=0.01)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"low": 1.0}, "low must be below high"),
        ({"high": math.inf}, "low must be below high"),
        ({"alpha": 0.0}, "alpha"),
        ({"n_samples": 1}, "n_samples must be at least 2"),
        ({"n_selection": 0}, "n_selection must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"observations": 3.0}, "must be a batch"),
        ({"observations": [[1.0], [math.nan]], "policy": lambda o: o.repeat(1, 2)}, r"observations\[1\].*nan"),
        ({"policy": lambda observations: observations}, r"at least 2 actions\), got \(100, 1\)"),
        ({"policy": lambda observations: observations[:, 0]}, r"at least 2 actions\), got \(100,\)"),
    ],
)
def test_unusable_arguments_are_named(changes, message):
    arguments = {"policy": side_of_zero, "observations": [[1.0]], "sigma": 1.0, "low": 0.0, "high": 1.0} | changes
    with pytest.raises(InputError, match=message):
        local_radius(**arguments)


def test_observations_of_another_shape_than_the_policys_are_refused():
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=1)
    with pytest.raises(InputError, match=r"shape \(n, \*\(4,\)\)"):
        local_radius(model.policy, np.zeros((2, 3)), 0.1, low=0, high=1)
