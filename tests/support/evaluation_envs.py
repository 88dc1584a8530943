import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from sb3_camp.evaluation import EpisodeRecorder, EpisodeSeeder
from sb3_camp.wrappers import NoisyObservationWrapper


class AlwaysZero:
    """A fixed policy with SB3's predict, that remembers the first observations of the episodes."""

    def __init__(self):
        self.first_observations = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.first_observations.extend(observation[episode_start])
        return np.zeros(len(observation), dtype=int), None


def recorded(env, wrap=lambda env: env):
    """As EvaluationEnv builds it: the wrappers of an evaluation around the env, and others between them."""
    return EpisodeSeeder(wrap(EpisodeRecorder(env)))


def noisy_cartpoles(n_envs, vec_env_cls=DummyVecEnv):
    return make_vec_env(
        "CartPole-v1",
        n_envs,
        wrapper_class=lambda env: recorded(env, lambda env: NoisyObservationWrapper(env, 0.2)),
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


class FixedLevel(gym.Wrapper):
    """Resets the env inside to the same level each time, by the same seed."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=7, options=options)


class FixedLevelCartPole(CartPoleEnv):
    """Seeds itself anew at each reset."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7, options=options)


class CountedEnv(gym.Env):
    """Keeps account of its own rewards, which are multiples of 0.1 of either sign; it succeeds at times, ends at times."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.rewards = []
        self.closed = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.closed.append(self.rewards)
        self.rewards = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.rewards.append(float(self.np_random.integers(-9, 10)) * 0.1)
        info = {"is_success": bool(self.np_random.random() < 0.1)}
        return np.zeros(1, np.float32), self.rewards[-1], bool(self.np_random.random() < 0.05), False, info


class TwoSignalsEnv(CountedEnv):
    """Observes a signal and a mode, a Dict."""

    observation_space = spaces.Dict(signal=spaces.Box(-1, 1, (2,), np.float32), mode=spaces.Box(0, 1, (1,), np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"signal": np.zeros(2, np.float32), "mode": np.ones(1, np.float32)}, {}

    def step(self, action):
        _, reward, terminated, truncated, info = super().step(action)
        return {"signal": np.zeros(2, np.float32), "mode": np.ones(1, np.float32)}, reward, terminated, truncated, info


class DyingEnv(CountedEnv):
    """Takes its process with it at the first step."""

    def step(self, action):
        raise SystemExit(3)


class SeededOnce(gym.Env):
    """
    Draws its levels from a generator that its constructor seeds, the same for all envs, and earns the level, 1 to 1000, in the
    last of ten steps.
    """

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seed=3):
        self.levels = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.level = float(self.levels.integers(1, 1001))
        self.n_steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.n_steps += 1
        is_last = self.n_steps == 10
        return np.zeros(1, np.float32), self.level * is_last, is_last, False, {}


gym.register("tests/SeededOnce-v0", SeededOnce, disable_env_checker=True)
gym.register("tests/Counted-v0", CountedEnv, disable_env_checker=True)
gym.register("tests/TwoSignals-v0", TwoSignalsEnv, disable_env_checker=True)
gym.register("tests/Dying-v0", DyingEnv, disable_env_checker=True)
