"""
Certificates of episodes that the package plays in Gymnasium environments, against the exact worst attack on each of them.

All policies act on what they see, a number with noise N(0, sigma^2), or on several such numbers. The worst attack is known in
closed form, by dynamic programming, or by numerical integration.
"""

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import DelayObservation, FrameStackObservation
from scipy import integrate, optimize, stats
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_camp.certification import certified_return
from sb3_camp.certification.bands import METHODS
from sb3_camp.evaluation import EpisodeRecorder, EpisodeSeeder, play_episodes
from sb3_camp.wrappers import NoisyObservationWrapper

pytestmark = pytest.mark.slow

SIGMA, ALPHA, EPISODES = 0.5, 0.001, 6000
RADII = SIGMA * np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "worst_case_mdp.py"


def load_games():
    spec = importlib.util.spec_from_file_location("worst_case_mdp", BENCHMARK)
    assert spec is not None and spec.loader is not None
    games = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = games  # where dataclasses look for it
    spec.loader.exec_module(games)
    return games


GAMES = load_games()


class TaskEnv(gym.Env):
    """A :class:`Task` of the benchmark; numbers are in units of sigma there."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, task):
        self.task = task

    def _seen(self):
        return np.array([SIGMA * self.task.states[max(0, self.state)]], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.t = 0
        return self._seen(), {}

    def step(self, action):
        of_action = ((self.task.reward_below, self.task.below), (self.task.reward_above, self.task.above))
        rewards, following = of_action[int(action)]
        reward, self.state = rewards[self.state], following[self.state]
        self.t += 1
        return self._seen(), reward, self.state == GAMES.END or self.t == self.task.horizon, False, {}


class SeenEnv(gym.Env):
    """Its action is what the policy sees, and decides: on the reward, or on the end of the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, shown, horizon, reward, end):
        self.shown, self.horizon, self.reward, self.end = shown, horizon, reward, end

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.shown], np.float32), {}

    def step(self, action):
        self.t += 1
        seen = float(action[0])
        return np.array([self.shown], np.float32), self.reward(seen), self.t == self.horizon or self.end(seen), False, {}


class Policy:
    def __init__(self, act):
        self.act = act

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return self.act(np.asarray(observation)), None


above_zero = Policy(lambda seen: (seen[:, 0] > 0).astype(int))
whole = Policy(lambda seen: seen)
mean_above_zero = Policy(lambda seen: (seen.mean(axis=(1, 2)) > 0).astype(int))


def by_dynamic_programming(task, parts=360):
    """At most the worst case: what half as many parts of the budget had missed is taken off again."""
    largest = float(RADII[-1] / SIGMA)
    fine, coarse = (GAMES.worst_case(task, number, largest)[0] for number in (parts, parts // 2))
    units = np.round(parts * (RADII / SIGMA / largest) ** 2).astype(int)
    return fine[units] - np.max(coarse - fine[::2])


ONE = GAMES.Task((1.2,), (0,), (0,), (1.0,), (0.0,), 1)
THREE = GAMES.Task((1.0, 0.5, 1.5), (1, 2, 1), (2, GAMES.END, 0), (1.0, 2.0, 3.0), (0.0, 0.0, 1.0), 3)
BALANCE = GAMES.balance(2, 3)
FIRST_MISTAKE = GAMES.Task((1.5,), (0,), (GAMES.END,), (1.0,), (0.0,), 3)
TWO_OF_THREE = GAMES.Task((1.2,), (0,), (0,), (1.0,), (0.0,), 3)
BOTH = GAMES.Task((0.8, 0.8), (1, GAMES.END), (GAMES.END, GAMES.END), (0.0, 1.0), (0.0, 0.0), 2)


def clipped_mean():
    """E clip(z, -1, 2) of what is seen, 0.6 with noise, less R."""
    return [
        -1 + integrate.quad(lambda c, r=radius: stats.norm.sf((c - 0.6 + r) / SIGMA), -1, 2, epsabs=1e-12)[0]
        for radius in RADII
    ]


def both_frames():
    """
    The first action is right where o_0 > 0, the second where o_0 + o_1 > 0. The adversary spends some of R on o_0, and, as it
    then knows o_0, all the rest on o_1.
    """
    shown = SIGMA * BOTH.states[0]

    def kept(first, radius):
        rest = np.sqrt(max(0.0, radius**2 - first**2))

        def density(o):
            return stats.norm.pdf(o, shown - first, SIGMA) * stats.norm.cdf((o + shown - rest) / SIGMA)

        return integrate.quad(density, 0, shown + 12 * SIGMA, epsabs=1e-12)[0]

    def worst(radius):
        grid = np.linspace(0, radius, 41)
        best = grid[np.argmin([kept(first, radius) for first in grid])]
        around = max(0, best - radius / 40), min(radius, best + radius / 40) + 1e-12
        return optimize.minimize_scalar(kept, bounds=around, args=(radius,), method="bounded").fun

    return [worst(radius) for radius in RADII]


# name: (environment, what is outside of the noise, policy, worst case at each radius, lowest return, possible returns)
ROWS = {
    "one step": (
        lambda: TaskEnv(ONE),
        lambda env: env,
        above_zero,
        lambda: stats.norm.cdf(1.2 - RADII / SIGMA),
        0.0,
        [0, 1],
    ),
    "three steps": (
        lambda: TaskEnv(THREE),
        lambda env: env,
        above_zero,
        lambda: by_dynamic_programming(THREE),
        0.0,
        range(10),
    ),
    "balance": (lambda: TaskEnv(BALANCE), lambda env: env, above_zero, lambda: by_dynamic_programming(BALANCE), 0.0, range(4)),
    # The first action sees nothing, the other two see one number each
    "delay": (
        lambda: TaskEnv(TWO_OF_THREE),
        lambda env: DelayObservation(env, 1),
        above_zero,
        lambda: by_dynamic_programming(GAMES.Task((1.2,), (0,), (0,), (1.0,), (0.0,), 2)),
        0.0,
        range(4),
    ),
    "frame stack": (
        lambda: TaskEnv(BOTH),
        lambda env: FrameStackObservation(env, 2),
        mean_above_zero,
        both_frames,
        0.0,
        [0, 1],
    ),
    "reward on what is seen": (
        lambda: SeenEnv(0.6, 1, lambda seen: min(2.0, max(-1.0, seen)), lambda seen: False),
        lambda env: env,
        whole,
        clipped_mean,
        -1.0,
        np.linspace(-1, 2, 13),
    ),
    "end on what is seen": (
        lambda: SeenEnv(0.75, 3, lambda seen: float(seen > 0), lambda seen: seen <= 0),
        lambda env: env,
        whole,
        lambda: by_dynamic_programming(FIRST_MISTAKE),
        0.0,
        range(4),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_certificate_is_at_most_the_worst_case_and_not_empty(name):
    build, outside, policy, worst_case, min_return, support = ROWS[name]

    def wrapped():
        return EpisodeSeeder(outside(NoisyObservationWrapper(EpisodeRecorder(build()), SIGMA)))

    returns = play_episodes(policy, DummyVecEnv([wrapped] * 8), EPISODES, seed=11).returns
    worst = np.asarray(worst_case())
    # Without an attack, the worst case is what is played
    assert returns.mean() == pytest.approx(worst[0], abs=4.5 * returns.std() / np.sqrt(EPISODES) + 0.01)
    for method in METHODS:
        options = {"support": support} if method == "clopper-pearson" else {}
        certified = certified_return(returns, SIGMA, RADII, alpha=ALPHA, method=method, min_return=min_return, **options)
        assert np.all(certified <= worst), (method, certified, worst)
        assert certified[2] - min_return >= 0.6 * (worst[2] - min_return), (method, certified, worst)
