"""How a model acts in several envs at once whose episodes have to be independent."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.type_aliases import PolicyPredictor


def actor(model: PolicyPredictor, deterministic: bool) -> Callable[..., tuple[np.ndarray, Any]]:
    """
    The model's ``predict``, with random choices of their own for each env.

    Without ``deterministic``, ``predict`` of SB3's DQN and QR-DQN tosses one coin for all envs: either all of them explore, or
    none. Their episodes would not be independent, as a certificate needs them. Here each env has a coin of its own, with the
    exploration rate that the model was saved with; each env alone acts as with ``predict``.

    :param model: Anything with SB3's ``predict``
    :param deterministic: Whether to act without random choices
    :return: a function of observations, ``state`` and ``episode_start`` to actions and states, random choices are drawn from
        NumPy's and PyTorch's global generators
    """
    if not deterministic and isinstance(model, DQN | QRDQN):
        return partial(_epsilon_greedy, model)
    return partial(model.predict, deterministic=deterministic)


def _epsilon_greedy(
    model: DQN | QRDQN, observations: Any, state: Any = None, episode_start: np.ndarray | None = None
) -> tuple[np.ndarray, Any]:
    actions, state = model.policy.predict(observations, state, episode_start, deterministic=False)
    explores = np.random.random(len(actions)) < model.exploration_rate
    assert isinstance(model.action_space, spaces.Discrete)
    first = model.action_space.start
    actions[explores] = np.random.randint(first, first + model.action_space.n, size=explores.sum())
    return actions, state
