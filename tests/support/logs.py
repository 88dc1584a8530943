"""Logs of episodes, written as Monitor and evaluate write them."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor

from sb3_camp.certification.pooling import read_logs
from sb3_camp.errors import InputError
from support.run_folders import noise


def play_monitored(path: Path, n_episodes: int, seed: int = 0, **kwargs: Any) -> tuple[list[float], list[int]]:
    """Play random actions under SB3's Monitor and return what it counted."""
    env = Monitor(gym.make("CartPole-v1"), str(path), **kwargs)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    for _ in range(n_episodes):
        env.reset()
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
    env.reset()
    env.step(0)  # an unfinished episode
    env.close()
    return env.get_episode_rewards(), env.get_episode_lengths()


def write_monitor(
    path: Path, rows: list[tuple[float, int, float]], t_start: float = 1.7e9, env_id: str = "CartPole-v1"
) -> Path:
    header = json.dumps({"t_start": t_start, "env_id": env_id})
    path.write_text(f"#{header}\nr,l,t\n" + "".join(f"{r},{length},{t}\r\n" for r, length, t in rows))
    return path


def write_evaluation(path: Path, returns: Any, lengths: Any = None, **changes: Any) -> Path:
    """Write what ``sb3_camp.evaluate`` writes; a change to None leaves the entry out."""
    returns = np.asarray(returns, dtype=np.float64)
    of_each, sigma = changes.get("sensor_sigma"), changes.get("sigma")
    in_wrapper = json.loads(of_each) if of_each else sigma if isinstance(sigma, float) else 0.4
    first_env_seed = 2**30 + 1000 * int(changes.get("seed", 0))
    entries: dict[str, Any] = {
        "format": "sb3_camp-evaluation-1",
        "timesteps": np.array([1000]),
        "results": returns[np.newaxis],
        "ep_lengths": (returns.astype(int) if lengths is None else np.asarray(lengths))[np.newaxis],
        "sigma": 0.4,
        "seed": 0,
        "first_env_seed": first_env_seed,
        "last_env_seed": first_env_seed + 3,
        "deterministic": True,
        "env_id": "CartPole-v1",
        "env_kwargs": "{}",
        "env_wrappers": json.dumps({"env_wrapper": [noise(in_wrapper)]}),
        "clean_keys": "[]",
        "min_reward": 0.0,
        "algo": "dqn",
        "model": "logs/dqn/CartPole-v1_1/CartPole-v1.zip",
        "model_sha256": "a" * 64,
        "n_episodes": returns.size,
        "n_envs": 4,
        "native_vec_env": False,
        "env_versions": '{"gymnasium": "1.0.0"}',
        "versions": "{}",
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in entries.items() if value is not None})
    return path


def refused(*paths: Path) -> str:
    with pytest.raises(InputError) as error:
        read_logs(paths)
    assert "\n" not in str(error.value)
    return str(error.value)
