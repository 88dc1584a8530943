"""
How the cost grows with the work: evaluation with the number of envs, an update of the networks with the batch and with the
number of actions, a certificate with the number of episodes, an attack with the number of targets.

All sizes of a question take turns, and ratios to the first size are taken turn by turn, so that a noisy machine disturbs all
alike. Each table ends with what bounds the cost, as a profile shows it. Prints one line of JSON at the end.

    python benchmarks/scaling.py --questions batch actions
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_camp import CAMPDQN
from sb3_camp.attacks import pgd
from sb3_camp.certification import certified_return
from sb3_camp.certification.bands import berk_jones_level
from sb3_camp.evaluation import EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.native import opened_native, step_limit

# Name and size of a way, and the call that is timed; it returns how many units of work it did
Way = tuple[str, int, Callable[[], float]]

ENV_ID = "camp/CartPole1-v0"
ALPHA = 0.05
SHORT = 3  # turns


def compare(question: str, unit: str, ways: Sequence[Way], n_turns: int, bound: str) -> list[dict[str, Any]]:
    """
    :param question: What grows
    :param unit: What the time is taken of
    :param ways: What is timed; the first size of each name is what its other sizes are compared with
    :param n_turns: Number of turns
    :param bound: What bounds the cost
    :return: one row for each: median seconds of a unit, and its times those of the first size: median, least and most
    """
    first = {name: index for index, (name, _, _) in reversed(list(enumerate(ways)))}
    seconds: list[list[float]] = [[] for _ in ways]
    for turn in range(-1, n_turns):  # the first warms up
        for times, (_, _, work) in zip(seconds, ways, strict=True):
            started = time.perf_counter()
            n_units = work()
            if turn >= 0:
                times.append((time.perf_counter() - started) / n_units)
    print(f"{question}: microseconds of {unit}")
    rows = []
    for times, (name, size, _) in zip(seconds, ways, strict=True):
        ratios = [own / base for own, base in zip(times, seconds[first[name]], strict=True)]
        spread = [float(f"{value:.3g}") for value in (statistics.median(ratios), min(ratios), max(ratios))]
        rows.append({"way": name, "size": size, "seconds": statistics.median(times), "times_first": spread})
        print(
            f"{name:>12}{size:9}{1e6 * statistics.median(times):14.1f}, {spread[0]:g} ({spread[1]:g} to {spread[2]:g}) times "
            f"that of {ways[first[name]][1]}",
            flush=True,
        )
    print(f"    bound by: {bound}", flush=True)
    return rows


def envs(n_turns: int) -> list[dict[str, Any]]:
    """Per step of an env: evaluation of a CartPole by a network of 64-64 with random weights, which drops the pole soon."""
    environment = EvaluationEnv(ENV_ID)
    limit = step_limit(environment)
    model = DQN("MlpPolicy", ENV_ID, buffer_size=1, device="cpu", policy_kwargs=dict(net_arch=[64, 64]), seed=0)
    model.policy.set_training_mode(False)

    def native(env: gym.vector.VectorEnv, n_episodes: int) -> float:
        return float(play_vector_episodes(model, env, n_episodes, seed=0, step_limit=limit).lengths.sum())

    def dummy(env: Any, n_episodes: int) -> float:
        return float(play_episodes(model, env, n_episodes, seed=0).lengths.sum())

    with ExitStack() as stack:
        ways: list[Way] = []
        for n in (1, 16, 256, 1024, 4096):
            env = stack.enter_context(opened_native(environment, n))
            ways.append(("native", n, partial(native, env, max(10 * n, 50))))
        for n in (1, 16, 64):
            vec_env = stack.enter_context(environment.opened(n))
            ways.append(("dummy", n, partial(dummy, vec_env, max(4 * n, 50))))
        bound = "few envs: Python calls of a step of all; many native envs: the network, then the record of short episodes"
        return compare("envs", "a step of one env", ways, n_turns, bound)


class RandomTask(gym.Env):
    """Random observations of 25 numbers, episodes of 30 steps, any number of actions: the size of the Highway task."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (25,), np.float32)

    def __init__(self, n_actions: int) -> None:
        self.action_space = gym.spaces.Discrete(n_actions)
        self.n_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.n_steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.n_steps += 1
        return self._observation(), float(action == 0), False, self.n_steps == 30, {}

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 25).astype(np.float32)


def trained(algorithm: type[DQN], n_actions: int) -> DQN:
    """A model with a filled buffer."""
    env = DummyVecEnv([lambda: RandomTask(n_actions)])
    settings: dict[str, Any] = dict(buffer_size=2048, learning_starts=10_000, seed=0, device="cpu")
    model = algorithm("MlpPolicy", env, policy_kwargs=dict(net_arch=[256, 256]), **settings)
    return model.learn(2048)


def updates(question: str, sizes: Sequence[tuple[int, int]], which: int, n_turns: int, bound: str) -> list[dict[str, Any]]:
    """
    Per update (of both networks, for CAMP) of networks of 256-256.

    :param question: What grows
    :param sizes: Batch sizes and numbers of actions
    :param which: 0 if the batch is what grows, 1 if it is the number of actions
    :param n_turns: Number of turns
    :param bound: What bounds the cost
    """

    def train(model: DQN, batch_size: int) -> float:
        model.train(16, batch_size)
        return 16.0

    ways: list[Way] = []
    for algorithm in (DQN, CAMPDQN):
        for size in sizes:
            model = trained(algorithm, size[1])
            ways.append((algorithm.__name__, size[which], partial(train, model, size[0])))
    return compare(question, "an update", ways, n_turns, bound)


def batch(n_turns: int) -> list[dict[str, Any]]:
    bound = "small batches: the calls of PyTorch; large ones: the matrix products of the forward and backward passes"
    return updates("batch", [(size, 5) for size in (32, 128, 512, 1024, 2048)], 0, n_turns, bound)


def actions(n_turns: int) -> list[dict[str, Any]]:
    bound = "the hidden layers, as the last layer is a small part of the network"
    return updates("actions", [(128, number) for number in (2, 5, 9, 18)], 1, n_turns, bound)


def episodes(n_turns: int) -> list[dict[str, Any]]:
    """Per certificate at 100 radii; all returns are distinct, which is the slowest case. The level is kept in memory."""
    rng, radii = np.random.default_rng(0), np.linspace(0, 3, 100)

    def certify(returns: np.ndarray, method: str) -> float:
        certified_return(returns, 1.0, radii, alpha=ALPHA, method=method)
        return 1.0

    numbers = (1000, 10_000) if n_turns <= SHORT else (1000, 10_000, 100_000, 1_000_000)
    ways: list[Way] = []
    levels = []
    for m in numbers:
        started = time.perf_counter()
        berk_jones_level(m, ALPHA)
        levels.append({"way": "level of berk-jones", "size": m, "seconds": time.perf_counter() - started})
        print(f"level of berk-jones, once for {m} episodes: {levels[-1]['seconds']:.2f} s", flush=True)
    for method in ("berk-jones", "dkw"):
        ways.extend((method, m, partial(certify, rng.gamma(2.0, 30.0, m), method)) for m in numbers)
    bound = "a normal integral for each radius and return"
    return levels + compare("episodes", "a certificate", ways, n_turns, bound)


def targets(n_turns: int) -> list[dict[str, Any]]:
    """
    Per PGD attack on 64 rows at once, of a random network of 64-64 whose first action is out of reach: all targets of all rows
    take all of their 40 steps, which is the slowest case.
    """
    observations, budget = th.randn(64, 25), th.full((64,), 0.2, dtype=th.float64)

    def attack(network: th.nn.Module) -> float:
        pgd(network, observations, budget, step_size=0.01, multiplier=2.0)
        return 1.0

    ways: list[Way] = []
    for n_actions in (2, 3, 5, 9, 18):
        last = th.nn.Linear(64, n_actions)
        with th.no_grad():
            last.bias[0] += 10.0
        network = th.nn.Sequential(th.nn.Linear(25, 64), th.nn.ReLU(), th.nn.Linear(64, 64), th.nn.ReLU(), last)
        ways.append(("pgd", n_actions - 1, partial(attack, network)))
    bound = "few targets: the calls of PyTorch in each step; many: the passes over rows times targets, a batch of them"
    return compare("targets", "an attack on 64 rows", ways, n_turns, bound)


QUESTIONS = {"envs": envs, "batch": batch, "actions": actions, "episodes": episodes, "targets": targets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS), help="(default: all)")
    parser.add_argument("--turns", type=int, default=9, help="measurements of each size (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="3 turns, up to 10,000 episodes")
    args = parser.parse_args()
    th.set_num_threads(args.threads)
    th.manual_seed(0)
    results = {name: QUESTIONS[name](SHORT if args.short else args.turns) for name in args.questions}
    print(json.dumps({"benchmark": "scaling", "threads": args.threads, "results": results}))


if __name__ == "__main__":
    main()
