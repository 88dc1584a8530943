"""
One storage, two replay buffers.

In CAMP the primary and the reference network act in turn in the same environment, and each learns from what it did itself
(the buffers Z and Z~ of Algorithm 1). Both halves live in one ring with an even number of rows: the primary's transitions are
the even rows, the reference's the odd ones. The trajectory stays contiguous, so that the next row holds the next observation
and an n-step window can run on across both actors; only the rows where a window may start depend on the actor.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

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


class _Windows(NamedTuple):
    """
    n-step transitions: what follows on the rows where they start. All arrays have the shape (batch,).

    :param returns: discounted sum of the rewards, float64
    :param last_rows: row of the last reward, int64; the next observation belongs to it
    :param terminal: 1 if the window ends in a terminal state, where nothing is bootstrapped, float32
    :param discounts: gamma to the power of the number of rewards, float64
    """

    returns: np.ndarray
    last_rows: np.ndarray
    terminal: np.ndarray
    discounts: np.ndarray


def _split_entries(entries: dict[str, th.Tensor], batch_size: int) -> list[dict[str, th.Tensor]]:
    parts = zip(*(entry.split(batch_size) for entry in entries.values()), strict=True)
    return [dict(zip(entries, part, strict=True)) for part in parts]


class AlternatingSampling(ReplayBuffer):
    """
    What the two buffers below add to Stable-Baselines3's: sampling from the rows of one actor, and n-step windows over both.

    The arguments are those of SB3's buffers, with these remarks and additions:

    :param buffer_size: Max number of transitions; rounded up so that the number of rows (``buffer_size // n_envs``) is even
    :param n_envs: Number of parallel environments; all envs of a row are acted on by the same network
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
        # Two rows of each actor, where the observation of one row is lost to the next observation of the newest
        rows = max(buffer_size // n_envs, 4 if optimize_memory_usage else 2)
        super().__init__(
            (rows + rows % 2) * n_envs,
            observation_space,
            action_space,
            device,
            n_envs=n_envs,
            optimize_memory_usage=optimize_memory_usage,
            # SB3 refuses it together with optimize_memory_usage, which AlternatingReplayBuffer makes possible
            handle_timeout_termination=False,
        )
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps = n_steps
        self.gamma = gamma

    @property
    def next_actor(self) -> Actor:
        """The network whose turn it is: the one that owns the row that is written next."""
        return Actor(self.pos % 2)

    def add(
        self, obs: Any, next_obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, infos: list[dict]
    ) -> None:
        self.timeouts[self.pos] = 0  # may be left from a trajectory that was cut
        super().add(obs, next_obs, action, reward, done, infos)

    def cut_trajectory(self) -> None:
        """End what was stored last as a time limit would: the envs are reset before the next transition is added."""
        if self.size() == 0:
            return
        newest = (self.pos - 1) % self.buffer_size
        running = self.dones[newest] == 0
        self.dones[newest, running] = 1
        self.timeouts[newest, running] = 1

    def sample(self, batch_size: int, env: VecNormalize | None = None, actor: Actor | None = None) -> Any:
        """
        :param batch_size: Number of transitions to sample
        :param env: VecNormalize env, to normalize observations and rewards
        :param actor: Only transitions that start with an action of this network; None for all
        :return: n-step transitions, :class:`ReplayBufferSamples` or :class:`DictReplayBufferSamples`; ``discounts`` is gamma
            to the power of the number of rewards summed up
        """
        return next(self.sample_batches(batch_size, [actor], env))

    def sample_batches(
        self, batch_size: int, actors: Sequence[Actor | None], env: VecNormalize | None = None
    ) -> Iterator[Any]:
        """
        The batches that :meth:`sample` would give one after the other, gathered in one go: for small observations it is the
        number of calls that costs.

        :param batch_size: Number of transitions in each batch
        :param actors: One for each batch, as for :meth:`sample`
        :param env: VecNormalize env, to normalize observations and rewards
        :return: the batches
        """
        drawn = [(self._sample_rows(batch_size, actor), np.random.randint(self.n_envs, size=batch_size)) for actor in actors]
        rows, env_inds = map(np.concatenate, zip(*drawn, strict=True))
        windows = self._windows(rows, env_inds, env)
        return self._in_batches(self._gather(rows, env_inds, windows, env), batch_size)

    def _gather(self, rows: np.ndarray, env_inds: np.ndarray, windows: _Windows, env: VecNormalize | None) -> Any:
        raise NotImplementedError

    @staticmethod
    def _in_batches(samples: Any, batch_size: int) -> Iterator[Any]:
        parts = (_split_entries(part, batch_size) if isinstance(part, dict) else part.split(batch_size) for part in samples)
        return (type(samples)(*batch) for batch in zip(*parts, strict=True))

    def _sample_rows(self, batch_size: int, actor: Actor | None) -> np.ndarray:
        """
        Draw rows uniformly, with replacement.

        :param batch_size: Number of rows
        :param actor: Whose rows, None for all
        :return: Rows of the ring, int64, shape (batch_size,)
        """
        n_stored = self.buffer_size if self.full else self.pos
        oldest = self.pos if self.full else 0
        # With one array for observations and next observations, the newest transition has overwritten the oldest observation
        first = 1 if self.full and self.optimize_memory_usage else 0
        stride = 1
        if actor is not None:
            stride = 2
            first += (oldest + first + actor) % 2
        n_rows = (n_stored - first + stride - 1) // stride
        if n_rows < 1:
            owner = actor.name.lower() if actor is not None else "agent"
            raise ValueError(f"The replay buffer holds no transition of the {owner}.")
        return (oldest + first + stride * np.random.randint(n_rows, size=batch_size)) % self.buffer_size

    def _windows(self, rows: np.ndarray, env_inds: np.ndarray, env: VecNormalize | None) -> _Windows:
        steps = np.arange(self.n_steps)
        window = (rows[:, None] + steps) % self.buffer_size
        window_envs = env_inds[:, None]

        # A window ends with its episode, or where the storage ends for now
        newest = (self.pos - 1) % self.buffer_size
        ends = (self.dones[window, window_envs] > 0) | (window == newest)
        ends[:, -1] = True
        last_step = ends.argmax(axis=1)

        rewards = self._normalize_reward(self.rewards[window, window_envs], env)
        weights = np.where(steps <= last_step[:, None], self.gamma**steps, 0.0)
        last_rows = (rows + last_step) % self.buffer_size
        return _Windows(
            returns=(rewards * weights).sum(axis=1),
            last_rows=last_rows,
            terminal=self.dones[last_rows, env_inds] * (1 - self.timeouts[last_rows, env_inds]),
            discounts=self.gamma ** (last_step + 1.0),
        )

    def _column(self, values: np.ndarray) -> th.Tensor:
        return self.to_torch(values.astype(np.float32).reshape(-1, 1), copy=False)


class AlternatingReplayBuffer(AlternatingSampling):
    """
    Replay buffer of :class:`~sb3_camp.camp_dqn.CAMPDQN` for array observations.

    Unlike SB3's buffers it allows ``optimize_memory_usage`` together with the handling of time limits and with n-step returns:
    the last observation of an episode, which has no row of its own, is kept aside.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # row -> {env index -> last observation of the episode that ended there}
        self.final_observations: dict[int, dict[int, np.ndarray]] = {}

    def add(
        self, obs: Any, next_obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, infos: list[dict]
    ) -> None:
        if self.optimize_memory_usage:
            self.final_observations.pop(self.pos, None)
            self._keep_final_observations(self.pos, next_obs, np.flatnonzero(done))
        super().add(obs, next_obs, action, reward, done, infos)

    def cut_trajectory(self) -> None:
        if self.optimize_memory_usage and self.size() > 0:
            newest = (self.pos - 1) % self.buffer_size
            self._keep_final_observations(newest, self.observations[self.pos], np.flatnonzero(self.dones[newest] == 0))
        super().cut_trajectory()

    def _keep_final_observations(self, row: int, observations: np.ndarray, env_inds: np.ndarray) -> None:
        if len(env_inds) > 0:
            kept = self.final_observations.setdefault(row, {})
            kept.update({int(env): np.array(observations[env]) for env in env_inds})

    def _gather(
        self, rows: np.ndarray, env_inds: np.ndarray, windows: _Windows, env: VecNormalize | None
    ) -> ReplayBufferSamples:
        observations = self._normalize_obs(self.observations[rows, env_inds], env)
        next_observations = self._normalize_obs(self._next_observations(windows.last_rows, env_inds), env)
        return ReplayBufferSamples(
            # indexing has made copies already
            observations=self.to_torch(observations, copy=False),  # type: ignore[arg-type]
            actions=self.to_torch(self.actions[rows, env_inds], copy=False),
            next_observations=self.to_torch(next_observations, copy=False),  # type: ignore[arg-type]
            dones=self._column(windows.terminal),
            rewards=self._column(windows.returns),
            discounts=self._column(windows.discounts),
        )

    def _next_observations(self, rows: np.ndarray, env_inds: np.ndarray) -> np.ndarray:
        if not self.optimize_memory_usage:
            return self.next_observations[rows, env_inds]
        next_observations = self.observations[(rows + 1) % self.buffer_size, env_inds]
        for i in np.flatnonzero(self.dones[rows, env_inds]):
            next_observations[i] = self.final_observations[int(rows[i])][int(env_inds[i])]
        return next_observations


class CleanReplayBufferSamples(NamedTuple):
    """
    Those of SB3's ``ReplayBufferSamples``, and the observations without noise.

    :param clean_observations: float32, shape (batch, *shape of the clean observation)
    :param clean_next_observations: same shape; of the end of the n-step window, as ``next_observations``
    """

    observations: th.Tensor
    actions: th.Tensor
    next_observations: th.Tensor
    dones: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor
    clean_observations: th.Tensor
    clean_next_observations: th.Tensor


class CleanReplayBuffer(AlternatingReplayBuffer):
    """
    Keeps the observations without noise beside the noisy ones, for a reference that sees them.

    ``add`` takes them from the infos: "clean_observation", that of the next observation, and "last_clean_observation".
    ``sample`` gives :class:`CleanReplayBufferSamples`. VecNormalize leaves the clean observations as they are.

    :param clean_observation_space: Space of the observations without noise, a Box; stored as float32, with
        ``optimize_memory_usage`` too each twice
    """

    def __init__(self, *args: Any, clean_observation_space: spaces.Box, **kwargs: Any):
        super().__init__(*args, **kwargs)
        shape = (self.buffer_size, self.n_envs, *clean_observation_space.shape)
        self.clean_observations = np.zeros(shape, dtype=np.float32)
        self.clean_next_observations = np.zeros(shape, dtype=np.float32)

    def add(
        self, obs: Any, next_obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, infos: list[dict]
    ) -> None:
        self.clean_observations[self.pos] = [info["last_clean_observation"] for info in infos]
        self.clean_next_observations[self.pos] = [info["clean_observation"] for info in infos]
        super().add(obs, next_obs, action, reward, done, infos)

    def _gather(self, rows: np.ndarray, env_inds: np.ndarray, windows: _Windows, env: VecNormalize | None) -> Any:
        samples = super()._gather(rows, env_inds, windows, env)
        return CleanReplayBufferSamples(
            **samples._asdict(),
            clean_observations=self.to_torch(self.clean_observations[rows, env_inds], copy=False),
            clean_next_observations=self.to_torch(self.clean_next_observations[windows.last_rows, env_inds], copy=False),
        )


class AlternatingDictReplayBuffer(AlternatingSampling, DictReplayBuffer):
    """Replay buffer of :class:`~sb3_camp.camp_dqn.CAMPDQN` for Dict observations; as in SB3 no ``optimize_memory_usage``."""

    def _gather(
        self, rows: np.ndarray, env_inds: np.ndarray, windows: _Windows, env: VecNormalize | None
    ) -> DictReplayBufferSamples:
        def entries(storage: dict[str, np.ndarray], at: np.ndarray) -> dict[str, th.Tensor]:
            observations = self._normalize_obs({key: array[at, env_inds] for key, array in storage.items()}, env)
            assert isinstance(observations, dict)
            return {key: self.to_torch(array, copy=False) for key, array in observations.items()}

        return DictReplayBufferSamples(
            observations=entries(self.observations, rows),
            actions=self.to_torch(self.actions[rows, env_inds], copy=False),
            next_observations=entries(self.next_observations, windows.last_rows),
            dones=self._column(windows.terminal),
            rewards=self._column(windows.returns),
            discounts=self._column(windows.discounts),
        )
