"""Learning a critic for a fixed policy from its own episodes, for ``--attack robust-sarsa``."""

import copy
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from tqdm import tqdm

from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.attack_runs.policy_steps import N_ENVS, observed_steps
from sb3_camp.attacks.robust_sarsa import LearnedCritic, flat
from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes, write_file

N_STEPS = 30_000
"""Steps of the policy from which a critic learns"""

_UPDATES, _BATCH, _TARGET_RATE = 6_000, 256, 0.005
# How far the actions are moved at random, in the scaled action space, so that the critic learns what they are worth
_EXPLORATION, _RANDOM_ACTIONS = 0.3, 0.3
# Radius of the ball of actions in which the values are to be smooth, and how much that counts
_ACTION_RADIUS, _SMOOTHNESS = 0.1, 0.1
_LARGEST_INPUT = 4096


class Transitions(NamedTuple):
    """
    Steps of a policy.

    :param inputs: What it observed, without noise, float32 (n, n_inputs)
    :param actions: What it did, (n, n_actions)
    :param rewards: (n,)
    :param next_inputs: (n, n_inputs)
    :param next_actions: What it would do next without exploring, (n, n_actions)
    :param ended: Whether the episode ended instead, bool (n,)
    """

    inputs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_inputs: np.ndarray
    next_actions: np.ndarray
    ended: np.ndarray


def train_critic(player: AttackPlayer, seed: int, hide_progress: bool) -> LearnedCritic:
    """
    :param player: The policy and its environment
    :param seed: Seed of the envs, the exploration and the critic
    :param hide_progress: Whether to show no bar
    :return: a critic of the policy as it acts in this environment, noise included
    :raises InputError: if its observations are too large
    """
    print(f"Learning a critic from {N_STEPS} steps of the policy")
    transitions = collect(player, N_STEPS, seed, hide_progress)
    gamma = float(getattr(player.model, "gamma", 0.99))
    return fit(transitions, isinstance(player.model.action_space, spaces.Discrete), gamma, _UPDATES, seed)


def save_critic(critic: LearnedCritic, file: Path) -> None:
    """
    :param critic: What to save
    :param file: Where to, a ``.npz``
    """
    write_file(file, lambda written: np.savez(written, **critic.arrays()))  # type: ignore[arg-type]


def load_critic(file: Path) -> LearnedCritic:
    """
    :param file: What :func:`save_critic` wrote
    :return: the critic
    :raises InputError: if it is none
    """
    try:
        with np.load(io.BytesIO(read_bytes(file)), allow_pickle=False) as arrays:
            return LearnedCritic.from_arrays(dict(arrays))
    except (InputError, ValueError, OSError, EOFError, KeyError) as error:
        raise InputError(f"{file}: {' '.join(str(error).split())}") from error


class _Explorer:
    """The policy with random changes of its actions, which it keeps together with what it would have done."""

    def __init__(self, model: BaseAlgorithm, rng: np.random.Generator) -> None:
        self._model, self._rng = model, rng
        self.did = self.would = np.empty(0)

    def predict(
        self, observation: Any, state: Any = None, episode_start: np.ndarray | None = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        actions, state = self._model.predict(observation, state, episode_start, deterministic)
        space = self._model.action_space
        if isinstance(space, spaces.Discrete):
            random = self._rng.integers(space.start, space.start + space.n, len(actions))
            taken = np.where(self._rng.random(len(actions)) < _RANDOM_ACTIONS, random, actions)
            self.would, self.did = (np.eye(space.n, dtype=np.float32)[one - space.start] for one in (actions, taken))
            return taken, state
        assert isinstance(space, spaces.Box)
        low, high = space.low.ravel(), space.high.ravel()
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            low, high = -np.ones_like(low), np.ones_like(high)
        flat_actions = actions.reshape(len(actions), -1)
        self.would = (2 * (flat_actions - low) / (high - low) - 1).astype(np.float32)
        noise = _EXPLORATION * self._rng.standard_normal(self.would.shape)
        self.did = np.clip(self.would + noise, -1, 1).astype(np.float32)
        taken = low + (self.did + 1) * (high - low) / 2
        return taken.astype(np.float32).reshape(actions.shape), state


def collect(player: AttackPlayer, n_steps: int, seed: int, hide_progress: bool) -> Transitions:
    """
    :param player: The policy and its environment
    :param n_steps: Number of steps, over all envs
    :param seed: Seed of the envs and of the exploration
    :param hide_progress: Whether to show no bar
    :return: steps of the policy, with some random changes of its actions; the last before a time limit is not among them
    :raises InputError: if its observations are too large
    """
    explorer = _Explorer(player.model, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,))))
    inputs: list[np.ndarray] = []
    did, would, rewards, starts, step = [], [], [], [], []
    with tqdm(total=n_steps, unit="step", desc="critic", mininterval=1, disable=hide_progress) as bar:
        for question, observed in observed_steps(player, explorer, n_steps + 2 * N_ENVS, seed):
            if inputs:  # what came of the step before
                did.append(explorer.did)
                would.append(explorer.would)
                rewards.append(question.rewards)
                starts.append(question.starts)
            inputs.append(_inputs(observed))
            step.append(question.requests.step)
            bar.update(N_ENVS)
    before, now, last = slice(None, -2), slice(1, -1), player.view().step_limit
    ended = np.stack(starts[:-1])
    kept = ~(ended & (np.stack(step[before]) + 1 >= last))
    if not kept.any():  # episodes of one step: nothing comes after, limit or not
        kept[:] = True
    columns = (inputs[before], did[:-1], rewards[:-1], inputs[now], would[1:], starts[:-1])
    return Transitions(*(np.stack(column)[kept] for column in columns))


def _inputs(observed: Any) -> np.ndarray:
    inputs = flat(observed).cpu().numpy()
    if inputs.shape[1] > _LARGEST_INPUT:
        raise InputError("--attack robust-sarsa learns its critic from the entries of observations, and images have too many")
    return inputs


def fit(transitions: Transitions, discrete: bool, gamma: float, n_updates: int, seed: int) -> LearnedCritic:
    """
    Learn action values by Sarsa: r + gamma Q(s', pi(s')), with a target network. For continuous actions, values are smooth
    where actions are close: (max Q(s, a') - Q(s, a))^2 over |a' - a| <= 0.1 counts a tenth, the maximum by one gradient step.

    :param transitions: Steps of the policy
    :param discrete: Whether its actions are discrete
    :param gamma: Discount
    :param n_updates: Number of gradient steps
    :param seed: Seed of the initial weights and the batches
    :return: the critic. Values are in units of the standard deviation of the rewards
    """
    generator = th.Generator().manual_seed(seed)
    with th.random.fork_rng(devices=[]):
        th.manual_seed(seed)
        critic = LearnedCritic(transitions.inputs.shape[1], transitions.actions.shape[1], discrete)
    inputs, actions, rewards, next_inputs, next_actions = (
        th.as_tensor(np.asarray(values, dtype=np.float32)) for values in transitions[:5]
    )
    rewards = rewards / rewards.std().clamp(min=1e-6)
    goes_on = 1 - th.as_tensor(transitions.ended).float()
    critic.get_buffer("mean").copy_(inputs.mean(dim=0))
    critic.get_buffer("deviation").copy_(inputs.std(dim=0).clamp(min=1e-6))
    target = copy.deepcopy(critic)
    optimizer = th.optim.Adam(critic.network.parameters(), 1e-3)
    for _ in range(n_updates):
        batch = th.randint(len(inputs), (_BATCH,), generator=generator)
        with th.no_grad():
            goal = rewards[batch] + gamma * goes_on[batch] * target(next_inputs[batch], next_actions[batch])
        taken = actions[batch]
        values = critic(inputs[batch], taken)
        loss = th.nn.functional.smooth_l1_loss(values, goal)
        if not discrete:
            loss = loss + _SMOOTHNESS * _largest_change(critic, inputs[batch], taken, values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with th.no_grad():
            for mine, other in zip(target.network.parameters(), critic.network.parameters(), strict=True):
                mine.lerp_(other, _TARGET_RATE)
    return critic.requires_grad_(False)


def _largest_change(critic: LearnedCritic, inputs: th.Tensor, actions: th.Tensor, values: th.Tensor) -> th.Tensor:
    moved = actions.clone().requires_grad_()
    (gradient,) = th.autograd.grad(critic(inputs, moved).sum(), moved)
    near = (actions + _ACTION_RADIUS * gradient.sign()).clamp(-1, 1)
    return (critic(inputs, near) - values).square().mean()
