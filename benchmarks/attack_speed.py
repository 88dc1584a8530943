"""
How much faster is one attack of a batch than attacking its rows one by one, and than a plain loop over states and targets as
Algorithm 2 of the paper is written?

CartPole: a network of 64-64, taught to push the cart under the leaning pole, and a budget with which about half of the states
get another action, as at the smallest budget of the paper. 5 actions: the same with random weights, of the size of the Highway
task. NatureCNN: random weights and random images, of which the newest of 4 frames is attacked. The more rows need few steps
where another needs many, the less a batch gains. The three ways take turns, so that a noisy machine disturbs all alike.

Then whole episodes: `attack` with its defaults on CartPole with one frame and sigma 0.4, all envs as one array (native)
against one by one (dummy), CPU time per step of an attacked episode. The victim is the network from above, or `--victim`.
Prints one line of JSON at the end.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from rl_zoo3.utils import ALGOS
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.torch_layers import NatureCNN

import sb3_camp.zoo
from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.attack_runs.attacked_env import attacked_frames
from sb3_camp.attacks import Assemble, Scores, pgd
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk

MULTIPLIER = 2.0
SIGMA = 0.4


class Task(NamedTuple):
    """What is attacked."""

    scores: Scores
    states: th.Tensor
    assemble: Assemble | None
    budget: float
    step_size: float


def cartpole(n_rows: int) -> Task:
    network = th.nn.Sequential(th.nn.Linear(4, 64), th.nn.ReLU(), th.nn.Linear(64, 64), th.nn.ReLU(), th.nn.Linear(64, 2))
    states = th.randn(4096, 4) * th.tensor([0.8, 0.8, 0.16, 0.8])
    lean = states @ th.tensor([0.1, 0.3, 3.0, 1.0])
    values = 10 + th.stack([-lean, lean], dim=1).clamp(-1, 1)
    optimizer = th.optim.Adam(network.parameters(), 3e-3)
    for _ in range(400):
        batch = th.randint(len(states), (256,))
        optimizer.zero_grad()
        th.nn.functional.mse_loss(network(states[batch]), values[batch]).backward()
        optimizer.step()
    return Task(network, states[:n_rows], None, 0.2, 0.01)


def five_actions(n_rows: int) -> Task:
    network = th.nn.Sequential(th.nn.Linear(25, 64), th.nn.ReLU(), th.nn.Linear(64, 64), th.nn.ReLU(), th.nn.Linear(64, 5))
    return Task(network, th.randn(n_rows, 25), None, 0.5, 0.025)


def nature_cnn(n_rows: int) -> Task:
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    network = th.nn.Sequential(NatureCNN(space), th.nn.Linear(512, 6)).eval()
    stacks = th.randint(0, 256, (n_rows, 4, 84, 84), dtype=th.uint8)

    def assemble(frames: th.Tensor, rows: th.Tensor) -> th.Tensor:
        return th.cat([stacks[rows, :3].float(), frames[:, None]], dim=1)

    return Task(lambda images: network(images / 255), stacks[:, 3], assemble, 200.0, 10.0)


def plain_loop(task: Task) -> int:
    """
    One state and one target at a time, as Algorithm 2 is written.

    :return: how many states have another action
    """
    flipped = 0
    images = task.states.dtype == th.uint8
    assemble = task.assemble or (lambda frames, rows: frames)
    for row in range(len(task.states)):
        state, index = task.states[row : row + 1].float(), th.tensor([row])
        with th.no_grad():
            clean = task.scores(assemble(state, index))[0]
        best = int(clean.argmax())
        lowest = float(clean[best])
        for target in range(len(clean)):
            if target == best:
                continue
            moved = state.clone()
            for _ in range(math.floor(MULTIPLIER * task.budget / task.step_size)):
                seen = (moved.round() if images else moved).requires_grad_()
                scores = task.scores(assemble(seen, index))
                if int(scores.argmax()) == target and float(clean[target]) < lowest:
                    lowest = float(clean[target])
                    break
                loss = th.nn.functional.cross_entropy(scores, th.tensor([target]))
                (gradient,) = th.autograd.grad(loss, seen)
                delta = moved.detach() - task.step_size * gradient / gradient.norm().clamp(min=1e-12) - state
                moved = state + delta * min(1.0, task.budget / max(float(delta.norm()), 1e-12))
                if images:
                    moved = moved.clamp(0, 255)
        flipped += lowest < float(clean[best])
    return flipped


def together(task: Task) -> int:
    budget = th.full((len(task.states),), task.budget, dtype=th.float64)
    result = pgd(task.scores, task.states, budget, step_size=task.step_size, multiplier=MULTIPLIER, assemble=task.assemble)
    return int(result.flipped.sum())


def row_by_row(task: Task) -> int:
    flipped = 0
    for row in range(len(task.states)):
        frame, budget = task.states[row : row + 1], th.tensor([task.budget], dtype=th.float64)
        assemble: Assemble | None = None
        if task.assemble is not None:
            assemble = lambda frames, rows, row=row: task.assemble(frames, rows + row)  # type: ignore[misc]  # noqa: E731
        result = pgd(task.scores, frame, budget, step_size=task.step_size, multiplier=MULTIPLIER, assemble=assemble)
        flipped += int(result.flipped)
    return flipped


WAYS: dict[str, Callable[[Task], int]] = {"together": together, "row by row": row_by_row, "plain loop": plain_loop}


def compare(name: str, task: Task, repetitions: int) -> dict[str, Any]:
    """
    :return: flips and seconds of each way, and how many times the time of the batch the others take: median, least and most
    """
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    flips = {way: attack(task) for way, attack in WAYS.items()}  # the first call warms up
    for _ in range(repetitions):
        for way, attack in WAYS.items():
            started = time.perf_counter()
            attack(task)
            seconds[way].append(time.perf_counter() - started)
    result: dict[str, Any] = {"rows": len(task.states), "flips": flips}
    for way, times in seconds.items():
        ratios = [own / batch for own, batch in zip(times, seconds["together"], strict=True)]
        spread = [statistics.median(ratios), min(ratios), max(ratios)]
        result[way] = {"seconds": round(statistics.median(times), 4), "times_the_batch": [round(ratio, 1) for ratio in spread]}
        print(
            f"{name:10}{len(task.states):4} rows, {way:11}{statistics.median(times):9.3f} s, {flips[way]:3} flips, "
            f"{spread[0]:6.1f} ({spread[1]:.1f} to {spread[2]:.1f}) times the batch",
            flush=True,
        )
    return result


def taught(task: Task) -> DQN:
    """A DQN with the network of a task."""
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=1, policy_kwargs={"net_arch": [64, 64]}, device="cpu")
    assert isinstance(task.scores, th.nn.Module)
    model.policy.q_net.q_net.load_state_dict(task.scores.state_dict())
    return model


def whole_episodes(
    victim: BaseAlgorithm, budgets: list[float], n_episodes: dict[str, int], repetitions: int
) -> list[dict[str, Any]]:
    """
    :return: at each budget, CPU time per step of an episode under pgd in microseconds, native and dummy, and their ratio:
        median, least and most
    """
    environment = EvaluationEnv("camp/CartPole1-v0", env_kwargs={"sigma": SIGMA})
    frames = attacked_frames(environment, victim, Path("victim"))
    players = {
        name: AttackPlayer(victim, environment, frames, SIGMA, name == "native", n, True) for name, n in n_episodes.items()
    }
    rows = []
    for budget in budgets:
        times: dict[str, list[float]] = {name: [] for name in players}
        for seed in range(repetitions):
            for name, player in players.items():
                with player.opened("pgd", {}, budget) as play:
                    started = time.process_time()
                    played = play(Chunk(player.n_envs, 2**30 + 100_000 * seed), lambda: None)
                    times[name].append((time.process_time() - started) / int(played.episodes.lengths.sum()))
        ratios = [dummy / native for dummy, native in zip(times["dummy"], times["native"], strict=True)]
        medians = {name: round(1e6 * statistics.median(values), 1) for name, values in times.items()}
        spread = [round(value, 1) for value in (statistics.median(ratios), min(ratios), max(ratios))]
        print(f"budget {budget:g}: dummy {medians['dummy']} us, native {medians['native']} us per step, {spread} times")
        rows.append({"budget": budget, "microseconds": medians, "times": spread})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch of states (default: %(default)s)")
    parser.add_argument("--images", type=int, default=4, help="rows of a batch of images (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=7, help="measurements of each way (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of networks and states (default: %(default)s)")
    parser.add_argument("--victim", type=Path, help="checkpoint of an agent for CartPole with one frame")
    parser.add_argument("--algo", default="camp_dqn", help="the zoo's name of its algorithm (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="3 measurements, 2 images, few episodes")
    args = parser.parse_args()
    budgets, n_episodes = [0.0, 0.2, 0.6], {"native": 1000, "dummy": 64}
    if args.short:
        args.repetitions, args.images = 3, 2
        budgets, n_episodes = [0.2], {"native": 500, "dummy": 8}
    sb3_camp.zoo.register()
    th.set_num_threads(args.threads)
    th.manual_seed(args.seed)
    results: dict[str, Any] = {
        "cartpole": compare("CartPole", cartpole(args.rows), args.repetitions),
        "five_actions": compare("5 actions", five_actions(args.rows), args.repetitions),
        "nature_cnn": compare("NatureCNN", nature_cnn(args.images), args.repetitions),
    }
    victim = taught(cartpole(1)) if args.victim is None else ALGOS[args.algo].load(args.victim, device="cpu")
    results["episodes"] = whole_episodes(victim, budgets, n_episodes, min(3, args.repetitions))
    print(json.dumps({"benchmark": "attack_speed", "threads": args.threads, "results": results}))


if __name__ == "__main__":
    main()
