"""
Is the certificate right end to end, and how far below the truth is it? Small tasks whose worst attack can be computed.

The policy sees a number x + N(0, sigma^2), x the state, and goes one way if it is above 0 and the other way if not. The
adversary knows the state, the policy and what has happened, shifts what is seen, and may spend a budget R over the episode:
the root of the sum of its squared shifts. Dynamic programming over time, state and remaining budget finds its best attack,
among those that spend R^2 in fixed parts; finer parts lower the value a little further (the tables say by how much at most
half as many parts had missed).

Prints, for each radius, the expected return under the best attack, the mean return of episodes played against it, and the
certified return from 10,000 clean episodes; then how often certificates from few episodes are above the truth at any radius:
at most in a share alpha of all cases. The last line is JSON.

    python benchmarks/worst_case_mdp.py
"""

import argparse
import json
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sb3_camp.certification import certified_return
from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.bands import METHODS

SIGMA = 1.0
RADII = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
END = -1


@dataclass(frozen=True)
class Task:
    """
    :param states: what the policy sees without noise, in each state; the first is the start
    :param above: the next state where it sees more than 0, or END
    :param below: the next state where it sees less
    :param reward_above: reward of the step where it sees more than 0, in each state
    :param reward_below: reward of the step where it sees less
    :param horizon: number of steps
    """

    states: tuple[float, ...]
    above: tuple[int, ...]
    below: tuple[int, ...]
    reward_above: tuple[float, ...]
    reward_below: tuple[float, ...]
    horizon: int


def balance(width: int, horizon: int) -> Task:
    """Keep a walker on a board: it is pushed down if seen above the middle, up if below; 1 for each step, as in CartPole."""
    positions = [0, *range(1, width + 1), *range(-1, -width - 1, -1)]
    index = {position: number for number, position in enumerate(positions)}
    return Task(
        states=tuple(map(float, positions)),
        above=tuple(index.get(position - 1, END) for position in positions),
        below=tuple(index.get(position + 1, END) for position in positions),
        reward_above=(1.0,) * len(positions),
        reward_below=(1.0,) * len(positions),
        horizon=horizon,
    )


TASKS = {
    "one look": Task((1.5,), (0,), (0,), (1.0,), (0.0,), 1),
    "ten looks": Task((1.5,), (0,), (0,), (1.0,), (0.0,), 10),
    "until the first mistake": Task((2.0,), (0,), (END,), (1.0,), (0.0,), 30),
    "balance": balance(3, 40),
}


def worst_case(task: Task, parts: int, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """
    :param task: what is attacked
    :param parts: the squared budget is spent in units of largest^2 / parts
    :param largest: the largest budget
    :return: expected return from the start under the best attack, for each budget of 0 to ``parts`` units; and the attack:
        the signed number of units that it spends, shape (horizon, states, parts + 1)
    """
    budgets = np.arange(parts + 1)
    shifts = largest * np.sqrt(budgets / parts)
    left = budgets[:, None] - budgets  # units left after spending, [budget, spent]
    # value[-1], of the state END, stays 0
    value = np.zeros((len(task.states) + 1, parts + 1))
    attack = np.zeros((task.horizon, len(task.states), parts + 1), dtype=int)
    for step in reversed(range(task.horizon)):
        later, value = value, np.zeros_like(value)
        for state, seen in enumerate(task.states):
            if_above = task.reward_above[state] + later[task.above[state]][left]
            if_below = task.reward_below[state] + later[task.below[state]][left]
            best = np.full(parts + 1, np.inf)
            for sign in (1, -1):
                above = ndtr((seen + sign * shifts) / SIGMA)
                outcomes = np.where(left >= 0, above * if_above + (1 - above) * if_below, np.inf)
                spent = outcomes.argmin(axis=1)
                better = outcomes[budgets, spent] < best
                best[better] = outcomes[budgets, spent][better]
                attack[step, state, better] = sign * spent[better]
            value[state] = best
    return value[0], attack


def play(
    task: Task, n: int, rng: np.random.Generator, attack: np.ndarray | None = None, units: int = 0, largest: float = 0.0
) -> np.ndarray:
    """
    :return: returns of n independent episodes, without an attack or against that of :func:`worst_case` with so many units
    """
    returns, state, budget = np.zeros(n), np.zeros(n, dtype=int), np.full(n, units)
    states, above, below = np.array(task.states), np.array(task.above), np.array(task.below)
    reward_above, reward_below = np.array(task.reward_above), np.array(task.reward_below)
    for step in range(task.horizon):
        alive = state != END
        seen = states[state] + SIGMA * rng.standard_normal(n)
        if attack is not None:
            spent = np.where(alive, attack[step, state, budget], 0)
            seen += np.sign(spent) * largest * np.sqrt(np.abs(spent) / (attack.shape[2] - 1))
            budget -= np.abs(spent)
        returns += np.where(alive, np.where(seen > 0, reward_above[state], reward_below[state]), 0)
        state = np.where(alive, np.where(seen > 0, above[state], below[state]), END)
    return returns


def certify(task: Task, returns: np.ndarray, alpha: float, method: str) -> np.ndarray:
    support = np.arange(task.horizon + 1) if band_of(method).pointwise else None
    return certified_return(returns, SIGMA, RADII, alpha=alpha, method=method, support=support)


def examine(task: Task, args: argparse.Namespace, rng: np.random.Generator) -> dict[str, object]:
    """Print the table of one task, and count the certificates that are above the truth."""
    largest = float(RADII[-1])
    value, attack = worst_case(task, args.parts, largest)
    coarse, _ = worst_case(task, args.parts // 2, largest)
    units = np.round(args.parts * (RADII / largest) ** 2).astype(int)
    worst = value[units]
    missed = np.max(coarse - value[::2])
    returns = play(task, args.episodes, rng)
    curves = {method: certify(task, returns, args.alpha, method) for method in METHODS}
    print(f"{'radius':>8}{'worst':>10}{'played':>10}" + "".join(f"{method:>18}" for method in METHODS))
    for index, radius in enumerate(RADII):
        played = play(task, args.episodes, rng, attack, int(units[index]), largest).mean()
        row = "".join(f"{curves[method][index]:18.3f}" for method in METHODS)
        print(f"{radius:8.1f}{worst[index]:10.3f}{played:10.3f}{row}")
    few = play(task, args.few * args.repetitions, rng).reshape(args.repetitions, args.few)
    wrong = {
        method: float(np.mean([np.any(certify(task, sample, args.alpha, method) > worst) for sample in few]))
        for method in METHODS
    }
    print(f"certificates from {args.few} episodes above the truth: " + ", ".join(f"{m} {s:.4f}" for m, s in wrong.items()))
    print(f"half as many parts of the budget had missed at most {missed:.4f}\n", flush=True)
    return {
        "worst": worst.tolist(),
        "certified": {method: curve.tolist() for method, curve in curves.items()},
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpha", type=float, default=0.05, help="allowed failure probability (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=10_000, help="episodes of the tables (default: %(default)s)")
    parser.add_argument("--few", type=int, default=200, help="episodes of each repeated certificate (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=2000, help="repeated certificates (default: %(default)s)")
    parser.add_argument("--parts", type=int, default=360, help="parts of the squared budget, a multiple of 72")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episodes (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="2,000 episodes, 200 certificates, 72 parts")
    args = parser.parse_args()
    if args.short:
        args.episodes, args.repetitions, args.parts = 2000, 200, 72
    if args.parts % 72:
        parser.error("--parts must be a multiple of 72, so that every radius is a whole number of parts")

    rng = np.random.default_rng(args.seed)
    results = {}
    for name, task in TASKS.items():
        print(f"{name}: at most {task.horizon} steps, noise sigma {SIGMA:g}, alpha {args.alpha:g}, {args.episodes} episodes")
        results[name] = examine(task, args, rng)
    shares = [share for result in results.values() for share in result["wrong"].values()]  # type: ignore[attr-defined]
    limit = args.alpha + 4 * math.sqrt(args.alpha * (1 - args.alpha) / args.repetitions)
    print(f"highest share {max(shares):.4f}: {'as promised' if max(shares) <= limit else 'HIGHER THAN PROMISED'}")
    print(json.dumps({"radii": RADII.tolist(), "alpha": args.alpha, "highest_share": max(shares), "tasks": results}))


if __name__ == "__main__":
    main()
