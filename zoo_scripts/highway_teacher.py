"""
A teacher for CAMP on the Highway tasks, where agents that learn by themselves find no more than to brake: a DQN's network on
noisy observations learns from the planner of ``highway_planner.py``, which knows the traffic and the future.

DAgger (Ross, Gordon and Bagnell 2011): the network plays, and the planner says what each action would return from each
state that comes. The network learns what that is in the middle of the states that a noisy observation may stand for (by the
smooth L1 loss of a DQN, with fresh noise on each observation each time) and takes the action with the highest, as QMDP does
with the mean (Littman, Cassandra and Kaelbling 1995). Leaves a run folder of the zoo, as ``--algo dqn`` would:

    python zoo_scripts/highway_teacher.py --env camp/HighwaySpeed-v0 --env-kwargs sigma:0.1 -f logs --seed 0
    python -m sb3_camp.evaluate --algo dqn --env camp/HighwaySpeed-v0 -f logs -n 10000
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import taught_run
import torch
from highway_planner import action_values
from stable_baselines3 import DQN
from torch.nn import functional as F

from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

TASKS = ("camp/Highway-v0", "camp/HighwaySpeed-v0")
_N_GAMES, _STEPS_A_ROUND = 128, 8
_N_TIMESTEPS = 10_240
_BATCHES_A_ROUND, _LAST_BATCHES, _BATCH_SIZE = 400, 4000, 256
_LEARNING_RATE = 1e-3
_PLANNER_PLAYS = 0.25  # share of the steps over which the part that the planner plays falls from all to nothing
_RANDOM_ACTIONS = 0.03
_POLICY_KWARGS = {"net_arch": [128, 128]}


def teach(args: argparse.Namespace) -> None:
    """Train the network, and write its run folder."""
    with taught_run.run_folder(args) as folder:
        _teach(args, folder)


def _teach(args: argparse.Namespace, folder: Path) -> None:
    kwargs = dict(args.env_kwargs)
    noisy = taught_run.made(args.env, lambda: gym.make(args.env, **kwargs))
    model = DQN("MlpPolicy", noisy, buffer_size=1, policy_kwargs=_POLICY_KWARGS, seed=args.seed, device=args.device)
    if noisy.get_wrapper_attr("sensor_sigma") is not None:
        raise InputError("--env-kwargs sigma: one number for all entries")
    sigma = noisy.get_wrapper_attr("sigma")
    clean = {**kwargs, "sigma": 0.0}
    envs: Any = taught_run.made(
        args.env, lambda: gym.make_vec(args.env, _N_GAMES, vectorization_mode="vector_entry_point", **clean)
    )
    n_timesteps = args.n_timesteps or _N_TIMESTEPS
    learn_from_planner(envs.unwrapped, sigma, model, n_timesteps, args.seed)
    hyperparams = {"policy": "MlpPolicy", "policy_kwargs": f"dict(net_arch={_POLICY_KWARGS['net_arch']})"}
    taught_run.save(model, folder, args, hyperparams, n_timesteps)


def learn_from_planner(envs: Any, sigma: float, model: DQN, n_timesteps: int, seed: int) -> None:
    """
    :param envs: Games without noise, a :class:`~sb3_camp.tasks.highway_vec.HighwayVectorEnv`
    :param sigma: Of the noise on what the network sees
    :param model: Whose network learns
    :param n_timesteps: Steps of all games together
    :param seed: Seed of games, noise, batches and of what is done at random
    """
    random = np.random.default_rng(seed)
    noise = torch.Generator().manual_seed(seed)
    network = model.q_net
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    seen: list[np.ndarray] = []
    values: list[np.ndarray] = []
    n, returns, of_now = envs.num_envs, [], np.zeros(envs.num_envs)
    observations, ended, steps = envs.reset(seed=seed)[0], np.zeros(n, dtype=bool), 0
    while steps < n_timesteps:
        for _ in range(min(_STEPS_A_ROUND, -(-(n_timesteps - steps) // n))):
            best = action_values(envs)
            seen.append(observations[~ended])  # where an episode has ended, an action does nothing
            values.append(best[~ended])
            noisy = observations + sigma * random.standard_normal(observations.shape)
            actions, _ = model.predict(noisy.astype(np.float32), deterministic=True)
            advised = 1 - steps / (_PLANNER_PLAYS * n_timesteps)
            actions = taught_run.who_plays(random, actions, best, advised, _RANDOM_ACTIONS)
            observations, rewards, terminations, truncations, _ = envs.step(actions)
            of_now += np.where(ended, 0.0, rewards)
            ended = terminations | truncations
            returns += of_now[ended].tolist()
            of_now[ended] = 0.0
            steps += n
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * max(0.05, 1 - steps / n_timesteps)
        data = torch.as_tensor(np.concatenate(seen), dtype=torch.float32, device=model.device)
        # The mean over the actions is left out: what it adds to each of them decides nothing
        wanted = torch.as_tensor(np.concatenate(values), dtype=torch.float32, device=model.device)
        wanted = wanted - wanted.mean(dim=1, keepdim=True)
        losses = []
        for _ in range(_BATCHES_A_ROUND if steps < n_timesteps else _LAST_BATCHES):
            rows = torch.as_tensor(random.integers(len(data), size=_BATCH_SIZE), device=model.device)
            added = sigma * torch.randn(_BATCH_SIZE, data.shape[1], generator=noise).to(model.device)
            loss = F.smooth_l1_loss(network(data[rows] + added), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        told = f"loss {np.mean(losses):.3f}"
        if returns:
            told += f", mean return of the last {len(returns[-200:])} episodes {np.mean(returns[-200:]):.2f}"
        print(f"{min(steps, n_timesteps)} of {n_timesteps} steps: {told}", flush=True)
    model.q_net_target.load_state_dict(network.state_dict())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    taught_run.add_options(parser, TASKS, ("sigma", "high_speed_reward", "config"))
    taught_run.add_n_timesteps(parser, f"{_N_TIMESTEPS:,}")
    args = parser.parse_args()
    return exit_status("highway_teacher", lambda: teach(args))


if __name__ == "__main__":
    sys.exit(main())
