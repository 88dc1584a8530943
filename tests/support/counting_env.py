import gymnasium as gym
import numpy as np
from gymnasium import spaces


class CountingEnv(gym.Env):
    """
    The observation is a number that rises by one with every step and by ten more at a reset.

    So a transition shows in its numbers which step it is, and whether it crosses the end of an episode.

    :param length: Steps of an episode
    :param truncates: Whether the end is a time limit (True) or a terminal state (False)
    """

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 7, truncates: bool = True):
        self.length = length
        self.truncates = truncates
        self.number = 0
        self.steps = 0

    def _observation(self) -> np.ndarray:
        return np.array([self.number], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number += 10
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        self.number += 1
        self.steps += 1
        ended = self.steps == self.length
        return self._observation(), 1.0, ended and not self.truncates, ended and self.truncates, {}
