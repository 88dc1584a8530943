"""The Highway task of the paper."""

import inspect
import math
import numbers
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import FlattenObservation
from highway_env.envs.common.action import DiscreteMetaAction
from highway_env.envs.common.observation import KinematicObservation
from highway_env.envs.highway_env import HighwayEnvFast

from sb3_camp.errors import InputError
from sb3_camp.tasks.highway_vec import HighwayVectorEnv
from sb3_camp.wrappers import vector
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper


def make_highway(
    sigma: float,
    config: Mapping[str, Any] | None = None,
    high_speed_reward: float | None = None,
    render_mode: str | None = None,
) -> gym.Env:
    """
    ``highway-fast-v0`` with 3 lanes and the kinematics of the nearest vehicles as the observation.

    It ends with a crash or after 30 steps (``duration`` in the config).

    :param sigma: Standard deviation of the noise, the same on all entries of the observation, which lie within [-1, 1]
    :param config: Changes of the configuration of highway-env; what they do not name is kept, in nested mappings too
    :param high_speed_reward: Reward of 30 m/s, before all rewards are scaled to [0, 1]: unless told here or in the config, it
        is highway-env's 0.4, four times that of the rightmost lane
    :param render_mode: As in Gymnasium
    :return: The environment; observations: float32, shape (25,): presence, x, y, vx, vy of the own and four other vehicles
    :raises InputError: (a ValueError) if the config has an unknown key, or if ``sigma`` is not finite and >= 0
    """
    settings = _settings(config, high_speed_reward)
    return NoisyObservationWrapper(FlattenObservation(HighwayEnvFast(settings, render_mode)), sigma)


def make_highway_vec(
    num_envs: int,
    sigma: float,
    config: Mapping[str, Any] | None = None,
    high_speed_reward: float | None = None,
    render_mode: str | None = None,
) -> VectorEnv:
    """
    The same game as one array: the same seeds play the same episodes as in :func:`make_highway`.

    :param num_envs: Number of environments
    :param sigma: As there
    :param config: As there, for the default observation and action and one vehicle of one's own
    :param high_speed_reward: As there
    :param render_mode: None; nothing is drawn here
    :return: The vector environment
    :raises InputError: (a ValueError) as there, and for settings that the vector environment does not have
    """
    return vector.NoisyObservationWrapper(HighwayVectorEnv(num_envs, _settings(config, high_speed_reward)), sigma)


# What gym.make looks for, to offer render modes like "rgb_array_list"
make_highway.metadata = HighwayEnvFast.metadata  # type: ignore[attr-defined]


def _settings(config: Mapping[str, Any] | None, high_speed_reward: float | None = None) -> dict[str, Any]:
    own: dict[str, Any] = {"lanes_count": 3, "observation": {"type": "Kinematics"}}
    if high_speed_reward is not None:
        if not (isinstance(high_speed_reward, numbers.Real) and 0 <= high_speed_reward < math.inf):
            raise InputError(f"high_speed_reward must be a finite number >= 0, not {high_speed_reward!r}")
        own["high_speed_reward"] = float(high_speed_reward)
    settings = _merged(_merged(HighwayEnvFast.default_config(), own), {} if config is None else config)
    _check_nested("observation", settings["observation"], "Kinematics", KinematicObservation)
    _check_nested("action", settings["action"], "DiscreteMetaAction", DiscreteMetaAction)
    return settings


def _merged(config: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """The configuration with its changes; highway-env would replace a nested mapping as a whole."""
    _check_mapping("config", changes)
    unknown = [key for key in changes if key not in config]
    if unknown:
        raise InputError(f"config of Highway: unknown {', '.join(map(repr, unknown))}; it has {', '.join(config)}.")
    merged = {**config, **changes}
    for key, old in config.items():
        if isinstance(old, Mapping) and key in changes:
            _check_mapping(key, changes[key])
            merged[key] = {**old, **changes[key]}
    return merged


def _check_nested(name: str, settings: Mapping[str, Any], kind: str, described: type) -> None:
    """highway-env ignores settings that it does not know."""
    known = ["type", *list(inspect.signature(described).parameters)[1:-1]]  # the first is the env, the last takes the rest
    unknown = [key for key in settings if key not in known] if settings.get("type") == kind else []
    if unknown:
        raise InputError(f"config of Highway: {name}: unknown {', '.join(map(repr, unknown))}; {kind} has {', '.join(known)}.")


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"config of Highway: {name} must be a mapping of names to values, not {value!r}.")
