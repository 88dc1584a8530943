"""The Jeffreys objective: its value, its gradient, its start."""

import math

import pytest
import torch as th

from sb3_camp.attacks import apgd, pgd
from sb3_camp.attacks.objectives import SHARPNESS, JeffreysDivergence


def divergence(clean: th.Tensor, scores: th.Tensor) -> th.Tensor:
    p, q = (th.distributions.Categorical(logits=logits) for logits in (clean, scores))
    return th.distributions.kl_divergence(p, q) + th.distributions.kl_divergence(q, p)


def random_scores(n: int, scale: float) -> tuple[th.Tensor, th.Tensor]:
    generator = th.Generator().manual_seed(0)
    clean, scores = (scale * th.randn(n, 5, generator=generator, dtype=th.float64) for _ in range(2))
    return clean, scores


def objective(clean: th.Tensor) -> JeffreysDivergence:
    return JeffreysDivergence(clean, th.ones_like(clean, dtype=th.bool), gap=th.full((len(clean),), SHARPNESS))


def test_value_is_the_logarithm_of_the_sum_of_both_kullback_leibler_divergences():
    clean, scores = random_scores(50, 2.0)
    assert th.allclose(objective(clean).value(scores), divergence(clean, scores).log())
    assert (objective(clean).value(clean) == -th.inf).all()


def test_value_still_tells_points_apart_where_all_probabilities_but_one_are_0_in_float64():
    clean = th.tensor([[0.0, -2000.0, -2100.0]], dtype=th.float64)
    values = [objective(clean).value(clean + th.tensor([[0.0, rise, 0.0]])) for rise in (1.0, 2.0, 10.0)]
    expected = [-2000 + math.log(math.expm1(rise) * rise) for rise in (1.0, 2.0, 10.0)]
    assert [float(value) for value in values] == pytest.approx(expected, rel=1e-12)


def test_ascent_is_the_gradient_of_the_value_up_to_a_positive_factor():
    clean, scores = random_scores(50, 2.0)
    scores.requires_grad_()
    (gradient,) = th.autograd.grad(divergence(clean, scores).sum(), scores)
    ascent = objective(clean).ascent(scores.detach(), lambda: th.ones(50)).double()
    assert th.allclose(th.nn.functional.normalize(ascent), th.nn.functional.normalize(gradient), atol=1e-6)


def test_on_the_clean_observation_the_way_is_down_the_probability_of_the_greedy_action():
    clean, _ = random_scores(50, 2.0)
    clean.requires_grad_()
    (gradient,) = th.autograd.grad(-clean.log_softmax(dim=1).amax(dim=1).sum(), clean)
    noise = 1e-7 * th.randn(50, 5, generator=th.Generator().manual_seed(1), dtype=th.float64)
    start = objective(clean.detach()).ascent(clean.detach() + noise, lambda: th.zeros(50)).double()
    assert th.allclose(th.nn.functional.normalize(start), th.nn.functional.normalize(gradient), atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e5])
@pytest.mark.parametrize("attack, step_size", [(pgd, 0.02), (apgd, 0.05)])
def test_with_two_actions_it_goes_the_way_of_the_targeted_attack_however_saturated_the_softmax_is(scale, attack, step_size):
    generator = th.Generator().manual_seed(0)
    network = th.nn.Sequential(th.nn.Linear(4, 24), th.nn.Tanh(), th.nn.Linear(24, 2)).double()
    with th.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.5 * th.randn(parameter.shape, generator=generator, dtype=th.float64))
    states = th.randn(40, 4, generator=generator)
    budget = th.full((40,), 0.6, dtype=th.float64)
    targeted, jeffreys = (
        attack(lambda x: scale * network(x.double()), states, budget, step_size=step_size, objective=objective)
        for objective in ("targeted", "jeffreys")
    )
    assert 5 < targeted.flipped.sum() < 40
    if attack is pgd:  # only directions count
        assert th.allclose(targeted.received, jeffreys.received, atol=1e-6)
    else:
        assert th.equal(targeted.flipped, jeffreys.flipped)


def test_it_stops_at_the_first_action_that_is_not_the_clean_one():
    result = pgd(lambda x: x, th.tensor([[1.0, 0.9, 0.5]]), th.tensor([1.0]), objective="jeffreys")
    assert result.target.tolist() == [1] and result.spent.item() < 0.1
