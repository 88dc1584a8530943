"""Agents and environments for the attack command, its arguments, and what it wrote."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from stable_baselines3 import DQN

from sb3_camp.attack import main
from sb3_camp.wrappers import NoisyObservationWrapper
from support.attacked_envs import balancing_dqn, linear_policy, vector_space

NOISE = "{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.1}}"
STACK = "{'gymnasium.wrappers.FrameStackObservation': {'stack_size': 3}}, 'gymnasium.wrappers.FlattenObservation'"
POLE = "tests/ShortPole-v0"
"""CartPole, for at most 60 steps"""


def _pole() -> gym.Env:
    return gym.make("CartPole-v1").unwrapped


def _noisy_pole(sigma: float) -> gym.Env:
    return NoisyObservationWrapper(_pole(), sigma)


def _noisy_stacked_pole(sigma: float) -> gym.Env:
    return FlattenObservation(FrameStackObservation(_noisy_pole(sigma), 3))


class Games(gym.Env):
    """
    A game k of 1 to 4 has five steps of reward k, a life is lost after the second, and the observation is k / 10: that is what
    it costs to get below 0.
    """

    observation_space = vector_space(1)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.ale = self
        self.game = 0

    def lives(self) -> int:
        return 2 - (self.t >= 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game, self.t = 1 + int(self.np_random.integers(4)), 0
        return self._observation(), {}

    def step(self, action):
        self.t += 1
        return self._observation(), float(self.game), self.t == 5, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.game / 10], np.float32)


class RareReturn(Games):
    """One step, which returns 1000 with probability 0.05 and 0 otherwise."""

    def step(self, action):
        reward = 1000.0 * (self.np_random.random() < 0.05)
        return np.ones(1, np.float32), reward, True, False, {}

    def _observation(self) -> np.ndarray:
        return np.ones(1, np.float32)


class TwoSignals(Games):
    """Games with a second entry, which no policy needs."""

    observation_space = spaces.Dict(signal=vector_space(1), mode=vector_space(2))

    def _observation(self):
        return {"signal": super()._observation(), "mode": np.zeros(2, np.float32)}


def register() -> None:
    for name, entry_point, kwargs in (
        (POLE, _pole, {}),
        ("tests/NoisyPole-v0", _noisy_pole, {"sigma": 0.1}),
        ("tests/NoisyStackedPole-v0", _noisy_stacked_pole, {"sigma": 0.1}),
        ("tests/Games-v0", Games, {}),
        ("tests/TwoSignals-v1", TwoSignals, {}),
    ):
        if name not in gym.registry:
            gym.register(name, entry_point, kwargs=kwargs, max_episode_steps=60, disable_env_checker=True)


register()


def save_balancing(path: Path, n_stack: int = 1) -> Path:
    """A DQN that keeps the pole up as long as it is let alone."""
    balancing_dqn(n_stack).save(path)
    return path


def save_positive(path: Path) -> Path:
    """A DQN for Games, with the Q-values of x and -x."""
    model = DQN("MlpPolicy", Games(), buffer_size=1, policy_kwargs={"net_arch": []}, device="cpu")
    policy = linear_policy(np.array([[1.0], [-1.0]]), np.zeros(2))
    model.policy.load_state_dict(policy.state_dict())
    model.save(path)
    return path


def attack(*arguments: Any, env: str = POLE, algo: str = "dqn") -> int:
    return main(["--algo", algo, "--env", env, "--device", "cpu", *map(str, arguments)])


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "attack.json").read_text())


def rows(folder: Path) -> list[dict[str, float]]:
    with open(folder / "attack.csv", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def column(folder: Path, name: str, budget: float | None = None) -> np.ndarray:
    return np.array([row[name] for row in rows(folder) if budget is None or row["budget"] == budget])


def write_certificate(
    path: Path, attacked: dict[str, Any], certified: list[float], evaluated: np.ndarray | None = None, **changes: Any
) -> Path:
    """
    A certificate for what was attacked, at the radii 0, 0.5, 1.

    :param path: The file
    :param attacked: Settings of the attack
    :param certified: Its certified returns
    :param evaluated: Returns of the evaluation that it names, which is written beside it; none if there is none any more
    :param changes: Other entries
    """
    keys = ("env_id", "env_kwargs", "env_wrappers", "algo", "model", "model_sha256", "deterministic", "sigma", "clean_keys")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = {"path": "evaluations.npz", "sha256": "0" * 64, "episodes": 1}
    if evaluated is not None:
        file = path.with_name("evaluations.npz")
        np.savez(file, timesteps=[1], results=evaluated[None].astype(float), ep_lengths=np.ones((1, len(evaluated)), int))
        source = {**source, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "episodes": len(evaluated)}
    certificate = {
        "format": "sb3_camp-certificate-1",
        **{key: attacked[key] for key in keys},
        "timesteps": 0,
        "sigma_assumed": False,
        "method": "berk-jones",
        "alpha": 0.05,
        "min_return": 0.0,
        "support": None,
        "n_episodes": 1000,
        "mean_return": 60.0,
        "radii": [0.0, 0.5, 1.0],
        "certified_return": certified,
        "ceiling": {"ratio": 3.0, "radius": 0.3},
        "targets": {},
        "sources": [source],
        "versions": {},
        **changes,
    }
    path.write_text(json.dumps(certificate))
    return path
