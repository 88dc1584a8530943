"""Policies and environments with known episodes."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class RandomLengthEnv(gym.Env):
    """Ends at each step with probability 0.2; every step earns 1, so the return is the length, 5 in the mean."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}


class StepEcho(gym.Env):
    """Earns 1 for an action that equals the number of steps in the episode, modulo 3; episodes of 4 to 9 steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(4, 10))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = float(action == self.t % 3)
        self.t += 1
        return np.zeros(1, np.float32), reward, self.t == self.length, False, {}


class CountingPolicy:
    """A recurrent policy whose state is the number of steps in the episode."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        state = np.zeros(len(observation), dtype=int) if state is None else state
        state = np.where(episode_start, 0, state)
        return state % 3, state + 1
