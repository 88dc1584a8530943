"""Wrappers that an adversary may or may not have between itself and the policy."""

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.common.vec_env.vec_frame_stack import VecFrameStack


class Scaled(gym.Wrapper):
    """Changes the observations, and is no ObservationWrapper."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return 0.1 * observation, info

    def step(self, action):
        observation, *others = self.env.step(action)
        return 0.1 * observation, *others


class Repeated(gym.Wrapper):
    """Does each action twice."""

    def step(self, action):
        result = self.env.step(action)
        return result if result[2] or result[3] else self.env.step(action)


class Halved(gym.RewardWrapper):
    """Changes nothing but the rewards."""

    def reward(self, reward):
        return 0.5 * float(reward)


class Swapped(gym.ActionWrapper):
    """Changes nothing but the actions, and these only in name."""

    def action(self, action):
        return action


class Named(gym.Wrapper):
    """Changes nothing."""

    title = "named"


class VecScaled(VecEnvWrapper):
    """Changes the observations of all envs."""

    def reset(self):
        return 0.1 * self.venv.reset()

    def step_wait(self):
        observations, *others = self.venv.step_wait()
        return 0.1 * observations, *others


class StackOfOwn(VecFrameStack):
    """A frame stack that may do anything."""
