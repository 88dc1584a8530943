import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from sb3_camp.wrappers import NoisyObservationWrapper


class AlwaysZero:
    """A fixed policy with SB3's predict, that remembers the first observations of the episodes."""

    def __init__(self):
        self.first_observations = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.first_observations.extend(observation[episode_start])
        return np.zeros(len(observation), dtype=int), None


def noisy_cartpoles(n_envs, vec_env_cls=DummyVecEnv):
    return make_vec_env(
        "CartPole-v1",
        n_envs,
        wrapper_class=NoisyObservationWrapper,
        wrapper_kwargs={"sigma": 0.2},
        vec_env_cls=vec_env_cls,
        vec_env_kwargs={"start_method": "fork"} if vec_env_cls is SubprocVecEnv else None,
    )


class TwoLivesEnv(gym.Env):
    """Loses a life at its second step; the game is over one step later, the idle step that EpisodicLifeEnv makes at reset."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.ale = self
        self.game = 0

    def lives(self):
        return 2 - (self.t >= 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.game += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), float(self.game), self.t == 3, False, {}
