"""Each attack in each threat model, on linear policies whose worst case can be written down; and no bound is ever exceeded."""

import itertools

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st
from support.linear_agents import SLOPE, VALUE, WEIGHTS, generators, linear_scores, linear_view

from sb3_camp.attacks import apgd, critic, fgsm, mad, pgd, random
from sb3_camp.attacks.norm import Norm
from sb3_camp.attacks.random_direction import random_in_ball
from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView
from sb3_camp.threat_models import THREATS

SIGMA = np.array([0.5, 2.0, 0.1])
SEEDS = st.integers(0, 2**32 - 1)


def norms(*scales) -> list[Norm]:
    return [Norm.of(threat, scale) for threat in ("step-l2", "step-linf") for scale in scales]


BOTH = norms(None, SIGMA)


def dual(norm: Norm, gradient: np.ndarray) -> np.ndarray:
    """The largest change of a linear function by a perturbation of norm 1."""
    gradient = gradient * (1.0 if norm.scale is None else np.array(norm.scale))
    return np.abs(gradient).sum(axis=-1) if norm.order == "linf" else np.linalg.norm(gradient, axis=-1)


def measured(received: th.Tensor, clean: th.Tensor, norm: Norm) -> np.ndarray:
    """The norms of what was added, with no more than NumPy."""
    difference = received.numpy().astype(np.float64) - clean.numpy().astype(np.float64)
    difference = difference.reshape(len(difference), -1)
    scale = np.ones(1) if norm.scale is None else np.array(norm.scale)
    assert np.all(difference[:, np.broadcast_to(scale == 0, difference.shape[1:])] == 0)
    difference = np.divide(difference, scale, where=np.broadcast_to(scale > 0, difference.shape), out=0 * difference)
    return np.abs(difference).max(axis=1) if norm.order == "linf" else np.linalg.norm(difference, axis=1)


def states(n: int = 40) -> th.Tensor:
    return th.randn(n, 3, generator=th.Generator().manual_seed(0))


def same(size: float, n: int = 40) -> th.Tensor:
    return th.full((n,), size, dtype=th.float64)


@pytest.mark.parametrize("norm", BOTH, ids=str)
def test_critic_goes_to_the_worst_action_of_a_linear_policy(norm):
    result = critic(linear_view(), states(), same(0.3), norm=norm)
    expected = 0.3 * dual(norm, (SLOPE @ WEIGHTS).numpy())
    assert result.gain.numpy() == pytest.approx(expected, rel=1e-3)
    assert (result.flipped & (result.target == -1)).all()
    lost = ((states() - result.received) @ WEIGHTS.T @ SLOPE).numpy()
    assert lost == pytest.approx(expected, rel=1e-3), "what the gain says is what the action loses"


@pytest.mark.parametrize("norm", BOTH, ids=str)
def test_critic_of_a_value_function_shows_the_state_of_the_lowest_value(norm):
    view = PolicyView(None, value=lambda observed: observed @ VALUE)
    result = critic(view, states(), same(0.3), norm=norm)
    assert ((states() - result.received) @ VALUE).numpy() == pytest.approx(0.3 * dual(norm, VALUE.numpy()), rel=1e-3)


def q_network(scores=linear_scores) -> PolicyView:
    return PolicyView(None, scores=scores, q=lambda observed, shares: (scores(observed) * shares).sum(dim=1))


@pytest.mark.parametrize("norm", BOTH, ids=str)
def test_critic_of_a_q_network_goes_to_an_action_of_a_lower_value_and_pays_for_no_other(norm):
    def scores(observed):
        return th.stack([observed @ VALUE, th.zeros(len(observed))], dim=1)

    result = critic(q_network(scores), states(), same(0.3), norm=norm)
    gap = (states() @ VALUE).abs().numpy()
    within = gap < 0.3 * dual(norm, VALUE.numpy()) * 0.999
    assert result.flipped.numpy()[within].all() and 5 < within.sum() < 35
    assert not result.flipped.numpy()[~within].any() and not result.spent.numpy()[~within].any()
    assert result.gain.numpy() == pytest.approx(np.where(within, gap, 0), rel=1e-5), "what the better action is ahead"
    assert measured(result.received, states(), norm).max() <= 0.3


def test_critic_of_a_q_network_loses_what_the_taken_action_loses():
    result = critic(q_network(), states(200), same(1.0, 200))
    clean, taken = linear_scores(states(200)), linear_scores(result.received).argmax(dim=1)
    lost = clean.amax(dim=1) - clean.gather(1, taken[:, None]).squeeze(1)
    assert th.allclose(result.gain.float(), lost, atol=1e-5) and 50 < result.flipped.sum() < 190
    assert th.equal(result.target[result.flipped], taken[result.flipped])


def test_critic_of_a_q_network_goes_on_through_the_noise():
    """On the border the better action is taken in half of the draws; 0.3 beyond it, with noise of 0.1, in hardly any."""
    n, noise = 400, 0.1 * th.randn(400, 1, generator=th.Generator().manual_seed(1))

    def scores(observed):
        return th.cat([observed, -observed], dim=1)

    def assemble(frames, rows):
        return (frames[:, None] + noise).flatten(0, 1)

    result = critic(q_network(scores), th.full((1, 1), 0.3), same(0.6, 1), assemble=assemble)
    assert (result.received + noise < 0).float().mean() > 0.99 > 0.6 > n**-0.5
    assert result.spent.item() == pytest.approx(0.6, abs=0.07)


def farthest(norm: Norm, weights: np.ndarray) -> float:
    """The largest distance of the actions of a linear policy, by a perturbation of norm 1."""
    weights = weights * (1.0 if norm.scale is None else np.array(norm.scale))
    if norm.order == "l2":
        return np.linalg.svd(weights)[1][0]
    return max(np.linalg.norm(weights @ corner) for corner in itertools.product([-1, 1], repeat=weights.shape[1]))


@pytest.mark.parametrize("norm", BOTH, ids=str)
def test_mad_moves_the_actions_of_a_linear_policy_as_far_as_possible(norm):
    rows = states()
    result = mad(linear_view(), rows, same(0.3), generators=generators(40), norm=norm, multiplier=6.0)
    moved = np.linalg.norm(((result.received - rows) @ WEIGHTS.T).numpy(), axis=1)
    best = 0.3 * farthest(norm, WEIGHTS.numpy())
    assert np.all(moved <= best * (1 + 1e-5))
    # In a box a corner may be a local maximum
    assert np.median(moved) == pytest.approx(best, rel=2e-3) and (norm.order == "linf" or np.all(moved > 0.99 * best))
    assert result.gain.numpy() == pytest.approx(moved**2, rel=1e-4)


@pytest.mark.parametrize("norm", BOTH, ids=str)
@pytest.mark.parametrize("attack", [pgd, apgd])
def test_a_discrete_attack_reaches_each_linear_boundary_within_its_bound_and_no_other(attack, norm):
    rows = states(60)
    scores = linear_scores(rows).double().numpy()
    weights = (linear_scores(th.eye(3)) - linear_scores(th.zeros(1, 3))).T.double().numpy()
    best = scores.argmax(axis=1)
    gaps = scores.max(axis=1, keepdims=True) - scores
    # Nearest point where another action is best; with more than two actions a third may be better on the straight way
    distance = np.where(gaps > 0, gaps / np.maximum(dual(norm, weights[best][:, None] - weights[None]), 1e-9), np.inf)
    step_size = 0.01 if attack is pgd else 0.025
    result = attack(linear_scores, rows, same(0.5, 60), step_size=step_size, multiplier=4.0, norm=norm)
    near = distance.min(axis=1)
    clear = np.abs(near - 0.5) > 0.02
    assert np.array_equal(result.flipped.numpy()[clear], near[clear] < 0.5)
    assert result.flipped.any() and not result.flipped.all()
    flipped = result.flipped.numpy()
    reached = distance[flipped, result.target.numpy()[flipped]]
    assert np.all(result.spent.numpy()[flipped] >= reached - 1e-5)
    lost = gaps[flipped, result.target.numpy()[flipped]]
    assert result.gain.numpy()[flipped] == pytest.approx(lost, rel=1e-5) and np.all(result.gain.numpy()[~flipped] == 0)


@pytest.mark.parametrize("norm", BOTH, ids=str)
def test_fgsm_takes_one_step_in_the_norm_of_the_threat_model(norm):
    rows = states(60)

    def two(observed):
        return linear_scores(observed)[:, :2]

    difference = two(rows).double().numpy()
    gradient = (two(th.eye(3)) - two(th.zeros(1, 3))).T.double().numpy()
    distance = np.abs(difference[:, 0] - difference[:, 1]) / dual(norm, gradient[0] - gradient[1])
    result = fgsm(two, rows, same(0.5, 60), step_size=0.4, norm=norm)
    assert np.array_equal(result.flipped.numpy(), distance < 0.4)
    assert result.spent.numpy()[distance < 0.4] == pytest.approx(0.4, rel=1e-5)


@pytest.mark.parametrize("scale", [None, SIGMA])
def test_random_is_uniform_on_the_sphere_and_in_the_box(scale):
    rows = th.zeros(4000, 3)
    unit = 1.0 if scale is None else scale
    sphere = random_in_ball(linear_view(), rows, same(2.0, 4000), generators=generators(4000), norm=Norm.of("step-l2", scale))
    assert sphere.spent.numpy() == pytest.approx(2.0, rel=1e-5)
    assert (sphere.received.numpy() / unit).mean(axis=0) == pytest.approx(0, abs=0.1)
    assert np.cov((sphere.received.numpy() / unit).T) == pytest.approx(np.eye(3) * 4 / 3, abs=0.1)
    box = random_in_ball(linear_view(), rows, same(2.0, 4000), generators=generators(4000), norm=Norm.of("step-linf", scale))
    inside = box.received.numpy() / unit
    assert np.abs(inside).max() <= 2 and np.quantile(inside, [0.25, 0.5, 0.75]) == pytest.approx([-1, 0, 1], abs=0.1)


def test_what_may_not_move_stays_where_it_is():
    norm = Norm.of("step-l2", np.array([0.5, 0.0, 0.1]))
    for result in (
        critic(linear_view(), states(), same(0.3), norm=norm),
        mad(linear_view(), states(), same(0.3), generators=generators(40), norm=norm),
        random_in_ball(linear_view(), states(), same(0.3), generators=generators(40), norm=norm),
        pgd(linear_scores, states(), same(3.0), step_size=0.1, norm=norm),
    ):
        assert th.equal(result.received[:, 1], states()[:, 1]) and (result.spent > 0).any()
    assert critic(linear_view(), states(), same(0.3), norm=norm).spent.numpy() == pytest.approx(0.3, rel=1e-5)


def test_an_attack_that_gains_nothing_spends_nothing():
    flat = PolicyView(None, value=lambda observed: 0 * observed[:, 0])
    result = critic(flat, states(), same(1.0))
    assert th.equal(result.received, states()) and (result.spent == 0).all() and not result.flipped.any()
    some = same(1.0)
    some[::2] = 0
    result = critic(linear_view(), states(), some)
    assert (result.spent[::2] == 0).all() and (result.spent[1::2] > 0.99).all()


ATTACKS = {
    "pgd": lambda view, *args, **more: pgd(view.scores, *args, step_size=0.05 * float(args[1].max()), **more),
    "apgd": lambda view, *args, **more: apgd(view.scores, *args, step_size=0.1 * float(args[1].max()), **more),
    "fgsm": lambda view, *args, **more: fgsm(view.scores, *args, step_size=0.3 * float(args[1].max()), **more),
    "random": lambda view, *args, **more: random(
        view.scores, *args, step_size=0.1 * float(args[1].max()), generators=generators(len(args[0])), **more
    ),
    "random in ball": lambda view, *args, **more: random_in_ball(view, *args, generators=generators(len(args[0])), **more),
    "mad": lambda view, *args, **more: mad(view, *args, generators=generators(len(args[0])), **more),
    "critic": lambda view, *args, **more: critic(view, *args, **more),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("threat", THREATS)
@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(1, 6), st.floats(-2, 7), st.floats(-7, 1), st.booleans())
def test_float_frames_keep_every_bound_to_the_last_digit(attack, threat, seed, size, magnitude, exponent, per_sensor):
    generator = th.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    frames = 10**magnitude * th.randn(5, size, generator=generator)
    radius = 10**exponent * (0.01 + th.rand(5, generator=generator, dtype=th.float64))
    scale = 10 ** rng.uniform(-2, 2, size) * (rng.random(size) > 0.2) if per_sensor else None
    weights = th.randn(size, 3, generator=generator)

    def assemble(perturbed, rows):
        return perturbed - frames[rows]

    view = PolicyView(
        None,
        scores=lambda moved: moved @ weights + 0.1 * radius.max().float() * th.arange(3.0),
        value=lambda moved: (moved @ weights).sum(dim=1),
    )
    norm = Norm.of(threat, scale)
    result = ATTACKS[attack](view, frames, radius, assemble=assemble, norm=norm)
    norm_of_added = measured(result.received, frames, norm)
    assert result.received.dtype == th.float32 and (result.spent <= radius).all()
    assert np.all(norm_of_added <= radius.numpy())
    assert result.spent.numpy() == pytest.approx(norm_of_added, rel=1e-12, abs=0)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("threat", THREATS)
@settings(max_examples=8, deadline=None)
@given(SEEDS, st.floats(0.5, 60), st.sampled_from([None, 0.1, 12.75]))
def test_images_keep_every_bound_and_stay_images(attack, threat, seed, largest, sigma):
    generator = th.Generator().manual_seed(seed)
    frames = th.randint(-40, 296, (4, 1, 5, 4), generator=generator).clamp_(0, 255).to(th.uint8)
    radius = largest * (0.1 + th.rand(4, generator=generator, dtype=th.float64))
    radius[0] = np.floor(float(radius[0])) + 1
    weights = th.randn(20, 3, generator=generator)
    view = PolicyView(
        None,
        scores=lambda images: images.flatten(1) @ weights / 255,
        value=lambda images: images.flatten(1) @ weights[:, 0],
    )
    norm = Norm.of(threat, None if sigma is None else np.array(sigma))
    result = ATTACKS[attack](view, frames, radius, norm=norm)
    assert result.received.dtype == th.uint8
    assert np.all(measured(result.received, frames, norm) <= radius.numpy()) and (result.spent <= radius).all()


def test_whole_pixels_of_an_l_infinity_bound():
    frames = th.full((3, 4), 100, dtype=th.uint8)
    view = PolicyView(None, value=lambda images: images @ th.tensor([1.0, -1.0, 0.5, 0.0]))
    result = critic(view, frames, th.tensor([0.9, 1.0, 2.7], dtype=th.float64), norm=Norm.of("step-linf"))
    assert result.received.tolist() == [[100] * 4, [99, 101, 99, 100], [98, 102, 98, 100]]
    assert result.spent.tolist() == [0, 1, 2]


def test_images_with_a_sigma_for_each_pixel_are_refused():
    with pytest.raises(InputError, match="same sigma"):
        critic(linear_view(), th.zeros(1, 3, dtype=th.uint8), same(1.0, 1), norm=Norm.of("step-l2", SIGMA))
    with pytest.raises(InputError, match="episode-l2, step-l2, step-linf"):
        Norm.of("l7")
