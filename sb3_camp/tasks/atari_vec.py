"""ale-py's vector environment, whose games run on several threads, with the frames, episodes and seeds of the Atari tasks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sb3_camp.errors import InputError

_FRAMES_A_STEP = 4
_MOST_IDLE_FRAMES = 30  # at the start of an episode, and at least one, as in AtariPreprocessing


class AtariFrames(VectorEnv):
    """
    One picture of each game, without noise and without a stack: what ``AtariPreprocessing`` shows of a single game for the
    same frames of the emulator.

    Env i has the seed of env 0 plus i. It resets at the next step, and heeds ``reset_mask``.

    :param num_envs: Number of games
    :param game: Name of the game in ale-py
    :param repeat_action_probability: That a frame repeats the action before
    :param max_frames: Frames of the emulator after which an episode is truncated
    :param max_episode_steps: Steps after which an episode is truncated, None for no such limit
    :param first_point_ends: Terminate an episode with the first reward that is not zero
    :raises InputError: if the installed ale-py has no vector environment that can reset some of its games
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 as in Gymnasium

    def __init__(
        self,
        num_envs: int,
        game: str,
        repeat_action_probability: float,
        max_frames: int,
        max_episode_steps: int | None = None,
        first_point_ends: bool = False,
    ) -> None:
        self._games = _games(
            game=game,
            num_envs=num_envs,
            repeat_action_probability=repeat_action_probability,
            max_num_frames_per_episode=max_frames,  # it counts steps; frames are counted below
            frameskip=_FRAMES_A_STEP,
            stack_num=1,
            noop_max=1 + _MOST_IDLE_FRAMES,  # it draws from those below
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.num_envs = num_envs
        self.render_mode = None
        self.single_observation_space = spaces.Box(0, 255, (84, 84), np.uint8)
        self.single_action_space = self._games.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._max_frames = max_frames
        self._max_steps = np.inf if max_episode_steps is None else max_episode_steps
        self._first_point_ends = first_point_ends
        self._n_steps = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """
        :param seed: Seed of env 0, that of env i is i more; or one for each env
        :param options: ``reset_mask``: which games to reset; the others stay as they are
        """
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed or [None] * self.num_envs
        of_games = np.array([-1 if own is None else _emulator_seed(own) for own in seeds])
        self._n_steps[mask] = 0
        self._ended = self._ended & ~mask
        observations, infos = self._games.reset(seed=of_games[mask], options={"reset_mask": mask.copy()})
        return self._with_idle_frames(mask, observations, infos)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        begins = self._ended
        actions = np.where(begins, 0, actions)
        observations, points, terminations, _, infos = self._games.step(actions)
        rewards = np.where(begins, 0.0, points)
        self._n_steps += 1
        frames = infos["episode_frame_number"]
        if self._first_point_ends:
            terminations = terminations | (points != 0)
        terminations = terminations & ~begins
        truncations = ((self._n_steps >= self._max_steps) | (frames >= self._max_frames)) & ~begins
        self._ended = terminations | truncations
        if begins.any():
            self._n_steps[begins] = 0
            observations, infos = self._games.reset(options={"reset_mask": begins.copy()})
        pictures, kept = self._with_idle_frames(begins, observations, infos)
        return pictures, rewards, terminations, truncations, kept

    def _with_idle_frames(
        self, begins: np.ndarray, observations: np.ndarray, infos: dict[str, Any]
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Pictures and infos, after games that have begun without an idle frame have begun again."""
        while (none := begins & (infos["episode_frame_number"] == 0)).any():
            observations, infos = self._games.reset(options={"reset_mask": none})
        return observations[:, 0], {key: infos[key] for key in ("lives", "episode_frame_number", "frame_number")}


def _games(**settings: Any) -> Any:
    try:
        from ale_py.vector_env import AtariVectorEnv

        return AtariVectorEnv(**settings)
    except (ImportError, TypeError) as error:
        raise InputError("the vector environment of the Atari tasks needs ale-py 0.12") from error


def _emulator_seed(seed: int) -> int:
    """The emulator takes seeds from 1 on, of 31 bits, as its own."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] % (2**31 - 1)) + 1
