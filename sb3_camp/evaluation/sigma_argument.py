"""The option ``--sigma``: one number, one for each sensor, or a share of how much each sensor varies."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_camp.errors import InputError
from sb3_camp.wrappers.observation_noise import Sigma

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

    from sb3_camp.evaluation.agents import Agent

_N_EPISODES, _N_ENVS = 100, 16
_SMALLEST, _LARGEST = 1e-30, 1e30
HELP = (
    "add smoothing noise of this standard deviation, in units of the observation (pixels: 0 to 255); several numbers: one "
    "for each entry of the observation; KEY:NUMBER ...: for each entry of a Dict; auto:SHARE: this share of the standard "
    f"deviation of each entry, measured over {_N_EPISODES} episodes without noise"
)


class ShareOfDeviation(NamedTuple):
    """
    :param share: Of the standard deviation of each entry
    """

    share: float


def parse_sigma(words: Sequence[str] | None) -> Sigma | ShareOfDeviation | None:
    """
    :param words: What stood behind ``--sigma``, None if it was not given
    :return: the standard deviations
    :raises InputError: if they cannot be read, or if nothing would be noised
    """
    if not words:
        return None
    if words[0].startswith("auto:"):
        share = _number(words[0].removeprefix("auto:"))
        if len(words) > 1 or not share > 0:
            raise InputError(f"--sigma auto:SHARE takes one positive number, as auto:0.1, not {' '.join(words)}")
        return ShareOfDeviation(share)
    if all(":" in word for word in words):
        return {key: _value(value) for key, _, value in (word.partition(":") for word in words)}
    numbers = [_number(word) for word in words]
    if len(numbers) > 1:
        return numbers
    if not numbers[0] > 0:
        raise InputError(f"--sigma must be a positive number, not {words[0]}: without noise there is nothing to certify")
    return numbers[0]


def measured_sigma(share: float, agent: Agent, model: BaseAlgorithm, seed: int, *, on_normalized: bool = False) -> Sigma:
    """
    A share of the standard deviation of each entry of the observation, without noise and before any frame stack.

    For normalised entries these are the deviations by which they are normalised, or 1 behind their normaliser. For others they
    are measured over all steps of 100 episodes, which are not those of the evaluation. A picture has one deviation for all of
    its pixels.

    :param share: Share, positive
    :param agent: The agent, in an environment without noise
    :param model: Its policy
    :param seed: Seed of the episodes
    :param on_normalized: Whether the noise will be behind the normaliser
    :return: The standard deviations of the noise; 0 for an entry that never changes, which a certificate then does not cover
    :raises InputError: if the environment has noise already, or if nothing changes
    """
    from sb3_camp.evaluation.episodes import play_episodes  # takes seconds to import, and --help needs the text above

    noise = agent.environment.smoothing_noise()
    if noise is not None and noise.sigma > 0:
        raise InputError(
            f"--sigma auto: {agent.environment.env_id} has a noise of sigma {noise.sigma:g} already: leave it out"
        )
    environment, known = agent.environment, {}
    if agent.normalization is not None:
        environment = environment.with_normalization(agent.normalization)
        known = _of_normalised(share, agent.normalization, on_normalized)
    with environment.single() as env:
        frame = env.observation_space
    if not isinstance(known, dict):
        return known
    if isinstance(frame, spaces.Dict) and known.keys() >= frame.spaces.keys():
        return share if on_normalized else known
    observed: list[Any] = []
    with replace(environment, vec_env="dummy").opened(_N_ENVS) as envs:
        play_episodes(
            model, envs, _N_EPISODES, seed=seed % 2**32, on_step=lambda shown, counted: observed.append(_kept(shown, counted))
        )
    if isinstance(frame, spaces.Dict):
        measured = {key: entry for key, entry in frame.spaces.items() if key not in known}
        return {**known, **{key: _share(share, [one[key] for one in observed], entry) for key, entry in measured.items()}}
    return _share(share, observed, frame)


def _of_normalised(share: float, normalization: dict[str, Any], on_normalized: bool) -> Any:
    """Sigma of the normalised entries, by name for a Dict observation."""

    def of_entry(variances: Any) -> Any:
        return share if on_normalized else (share * np.sqrt(np.asarray(variances))).tolist()

    variances = normalization["var"]
    return {key: of_entry(own) for key, own in variances.items()} if isinstance(variances, dict) else of_entry(variances)


def _kept(shown: Any, counted: np.ndarray) -> Any:
    if isinstance(shown, dict):
        return {key: np.array(values[counted]) for key, values in shown.items()}
    return np.array(shown[counted])


def _share(share: float, observed: list[np.ndarray], space: spaces.Space) -> Any:
    values = np.concatenate(observed).astype(np.float64)
    if len(space.shape or ()) != 1:
        return share * float(_deviations(values, None))
    # Of stacked frames the newest, which is the last
    deviations = _deviations(values[..., -space.shape[0] :], 0)  # type: ignore[index]
    return [float(f"{share * deviation:.6g}") for deviation in deviations]


def _deviations(values: np.ndarray, axis: int | None) -> np.ndarray:
    """Standard deviations; 0 of what does not change, without the rounding error of its mean."""
    return np.where(np.ptp(values, axis=axis) > 0, values.std(axis=axis), 0.0)


def _value(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, int | float | list | tuple):
        raise InputError(f"--sigma KEY:NUMBER takes a number, or a list of numbers as [1, 2], not {text}")
    return value


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--sigma takes numbers, KEY:NUMBER or auto:SHARE, not {text}")
    if number != 0 and not _SMALLEST <= abs(number) <= _LARGEST:
        raise InputError(f"--sigma {text} is out of the range of single precision, in which policies observe")
    return number
