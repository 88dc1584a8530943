"""
An adapter from Gymnasium's vector environments to Stable-Baselines3's ``VecEnv``.

SB3 resets an env within the step that ends its episode, and hands out the last observation beside; Gymnasium's vector
environments reset at the next step, which takes no action. So this adapter resets the envs that have ended itself.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.native import built_native
from sb3_camp.wrappers.vector import resets_at_next_step

Row = dict[str, Any]


class NativeVecEnv(VecEnv):
    """
    A vector environment of Gymnasium as a ``VecEnv`` of SB3, with what SB3's ``DummyVecEnv`` of envs in ``Monitor`` tells:
    ``terminal_observation`` and ``TimeLimit.truncated`` for bootstrapping, and ``episode`` in the infos (return ``r``, length
    ``l``, seconds ``t``).

    ``seed`` seeds all envs at the next reset, from one stream, as Gymnasium's vector environments do. An env cannot be changed
    or called alone: ``set_attr`` and ``env_method`` are errors.

    :param envs: The vector environment. It must be able to reset some of its envs, that is, heed Gymnasium's option
        ``reset_mask``
    :param on_episode: Called at the end of each episode with the index of its env and the entries of ``info["episode"]``
    :raises InputError: if it resets otherwise
    """

    def __init__(self, envs: VectorEnv, on_episode: Callable[[int, Row], object] | None = None) -> None:
        _check_resets(envs)
        self.envs = envs
        self.on_episode = on_episode
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions = np.empty(0)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._start = time.time()

    def reset(self) -> VecEnvObs:
        observations, infos = self.envs.reset(seed=self._seeds[0], options=self._options[0] or None)
        self.reset_infos = _rows(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0
        self._lengths[:] = 0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, terminations, truncations, infos = self.envs.step(self._actions)
        dones = np.logical_or(terminations, truncations)
        rows = _rows(infos, self.num_envs)
        for row, cut in zip(rows, (truncations & ~terminations).tolist(), strict=True):
            row["TimeLimit.truncated"] = cut
        self._returns += rewards
        self._lengths += 1
        if dones.any():
            for i in np.flatnonzero(dones).tolist():
                rows[i]["terminal_observation"] = _observation_of(observations, i)
                rows[i]["episode"] = self._finished(i)
            observations, reset_infos = self.envs.reset(options={"reset_mask": dones.copy()})
            for i, row in enumerate(_rows(reset_infos, self.num_envs)):
                if dones[i]:
                    self.reset_infos[i] = row
        return observations, np.asarray(rewards, dtype=np.float32), dones, rows

    def _finished(self, i: int) -> Row:
        episode = {
            "r": round(float(self._returns[i]), 6),
            "l": int(self._lengths[i]),
            "t": round(time.time() - self._start, 6),
        }
        self._returns[i] = self._lengths[i] = 0
        if self.on_episode is not None:
            self.on_episode(i, episode)
        return dict(episode)

    def close(self) -> None:
        self.envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        images: Any = self.envs.render() if self.render_mode == "rgb_array" else None
        return [None] * self.num_envs if images is None else list(images)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise InputError(f"cannot set {attr_name}: the envs of a native vector environment are no objects of their own")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        raise InputError(f"cannot call {method_name}: the envs of a native vector environment are no objects of their own")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))


def native_vec_env(
    env_id: str,
    n_envs: int,
    *,
    seed: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    env_wrapper: Any = None,
) -> NativeVecEnv:
    """
    Build a ``VecEnv`` whose envs step as one array.

    :param env_id: Id of an environment with a native vector environment, such as CartPole and its tasks
    :param n_envs: Number of envs; some hundreds are as fast as one
    :param seed: Seeds them, see :class:`NativeVecEnv`
    :param env_kwargs: Keyword arguments of the environment, such as ``{"sigma": 0.4}``
    :param env_wrapper: Wrappers as in the zoo's hyper-parameter of this name; those with a twin for vector environments:
        ``[{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.4}}]``
    :return: the environment
    :raises InputError: if there is no native vector environment, or if it does not fit the single one
    """
    wrappers = {} if env_wrapper is None else {"env_wrapper": env_wrapper}
    env = NativeVecEnv(built_native(EvaluationEnv(env_id, dict(env_kwargs or {}), wrappers), n_envs))
    env.seed(seed)
    return env


def _check_resets(envs: VectorEnv) -> None:
    """Two envs in mid-episode, one of which is reset: the other must stay where it is."""
    if not resets_at_next_step(envs):
        raise InputError(f"{envs} does not reset at the next step after an episode (autoreset mode NEXT_STEP)")
    envs.reset()
    before = envs.step(envs.action_space.sample())[0]
    mask = np.zeros(envs.num_envs, dtype=bool)
    mask[0] = True
    after = envs.reset(options={"reset_mask": mask})[0]
    if any(not _equal(_observation_of(before, i), _observation_of(after, i)) for i in range(1, min(envs.num_envs, 9))):
        raise InputError(f"{envs} resets all its envs at once (it has no reset_mask), so SB3 cannot train in it")


def _observation_of(observations: Any, i: int) -> Any:
    if isinstance(observations, dict):
        return {key: _observation_of(entry, i) for key, entry in observations.items()}
    return np.array(observations[i])


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def _rows(infos: Mapping[str, Any], n_envs: int) -> list[Row]:
    """Gymnasium's dictionary of arrays, with a mask ``_key`` that tells which envs have a key, as one for each env."""
    rows: list[Row] = [{} for _ in range(n_envs)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        columns = _rows(values, n_envs) if isinstance(values, Mapping) else values
        for i in np.flatnonzero(infos.get(f"_{key}", np.ones(n_envs, dtype=bool))).tolist():
            rows[i][key] = columns[i]
    return rows
