"""The batched attacks against a plain loop over states and targets, as Algorithm 2 of the paper and APGD's are written."""

import math

import pytest
import torch as th

from sb3_camp.attacks import apgd, fgsm, pgd
from sb3_camp.attacks.ball import Ball
from sb3_camp.attacks.steps import AutoSteps, checkpoints

N_ACTIONS = 4


def small_network(seed: int, n_actions: int = N_ACTIONS) -> th.nn.Module:
    generator = th.Generator().manual_seed(seed)
    network = th.nn.Sequential(
        th.nn.Linear(5, 16), th.nn.ReLU(), th.nn.Linear(16, 16), th.nn.ReLU(), th.nn.Linear(16, n_actions)
    ).double()  # so that a batch and its rows agree to the last digit of float32
    with th.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.6 * th.randn(parameter.shape, generator=generator, dtype=th.float64))
    return network


def scores_of(network: th.nn.Module):
    return lambda observations: network(observations.double())


def projected(delta: th.Tensor, c: float) -> th.Tensor:
    return delta * min(1.0, c / max(float(delta.norm()), 1e-30))


class PgdState:
    """One state, one target."""

    def __init__(self, delta: th.Tensor, alpha: float, c: float, n: int) -> None:
        self.alpha, self.c = alpha, c

    def step(self, k: int, delta: th.Tensor, loss: float, gradient: th.Tensor) -> th.Tensor:
        return projected(delta - self.alpha * gradient / gradient.norm(), self.c)


class ApgdState:
    """Algorithm 1 of Croce and Hein, for minimising the loss from x_0 = clean."""

    def __init__(self, delta: th.Tensor, alpha: float, c: float, n: int) -> None:
        self.eta, self.c = alpha, c
        p = [0.0, 0.22]
        while p[-1] < 1:
            p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
        self.w = sorted({math.ceil(round(share * n, 9)) for share in p})
        self.points: list[th.Tensor] = []
        self.losses: list[float] = []
        self.etas, self.lowest = {0: alpha}, {}
        self.best: tuple[float, th.Tensor, th.Tensor] | None = None

    def step(self, k: int, delta: th.Tensor, loss: float, gradient: th.Tensor) -> th.Tensor:
        self.losses.append(loss)
        if self.best is None or loss < self.best[0]:
            self.best = (loss, delta, gradient)
        if k == 0:
            self.lowest[0] = loss
        elif k in self.w:
            before = self.w[self.w.index(k) - 1]
            self.etas[k], self.lowest[k] = self.eta, self.best[0]
            falls = sum(self.losses[i + 1] < self.losses[i] for i in range(before, k))
            if falls < 0.75 * (k - before) or (self.etas[before] == self.eta and self.lowest[before] == self.lowest[k]):
                self.eta /= 2
                _, delta, gradient = self.best
        self.points.append(delta)
        z = projected(delta - self.eta * gradient / gradient.norm(), self.c)
        if k == 0:
            return z
        return projected(delta + 0.75 * (z - delta) + 0.25 * (delta - self.points[-2]), self.c)


def one_state(network, state: th.Tensor, c: float, alpha: float, beta: float, q: float, steps) -> tuple[th.Tensor, int]:
    """Algorithm 2 at one time step: s'* and the action there, -1 if there is none."""
    with th.no_grad():
        clean = network(state.double())
    best = int(clean.argmax())
    lowest, found, action = float(clean[best]), state, -1
    n = math.floor(round(beta * c / alpha, 9))
    for target in range(len(clean)):
        if target == best or clean[best] - clean[target] < q:
            continue
        delta = th.zeros_like(state, dtype=th.float64)
        rule = steps(delta, alpha, c, n)
        for k in range(n + 1):
            seen = (state.double() + delta).float().requires_grad_()
            scores = network(seen.double())
            if n > 0 and int(scores.argmax()) == target:
                if clean[target] < lowest:
                    lowest, found, action = float(clean[target]), seen.detach(), target
                break
            if k < n:
                loss = -(10 * scores / (clean[best] - clean[target])).log_softmax(dim=0)[target]
                (gradient,) = th.autograd.grad(loss, seen)
                delta = rule.step(k, delta, float(loss.detach()), gradient.double())
    return found, action


@pytest.mark.parametrize(
    "attack, steps, alpha, beta",
    [(pgd, PgdState, 0.05, 2.0), (pgd, PgdState, 0.3, 3.5), (apgd, ApgdState, 0.05, 2.0), (apgd, ApgdState, 0.4, 8.0)],
)
@pytest.mark.parametrize("q", [0.0, 0.8])
def test_a_batch_is_attacked_as_the_papers_loop_attacks_each_state_and_target(attack, steps, alpha, beta, q):
    network = small_network(seed=3)
    generator = th.Generator().manual_seed(1)
    states = th.randn(24, 5, generator=generator)
    budget = th.rand(24, generator=generator, dtype=th.float64) * 1.2
    budget[5], budget[11] = 0.0, alpha / beta * 0.99
    result = attack(scores_of(network), states, budget, step_size=alpha, multiplier=beta, q_threshold=q)
    loop = [one_state(network, state, c, alpha, beta, q, steps) for state, c in zip(states, budget.tolist(), strict=True)]
    assert result.target.tolist() == [action for _, action in loop]
    assert th.allclose(result.received, th.stack([found for found, _ in loop]), atol=2e-6)
    assert {-1} < set(result.target.tolist()), "the batch should have rows of all kinds"
    assert result.flipped.sum() >= 5


@pytest.mark.parametrize("n_actions", [2, 5])
@pytest.mark.parametrize("attack, step_size", [(pgd, 0.02), (apgd, 0.04), (fgsm, 0.4)])
@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_attack_is_the_same_at_every_scale_of_the_scores(n_actions, attack, step_size, objective):
    network = small_network(seed=2, n_actions=n_actions)
    states, budget = th.randn(64, 5, generator=th.Generator().manual_seed(1)), th.full((64,), 0.5, dtype=th.float64)

    def at(scale):
        return attack(
            lambda x: (scale * network(x.double())).float(), states, budget, step_size=step_size, objective=objective
        )

    expected = at(1.0)
    assert 5 < expected.flipped.sum() < 64
    for scale in (1e6, 1e-2, 1e-6, 1e-20):
        result = at(scale)
        assert result.target.tolist() == expected.target.tolist()
        assert th.allclose(result.received, expected.received, atol=1e-3)


def test_apgd_is_checked_where_its_paper_says():
    table = checkpoints(th.tensor([100, 10, 1]))
    assert table.tolist() == [[22, 41, 57, 70, 80, 87, 93, 99], [3, 5, 6, 7, 8, 9, 10, 10], [1] * 8]


@pytest.mark.parametrize("seed, rising", [(0, 0.5), (1, 0.74), (2, 0.9)])
def test_apgd_moves_checks_and_halves_as_its_algorithm_whatever_the_values_are(seed, rising):
    generator = th.Generator().manual_seed(seed)
    n_steps = th.tensor([60, 33, 47, 12, 5, 60, 25, 40])
    rows, length = len(n_steps), 61
    rises = th.where(th.rand(length, rows, generator=generator) < rising, 1.0, -4.0 * rising)
    values = (rises * th.rand(length, rows, generator=generator, dtype=th.float64)).cumsum(dim=0)
    gradients = th.randn(length, rows, 3, generator=generator, dtype=th.float64)
    ball, delta = Ball(th.zeros(rows, 3), th.ones(rows, dtype=th.float64)), th.zeros(rows, 3, dtype=th.float64)
    steps = AutoSteps(0.3, delta, n_steps)
    plain = [ApgdState(row, 0.3, 1.0, n) for row, n in zip(delta, n_steps.tolist(), strict=True)]
    expected = list(delta)
    for k in range(length):
        delta = steps.advance(k, delta, gradients[k], ball, lambda k=k: values[k])
        for row, state in enumerate(plain):
            if k < n_steps[row]:
                expected[row] = state.step(k, expected[row], -float(values[k, row]), -gradients[k, row])
                assert delta[row].tolist() == pytest.approx(expected[row].tolist(), abs=1e-6)
    halvings = [round(math.log2(0.3 / state.eta)) for state in plain]
    assert len(set(halvings)) > 2, "rows halve at times of their own"


def test_apgd_returns_to_the_best_point_with_half_the_step_where_it_does_not_rise():
    start, gradient = th.zeros(1, 1, dtype=th.float64), th.ones(1, 1, dtype=th.float64)
    steps, delta = AutoSteps(0.1, start, th.tensor([10])), th.zeros(1, 1, dtype=th.float64)
    ball, seen = Ball(th.zeros(1, 1), th.tensor([5.0])), []
    for step in range(5):  # up the gradient, and yet down, as beyond a ridge
        seen.append(delta.item())
        delta = steps.advance(step, delta, gradient, ball, lambda delta=delta: -delta.squeeze(1))
    drift = 0.75 * 0.1 + 0.25 * 0.1
    assert seen[:4] == pytest.approx([0.0, 0.1, 0.1 + drift, 0.1 + 2 * drift])
    assert seen[4] == pytest.approx(0.0 + 0.75 * 0.05 + 0.25 * (0.0 - seen[2]))


@pytest.mark.parametrize("attack, step_size", [(pgd, 0.03), (apgd, 0.1), (fgsm, 0.6)])
@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_what_a_row_gets_does_not_depend_on_the_other_rows(attack, step_size, objective):
    scores = scores_of(small_network(seed=5))
    generator = th.Generator().manual_seed(2)
    states = th.randn(17, 5, generator=generator)
    budget = th.rand(17, generator=generator, dtype=th.float64)
    together = attack(scores, states, budget, step_size=step_size, objective=objective)
    order = th.randperm(17, generator=generator)
    shuffled = attack(scores, states[order], budget[order], step_size=step_size, objective=objective)
    alone = [attack(scores, states[i : i + 1], budget[i : i + 1], step_size=step_size, objective=objective) for i in range(17)]
    assert 0 < together.flipped.sum() < 17
    for field in together._fields:
        mine = getattr(together, field)
        assert th.allclose(mine[order].double(), getattr(shuffled, field).double(), atol=1e-6)
        assert th.allclose(mine.double(), th.cat([getattr(one, field) for one in alone]).double(), atol=1e-6)


@pytest.mark.parametrize("attack, step_size", [(pgd, 2.0), (apgd, 4.0), (fgsm, 30.0)])
def test_what_an_image_gets_does_not_depend_on_the_other_images(attack, step_size):
    generator = th.Generator().manual_seed(0)
    weights, more = (th.randn(64, 5, generator=generator, dtype=th.float64) for _ in range(2))
    images = th.randint(0, 256, (9, 8, 8), generator=generator).to(th.uint8)
    budget = 60 * th.rand(9, generator=generator, dtype=th.float64)

    def scores(frames):
        pixels = frames.double().flatten(1) / 255
        return pixels @ weights + (pixels @ more).sin()

    together = attack(scores, images, budget, step_size=step_size)
    alone = [attack(scores, images[i : i + 1], budget[i : i + 1], step_size=step_size) for i in range(9)]
    assert 0 < together.flipped.sum() < 9
    assert th.equal(together.received, th.cat([one.received for one in alone]))
    assert th.equal(together.target, th.cat([one.target for one in alone]))


def test_each_pair_is_looked_at_once_more_than_it_steps_and_leaves_when_it_is_done():
    network, seen = small_network(seed=3), []

    def counting(observations):
        seen.append(len(observations))
        return network(observations.double())

    states = th.randn(6, 5, generator=th.Generator().manual_seed(4))
    n_steps = th.tensor([0, 1, 2, 3, 5, 8])
    unreachable = 1e-6  # so short steps flip no row
    result = pgd(counting, states, n_steps.double() * unreachable, step_size=unreachable, multiplier=1.0)
    assert not result.flipped.any()
    clean, looks = seen[0], seen[1:]
    assert clean == 5, "a row without a step is left alone"
    assert looks == [3 * int((n_steps[1:] >= k).sum()) for k in range(9)]
