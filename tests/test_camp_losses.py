import math

import pytest
import torch as th

from sb3_camp.camp_dqn.losses import adaptive_eta, agreement, imitation_loss, q_gap, robustness_loss

Q = th.tensor([[0.0, math.log(3.0)], [2.0, 2.0], [1.0, -1.0]])
REFERENCE_Q = th.tensor([[0.0, 0.0], [math.log(4.0), 0.0], [-1.0, 5.0]])


def test_soft_imitation_is_the_cross_entropy_of_the_two_softmaxes():
    row_0 = -(0.5 * math.log(0.25) + 0.5 * math.log(0.75))
    row_1 = math.log(2.0)  # Softmax(Q) is uniform, whatever the target
    p = 1 / (1 + math.exp(6.0))  # Softmax(reference)_0 in the last row
    log_z = math.log(1 + math.exp(-2.0))
    row_2 = p * log_z + (1 - p) * (2.0 + log_z)
    assert imitation_loss(Q, REFERENCE_Q, "soft").item() == pytest.approx((row_0 + row_1 + row_2) / 3, rel=1e-6)


def test_hard_imitation_is_the_negative_log_probability_of_the_reference_action():
    reference_q = th.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 5.0]])
    expected = (-math.log(0.25) + math.log(2.0) + 2.0 + math.log(1 + math.exp(-2.0))) / 3
    assert imitation_loss(Q, reference_q, "hard").item() == pytest.approx(expected, rel=1e-6)


def test_adaptive_eta_is_the_range_over_the_batch_and_carries_gradient():
    q = Q.clone().requires_grad_()
    eta = adaptive_eta(q)
    assert eta.item() == 3.0
    eta.backward()
    expected = th.zeros_like(Q)
    expected[1, :] = 0.5  # the maximum is shared by the two actions of this row
    expected[2, 1] = -1.0
    assert th.equal(q.grad, expected)


def test_robustness_loss_is_the_gated_hinge():
    q = th.tensor(
        [
            [3.0, 1.0, 0.0],  # gap 2 < 2.5, the reference agrees: 0.5
            [3.0, 1.0, 0.0],  # the reference prefers the runner-up: 0
            [3.0, 1.0, 0.0],  # the reference prefers the third action, but not the runner-up to the best: 0.5
            [0.0, 9.0, 1.0],  # gap 8 > 2.5: 0
            [1.0, 1.0, 0.0],  # gap 0, the reference has a tie: 2.5
        ]
    )
    reference_q = th.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.5, 9.0], [0.0, 1.0, 0.0], [4.0, 4.0, 0.0]])
    assert robustness_loss(q, reference_q, 2.5).item() == pytest.approx((0.5 + 0 + 0.5 + 0 + 2.5) / 5)
    assert robustness_loss(q, reference_q, 0.0).item() == 0.0


def test_robustness_gradient_raises_the_best_and_lowers_the_runner_up_only_where_the_gate_is_open():
    q = th.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0]], requires_grad=True)
    reference_q = th.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    robustness_loss(q, reference_q, 4.0).backward()
    assert th.equal(q.grad, th.tensor([[-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))


def test_q_gap_is_the_best_minus_the_second_best():
    assert th.equal(q_gap(th.tensor([[1.0, 5.0, 3.0], [2.0, 2.0, -1.0]])), th.tensor([2.0, 0.0]))


def test_agreement_counts_where_the_greedy_action_is_one_of_the_best_of_the_reference():
    q = th.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 5.0, 1.0]])
    reference_q = th.tensor([[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [4.0, 1.0, 4.0], [0.0, 1.0, 1.1]])
    assert agreement(q, reference_q).item() == 0.5, "the first and, by a tie, the third"
