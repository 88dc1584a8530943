"""
One storage, two replay buffers.

In CAMP the primary and the reference network act in turn in the same environment, and each learns from what it did itself
(the buffers Z and Z~ of Algorithm 1). Both halves live in one ring with an even number of rows: the primary's transitions are
the even rows, the reference's the odd ones. The trajectory stays contiguous, so that the next row holds the next observation
and an n-step window can run on across both actors; only the rows where a window may start depend on the actor.
"""

from enum import IntEnum
from typing import Any, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize


class Actor(IntEnum):
    """Which network acts at a row of the ring: the parity of the row."""

    PRIMARY = 0
    REFERENCE = 1


def _even_size(buffer_size: int, n_envs: int) -> int:
    """The number of transitions of the smallest ring with an even number of rows that holds ``buffer_size`` of them."""
    rows = max(buffer_size // n_envs, 1)
    return (rows + rows % 2) * n_envs


class AlternatingSampling:
    """
    What both buffers below add to Stable-Baselines3's: sampling from the rows of one actor.

    A mixin for subclasses of :class:`~stable_baselines3.common.buffers.ReplayBuffer`.
    """

    buffer_size: int
    pos: int
    full: bool
    optimize_memory_usage: bool

    @property
    def next_actor(self) -> Actor:
        """The network whose turn it is: the one that owns the row that is written next."""
        return Actor(self.pos % 2)

    def _sample_rows(self, batch_size: int, actor: Actor | None) -> np.ndarray:
        """
        Draw rows uniformly, with replacement.

        :param batch_size: Number of rows
        :param actor: Whose rows, None for all
        :return: Rows of the ring, int64, shape (batch_size,)
        """
        age_limit = self.buffer_size if self.full else self.pos
        oldest = self.pos if self.full else 0
        # With one array for observations and next observations, the newest transition has overwritten the oldest observation
        first = 1 if self.full and self.optimize_memory_usage else 0
        stride = 1
        if actor is not None:
            stride = 2
            first += (oldest + first + actor) % 2
        n_rows = (age_limit - first + stride - 1) // stride
        if n_rows < 1:
            raise ValueError(
                f"The replay buffer holds no transition of the {actor.name.lower() if actor is not None else 'agent'}."
            )
        return (oldest + first + stride * np.random.randint(n_rows, size=batch_size)) % self.buffer_size


class AlternatingReplayBuffer(AlternatingSampling, ReplayBuffer):
    """
    Replay buffer of :class:`~sb3_camp.camp_dqn.CAMPDQN` for array observations, with n-step returns.

    Unlike SB3's buffers it allows ``optimize_memory_usage`` together with the handling of time limits and with n-step returns:
    the last observation of an episode, which has no row of its own, is kept aside.

    :param buffer_size: Max number of transitions; rounded up so that the number of rows (``buffer_size // n_envs``) is even
    :param observation_space: Observation space
    :param action_space: Action space
    :param device: PyTorch device
    :param n_envs: Number of parallel environments; all envs of a row are acted on by the same network
    :param optimize_memory_usage: Store each observation once
    :param handle_timeout_termination: Bootstrap at the end of an episode that a time limit cut off
    :param n_steps: Number of rewards that are summed up before bootstrapping
    :param gamma: Discount factor within these n steps
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_steps: int = 1,
        gamma: float = 0.99,
    ):
        super().__init__(
            _even_size(buffer_size, n_envs),
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            optimize_memory_usage=optimize_memory_usage,
            # SB3 refuses it together with optimize_memory_usage; here the final observations make it possible
            handle_timeout_termination=False,
        )
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps = n_steps
        self.gamma = gamma
        # row -> {env index -> last observation of the episode that ended there}
        self.final_observations: dict[int, dict[int, np.ndarray]] = {}

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        if self.optimize_memory_usage:
            self.final_observations.pop(self.pos, None)
            if np.any(done):
                self.final_observations[self.pos] = {int(env): np.array(next_obs[env]) for env in np.flatnonzero(done)}
        super().add(obs, next_obs, action, reward, done, infos)

    def cut_trajectory(self) -> None:
        """End what was stored last as a time limit would: the envs are reset before the next transition is added."""
        if self.size() == 0:
            return
        newest = (self.pos - 1) % self.buffer_size
        running = np.flatnonzero(self.dones[newest] == 0)
        self.dones[newest, running] = 1
        self.timeouts[newest, running] = 1
        if self.optimize_memory_usage:
            last_observations = {int(env): self.observations[self.pos, env].copy() for env in running}
            self.final_observations.setdefault(newest, {}).update(last_observations)

    def sample(self, batch_size: int, env: VecNormalize | None = None, actor: Actor | None = None) -> ReplayBufferSamples:  # type: ignore[override]
        """
        :param batch_size: Number of transitions to sample
        :param env: VecNormalize env, to normalize observations and rewards
        :param actor: Only transitions that start with an action of this network; None for all
        :return: n-step transitions; ``discounts`` is gamma to the power of the number of rewards summed up
        """
        return self._get_samples(self._sample_rows(batch_size, actor), env=env)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        env_inds = np.random.randint(self.n_envs, size=len(batch_inds))
        steps = np.arange(self.n_steps)
        window = (batch_inds[:, None] + steps) % self.buffer_size
        window_envs = env_inds[:, None]

        # A window ends with its episode, or where the storage ends for now
        newest = (self.pos - 1) % self.buffer_size
        ends = (self.dones[window, window_envs] > 0) | (window == newest)
        ends[:, -1] = True
        last_step = ends.argmax(axis=1)

        rewards = self._normalize_reward(self.rewards[window, window_envs], env)
        weights = np.where(steps <= last_step[:, None], np.float32(self.gamma) ** steps, 0.0)
        returns = (rewards * weights).sum(axis=1, keepdims=True)

        last_inds = (batch_inds + last_step) % self.buffer_size
        terminal = self.dones[last_inds, env_inds] * (1 - self.timeouts[last_inds, env_inds])
        discounts = self.gamma ** (last_step + 1.0)

        observations = cast(np.ndarray, self._normalize_obs(self.observations[batch_inds, env_inds], env))
        next_observations = cast(np.ndarray, self._normalize_obs(self._next_observations(last_inds, env_inds), env))

        def to_torch(array: np.ndarray) -> th.Tensor:
            # The arrays are fresh copies already
            return self.to_torch(array, copy=False)

        return ReplayBufferSamples(
            observations=to_torch(observations),
            actions=to_torch(self.actions[batch_inds, env_inds]),
            next_observations=to_torch(next_observations),
            dones=to_torch(terminal.reshape(-1, 1)),
            rewards=to_torch(returns.astype(np.float32)),
            discounts=to_torch(discounts.astype(np.float32).reshape(-1, 1)),
        )

    def _next_observations(self, rows: np.ndarray, env_inds: np.ndarray) -> np.ndarray:
        if not self.optimize_memory_usage:
            return self.next_observations[rows, env_inds]
        next_observations = self.observations[(rows + 1) % self.buffer_size, env_inds]
        for i in np.flatnonzero(self.dones[rows, env_inds]):
            next_observations[i] = self.final_observations[int(rows[i])][int(env_inds[i])]
        return next_observations


class AlternatingDictReplayBuffer(AlternatingSampling, DictReplayBuffer):
    """
    Replay buffer of :class:`~sb3_camp.camp_dqn.CAMPDQN` for Dict observations; 1-step returns only, as in SB3.

    :param buffer_size: Max number of transitions; rounded up so that the number of rows (``buffer_size // n_envs``) is even
    :param observation_space: Observation space
    :param action_space: Action space
    :param device: PyTorch device
    :param n_envs: Number of parallel environments; all envs of a row are acted on by the same network
    :param optimize_memory_usage: Not supported, as in SB3
    :param handle_timeout_termination: Bootstrap at the end of an episode that a time limit cut off
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ):
        super().__init__(
            _even_size(buffer_size, n_envs),
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            optimize_memory_usage=optimize_memory_usage,
            handle_timeout_termination=handle_timeout_termination,
        )

    def sample(self, batch_size: int, env: VecNormalize | None = None, actor: Actor | None = None) -> DictReplayBufferSamples:  # type: ignore[override]
        """
        :param batch_size: Number of transitions to sample
        :param env: VecNormalize env, to normalize observations and rewards
        :param actor: Only transitions that start with an action of this network; None for all
        """
        return self._get_samples(self._sample_rows(batch_size, actor), env=env)
