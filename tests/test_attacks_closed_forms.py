"""Attacks on scores for which the right answer can be written down."""

import itertools

import numpy as np
import pytest
import torch as th

from sb3_camp.attacks import apgd, fgsm, pgd

WEIGHTS = th.tensor([[0.7, -0.2, 0.4], [-0.5, 0.3, 1.1]])


def linear(observations: th.Tensor) -> th.Tensor:
    return observations @ WEIGHTS.T + th.tensor([0.1, -0.2])


def identity(observations: th.Tensor) -> th.Tensor:
    return observations


def states_and_distances(n: int = 60) -> tuple[th.Tensor, np.ndarray]:
    states = th.randn(n, 3, generator=th.Generator().manual_seed(0))
    scores = linear(states).double()
    normal = (WEIGHTS[0] - WEIGHTS[1]).double().norm()
    return states, ((scores[:, 0] - scores[:, 1]).abs() / normal).numpy()


def same(budget: float, n: int) -> th.Tensor:
    return th.full((n,), budget, dtype=th.float64)


@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_pgd_spends_the_distance_to_a_linear_boundary_and_at_most_one_step_more(objective):
    states, distance = states_and_distances()
    result = pgd(linear, states, same(0.5, 60), objective=objective)
    assert np.array_equal(result.flipped.numpy(), distance < 0.5)
    spent = result.spent.numpy()[result.flipped]
    near = distance[result.flipped]
    assert np.all(spent > near - 1e-6)
    assert np.all(spent <= np.minimum(near + 0.01, 0.5) + 1e-6)
    assert result.flipped.any() and not result.flipped.all()


@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_apgd_reaches_a_linear_boundary_wherever_the_budget_allows(objective):
    states, distance = states_and_distances()
    result = apgd(linear, states, same(0.5, 60), step_size=0.025, objective=objective)
    assert np.array_equal(result.flipped.numpy(), distance < 0.5)
    assert np.all(result.spent.numpy()[result.flipped] > distance[result.flipped] - 1e-6)


@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_fgsm_goes_one_step_or_as_far_as_the_budget_allows(objective):
    states, distance = states_and_distances()
    for step_size, budget in ((0.4, 0.9), (0.9, 0.4)):
        result = fgsm(linear, states, same(budget, 60), step_size=step_size, objective=objective)
        assert np.array_equal(result.flipped.numpy(), distance < 0.4)
        assert result.spent[result.flipped].numpy() == pytest.approx(0.4, rel=1e-6)


def test_more_budget_than_a_flip_needs_changes_nothing_and_less_spends_nothing():
    states, distance = states_and_distances()
    results = [pgd(linear, states, same(budget, 60)) for budget in (0.2, 0.4, 0.8)]
    for smaller, larger in itertools.pairwise(results):
        assert (larger.flipped | ~smaller.flipped).all()
        inside = smaller.flipped & th.tensor(distance < 0.19)  # away from the border of the smaller ball
        assert inside.any() and th.equal(smaller.received[inside], larger.received[inside])
    for result in results:
        assert th.equal(result.received[~result.flipped], states[~result.flipped])
        assert (result.spent[~result.flipped] == 0).all() and (result.target[~result.flipped] == -1).all()
        assert th.equal(linear(result.received).argmax(dim=1)[result.flipped], result.target[result.flipped])


def test_of_the_targets_reached_the_lowest_clean_score_wins():
    states = th.tensor([[1.0, 0.9, 0.5, -3.0], [1.0, 0.9, 0.5, -3.0], [1.0, 0.9, 0.5, -3.0], [1.0, 0.5, 0.5, -3.0]])
    budget = th.tensor([0.05, 0.2, 0.6, 0.6], dtype=th.float64)
    result = pgd(identity, states, budget)
    assert result.target.tolist() == [-1, 1, 2, 1], "of equal scores the first"


def test_a_lower_target_wins_although_a_higher_one_is_reached_in_fewer_steps():
    def steep(observations):
        return th.stack([0 * observations[:, 0], observations[:, 0] - 0.05, 0.2 * observations[:, 1] - 0.1], dim=1)

    result = pgd(steep, th.zeros(1, 2), same(2.0, 1))
    assert result.target.tolist() == [2] and result.spent.item() > 0.4


def test_targets_within_the_threshold_of_the_best_are_skipped():
    states = th.tensor([[1.0, 0.9, 0.5]]).expand(4, 3)
    for q_threshold, target in ((0.0, 2), (0.3, 2), (0.6, -1)):
        assert pgd(identity, states, same(0.6, 4), q_threshold=q_threshold).target.tolist() == [target] * 4
    for objective in ("targeted", "jeffreys"):
        near_only = pgd(identity, states, same(0.1, 4), q_threshold=0.0, objective=objective)
        assert near_only.target.tolist() == [1] * 4
        assert pgd(identity, states, same(0.1, 4), q_threshold=0.2, objective=objective).target.tolist() == [-1] * 4


@pytest.mark.parametrize("attack, step_size", [(pgd, 0.01), (apgd, 0.05), (fgsm, 0.5)])
@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_actions_with_equal_scores_lose_nothing_and_are_no_targets(attack, step_size, objective):
    flat = th.zeros(3, 4)
    result = attack(identity, flat, same(1.0, 3), step_size=step_size, objective=objective)
    assert not result.flipped.any() and th.equal(result.received, flat) and (result.spent == 0).all()


def test_a_quotient_that_float_puts_below_a_whole_number_of_steps_counts_as_whole():
    # 2 * 0.29 / 0.01 is 57.99999999999999: the boundary lies where only the 58th step arrives
    def boundary_after_57_steps(observations):
        return th.cat([th.full_like(observations, 0.2850), observations], dim=1)

    for step_size, n_steps in ((0.005, 58), (0.01, 29)):
        seen = []

        def counted(observations, seen=seen):
            seen.append(len(observations))
            return boundary_after_57_steps(observations)

        result = pgd(counted, th.zeros(1, 1), same(0.29, 1), step_size=step_size, multiplier=1.0)
        assert result.flipped.all()
        assert result.spent.item() == pytest.approx(0.29, abs=1e-6)
        assert len(seen) == 2 + n_steps


def test_copies_of_a_frame_in_a_stack_are_one_perturbation():
    states, distance = states_and_distances()

    def twice(frames, rows):
        return th.cat([frames, frames], dim=1)

    def stacked(observations):
        return linear(observations[:, :3]) + linear(observations[:, 3:])

    result = pgd(stacked, states, same(0.5, 60), assemble=twice)
    assert np.array_equal(result.flipped.numpy(), distance < 0.5)
    assert result.spent.numpy()[result.flipped] == pytest.approx(distance[result.flipped] + 0.005, abs=0.0051)


def test_older_frames_and_dicts_come_from_the_row_that_is_asked_for():
    newest, distance = states_and_distances()
    older = th.arange(60.0)[:, None]

    def assemble(frames, rows):
        return {"frame": frames, "shift": older[rows]}

    def scores(observations):
        moved = observations["frame"] - observations["shift"]
        return linear(moved)

    result = pgd(scores, newest + older, same(0.5, 60), assemble=assemble)
    assert np.array_equal(result.flipped.numpy(), distance < 0.5)
