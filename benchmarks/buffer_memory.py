"""
Memory of the replay buffer: CAMP's one ring, which serves both of its networks, against what SB3 has for the same transitions:
DQN's buffer, and two of them, one for each network.

Each is filled to the last row, with episodes of 200 steps that a time limit ends, and what NumPy and Python then hold for it
is counted (tracemalloc): the arrays, and the last observations that CAMP's ring keeps aside if it stores each observation once
(optimize_memory_usage). SB3's buffer can do that only if it takes time limits for ends of the task and sums up no n-step
returns; two buffers cannot at all, because the next observation is in the other one. Two of half the size are the split
replay of Algorithm 1; for both networks to learn from all steps (reference="shared"), each needs the whole size. The counts
are exact, so there is no spread. Prints one line of JSON at the end.
"""

import argparse
import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_camp.camp_dqn.replay_buffers import AlternatingReplayBuffer

EPISODE = 200
BASELINE = "SB3 DQN"


class Task(NamedTuple):
    """What is stored, and how many transitions in all."""

    observation_space: gym.spaces.Box
    action_space: gym.spaces.Discrete
    size: int


TASKS = {
    "CartPole": Task(gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2), 100_000),
    "Atari": Task(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(6), 10_000),
}


def candidates(task: Task) -> dict[str, Callable[[], list[ReplayBuffer]]]:
    """
    :return: by name: what makes the buffers
    """
    spaces, size = (task.observation_space, task.action_space, "cpu"), task.size
    return {
        BASELINE: lambda: [ReplayBuffer(size, *spaces)],
        "two of SB3, half the size": lambda: [ReplayBuffer(size // 2, *spaces) for _ in range(2)],
        "two of SB3, the whole size": lambda: [ReplayBuffer(size, *spaces) for _ in range(2)],
        "CAMP": lambda: [AlternatingReplayBuffer(size, *spaces)],
        "SB3 DQN, each observation once": lambda: [
            ReplayBuffer(size, *spaces, optimize_memory_usage=True, handle_timeout_termination=False)
        ],
        "CAMP, each observation once": lambda: [AlternatingReplayBuffer(size, *spaces, optimize_memory_usage=True)],
    }


def fill(buffers: list[ReplayBuffer], space: gym.spaces.Box) -> None:
    """Add transitions to the buffers in turn until all rows are written."""
    observation = np.ones((1, *space.shape), space.dtype)
    action, reward = np.ones((1, 1), np.int64), np.ones(1, np.float32)
    for step in range(1, sum(buffer.buffer_size for buffer in buffers) + 1):
        done = step % EPISODE == 0
        infos = [{"TimeLimit.truncated": done}]
        buffers[step % len(buffers)].add(observation, observation, action, reward, np.array([done]), infos)


def held_bytes(make: Callable[[], list[ReplayBuffer]], space: gym.spaces.Box) -> int:
    gc.collect()
    tracemalloc.start()
    buffers = make()
    fill(buffers, space)
    gc.collect()
    n_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return n_bytes


def measure(name: str, task: Task) -> dict[str, Any]:
    """
    :return: by name: bytes, and how many times those of DQN's buffer
    """
    result: dict[str, Any] = {}
    for label, make in candidates(task).items():
        n_bytes = held_bytes(make, task.observation_space)
        ratio = n_bytes / (result[BASELINE]["bytes"] if result else n_bytes)
        result[label] = {"bytes": n_bytes, "times_DQN": round(ratio, 3)}
        size = f"{n_bytes / 2**20:9.1f} MiB, {n_bytes / task.size:8.0f} bytes a transition"
        print(f"{name:10}{label:32}{size}, {ratio:.2f} times DQN's", flush=True)
    return {"transitions": task.size, "buffers": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a tenth of the transitions")
    args = parser.parse_args()
    results = {}
    for name, task in TASKS.items():
        results[name] = measure(name, task._replace(size=task.size // 10) if args.short else task)
    print(json.dumps({"benchmark": "buffer_memory", "results": results}))


if __name__ == "__main__":
    main()
