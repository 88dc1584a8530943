"""The adversary of a vector environment, whose envs step as one array."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from sb3_camp.errors import InputError
from sb3_camp.wrappers.adversary import AttackAnswers, AttackRequests
from sb3_camp.wrappers.attacked_space import attacked_entry, received_space
from sb3_camp.wrappers.episode_budget import EpisodeBudgets
from sb3_camp.wrappers.frame_history import StackPadding
from sb3_camp.wrappers.observation_noise import attack_generator
from sb3_camp.wrappers.vector import FrameStackObservation, NoisyObservationWrapper, resets_at_next_step

Attacker = Callable[[AttackRequests], AttackAnswers]
"""What computes the attacks on a batch of environments, such as :meth:`sb3_camp.wrappers.adversary.Adversary.perturb_all`."""


class VectorAdversary(VectorWrapper):
    """
    Twin of :class:`sb3_camp.wrappers.AdversarialObservationWrapper` for vector environments that give one frame at a time: all
    envs are attacked in one batch, each with a budget of its own.

    :param env: The vector environment to wrap, with observations in a Box, in autoreset mode next-step
    :param attacker: Computes the attacks
    :param budgets: What may be spent in each env
    :param n_stack: Number of frames that the policy observes, stacked outside
    :param stack_padding: What the stack holds in front of the first frame, see ``AdversarialObservationWrapper``
    :raises InputError: if it resets in another way, or if its observations cannot be perturbed
    """

    def __init__(
        self,
        env: VectorEnv,
        attacker: Attacker,
        budgets: EpisodeBudgets,
        n_stack: int = 1,
        stack_padding: StackPadding = "reset",
    ) -> None:
        frame = env.single_observation_space
        if not isinstance(frame, spaces.Box) or not resets_at_next_step(env):
            raise InputError(f"VectorAdversary: {env} must observe a Box and reset at the next step.")
        attacked_entry(frame, None)
        VectorWrapper.__init__(self, env)
        self.attacker = attacker
        self.budgets = budgets
        self.flips = np.zeros(self.num_envs, dtype=np.int64)
        """In how many observations of its episode the greedy action of each env was changed, (n_envs,)"""
        self.steps = np.zeros(self.num_envs, dtype=np.int64)
        """Steps since the episode of each env began, (n_envs,)"""
        self.wanted = np.ones(self.num_envs, dtype=bool)
        """In which envs an attack is worth its time: an episode that does not count is played on without, bool (n_envs,)"""
        self.always = False
        """Whether to ask for attacks on all envs at each step, also where none can be made: for adversaries that learn"""
        self.rewards = np.zeros(self.num_envs)
        """Rewards of the last step, (n_envs,)"""
        self.ended = np.zeros(self.num_envs, dtype=bool)
        """Which envs have ended their episode with the last step, bool (n_envs,)"""
        self.starts = np.ones(self.num_envs, dtype=bool)
        """Which envs have begun one, bool (n_envs,)"""
        self._padding = stack_padding
        self._dtype = np.uint8 if frame.dtype == np.uint8 else np.float32
        self._frames = np.zeros((self.num_envs, n_stack, *frame.shape), self._dtype)
        self._is_newest = np.zeros((self.num_envs, n_stack), dtype=bool)
        self._rngs: Sequence[np.random.Generator] = []
        self._memory: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.single_observation_space = received_space(frame, None)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        frames, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        if isinstance(seed, int):
            self._rngs = [attack_generator(seed + i) for i in range(self.num_envs)]
        elif not self._rngs:
            self._rngs = [np.random.default_rng() for _ in range(self.num_envs)]
        self.rewards, self.ended = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=bool)
        return self._perturbed(frames, np.ones(self.num_envs, dtype=bool)), infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        starts = self.ended
        frames, self.rewards, terminations, truncations, infos = self.env.step(actions)
        self.ended = np.logical_or(terminations, truncations)
        return self._perturbed(frames, starts), self.rewards, terminations, truncations, infos

    def _perturbed(self, frames: np.ndarray, starts: np.ndarray) -> np.ndarray:
        self.starts = starts
        frames = np.asarray(frames, dtype=self._dtype)
        self.steps = np.where(starts, 0, self.steps + 1)
        self.flips[starts] = 0
        self.budgets.refill(starts)
        for i in np.flatnonzero(starts):
            self._memory[i].clear()
        self._remember(frames, starts)
        # No action follows the last observation of an episode
        envs = np.flatnonzero(((self.budgets.left > 0) & ~self.ended & self.wanted) | self.always)
        if envs.size:
            attacked = self.attacker(self._requests(envs))
            self.budgets.spend(attacked.norms, envs)
            self.flips[envs] += attacked.flipped
            frames = frames.copy()
            frames[envs] = attacked.frames
            self._frames = np.where(
                self._is_newest.reshape(*self._is_newest.shape, *(1,) * (frames.ndim - 1)), frames[:, None], self._frames
            )
        return frames

    def _requests(self, envs: np.ndarray) -> AttackRequests:
        rngs = [self._rngs[i] for i in envs]
        allowed, memory = self.budgets.allowed[envs], [self._memory[i] for i in envs]
        frames, is_newest = self._frames[envs], self._is_newest[envs]
        return AttackRequests(frames, is_newest, allowed, self.steps[envs], rngs, memory=memory)

    def _remember(self, frames: np.ndarray, starts: np.ndarray) -> None:
        self._frames = np.concatenate([self._frames[:, 1:], frames[:, None]], axis=1)
        self._is_newest[:] = False
        self._is_newest[:, -1] = True
        if self._padding == "reset":
            self._frames[starts] = frames[starts][:, None]
            self._is_newest[starts] = True
        else:
            self._frames[starts, :-1] = 0


def insert_vector_adversary(
    envs: VectorEnv, attacker: Attacker, budgets: EpisodeBudgets, n_stack: int
) -> tuple[VectorEnv, VectorAdversary]:
    """
    Put an adversary directly inside of the smoothing noise of a vector environment; without noise, inside of the frame stack.

    :param envs: The vector environment
    :param attacker: Computes the attacks
    :param budgets: What may be spent in each env
    :param n_stack: Number of frames that are stacked
    :return: the environment with the adversary, and the adversary
    """
    chain = []
    inner = envs
    while isinstance(inner, VectorWrapper):
        chain.append(inner)
        inner = inner.env
    places = [i for i, wrapper in enumerate(chain) if isinstance(wrapper, NoisyObservationWrapper | FrameStackObservation)]
    if not places:
        adversary = VectorAdversary(envs, attacker, budgets, n_stack)
        return adversary, adversary
    outside = chain[places[-1]]
    outside.env = adversary = VectorAdversary(outside.env, attacker, budgets, n_stack)
    return envs, adversary
