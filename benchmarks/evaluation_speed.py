"""
Steps per second of playing the episodes for a certificate: ``python -m sb3_camp.evaluate`` in its two ways, one env after the
other (dummy) and in the native vector environment of Gymnasium, against SB3's ``evaluate_policy`` with 1 and with 64 envs, and
against a plain loop over one env.

CartPole (camp/CartPole1-v0, 200 steps, noise of sigma 0.2) with a DQN of 64-64 that was taught to push the cart under the
leaning pole. All act by SB3's ``predict``. They take turns, so that a noisy machine disturbs all alike, and the ratios are
taken turn by turn. The ways of evaluate are measured without the start of the command; after them, the command itself plays
10,000 episodes, once. Prints one line of JSON at the end.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy

import sb3_camp  # noqa: F401  # registers the task
from sb3_camp.evaluation import EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.native import opened_native, step_limit

ENV_ID = "camp/CartPole1-v0"


def taught(net_arch: list[int]) -> DQN:
    """
    :return: a DQN whose network prefers the side to which the pole leans, and so balances it most of the time
    """
    model = DQN("MlpPolicy", ENV_ID, buffer_size=1, device="cpu", policy_kwargs=dict(net_arch=net_arch), seed=0)
    states = th.randn(4096, 4) * th.tensor([0.8, 0.8, 0.16, 0.8])
    lean = states @ th.tensor([0.1, 0.3, 3.0, 1.0])
    values = 10 + th.stack([-lean, lean], dim=1).clamp(-1, 1)
    optimizer = th.optim.Adam(model.q_net.parameters(), 3e-3)
    for _ in range(400):
        batch = th.randint(len(states), (256,))
        optimizer.zero_grad()
        th.nn.functional.mse_loss(model.q_net(states[batch]), values[batch]).backward()
        optimizer.step()
    model.policy.set_training_mode(False)
    return model


def plain_loop(model: DQN, env: gym.Env, n_episodes: int) -> int:
    """
    :return: number of steps
    """
    n_steps = 0
    for _ in range(n_episodes):
        observation, _ = env.reset()
        ended = False
        while not ended:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
            n_steps += 1
    return n_steps


def compare(model: DQN, n_turns: int, n_native: int, scale: float) -> dict[str, Any]:
    """
    :param n_turns: Number of turns
    :param n_native: Number of native envs
    :param scale: Scales the number of episodes of a turn, but for the native envs
    :return: by way: steps per second, and ratio to ``evaluate_policy`` with 64 envs: median, least and most
    """
    environment = EvaluationEnv(ENV_ID)
    with contextlib.ExitStack() as stack:
        one, many, own = (stack.enter_context(environment.opened(n_envs)) for n_envs in (1, 64, 64))
        native = stack.enter_context(opened_native(environment, n_native))
        single = gym.make(ENV_ID)
        single.reset(seed=0)
        limit = step_limit(environment)

        def by_sb3(env: Any, n_episodes: int) -> int:
            return sum(evaluate_policy(model, env, n_episodes, return_episode_rewards=True, warn=False)[1])  # type: ignore[arg-type]

        ways: dict[str, tuple[Callable[[int], int], int]] = {
            "native": (
                lambda n: int(play_vector_episodes(model, native, n, seed=0, step_limit=limit).lengths.sum()),
                10 * n_native,
            ),
            "dummy": (lambda n: int(play_episodes(model, own, n, seed=0).lengths.sum()), round(scale * 256)),
            "evaluate_policy, 64 envs": (lambda n: by_sb3(many, n), round(scale * 256)),
            "evaluate_policy, 1 env": (lambda n: by_sb3(one, n), max(1, round(scale * 16))),
            "plain loop": (lambda n: plain_loop(model, single, n), max(1, round(scale * 16))),
        }
        speeds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(-1, n_turns):  # the first warms up
            for way, (play, n_episodes) in ways.items():
                started = time.perf_counter()
                speed = play(n_episodes) / (time.perf_counter() - started)
                if turn >= 0:
                    speeds[way].append(speed)
    result: dict[str, Any] = {}
    for way, values in speeds.items():
        ratios = [value / sb3 for value, sb3 in zip(values, speeds["evaluate_policy, 64 envs"], strict=True)]
        spread = [statistics.median(ratios), min(ratios), max(ratios)]
        speed = statistics.median(values)
        result[way] = {"steps_per_second": round(speed), "times_evaluate_policy_64": [round(ratio, 2) for ratio in spread]}
        print(
            f"{way:25}{speed:10.0f} steps/s, {spread[0]:6.2f} ({spread[1]:.2f} to {spread[2]:.2f}) times that of "
            "evaluate_policy, 64 envs",
            flush=True,
        )
    return result


def command(model: DQN, n_episodes: int) -> dict[str, Any]:
    """
    :return: how long the command takes for this number of episodes, its start included
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.zip")
        arguments = ["--algo", "dqn", "--env", ENV_ID, "--model", f"{folder}/model.zip", "-n", str(n_episodes)]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "sb3_camp.evaluate", *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        with np.load(f"{folder}/certification/evaluations.npz") as content:
            mean_length = float(content["ep_lengths"].mean())
    print(f"python -m sb3_camp.evaluate -n {n_episodes}: {seconds:.1f} s for episodes of {mean_length:.0f} steps in the mean")
    return {"n_episodes": n_episodes, "seconds": round(seconds, 2), "mean_length": round(mean_length, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9, help="measurements of each way (default: %(default)s)")
    parser.add_argument("--native-envs", type=int, default=1024, help="number of native envs (default: %(default)s)")
    parser.add_argument("--net-arch", type=int, nargs="+", default=[64, 64], help="sizes of the layers (default: 64 64)")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="3 turns, a quarter of the episodes but for native")
    args = parser.parse_args()
    th.set_num_threads(args.threads)
    model = taught(args.net_arch)
    result = compare(model, 3 if args.short else args.turns, args.native_envs, 0.25 if args.short else 1.0)
    result["command"] = command(model, 10_000)
    settings = {"net_arch": args.net_arch, "threads": args.threads, "native_envs": args.native_envs}
    print(json.dumps({"benchmark": "evaluation_speed", **settings, "results": result}))


if __name__ == "__main__":
    main()
