"""
How far a linear policy comes: the best one that a cross-entropy search finds on the CartPole tasks, certified.

Nearly what a policy without memory can reach there, so the mark that a trained agent should be held against. Saves each policy
as a model of ARS, which the other commands take, and writes one row for each task, sigma and method into ``linear.csv``, which
``experiments/figures.py --reference`` draws.

    python zoo_scripts/linear_search.py -o linear --sigmas 0.2 0.4 0.6 0.8 1.0
"""

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import gymnasium as gym
import numpy as np
import torch as th
from sb3_contrib import ARS
from sb3_contrib.ars.policies import ARSLinearPolicy
from tqdm import tqdm

from sb3_camp.certification import certified_return
from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.bands import METHODS
from sb3_camp.certification.rounded_text import exact, floor_decimals
from sb3_camp.command_line import exit_status
from sb3_camp.evaluation import EvaluationEnv, play_vector_episodes
from sb3_camp.evaluation.native import opened_native, step_limit

TASKS = ("camp/CartPole1-v0", "camp/CartPole5-v0")
ROUNDS, CANDIDATES, ELITE_SHARE, EPISODES = 40, 80, 0.15, 60
RADII = tuple(round(0.1 * step, 1) for step in range(11))
SUPPORT = np.arange(1.0, 201.0)  # a return is a number of steps


class Memory(Protocol):
    """What makes of the observations and actions of many envs what their policies act on."""

    def observe(self, observations: np.ndarray) -> np.ndarray: ...

    def act(self, actions: np.ndarray) -> None: ...


class NoMemory:
    """The policies act on the observations themselves."""

    def observe(self, observations: np.ndarray) -> np.ndarray:
        return observations

    def act(self, actions: np.ndarray) -> None:
        pass


def mean_returns(env: gym.vector.VectorEnv, weights: np.ndarray, seed: int, memory: Memory | None = None) -> np.ndarray:
    """
    Mean return of the policies that push right where weights @ observation > 0, over one episode in each of their envs.

    :param env: Envs of a CartPole task; each candidate plays in as many, next to each other
    :param weights: Candidates, shape (n_candidates, length of an observation)
    :param seed: Seed of the episodes
    :param memory: What turns observations into what the weights are for; by default nothing does
    :return: shape (n_candidates,)
    """
    memory = memory or NoMemory()
    n_candidates = len(weights)
    observations, _ = env.reset(seed=seed)
    playing = np.ones(env.num_envs, dtype=bool)
    returns = np.zeros(env.num_envs)
    while playing.any():
        rows = memory.observe(observations).reshape(n_candidates, env.num_envs // n_candidates, -1)
        actions = (np.einsum("cij,cj->ci", rows, weights) > 0).reshape(-1).astype(np.int64)
        memory.act(actions)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        returns += rewards * playing
        playing &= ~(terminated | truncated)
    return returns.reshape(n_candidates, -1).mean(axis=1)


def search(
    environment: EvaluationEnv,
    n_candidates: int,
    seed: int,
    n_rounds: int = ROUNDS,
    n_episodes: int = EPISODES,
    memory: Callable[[int], Memory] | None = None,
) -> np.ndarray:
    """
    Cross-entropy method: draw candidates from a normal distribution, fit it to the best of them, and repeat.

    :param environment: The task
    :param n_candidates: Candidates in each round
    :param seed: Seed of candidates and episodes
    :param n_rounds: Number of rounds
    :param n_episodes: Number of episodes of each candidate
    :param memory: Makes the memory of a number of envs; by default policies act on observations
    :return: mean of the last distribution, shape (length of an observation,)
    """
    rng = np.random.default_rng(seed)
    with opened_native(environment, n_candidates * n_episodes) as env:
        size = int(np.prod(env.single_observation_space.shape or ()))
        mean, deviation = np.zeros(size), np.ones(size)
        for _ in tqdm(range(n_rounds), desc=f"search {environment.env_id}", leave=False):
            candidates = rng.normal(mean, deviation, (n_candidates, size))
            known = None if memory is None else memory(env.num_envs)
            order = np.argsort(mean_returns(env, candidates, int(rng.integers(2**31)), known))
            elite = candidates[order[-max(int(n_candidates * ELITE_SHARE), 2) :]]
            mean, deviation = elite.mean(axis=0), elite.std(axis=0) + 0.01
    return mean


def linear_model(env: gym.Env, weights: np.ndarray) -> ARS:
    """A model of ARS with these weights for pushing right, and zeros for pushing left."""
    model = ARS("LinearPolicy", env, device="cpu")
    with th.no_grad():
        layer = cast(th.nn.Linear, cast(ARSLinearPolicy, model.policy).action_net[0])
        layer.weight.copy_(th.stack([th.zeros(len(weights)), th.as_tensor(weights, dtype=th.float32)]))
    return model


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("linear"), help="folder (default: %(default)s)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="(default: both)")
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.2, 0.4, 0.6, 0.8, 1.0])
    parser.add_argument("--n-candidates", type=int, default=CANDIDATES, help="of each of 40 rounds (default: %(default)s)")
    parser.add_argument("--n-episodes", type=int, default=10_000, help="of each certificate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    return exit_status("linear_search", lambda: certify_linear_policies(args))


def certify_linear_policies(args: argparse.Namespace) -> None:
    environments = {
        (task, sigma): EvaluationEnv(task, env_kwargs={"sigma": sigma}) for task in args.tasks for sigma in args.sigmas
    }
    for environment in environments.values():
        with opened_native(environment, 1):  # what cannot be built is found before the first search
            pass
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "linear.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "sigma", "method", "mean_return", *(f"certified_at_{exact(radius)}" for radius in RADII)])
        for (task, sigma), environment in environments.items():
            model = linear_model(gym.make(task, sigma=sigma), search(environment, args.n_candidates, args.seed))
            name = f"{task.replace('/', '-')}_sigma{exact(sigma)}"
            model.save(args.output / f"{name}.zip")
            with opened_native(environment, 1024) as env:
                # Fresh episodes: those of the search chose the policy
                played = play_vector_episodes(
                    model, env, args.n_episodes, seed=args.seed + 1, step_limit=step_limit(environment)
                )
            for method in METHODS:
                support = SUPPORT if band_of(method).pointwise else None
                bounds = certified_return(played.returns, sigma, RADII, method=method, support=support)
                shown = [floor_decimals(bound, 2) for bound in bounds]
                writer.writerow([task, exact(sigma), method, f"{played.returns.mean():.2f}", *shown])
            mean, path = played.returns.mean(), args.output / f"{name}.zip"
            print(f"{task} sigma {exact(sigma)}: mean return {mean:.2f}, {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
