"""The Atari tasks of the paper."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from ale_py import AtariEnv
from ale_py.roms import get_all_rom_ids
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import AtariPreprocessing

from sb3_camp.errors import InputError
from sb3_camp.tasks.atari_vec import AtariFrames
from sb3_camp.tasks.noisy_frames import stack_noisy_frames
from sb3_camp.wrappers import vector

_MAX_FRAMES = 108_000  # 30 minutes of play, as in every id of ale-py


def make_atari(
    game: str,
    sigma: float,
    n_stack: int,
    repeat_action_probability: float,
    difficulty: int,
    first_point_ends: bool = False,
    render_mode: str | None = None,
) -> gym.Env:
    """
    A game in grey pictures of 84 x 84 pixels, four frames a step, with noise on each picture.

    Up to 30 idle frames at the start; each picture is the maximum of the last two frames; no life ends an episode; the rewards
    are the game's points.

    :param game: Name of the game in ale-py
    :param sigma: Standard deviation of the noise, in pixel values (0 to 255)
    :param n_stack: Number of pictures
    :param repeat_action_probability: That a frame repeats the action before ("sticky actions")
    :param difficulty: Of the game
    :param first_point_ends: End the episode with the first point that either side makes
    :param render_mode: As in Gymnasium
    :return: The game without a step limit; observations: uint8, shape (n_stack, 84, 84), the newest picture last
    :raises InputError: (a ValueError) if a setting is not one of the game's, or is out of its range
    """
    _check(game, repeat_action_probability)
    try:
        env: gym.Env = _UnseenAtariEnv(
            game=game,
            difficulty=difficulty,
            frameskip=1,  # AtariPreprocessing skips
            repeat_action_probability=repeat_action_probability,
            max_num_frames_per_episode=_MAX_FRAMES,
            render_mode=render_mode,
        )
    except (RuntimeError, TypeError) as error:  # the emulator's, without the value
        raise InputError(f"{game} does not have the difficulty {difficulty!r}: most games have 0 and 1.") from error
    env = AtariPreprocessing(env)
    if first_point_ends:
        env = EndAtFirstPoint(env)
    return stack_noisy_frames(env, sigma, n_stack)


def make_atari_vec(
    num_envs: int,
    game: str,
    sigma: float,
    n_stack: int,
    repeat_action_probability: float,
    difficulty: int,
    first_point_ends: bool = False,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
) -> VectorEnv:
    """
    The same games on several threads, with one generator for the noise of all: ale-py's vector environment, which has the
    difficulty 0 only.

    :param num_envs: Number of games
    :param max_episode_steps: Step limit, None for none
    :return: The vector environment of :func:`make_atari`, which describes the other parameters
    :raises InputError: (a ValueError) as there, and for another difficulty
    """
    _check(game, repeat_action_probability)
    if difficulty != 0:
        raise InputError(f"the vector environment of ale-py has the difficulty 0 only, not {difficulty!r}")
    frames = AtariFrames(num_envs, game, repeat_action_probability, _MAX_FRAMES, max_episode_steps, first_point_ends)
    return vector.FrameStackObservation(vector.NoisyObservationWrapper(frames, sigma), n_stack)


class _UnseenAtariEnv(AtariEnv):
    """Leaves out the coloured picture of each frame: ``AtariPreprocessing`` takes the grey ones from the emulator."""

    _NOTHING = np.zeros((210, 160, 3), dtype=np.uint8)

    def _get_obs(self) -> np.ndarray:
        return self._NOTHING


# What gym.make looks for, to offer render modes like "rgb_array_list"
make_atari.metadata = AtariEnv.metadata  # type: ignore[attr-defined]


def _check(game: str, repeat_action_probability: float) -> None:
    if game not in get_all_rom_ids():
        raise InputError(f"game: ale-py has none of the name {game!r}.")
    if isinstance(repeat_action_probability, str) or not 0 <= repeat_action_probability <= 1:
        raise InputError(f"repeat_action_probability must be a number from 0 to 1, not {repeat_action_probability!r}.")


class EndAtFirstPoint(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Terminates an episode with the first reward that is not zero.

    :param env: The environment to wrap
    """

    def __init__(self, env: gym.Env) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or reward != 0, truncated, info
