"""What attacks refuse, what they bear, and what they leave as it was."""

import copy

import pytest
import torch as th

from sb3_camp.attacks import apgd, fgsm, pgd
from sb3_camp.errors import InputError

ATTACKS = [
    pytest.param(pgd, {}, id="pgd"),
    pytest.param(apgd, {"step_size": 0.05}, id="apgd"),
    pytest.param(fgsm, {"step_size": 0.5}, id="fgsm"),
]
OBJECTIVES = pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
STATES = th.randn(8, 3, generator=th.Generator().manual_seed(0))
BUDGET = th.full((8,), 0.5, dtype=th.float64)


def cubic(observations: th.Tensor) -> th.Tensor:
    return th.cat([observations, observations.pow(3)], dim=1)


@pytest.mark.parametrize("attack, options", ATTACKS)
@OBJECTIVES
def test_rows_whose_gradient_is_zero_stay_where_they_are_and_the_others_are_attacked(attack, options, objective):
    def half_dead(observations):  # ReLU: no gradient where the first entry is negative
        alive = observations[:, :1].relu()
        return th.cat([1 + 0 * alive, 1.2 * alive], dim=1)

    states = STATES.clone()
    states[:4, 0], states[4:, 0] = -1.0, 0.7
    result = attack(half_dead, states, BUDGET, objective=objective, **options)
    assert result.flipped.tolist() == [False] * 4 + [True] * 4
    assert th.equal(result.received[:4], states[:4]) and (result.spent[:4] == 0).all()


@pytest.mark.parametrize("attack, options", ATTACKS)
@OBJECTIVES
def test_scores_that_become_nan_are_an_error(attack, options, objective):
    def root(observations):  # not a number above 0.047
        return th.cat([1 + (0.047 - observations).sqrt(), observations], dim=1)

    with pytest.raises(InputError, match="action scores that are not finite"):
        attack(root, th.zeros(3, 1), BUDGET[:3], objective=objective, **options)


@pytest.mark.parametrize("attack, options", ATTACKS)
@OBJECTIVES
def test_gradients_that_are_not_finite_are_an_error(attack, options, objective):
    def kink(observations):
        return th.cat([observations.abs().sqrt() + 1, observations], dim=1)

    with pytest.raises(InputError, match=r"gradients .* not finite"):
        attack(kink, th.zeros(3, 1), BUDGET[:3], objective=objective, **options)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.1])
def test_a_budget_that_is_no_number_of_at_least_0_is_an_error_that_names_its_row(wrong):
    budget = BUDGET.clone()
    budget[3] = wrong
    with pytest.raises(InputError, match="budget of row 3"):
        pgd(cubic, STATES, budget)


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf")])
def test_an_observation_that_is_not_finite_is_an_error_even_without_budget(wrong):
    states = STATES.clone()
    states[5, 1] = wrong
    with pytest.raises(InputError, match="observation of row 5"):
        pgd(cubic, states, th.zeros(8))


@pytest.mark.parametrize(
    "attack, options, named",
    [
        (pgd, {"step_size": 0.0}, "step_size"),
        (pgd, {"multiplier": -1.0}, "multiplier"),
        (pgd, {"q_threshold": -0.1}, "q_threshold"),
        (apgd, {"step_size": float("nan")}, "step_size"),
        (fgsm, {"step_size": float("inf")}, "step_size"),
        (pgd, {"objective": "untargeted"}, "objective"),
    ],
)
def test_settings_out_of_their_range_are_named(attack, options, named):
    with pytest.raises(InputError, match=named):
        attack(cubic, STATES, BUDGET, **options)


def test_tensors_of_other_types_and_shapes_are_refused():
    with pytest.raises(InputError, match="float64"):
        pgd(cubic, STATES.double(), BUDGET)
    with pytest.raises(InputError, match="8 rows"):
        pgd(cubic, STATES, BUDGET[:5])
    with pytest.raises(InputError, match=r"\(8,\)"):
        pgd(lambda x: x[:, 0], STATES, BUDGET)


def test_scores_without_gradients_are_an_error():
    with pytest.raises(InputError, match="differentiated"):
        pgd(lambda x: x.detach(), STATES, BUDGET)


def test_scores_that_do_not_depend_on_the_frame_leave_it_alone():
    bias = th.tensor([1.0, 0.5], requires_grad=True)
    result = pgd(lambda x: bias.expand(len(x), 2), STATES, BUDGET)
    assert th.equal(result.received, STATES) and not result.flipped.any()


def test_policies_with_one_action_and_empty_batches_are_left_alone():
    one = pgd(lambda x: x[:, :1], STATES, BUDGET)
    assert th.equal(one.received, STATES) and (one.target == -1).all()
    none = pgd(cubic, STATES[:0], BUDGET[:0])
    assert none.received.shape == (0, 3) and none.spent.shape == (0,)


@pytest.mark.parametrize("attack, options", ATTACKS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mode", [th.enable_grad, th.no_grad, th.inference_mode])
def test_nothing_but_the_result_is_changed_and_the_callers_gradient_mode_does_not_matter(attack, options, training, mode):
    network = th.nn.Sequential(th.nn.Linear(3, 8), th.nn.ReLU(), th.nn.Linear(8, 3)).train(training)
    with th.no_grad():
        for index, parameter in enumerate(network.parameters()):
            parameter.normal_(generator=th.Generator().manual_seed(index))
    for parameter in network.parameters():
        parameter.grad = th.full_like(parameter, 7.0)
    before = copy.deepcopy(network.state_dict())
    random_state = th.get_rng_state()
    expected = attack(network, STATES, BUDGET, **options)
    with mode():
        states, budget = STATES.clone(), BUDGET.clone()
        result = attack(network, states, budget, **options)
        assert th.is_grad_enabled() is (mode is th.enable_grad)
        assert th.equal(states, STATES) and th.equal(budget, BUDGET)
        assert result.flipped.any() and th.equal(result.received, expected.received)
    assert not any(field.requires_grad for field in result)
    assert th.equal(th.get_rng_state(), random_state)
    assert all(th.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all((parameter.grad == 7).all() and parameter.requires_grad for parameter in network.parameters())
    assert all(module.training is training for module in network.modules())
