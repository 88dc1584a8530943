"""The control: the norm of PGD in a random direction."""

import numpy as np
import pytest
import torch as th
from scipy import stats

from sb3_camp.attacks import pgd, random
from sb3_camp.errors import InputError


def scores(observations: th.Tensor) -> th.Tensor:
    return th.stack([observations[:, 0], 0 * observations[:, 0]], dim=1)


def generators(n: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, row]) for row in range(n)]


def test_norm_is_that_of_pgd_and_the_direction_is_uniform():
    n = 3000
    states = th.tensor([[0.3, 5.0, -2.0, 1.0]]).expand(n, 4).contiguous()
    budget = th.full((n,), 0.4, dtype=th.float64)
    attack = pgd(scores, states, budget, step_size=0.1)
    control = random(scores, states, budget, generators=generators(n), step_size=0.1)
    assert attack.flipped.all()
    assert th.allclose(control.spent, attack.spent, rtol=1e-5) and (control.spent <= attack.spent).all()
    directions = ((control.received - states).double() / control.spent[:, None]).numpy()
    for column in directions.T:  # of a uniform direction in 4 dimensions, (x + 1) / 2 is Beta(3/2, 3/2)
        assert stats.kstest((column + 1) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 0.001
    assert np.abs(np.corrcoef(directions.T) - np.eye(4)).max() < 5 / np.sqrt(n)
    flips = scores(control.received).argmax(dim=1) != 0
    assert 0 < flips.sum() < n / 4
    assert th.equal(control.flipped, flips) and th.equal(control.target, th.where(flips, 1, -1))


def test_a_batch_draws_what_each_row_draws_alone_and_rows_that_pgd_leaves_alone_draw_nothing():
    states = th.randn(12, 4, generator=th.Generator().manual_seed(0))
    budget = th.linspace(0, 1.5, 12, dtype=th.float64)
    rngs = generators(12)
    together = random(scores, states, budget, generators=rngs, step_size=0.05)
    alone = [
        random(scores, states[i : i + 1], budget[i : i + 1], generators=generators(12)[i : i + 1], step_size=0.05)
        for i in range(12)
    ]
    for field in together._fields:
        assert th.equal(getattr(together, field), th.cat([getattr(one, field) for one in alone]))
    untouched = together.spent == 0
    assert untouched.any() and not untouched.all()
    assert th.equal(together.received[untouched], states[untouched])
    fresh = [rng.bit_generator.state == own.bit_generator.state for rng, own in zip(rngs, generators(12), strict=True)]
    assert fresh == untouched.tolist()


def test_images_receive_whole_pixels_of_the_same_norm():
    images = th.randint(0, 256, (10, 12, 12), generator=th.Generator().manual_seed(0)).to(th.uint8)
    images[:5] = (images[:5] > 127) * 255  # half of the directions is closed
    pixel_scores = lambda x: th.stack([x.mean(dim=(1, 2)), 0 * x[:, 0, 0] + 125], dim=1)  # noqa: E731
    budget = th.full((10,), 100.0)
    attack = pgd(pixel_scores, images, budget, step_size=2.0)
    control = random(pixel_scores, images, budget, generators=generators(10), step_size=2.0)
    moved = attack.spent > 3
    assert moved.any()
    assert (control.spent[moved] <= attack.spent[moved]).all()
    assert (control.spent[moved].square() >= attack.spent[moved].square() - 60).all()
    assert th.allclose((control.received.double() - images.double()).flatten(1).norm(dim=1), control.spent)


def test_one_generator_for_each_row_is_asked_for():
    with pytest.raises(InputError, match="3 rows, 2 generators"):
        random(scores, th.zeros(3, 4), th.ones(3), generators=generators(2))
