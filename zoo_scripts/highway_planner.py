"""
What an agent that knows everything can reach on camp/Highway-v0: a planner on the simulator itself, without noise.

At each step it looks what each action would return if a simple rule went on from there to the end of the episode: to brake
always, or to brake behind others and else accelerate. It takes the best (a rollout policy: Bertsekas, Tsitsiklis and Wu,
"Rollout algorithms for combinatorial optimization", 1997). The traffic follows from where it is, so the planner knows the
future, and never returns less than its rules in the same episode. It is a mark for what there is to see, and no agent.

    python zoo_scripts/highway_planner.py -n 100
"""

import argparse
import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import yaml

import sb3_camp  # noqa: F401 registers the task
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError
from sb3_camp.tasks.highway_vec import HighwayVectorEnv

TASK = "camp/Highway-v0"
N_ACTIONS = 5
_FASTER, _SLOWER = 3, 4
_LANE, _CLOSE = 0.1, 0.15  # of the observation: less than half a lane aside, 30 m ahead

Rule = Callable[[np.ndarray], np.ndarray]


def brake(observations: np.ndarray) -> np.ndarray:
    """
    :param observations: Shape (n, 25)
    :return: the action "slower" for each
    """
    return np.full(len(observations), _SLOWER)


def brake_behind_others(observations: np.ndarray) -> np.ndarray:
    """
    :param observations: Shape (n, 25)
    :return: "slower" where a vehicle is close ahead on the same lane, otherwise "faster"
    """
    others = observations.reshape(len(observations), -1, 5)[:, 1:]
    present, ahead, aside = others[..., 0] > 0, others[..., 1], np.abs(others[..., 2])
    close = (present & (aside < _LANE) & (ahead > 0) & (ahead < _CLOSE)).any(axis=1)
    return np.where(close, _SLOWER, _FASTER)


RULES: dict[str, Rule] = {"brake always": brake, "brake behind others, else accelerate": brake_behind_others}


def played(envs: HighwayVectorEnv, policy: Rule, observations: np.ndarray) -> np.ndarray:
    """
    Play each episode to its end.

    :param envs: Where they are
    :param policy: Actions by observation
    :param observations: The present ones, shape (n, 25)
    :return: the sums of the rewards from now on, shape (n,)
    """
    returns, going = np.zeros(len(observations)), np.ones(len(observations), dtype=bool)
    while going.any():
        observations, rewards, terminations, truncations, _ = envs.step(policy(observations))
        returns += np.where(going, rewards, 0.0)
        going &= ~(terminations | truncations)
    return returns


def action_values(envs: HighwayVectorEnv) -> np.ndarray:
    """
    :param envs: n envs, which stay as they are
    :return: what each action would return if the better of the rules went on to the end of the episode, shape (n, 5)
    """
    n, rules = envs.num_envs, list(RULES.values())
    futures = repeated(envs, N_ACTIONS * len(rules))
    # Rows by rule, action, env
    first = np.tile(np.repeat(np.arange(N_ACTIONS), n), len(rules))
    observations, returns, terminations, truncations, _ = futures.step(first)
    going = ~(terminations | truncations)

    def go_on(seen: np.ndarray) -> np.ndarray:
        return np.concatenate([rule(own) for rule, own in zip(rules, np.split(seen, len(rules)), strict=True)])

    returns = returns + np.where(going, played(futures, go_on, observations), 0.0)
    found: np.ndarray = returns.reshape(len(rules), N_ACTIONS, n).max(axis=0).T
    return found


def planner(envs: HighwayVectorEnv) -> Rule:
    """
    :param envs: The envs that it acts in
    :return: the planner, which looks at them and not at the observations
    """
    return lambda observations: action_values(envs).argmax(axis=1)


def repeated(envs: HighwayVectorEnv, times: int) -> HighwayVectorEnv:
    """
    :param envs: Vector environment of n envs
    :param times: How many copies of each
    :return: one of n * times envs in the same states, env i of it a copy of env i modulo n
    """
    copies, n = copy.copy(envs), envs.num_envs
    copies.num_envs = n * times
    for name, value in vars(envs).items():
        if isinstance(value, np.ndarray) and value.ndim and value.shape[-1] == n:
            setattr(copies, name, np.tile(value, times))
    copies._columns = np.arange(n * times)
    copies._generators = [copy.deepcopy(generator) for _ in range(times) for generator in envs._generators]
    return copies


def compare(n_episodes: int, seed: int, config: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    """
    :param n_episodes: Number of episodes, which are the same for all
    :param seed: Seed of the first; the others have the next ones
    :param config: Changes of the configuration of highway-env
    :return: returns of the rules and of the planner, shape (n_episodes,) each
    """
    envs: Any = gym.make_vec(TASK, n_episodes, vectorization_mode="vector_entry_point", sigma=0.0, config=config).unwrapped
    if envs.num_envs in (envs._settings["lanes_count"], 1):
        raise InputError(f"-n {n_episodes}: take another number of episodes, at least 2 and not that of the lanes")
    policies = {**RULES, "planner": planner(envs)}
    return {name: played(envs, policy, envs.reset(seed=seed)[0]) for name, policy in policies.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, or 2 for bad input
    """
    parser = argparse.ArgumentParser(
        prog="highway_planner", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--n-episodes", type=int, default=100, metavar="N", help="number of episodes (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode (default: 0)")
    parser.add_argument("--config", type=yaml.safe_load, metavar="YML", help="of highway-env, as '{high_speed_reward: 2}'")
    args = parser.parse_args(argv)

    def command() -> None:
        for name, returns in compare(args.n_episodes, args.seed, args.config).items():
            error = returns.std() / np.sqrt(len(returns))
            print(f"{name}: mean return {returns.mean():.2f}, standard error {error:.2f}, lowest {returns.min():.1f}")

    return exit_status("highway_planner", command)


if __name__ == "__main__":
    sys.exit(main())
