"""An environment whose info tells of success, crashes and costs, and keeps a ledger of all that it told."""

import math

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv


class InfoEnv(gym.Env):
    """Walks at random. What ``ledger`` holds for each episode is the infos of its steps."""

    observation_space = spaces.Box(-1e3, 1e3, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.ledger = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ledger.append([])
        self.at = self.np_random.normal()
        # Of no step, so of no episode
        return np.array([self.at], np.float32), {"cost": 1e6, "crashed": True}

    def step(self, action):
        self.at += 2 * int(action) - 1 + self.np_random.normal()
        crashed, arrived = bool(self.np_random.random() < 0.05), bool(self.np_random.random() < 0.15)
        info = {
            "crashed": crashed,
            "cost": 0.1 * float(self.np_random.integers(-1, 4)),
            "speed": np.float32(self.np_random.normal() - 5),
            "hits": int(self.np_random.random() < 0.1),
            "label": "text",
            "nothing": None,
            "broken": math.nan if self.np_random.random() < 0.5 else 1.0,
        }
        if crashed or arrived:
            info["is_success"] = arrived and not crashed
        if self.np_random.random() < 0.1:
            info["rare"] = np.array(self.np_random.random())
        self.ledger[-1].append(info)
        return np.array([self.at], np.float32), 1.0, crashed or arrived, False, info


def vector_info_envs(num_envs, max_episode_steps):
    return SyncVectorEnv([lambda: gym.wrappers.TimeLimit(InfoEnv(), max_episode_steps)] * num_envs)


def reduced(infos, key, reduction):
    """The value of an episode, straight from its infos; nan if there is none."""
    values = [info[key] for info in infos if key in info]
    if not values:
        return math.nan
    if reduction == "last":
        return float(values[-1])
    return float(any(values)) if reduction == "any" else float(math.fsum(values) if reduction == "sum" else max(values))


gym.register("tests/Info-v0", InfoEnv, max_episode_steps=12, vector_entry_point=vector_info_envs, disable_env_checker=True)
