"""The other agent of a transfer attack."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import load_frozen_policy
from sb3_camp.policy_view import PolicyView, Remembering, policy_view
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.space_signature import space_signature


def load_surrogate(path: Path, model: BaseAlgorithm, normalization: Mapping[str, Any] | None) -> PolicyView:
    """
    :param path: Checkpoint of another agent, of any algorithm of SB3
    :param model: The policy that is attacked
    :param normalization: By which its observations are normalised, as :func:`read_normalization` returns it; None if they are
        not. Those of the other agent are by the statistics that lie beside its checkpoint
    :return: what is known of the other agent, asked in what the attacked policy observes
    :raises InputError: if it cannot be read, or observes or does something else
    """
    try:
        policy = load_frozen_policy(path, model.device, role="--transfer-from")
    except InputError:
        raise
    except Exception as error:  # of every kind, for pickled data may raise anything
        raise InputError(f"--transfer-from: {path} cannot be loaded: {' '.join(str(error).split())}") from error
    if space_signature(policy.observation_space) != space_signature(model.observation_space):
        raise InputError(
            f"--transfer-from: {path} observes {policy.observation_space}, the attacked policy {model.observation_space}"
        )
    if policy.action_space != model.action_space:
        raise InputError(f"--transfer-from: the actions of {path} are {policy.action_space}, not {model.action_space}")
    view = policy_view(policy)
    if view.advance is not None:
        raise InputError(f"--transfer-from: {path} has a memory, and the states of the attacked policy are not its own")
    file = statistics_beside(path)
    shown = _in_units_of(normalization, None if file is None else read_normalization(file))
    return _asked_in(view, shown)


def _asked_in(view: PolicyView, shown: Callable[[Any], Any]) -> PolicyView:
    """The same policy, asked in observations of the attacked one."""

    def of(function: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        return None if function is None else lambda observed: function(shown(observed))

    functions = {"scores": of(view.scores), "distributions": of(view.distributions), "means": of(view.means)}
    return replace(view, **functions, q=None, value=None)  # type: ignore[arg-type]


def _in_units_of(mine: Mapping[str, Any] | None, others: Mapping[str, Any] | None) -> Callable[[Any], Any]:
    """From what the attacked policy observes to what the other agent would observe, whose normaliser has other statistics."""

    def observation(observed: Any) -> Any:
        return observed.observation if isinstance(observed, Remembering) else observed

    if mine == others:
        return observation
    if any(isinstance(one["mean"], Mapping) for one in (mine, others) if one is not None):
        raise InputError("--transfer-from: its Dict observations are normalised by other statistics than those of the policy")
    (my_mean, my_deviation), (mean, deviation) = _statistics(mine), _statistics(others)
    clip = np.inf if others is None else others["clip_obs"]

    def shown(observed: Any) -> th.Tensor:
        values = observation(observed)
        one, other, factor, divisor = (
            th.as_tensor(numbers, dtype=values.dtype, device=values.device)
            for numbers in (my_mean, mean, my_deviation, deviation)
        )
        return ((values * factor + one - other) / divisor).clamp(-clip, clip)

    return shown


def _statistics(normalization: Mapping[str, Any] | None) -> tuple[Any, Any]:
    if normalization is None:
        return 0.0, 1.0
    return normalization["mean"], np.sqrt(np.asarray(normalization["var"]) + normalization["epsilon"])
