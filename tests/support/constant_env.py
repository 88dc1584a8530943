import copy
from typing import Any

import gymnasium as gym
from gymnasium import spaces


class ConstantEnv(gym.Env):
    """Shows the same observation at every step and every reset; episodes of ten steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space: spaces.Space, observation: Any) -> None:
        self.observation_space = observation_space
        self.constant = observation
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return copy.deepcopy(self.constant), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return copy.deepcopy(self.constant), 1.0, self.t >= 10, False, {}
