"""No attack spends more than its budget, measured in float64 on what is really received."""

import math

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_camp.attacks import apgd, fgsm, pgd, random
from sb3_camp.attacks.ball import Ball, whole_pixels

SEEDS = st.integers(0, 2**32 - 1)


def generators(n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in range(n)]


ATTACKS = {
    "pgd": lambda *args, step_size, **options: pgd(*args, step_size=step_size, **options),
    "apgd": lambda *args, step_size, **options: apgd(*args, step_size=step_size, **options),
    "fgsm": lambda *args, step_size, **options: fgsm(*args, step_size=2 * step_size, **options),
    "random": lambda *args, step_size, **options: random(
        *args, step_size=step_size, generators=generators(len(args[1])), **options
    ),
}


def norms(received: th.Tensor, observations: th.Tensor) -> np.ndarray:
    difference = received.numpy().astype(np.float64) - observations.numpy().astype(np.float64)
    return np.array([math.sqrt(math.fsum(value * value for value in row.ravel())) for row in difference])


def check(result, observations: th.Tensor, budget: th.Tensor) -> None:
    assert result.received.dtype == observations.dtype and result.received.shape == observations.shape
    measured = norms(result.received, observations)
    assert result.spent.numpy() == pytest.approx(measured, rel=1e-12, abs=0)
    assert np.all(measured <= budget.numpy()) and (result.spent <= budget).all()


@pytest.mark.parametrize("attack", ATTACKS)
@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 12), st.floats(-2, 7), st.floats(-7, 1))
def test_float_observations_of_any_size(attack, seed, size, magnitude, budget_exponent):
    generator = th.Generator().manual_seed(seed)
    observations = 10**magnitude * th.randn(6, size, generator=generator)
    if size > 2:
        observations[:, 0] *= 1e-4  # entries of several sizes
    budget = 10**budget_exponent * (0.01 + th.rand(6, generator=generator, dtype=th.float64))
    weights = th.randn(size, 3, generator=generator)
    gaps = th.randn(6, 3, generator=generator) * 0.3 * budget[:, None].float()

    def assemble(frames, rows):
        return frames - observations[rows], rows

    def scores(observed):
        moved, rows = observed
        return moved @ weights + gaps[rows]

    check(
        ATTACKS[attack](scores, observations, budget, step_size=0.1 * float(budget.max()), assemble=assemble),
        observations,
        budget,
    )


@pytest.mark.parametrize("attack", ATTACKS)
@settings(max_examples=25, deadline=None)
@given(SEEDS, st.floats(0.5, 400))
def test_images(attack, seed, largest):
    generator = th.Generator().manual_seed(seed)
    observations = th.randint(-40, 296, (5, 2, 6, 5), generator=generator).clamp_(0, 255).to(th.uint8)
    budget = largest * th.rand(5, generator=generator, dtype=th.float64)
    budget[0] = math.floor(budget[0])
    weights = th.randn(60, 3, generator=generator) * 10 ** th.randn(60, 1, generator=generator)

    def scores(images):
        assert images.dtype == th.float32 and (images == images.detach().round().clamp(0, 255)).all()
        return (images / 255).flatten(1) @ weights

    check(ATTACKS[attack](scores, observations, budget, step_size=largest / 20), observations, budget)


def test_budget_of_an_episode_is_never_exceeded():
    generator = th.Generator().manual_seed(0)
    tau, squares, flips = 0.5, [], 0
    left = tau
    for _ in range(80):
        state = th.cat([th.randn(1, 2, generator=generator), 1000 * th.randn(1, 2, generator=generator)], dim=1)
        result = pgd(lambda x: x[:, :2], state, th.tensor([left], dtype=th.float64), step_size=0.02)
        flips += int(result.flipped)
        squares.append(float(norms(result.received, state)[0]) ** 2)
        left = math.sqrt(max(0.0, left**2 - float(result.spent) ** 2))
    assert flips > 3 and 0.9 * tau**2 < math.fsum(squares) <= tau**2 * (1 + 1e-12)


def test_an_observation_that_cannot_move_by_so_little_is_left_alone():
    observations = th.full((1, 3), 1e6)  # the next float is 0.0625 away
    scores = lambda x: th.stack([x[:, 0] - 1e6 - 0.01, 0 * x[:, 0]], dim=1)  # noqa: E731
    too_little = pgd(scores, observations, th.tensor([0.05]))
    assert th.equal(too_little.received, observations) and too_little.spent.item() == 0 and not too_little.flipped
    enough = pgd(scores, observations, th.tensor([0.07]))
    assert enough.flipped and enough.spent.item() == 0.0625


@given(SEEDS, st.floats(0, 6), st.floats(-3, 1))
@settings(max_examples=200, deadline=None)
def test_rounding_of_float_frames_keeps_the_ball_and_moves_no_entry_against_its_perturbation(seed, magnitude, exponent):
    generator = th.Generator().manual_seed(seed)
    clean = 10**magnitude * th.randn(4, 5, generator=generator)
    radius = 10**exponent * th.rand(4, generator=generator, dtype=th.float64)
    ball = Ball(clean, radius)
    delta = ball.project(radius[:, None] * th.randn(4, 5, generator=generator, dtype=th.float64))
    frames = ball.received(delta)
    moved = frames.double() - clean.double()
    assert np.all(norms(frames, clean) <= radius.numpy())
    assert ball.spent(frames).numpy() == pytest.approx(norms(frames, clean), rel=1e-12)
    assert (moved * delta >= 0).all()
    spacing = th.maximum(clean.abs(), frames.abs()).double() * 2.0**-23
    assert ((moved - delta).abs() <= spacing + 1e-12).all(), "one of the two floats next to clean + delta"


@given(SEEDS, st.floats(0.3, 6))
@settings(max_examples=100, deadline=None)
def test_whole_pixels_have_the_direction_of_the_perturbation_as_well_as_whole_numbers_can(seed, norm):
    rng = np.random.default_rng(seed)
    size = np.abs(rng.normal(size=4)) ** rng.uniform(0.2, 3)
    size *= norm / np.linalg.norm(size)
    room = rng.integers(0, 7, 4).astype(np.float64)
    size = np.minimum(size, room)
    pixels = whole_pixels(th.tensor(size)[None], th.tensor([[norm]]), th.tensor(room)[None])[0].numpy()
    assert np.all((pixels >= 0) & (pixels <= room) & (pixels == np.round(pixels)))
    squares = np.sum(pixels**2)
    assert squares <= norm**2 + 1e-9
    grid = np.stack(np.meshgrid(*[np.arange(8)] * 4), axis=-1).reshape(-1, 4)
    grid = grid[np.all(grid <= room, axis=1) & (np.sum(grid**2, axis=1) <= squares)]
    assert size @ pixels >= 0.97 * np.max(grid @ size) - 1e-12
    if room.min() == 6:
        assert not np.any((np.sum((pixels + np.eye(4)) ** 2, axis=1) <= squares + 1) & (squares + 1 <= norm**2) & (size > 0))


def test_a_perturbation_spread_over_many_pixels_does_not_vanish_in_rounding():
    image = th.full((1, 1, 84, 84), 100, dtype=th.uint8)
    scores = lambda x: th.stack([x.sum(dim=(1, 2, 3)) - 100 * 84 * 84, 0 * x[:, 0, 0, 0] + 2.5], dim=1)  # noqa: E731
    result = pgd(scores, image, th.tensor([2.0]), step_size=0.25)
    assert result.flipped and result.spent.item() == pytest.approx(math.sqrt(3))


def test_pixels_at_the_ends_of_their_range_stay_in_it_and_the_others_take_over():
    image = th.tensor([[255, 255, 255, 100]], dtype=th.uint8)
    scores = lambda x: th.stack([0 * x[:, 0] + 1120, x @ th.tensor([3.0, 2.0, 2.0, 1.0]) - 785], dim=1)  # noqa: E731
    assert scores(image.float()).tolist() == [[1120, 1100]]
    result = pgd(scores, image, th.tensor([30.0]), step_size=5.0, multiplier=8.0)
    assert result.flipped and result.received[0, :3].tolist() == [255] * 3 and 121 <= result.received[0, 3] <= 130


def test_on_linear_scores_of_an_image_pgd_needs_one_step_more_than_the_distance_and_the_error_of_rounding():
    generator = th.Generator().manual_seed(0)
    images = th.randint(60, 190, (20, 400), generator=generator).to(th.uint8)
    weights = th.randn(400, 2, generator=generator)
    scores = lambda x: x @ weights  # noqa: E731
    margins = scores(images.float())
    distance = (margins[:, 0] - margins[:, 1]).abs() / (weights[:, 0] - weights[:, 1]).norm()
    result = pgd(scores, images, th.full((20,), 250.0), step_size=1.0)
    assert (result.flipped | (distance > 245)).all()
    spent, distance = result.spent[result.flipped], distance[result.flipped].double()
    assert (spent > distance - 1e-3).all()
    assert (spent < (distance.square() + 400 / 12).sqrt() + 1).all(), "rounding a pixel has the variance 1/12"
