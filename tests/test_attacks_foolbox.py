"""The attacks against those of Foolbox, an independent library of attacks on classifiers."""

import warnings

import pytest
import torch as th

from sb3_camp.attacks import fgsm, pgd
from sb3_camp.attacks.ball import Ball
from sb3_camp.attacks.objectives import SHARPNESS, TargetedCrossEntropy
from sb3_camp.attacks.steps import AutoSteps

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import foolbox

N_ACTIONS = 4


def mlp() -> th.nn.Module:
    return th.nn.Sequential(th.nn.Linear(6, 32), th.nn.ReLU(), th.nn.Linear(32, 32), th.nn.ReLU(), th.nn.Linear(32, N_ACTIONS))


def cnn() -> th.nn.Module:
    return th.nn.Sequential(
        th.nn.Conv2d(2, 6, 4, stride=2),
        th.nn.ReLU(),
        th.nn.Conv2d(6, 8, 3),
        th.nn.ReLU(),
        th.nn.Flatten(),
        th.nn.Linear(72, N_ACTIONS),
    )


NETWORKS = pytest.mark.parametrize("build, frame", [(mlp, (6,)), (cnn, (2, 12, 12))], ids=["mlp", "cnn"])


def network_and_states(build, frame, n: int = 32) -> tuple[th.nn.Module, th.Tensor]:
    network, generator = build().eval(), th.Generator().manual_seed(0)
    with th.no_grad():
        for parameter in network.parameters():
            fan = parameter[0].numel() if parameter.ndim > 1 else parameter.numel()
            parameter.copy_(1.5 * th.randn(parameter.shape, generator=generator) / fan**0.5)
    return network, th.randn(n, *frame, generator=generator)


class InUnitsOfTheGap(th.nn.Module):
    """The scores of the network for these states, in which the attacks here take the cross-entropy."""

    def __init__(self, network, states, targets) -> None:
        super().__init__()
        self.network = network
        with th.no_grad():
            clean = network(states)
        self.gap = clean.amax(dim=1, keepdim=True) - clean.gather(1, targets[:, None])

    def forward(self, frames):
        return SHARPNESS * self.network(frames) / self.gap


def foolbox_pgd(network, states, targets, radius: float, step_size: float, n_steps: int) -> th.Tensor:
    model = foolbox.PyTorchModel(network.eval(), bounds=(-1e3, 1e3))
    attack = foolbox.attacks.L2ProjectedGradientDescentAttack(abs_stepsize=step_size, steps=n_steps, random_start=False)
    return attack.run(model, states, foolbox.criteria.TargetedMisclassification(targets), epsilon=radius)


@NETWORKS
@pytest.mark.parametrize("step_size, radius", [(0.6, 5.0), (5.0, 0.6)], ids=["step", "projection"])
def test_one_pgd_step_and_the_projection_agree(build, frame, step_size, radius):
    network, states = network_and_states(build, frame)
    budget = th.full((32,), radius, dtype=th.float64)
    for result in (
        pgd(network, states, budget, step_size=step_size, multiplier=1.2 * step_size / radius),
        fgsm(network, states, budget, step_size=step_size),
    ):
        rows = result.flipped
        assert rows.sum() >= 5
        scaled = InUnitsOfTheGap(network, states[rows], result.target[rows])
        expected = foolbox_pgd(scaled, states[rows], result.target[rows], radius, step_size, 1)
        assert (result.received[rows] - expected).abs().max() < 1e-5
        assert th.allclose(result.spent[rows], th.tensor(0.6, dtype=th.float64), atol=1e-5)


@NETWORKS
def test_pgd_stops_on_the_path_of_many_steps_where_the_target_is_reached(build, frame):
    network, states = network_and_states(build, frame)
    result = pgd(network, states, th.full((32,), 0.9, dtype=th.float64), step_size=0.1, multiplier=1.0)
    rows = result.flipped
    found = states[rows].clone()
    arrived = th.zeros(int(rows.sum()), dtype=th.bool)
    scaled = InUnitsOfTheGap(network, states[rows], result.target[rows])
    for n_steps in range(1, 10):
        path = foolbox_pgd(scaled, states[rows], result.target[rows], 0.9, 0.1, n_steps)
        arrives = ~arrived & (network(path).argmax(dim=1) == result.target[rows])
        found[arrives], arrived = path[arrives], arrived | arrives
    assert arrived.all() and len(arrived) >= 5
    assert (result.received[rows] - found).abs().max() < 1e-5


def lowest_loss_of_apgd(network, states, targets, radius: float, step_size: float, n_steps: int) -> th.Tensor:
    """Of all the points on the way of apgd, had it not stopped at its target."""
    ball = Ball(states.flatten(1), th.full((len(states),), radius, dtype=th.float64))
    objective = TargetedCrossEntropy(targets, N_ACTIONS, th.full((len(states),), SHARPNESS))
    delta = th.zeros(states.flatten(1).shape, dtype=th.float64)
    steps = AutoSteps(step_size, delta, th.full((len(states),), n_steps))
    losses = []
    for step in range(n_steps + 1):
        frames = ball.received(delta).view(states.shape).requires_grad_()
        scores = network(frames)
        losses.append(-objective.value(scores.detach()))
        (gradient,) = th.autograd.grad(-th.nn.functional.cross_entropy(scores, targets, reduction="sum"), frames)
        delta = steps.advance(step, delta, gradient.flatten(1).double(), ball, lambda: -losses[-1])
    return th.stack(losses).amin(dim=0)


@NETWORKS
@pytest.mark.parametrize("radius, step_size, n_steps", [(1.5, 0.3, 20), (1.5, 0.3, 40), (1.5, 3.0, 40), (1.5, 0.075, 40)])
def test_apgd_comes_at_least_as_low_as_pgd_with_as_many_steps(build, frame, radius, step_size, n_steps):
    network, states = network_and_states(build, frame, n=256)
    targets = (network(states).argmax(dim=1) + 1) % N_ACTIONS
    last = foolbox_pgd(network, states, targets, radius, step_size, n_steps)
    with th.no_grad():
        theirs = th.nn.functional.cross_entropy(network(last), targets, reduction="none")
    ours = lowest_loss_of_apgd(network, states, targets, radius, step_size, n_steps)
    # both may end in other minima of the same row, by chance
    assert (ours < theirs - 1e-3).sum() > (ours > theirs + 1e-3).sum()
    assert ours.mean() <= 1.01 * theirs.mean()
    if step_size > 1:  # far too long for PGD; APGD halves it
        assert ours.mean() < 0.95 * theirs.mean()
