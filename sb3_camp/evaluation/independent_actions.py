"""How a model acts in several envs at once whose episodes have to be independent."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN, MaskablePPO
from stable_baselines3 import DQN
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.own_generators import OwnGenerators


def actor(model: PolicyPredictor, deterministic: bool) -> Callable[..., tuple[np.ndarray, Any]]:
    """
    The model's ``predict``, with random choices of their own for each env.

    Without ``deterministic``, ``predict`` of SB3's DQN and QR-DQN tosses one coin for all envs: either all of them explore, or
    none. Their episodes would not be independent, as a certificate needs them. Here each env has a coin of its own, with the
    exploration rate that the model was saved with; each env alone acts as with ``predict``.

    With generalized state-dependent exploration (gSDE; Raffin, Kober and Stulp, 2021), the actions depend on a random matrix,
    and ``predict`` takes the one that was drawn when the model was loaded, in all episodes. Here each env draws one of its own
    at the start of each episode, and keeps it for the episode. The model's own matrices stay as they are.

    :param model: Anything with SB3's ``predict``
    :param deterministic: Whether to act without random choices
    :return: a function of observations, ``state`` and ``episode_start`` to actions and states. Random choices continue the
        global generators of Python, NumPy and PyTorch as they are now, whatever an environment does to these later
    :raises InputError: if the model explores by gSDE, but it is unknown where its policy keeps the matrix
    """
    if deterministic:
        return partial(model.predict, deterministic=True)
    act, generators = _random_actor(model), OwnGenerators(getattr(model, "device", None))

    def act_by_own(*args: Any, **kwargs: Any) -> tuple[np.ndarray, Any]:
        with generators.in_use():
            return act(*args, **kwargs)

    return act_by_own


def _random_actor(model: PolicyPredictor) -> Callable[..., tuple[np.ndarray, Any]]:
    if isinstance(model, DQN | QRDQN):
        return partial(_epsilon_greedy, model)
    policy = getattr(model, "policy", None)
    for network in (policy, getattr(policy, "actor", None)):
        if isinstance(getattr(network, "action_dist", None), StateDependentNoiseDistribution):
            return _StateDependentExploration(model, network)
    if getattr(model, "use_sde", False):
        raise InputError(
            f"{type(policy).__name__} explores by a random matrix (use_sde) that is not where SB3's policies keep it, so it "
            "would be the same in all episodes: evaluate it without --stochastic"
        )
    return partial(model.predict, deterministic=False)


def check_no_masks(model: PolicyPredictor, env: VecEnv) -> None:
    """
    Refuse a policy whose actions are to be masked: the masks are computed from the state, and would show it to the policy past
    the noise. Without them it would be another policy.

    :param model: The policy
    :param env: The environments that it plays in
    :raises InputError: if it is a MaskablePPO, and the environment has masks for it
    """
    if isinstance(model, MaskablePPO) and env.has_attr("action_masks"):
        raise InputError(
            "the environment has action masks (action_masks), which MaskablePPO takes from the state without noise: they "
            "would show it what the noise hides, and without them it is another policy. Train and evaluate in an environment "
            "without masks, where an action that cannot be done does nothing or costs something"
        )


@contextlib.contextmanager
def fixed_policy(model: PolicyPredictor) -> Iterator[None]:
    """
    A context in which the numbers of the policy, statistics among them, must stay what they are.

    Without that, what an episode has seen changes the actions of others, and the episodes are not those of one policy.

    :param model: Anything with SB3's ``predict``; what is no PyTorch module is not looked at
    :raises InputError: if a parameter or buffer of its policy is another one at the end
    """
    policy = getattr(model, "policy", None)
    if not isinstance(policy, th.nn.Module):
        yield
        return
    before = {name: values.detach().clone() for name, values in _numbers(policy).items()}
    yield
    after = _numbers(policy)
    changed = [name for name, values in before.items() if name not in after or not _same_numbers(after[name], values)]
    if changed:
        raise InputError(
            f"the policy changes while it plays ({', '.join(changed[:3])}), so episodes depend on each other: what it "
            "averages, counts or keeps must stay as it is in eval mode, as torch.nn.BatchNorm1d's statistics do"
        )


def _numbers(policy: th.nn.Module) -> dict[str, th.Tensor]:
    """Parameters and buffers, those too that are not saved."""
    saved = {name: values for name, values in policy.state_dict().items() if isinstance(values, th.Tensor)}
    return {**saved, **dict(policy.named_parameters()), **dict(policy.named_buffers())}


def _same_numbers(one: th.Tensor, other: th.Tensor) -> bool:
    return bool(one.shape == other.shape and th.all((one == other) | (one.isnan() & other.isnan())))


class _StateDependentExploration:
    """
    :param model: The model
    :param network: The part of its policy that has the distribution of the actions, ``action_dist``, and its ``log_std``
    """

    def __init__(self, model: PolicyPredictor, network: Any) -> None:
        self._model = model
        self._network = network
        self._matrices: th.Tensor | None = None

    def __call__(
        self, observations: Any, state: Any = None, episode_start: np.ndarray | None = None
    ) -> tuple[np.ndarray, Any]:
        first = next(iter(observations.values())) if isinstance(observations, dict) else observations
        matrices = self._drawn(len(first), episode_start)
        distribution = self._network.action_dist
        kept = distribution.exploration_mat, distribution.exploration_matrices
        try:
            # A single env gets the first of these, several get the others
            distribution.exploration_mat, distribution.exploration_matrices = matrices[0], matrices
            return self._model.predict(observations, state=state, episode_start=episode_start, deterministic=False)
        finally:
            distribution.exploration_mat, distribution.exploration_matrices = kept

    def _drawn(self, n_envs: int, episode_start: np.ndarray | None) -> th.Tensor:
        """The matrices of the envs (n_envs, n_features, n_actions), new ones where an episode starts."""
        with th.no_grad():
            std = self._network.action_dist.get_std(self._network.log_std)
            if self._matrices is None or episode_start is None:
                self._matrices, episode_start = std.new_empty(n_envs, *std.shape), np.ones(n_envs, dtype=bool)
            starts = np.flatnonzero(episode_start)
            if starts.size:
                self._matrices[starts] = std * th.randn(len(starts), *std.shape, device=std.device)
        return self._matrices


def _epsilon_greedy(
    model: DQN | QRDQN, observations: Any, state: Any = None, episode_start: np.ndarray | None = None
) -> tuple[np.ndarray, Any]:
    actions, state = model.policy.predict(observations, state, episode_start, deterministic=False)
    explores = np.random.random(len(actions)) < model.exploration_rate
    assert isinstance(model.action_space, spaces.Discrete)
    first = model.action_space.start
    actions[explores] = np.random.randint(first, first + model.action_space.n, size=explores.sum())
    return actions, state
