"""Native vector environments in the zoo: ``vec_env_wrapper: sb3_camp.vec_env.native`` in a yml or in ``-params``."""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import gymnasium as gym
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.native import built_native
from sb3_camp.vec_env.adapter import NativeVecEnv, Row
from sb3_camp.wrappers.chain import wrapper_chain


def native(venv: VecEnv) -> VecEnv:
    """
    Replace the envs that the zoo has built, one by one, by as many that step as one array.

    Episodes are logged into the zoo's monitor files, and the seed is the zoo's.

    :param venv: A ``DummyVecEnv`` as the zoo builds it
    :return: the native vector environment of the same task, with the same wrappers
    :raises InputError: if there is none, or if it does not fit the single environment
    """
    if not isinstance(venv, DummyVecEnv):
        raise InputError("sb3_camp.vec_env.native must be the first vec_env_wrapper, and --vec-env must be dummy")
    envs = _Closing(built_native(_described(venv.envs[0]), venv.num_envs), monitor_log(venv))
    envs.replaced = venv
    envs.seed(venv._seeds[0])
    return envs


def monitor_log(venv: DummyVecEnv) -> Callable[[int, Row], None]:
    """
    :param venv: Envs in a ``Monitor`` each
    :return: writes the episode of an env, the entries of its ``info["episode"]``, into the file of its monitor
    """
    monitors = [_monitor(env) for env in venv.envs]

    def log(i: int, episode: Row) -> None:
        writer = monitors[i].results_writer
        if writer is not None:
            writer.write_row(dict(episode))

    return log


class _Closing(NativeVecEnv):
    """Closes the envs that it replaces, whose monitor files it fills, with itself."""

    replaced: VecEnv

    def close(self) -> None:
        super().close()
        self.replaced.close()


def _monitor(env: gym.Env) -> Monitor:
    return next(wrapper for wrapper in wrapper_chain(env) if isinstance(wrapper, Monitor))


def _described(env: gym.Env) -> EvaluationEnv:
    """The task, and the wrappers that the zoo has put outside of its ``Monitor``."""
    spec = _monitor(env).spec
    assert spec is not None
    outside = list(takewhile(lambda wrapper: not isinstance(wrapper, Monitor), wrapper_chain(env)))
    return EvaluationEnv(spec.id, dict(_kwargs(spec)), {"env_wrapper": [_entry(wrapper) for wrapper in reversed(outside)]})


def _kwargs(spec: Any) -> Mapping[str, Any]:
    registered = gym.spec(spec.id).kwargs
    return {name: value for name, value in spec.kwargs.items() if name not in registered or registered[name] != value}


def _entry(wrapper: gym.Wrapper) -> dict[str, Any]:
    kind = type(wrapper)
    arguments = wrapper.spec.additional_wrappers[-1].kwargs if wrapper.spec is not None else None
    return {f"{kind.__module__}.{kind.__name__}": dict(arguments or {})}
