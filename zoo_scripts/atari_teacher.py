"""
A teacher for CAMP on the Atari tasks, in minutes of one core instead of the paper's ten million steps: a DQN's network on
noisy frames learns from an expert that reads the emulator's memory (``atari_experts.py``).

DAgger (Ross, Gordon and Bagnell 2011): the network plays, the expert says what to do in each state that comes, and the
network learns from all that was said so far, by cross entropy. Beside it the network learns to tell the memory from the
frames, which speeds up its convolutions a lot. Leaves a run folder of the zoo, as ``--algo dqn`` would:

    python zoo_scripts/atari_teacher.py --env camp/Freeway-v0 --env-kwargs sigma:12.75 -f logs --seed 0
    python -m sb3_camp.evaluate --algo dqn --env camp/Freeway-v0 -f logs -n 2000
"""

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import taught_run
import torch
from atari_experts import MEMORY_SIZE, Expert, MemoryPPO, expert_of
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv
from torch.nn import functional as F

from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError

TASKS = ("camp/Freeway-v0", *MemoryPPO.N_TIMESTEPS)
_N_GAMES, _STEPS_A_ROUND, _BATCH_SIZE = 16, 64, 64
_LEARNING_RATE = 5e-4
# Over this share of the steps the expert plays, too, less and less: longer where an untaught player sees little of the game
_EXPERT_PLAYS = {"camp/Freeway-v0": 0.15, "camp/Pong1r-v0": 0.15, "camp/BankHeist-v0": 0.5}
_N_TIMESTEPS = {"camp/Freeway-v0": 60_000, "camp/Pong1r-v0": 150_000, "camp/BankHeist-v0": 60_000}
_RANDOM_ACTIONS = 0.02


class Lessons:
    """
    What was seen, what the expert said to it, and what was in the memory.

    :param size: Number of observations
    :param n_actions: Number of actions
    :param seed: Seed of the choice of batches
    """

    def __init__(self, size: int, n_actions: int, seed: int) -> None:
        self._frames = np.empty((size, 4, 84, 84), dtype=np.uint8)
        self._advice = np.empty((size, n_actions), dtype=np.float32)
        self._memory = np.empty((size, MEMORY_SIZE), dtype=np.float32)
        self._random = np.random.default_rng(seed)
        self.size = 0

    def add(self, frames: np.ndarray, advice: np.ndarray, memory: np.ndarray) -> None:
        new = slice(self.size, self.size + len(frames))
        self._frames[new], self._advice[new], self._memory[new] = frames, advice, memory
        self.size = new.stop

    def batches(self, count: int) -> Any:
        """Yields frames, advice and standardised memory; half of each batch is of the newest 40 percent."""
        seen = self._memory[: self.size]
        mean, std = seen.mean(axis=0), seen.std(axis=0)
        moves = std > 0.5
        half = _BATCH_SIZE // 2
        for _ in range(count):
            newest = self._random.integers(int(0.6 * self.size), self.size, size=half)
            rows = np.concatenate([self._random.integers(self.size, size=half), newest])
            memory = (self._memory[rows] - mean) / np.maximum(std, 0.5)
            yield *map(torch.as_tensor, (self._frames[rows], self._advice[rows], memory)), torch.as_tensor(moves)


def teach(args: argparse.Namespace) -> None:
    """Train the network, and write its run folder."""
    n_timesteps = args.n_timesteps or _N_TIMESTEPS[args.env]
    if n_timesteps < _N_GAMES:
        raise InputError(f"-n {n_timesteps}: at least {_N_GAMES}, a step of each game")
    with taught_run.run_folder(args) as folder:
        _teach(args, folder, n_timesteps)


def _teach(args: argparse.Namespace, folder: Path, n_timesteps: int) -> None:
    kwargs = dict(args.env_kwargs)
    env = taught_run.made(args.env, lambda: make_vec_env(args.env, _N_GAMES, seed=args.seed, env_kwargs=kwargs))
    expert = expert_of(args.env, args.expert_folder, args.expert_seed, args.expert_timesteps)
    model = DQN("CnnPolicy", env, buffer_size=1, seed=args.seed, device=args.device)
    learn_from(expert, env, model, n_timesteps, args.epochs, args.seed, _EXPERT_PLAYS[args.env])
    env.close()
    taught_run.save(model, folder, args, {"policy": "CnnPolicy"}, n_timesteps)


def learn_from(
    expert: Expert, env: VecEnv, model: DQN, n_timesteps: int, epochs: float, seed: int, expert_plays: float = 0.15
) -> None:
    """
    :param expert: Who knows what to do
    :param env: Noisy games
    :param model: Whose network learns
    :param n_timesteps: Steps of all games together
    :param epochs: How often an observation is learned from, in the mean
    :param seed: Seed of what is done at random and of the batches
    :param expert_plays: Share of the steps over which the part that the expert plays falls from all to nothing
    """
    random = np.random.default_rng(seed)
    network = model.q_net
    network.apply(partial(BasePolicy.init_weights, gain=np.sqrt(2)))  # orthogonal: convolutions learn from the first round on
    memory_head = torch.nn.Linear(network.features_extractor.features_dim, MEMORY_SIZE).to(model.device)
    optimizer = torch.optim.Adam([*network.parameters(), *memory_head.parameters()], lr=_LEARNING_RATE)
    lessons = Lessons(n_timesteps, int(env.action_space.n), seed)  # type: ignore[attr-defined]
    observations: Any = env.reset()
    memory = before = _memories(env)
    last_actions = np.zeros(_N_GAMES, dtype=np.int64)
    returns: list[float] = []
    while lessons.size + _N_GAMES <= n_timesteps:
        for _ in range(min(_STEPS_A_ROUND, (n_timesteps - lessons.size) // _N_GAMES)):
            advice = expert.advise(memory, before, last_actions)
            lessons.add(observations, advice, memory)
            actions, _ = model.predict(observations, deterministic=True)
            advised = 1 - lessons.size / (expert_plays * n_timesteps)
            actions = taught_run.who_plays(random, actions, advice, advised, _RANDOM_ACTIONS)
            observations, _, dones, infos = env.step(actions)
            before, memory, last_actions = memory, _memories(env), actions.copy()
            before[dones], last_actions[dones] = memory[dones], 0
            returns += [infos[i]["episode"]["r"] for i in np.flatnonzero(dones)]
        share = lessons.size / n_timesteps
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * max(0.02, 1 - share)
        count = int(epochs * _N_GAMES * _STEPS_A_ROUND / _BATCH_SIZE)
        if lessons.size + _N_GAMES > n_timesteps:
            count *= 4  # the last time, at the lowest learning rate
        network.set_training_mode(True)
        losses = []
        for batch in lessons.batches(count):
            frames, advice_batch, memory_batch, moves = (tensor.to(model.device) for tensor in batch)
            features = network.extract_features(frames, network.features_extractor)
            imitation = F.cross_entropy(network.q_net(features), advice_batch)
            guesses = ((memory_head(features) - memory_batch) ** 2)[:, moves].mean()
            optimizer.zero_grad()
            (imitation + guesses).backward()
            optimizer.step()
            losses.append((imitation.item(), guesses.item()))
        network.set_training_mode(False)
        imitation_loss, memory_loss = np.mean(losses, axis=0)
        told = f"cross entropy {imitation_loss:.3f}, error of the memory {memory_loss:.3f}"
        if returns:
            told += f", mean return of the last {len(returns[-50:])} episodes {np.mean(returns[-50:]):.2f}"
        print(f"{lessons.size} of {n_timesteps} steps: {told}", flush=True)
    model.q_net_target.load_state_dict(network.state_dict())


def _memories(env: VecEnv) -> np.ndarray:
    return np.stack([game.getRAM() for game in (one.unwrapped.ale for one in env.envs)])  # type: ignore[attr-defined]


def _epochs(text: str) -> float:
    try:
        epochs = float(text)
    except ValueError:
        epochs = 0.0
    if not 0 < epochs < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
    return epochs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    taught_run.add_options(parser, TASKS, ("sigma",))
    taught_run.add_n_timesteps(parser, "60,000, on Pong1r 150,000")
    parser.add_argument("--epochs", type=_epochs, default=6, help="how often each is, in the mean (default: %(default)s)")
    parser.add_argument("--expert-folder", type=Path, default=Path("experts"), help="of trained experts")
    parser.add_argument("--expert-timesteps", type=taught_run.positive, help="steps of the training of the expert")
    parser.add_argument("--expert-seed", type=taught_run.seed, default=0, help="of that training (default: %(default)s)")
    args = parser.parse_args()
    return exit_status("atari_teacher", lambda: teach(args))


if __name__ == "__main__":
    sys.exit(main())
