"""
How far memory can come: a Kalman filter that knows the dynamics of CartPole, and the best linear policy on what it estimates.

With the noise of the tasks the observations of an episode tell more than the last few of them. The filter knows how CartPole
moves, remembers everything, and is nearly exact, as CartPole is nearly linear while the pole stands. So this is about what
any agent can reach on camp/CartPole1-v0 and on its stacks of frames alike: the mark for agents with memory, as
linear_search.py is one for agents without. Writes one row for each sigma and method into ``kalman.csv``.

    python zoo_scripts/kalman_search.py -o kalman --sigmas 0.2 0.3 0.4 0.6 0.8 1.0
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from linear_search import METHODS, RADII, SUPPORT, search

from sb3_camp.certification import certified_return
from sb3_camp.certification.rounded_text import exact, floor_decimals
from sb3_camp.command_line import exit_status
from sb3_camp.evaluation import EvaluationEnv, play_vector_episodes
from sb3_camp.evaluation.native import opened_native, step_limit

TASK = "camp/CartPole1-v0"
N_STEPS = 200
_INITIAL_BOUND = 0.05  # each entry of the first state is uniform within it
# Standard deviation of what the linear dynamics leave out in a step, so that the filter never ignores what it sees
_LEFT_OUT = 1e-4


def next_states(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """
    :param states: Position (m), velocity (m/s), angle (rad) and angular velocity (rad/s), shape (n, 4)
    :param actions: 1 pushes right, 0 left, shape (n,)
    :return: the states after one step of Gymnasium's CartPole, shape (n, 4)
    """
    cart = CartPoleEnv()
    _, speed, angle, turning = states.T
    force = np.where(actions == 1, cart.force_mag, -cart.force_mag)
    sine, cosine = np.sin(angle), np.cos(angle)
    push = (force + cart.polemass_length * turning**2 * sine) / cart.total_mass
    inertia = cart.length * (4 / 3 - cart.masspole * cosine**2 / cart.total_mass)
    turning_rate = (cart.gravity * sine - cosine * push) / inertia
    acceleration = push - cart.polemass_length * turning_rate * cosine / cart.total_mass
    rates = np.stack([speed, acceleration, turning, turning_rate], axis=1)
    return states + cart.tau * rates


def kalman_gains(sigma: float, n_steps: int = N_STEPS) -> np.ndarray:
    """
    The gains of the Kalman filter for CartPole, linear around the upright pole. They depend on the step alone.

    :param sigma: Standard deviation of the noise on each entry of an observation, positive
    :param n_steps: Number of steps
    :return: the gain for the observation before each step, shape (n_steps, 4, 4)
    """
    around, delta = np.zeros((1, 4)), 1e-5
    pushes = np.zeros(1)
    columns = [
        (next_states(around + delta * unit, pushes) - next_states(around - delta * unit, pushes))[0] / (2 * delta)
        for unit in np.eye(4)
    ]
    dynamics = np.stack(columns, axis=1)
    covariance = np.eye(4) * _INITIAL_BOUND**2 / 3
    gains = []
    for _ in range(n_steps):
        gain = covariance @ np.linalg.inv(covariance + sigma**2 * np.eye(4))
        gains.append(gain)
        covariance = dynamics @ (np.eye(4) - gain) @ covariance @ dynamics.T + _LEFT_OUT**2 * np.eye(4)
    return np.stack(gains)


class KalmanFilter:
    """
    Estimates the states of many CartPoles from their noisy observations and actions.

    :param sigma: Standard deviation of the noise
    :param n_envs: Number of CartPoles
    """

    def __init__(self, sigma: float, n_envs: int) -> None:
        self._gains = kalman_gains(sigma)
        self._step = np.zeros(n_envs, dtype=np.int64)
        self._expected = np.zeros((n_envs, 4))
        self.estimates = self._expected

    def observe(self, observations: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
        """
        :param observations: Noisy observations, shape (n_envs, 4)
        :param starts: Which of them are the first of an episode, bool, shape (n_envs,)
        :return: the mean of the states given all observations and actions of the episode, shape (n_envs, 4)
        """
        if starts is not None:
            self._step[starts] = 0
            self._expected[starts] = 0
        # An env that waits for its reset after the last step may be asked once more
        gains = self._gains[np.minimum(self._step, len(self._gains) - 1)]
        self.estimates = self._expected + np.einsum("nij,nj->ni", gains, observations - self._expected)
        return self.estimates

    def act(self, actions: np.ndarray) -> None:
        """
        :param actions: What is done next, shape (n_envs,)
        """
        self._expected = next_states(self.estimates, actions)
        self._step += 1


class KalmanPolicy:
    """
    Pushes right where a weighted sum of the estimated state is positive.

    :param sigma: Standard deviation of the noise
    :param weights: Shape (4,)
    """

    def __init__(self, sigma: float, weights: np.ndarray) -> None:
        self._sigma, self._weights = sigma, weights

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """As SB3's policies do. Its state is a :class:`KalmanFilter`."""
        known = state if state is not None else KalmanFilter(self._sigma, len(observation))
        actions = (known.observe(observation, episode_start) @ self._weights > 0).astype(np.int64)
        known.act(actions)
        return actions, known


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("kalman"), help="folder (default: %(default)s)")
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.2, 0.3, 0.4, 0.6, 0.8, 1.0])
    parser.add_argument("--n-candidates", type=int, default=40, help="of each round of the search (default: %(default)s)")
    parser.add_argument("--n-rounds", type=int, default=15, help="(default: %(default)s)")
    parser.add_argument("--search-episodes", type=int, default=60, help="of each candidate (default: %(default)s)")
    parser.add_argument("--n-episodes", type=int, default=10_000, help="of each certificate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    return exit_status("kalman_search", lambda: certify_kalman_policies(args))


def certify_kalman_policies(args: argparse.Namespace) -> None:
    environments = {sigma: EvaluationEnv(TASK, env_kwargs={"sigma": sigma}) for sigma in args.sigmas}
    for environment in environments.values():
        with opened_native(environment, 1):  # what cannot be built is found before the first search
            pass
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "kalman.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ["mean_return", *(f"certified_at_{exact(radius)}" for radius in RADII)]
        writer.writerow(["task", "sigma", "method", *columns, *(f"weight_{i}" for i in range(4))])
        for sigma, environment in environments.items():
            weights = search(
                environment,
                args.n_candidates,
                args.seed,
                n_rounds=args.n_rounds,
                n_episodes=args.search_episodes,
                memory=partial(KalmanFilter, sigma),
            )
            weights = weights / np.linalg.norm(weights)
            with opened_native(environment, 1024) as env:
                # Fresh episodes: those of the search chose the weights
                played = play_vector_episodes(
                    KalmanPolicy(sigma, weights), env, args.n_episodes, seed=args.seed + 1, step_limit=step_limit(environment)
                )
            mean = f"{played.returns.mean():.2f}"
            for method in METHODS:
                support = SUPPORT if method == "clopper-pearson" else None
                bounds = certified_return(played.returns, sigma, RADII, method=method, support=support)
                shown = [floor_decimals(bound, 2) for bound in bounds]
                writer.writerow([TASK, exact(sigma), method, mean, *shown, *(f"{weight:.4f}" for weight in weights)])
            file.flush()
            print(f"{TASK} sigma {exact(sigma)}: mean return {mean}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
