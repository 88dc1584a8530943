"""The environment of an evaluation: built as the zoo's ``enjoy`` builds it, with exactly one smoothing noise."""

import contextlib
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
from rl_zoo3.utils import create_test_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper, VecFrameStack

from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_seeds import EpisodeSeeder
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.runs.layers import Layer, layer_of
from sb3_camp.runs.noise_placement import SmoothingNoise, check_no_moving_statistics, smoothing_noise
from sb3_camp.runs.recorded_key import RecordedKey
from sb3_camp.runs.scenario import Scenario
from sb3_camp.wrappers.chain import wrapper_chain

_VEC_ENVS: dict[str, type[VecEnv]] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
_RECORDER, _SEEDER = (f"{wrapper.__module__}.{wrapper.__name__}" for wrapper in (EpisodeRecorder, EpisodeSeeder))

# What environments raise for settings that they cannot use
_CANNOT_BUILD = (
    gym.error.Error,
    ImportError,
    AttributeError,
    AssertionError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class EvaluationEnv(Scenario):
    """
    A scenario and how to build it.

    :param env_id: Id of the environment, as Gymnasium registers it
    :param env_kwargs: Keyword arguments of the environment
    :param wrappers: ``env_wrapper``, ``vec_env_wrapper`` and ``frame_stack`` as in the zoo's hyperparameters
    :param vec_env: "dummy" (one process) or "subproc" (one per env), or a class of VecEnv
    :param outermost: What to wrap it in besides, as the entries of ``env_wrapper`` but not part of the environment: the name
        of a function or class, with its keyword arguments. They are called on the outermost wrapper of each env, in turn
    :param recorded: Keys of ``info`` to record of each episode
    """

    vec_env: str | type[VecEnv] = "dummy"
    outermost: Sequence[Mapping[str, dict[str, Any]]] = ()
    recorded: Sequence[RecordedKey] = ()

    def build(self, n_envs: int) -> VecEnv:
        """
        :param n_envs: Number of envs
        :return: The vectorized environment, unseeded, with an :class:`EpisodeRecorder` directly outside of each ``Monitor``,
            and an :class:`EpisodeSeeder` outside of all other wrappers
        :raises InputError: if it cannot be built
        """
        vec_env_wrapper = self.wrappers.get("vec_env_wrapper")
        hyperparams = {} if vec_env_wrapper is None else {"vec_env_wrapper": vec_env_wrapper}
        env = self._build(n_envs, hyperparams, _VEC_ENVS[self.vec_env] if isinstance(self.vec_env, str) else self.vec_env)
        try:
            check_no_moving_statistics(_vec_layers(env), "vec_env_wrapper")
            return _stacked(env, self.wrappers.get("frame_stack"))
        except InputError:
            env.close()
            raise

    @contextlib.contextmanager
    def opened(self, n_envs: int) -> Iterator[VecEnv]:
        """
        :param n_envs: Number of envs
        :return: A context with the vectorized environment, closed at its end
        :raises InputError: if it cannot be built, or if a worker process dies
        """
        try:
            env = self.build(n_envs)
            try:
                yield env
            finally:
                # Ctrl-C reaches the worker processes too, and those that have gone cannot be told to close
                with contextlib.suppress(EOFError, OSError):
                    env.close()
        except (EOFError, ConnectionError) as error:
            if self.vec_env != "subproc":
                raise
            raise InputError(
                "a worker process of --vec-env subproc has ended, its message is above: --vec-env dummy needs no workers"
            ) from error

    def live_layers(self) -> list[Layer]:
        """
        :return: the layers between the environment and the policy as they are built, the innermost first
        :raises InputError: if it cannot be built
        """
        with replace(self, vec_env="dummy").opened(1) as env:
            base = env.unwrapped
            assert isinstance(base, DummyVecEnv)
            return [*map(layer_of, reversed(list(wrapper_chain(base.envs[0])))), *_vec_layers(env)]

    def spaces(self) -> tuple[gym.Space, gym.Space]:
        """
        :return: observation and action space that the policy sees, of a single env
        :raises InputError: if it cannot be built
        """
        with replace(self, vec_env="dummy").opened(1) as env:
            return env.observation_space, env.action_space

    def smoothing_noise(self) -> SmoothingNoise | None:
        """
        Find the noise in a live environment.

        :return: the only noise, None if there is none
        :raises InputError: if there are several, or if something in the wrong place would void the certificate
        """
        layers = self.live_layers()
        check_no_moving_statistics(layers)
        return smoothing_noise(layers)

    @contextlib.contextmanager
    def single(self) -> Iterator[gym.Env]:
        """
        :return: A context with one env, without what is around the vectorized environment, closed at its end
        :raises InputError: if it cannot be built
        """
        env = self._build(1, {}, DummyVecEnv)
        assert isinstance(env, DummyVecEnv)
        try:
            yield env.envs[0]
        finally:
            env.close()

    def _env_wrappers(self) -> list[Any]:
        wrappers = self.wrappers.get("env_wrapper") or []
        return wrappers if isinstance(wrappers, list) else [wrappers]

    def _build(self, n_envs: int, hyperparams: dict[str, Any], vec_env_class: type[VecEnv]) -> VecEnv:
        try:
            return create_test_env(
                self.env_id,
                n_envs=n_envs,
                should_render=False,
                hyperparams={
                    **hyperparams,
                    "env_wrapper": [
                        {_RECORDER: {"keys": list(self.recorded)}},
                        *self._env_wrappers(),
                        *map(dict, self.outermost),
                        _SEEDER,
                    ],
                },
                env_kwargs=self.env_kwargs,
                vec_env_cls=vec_env_class,
            )
        except InputError:
            raise
        except _CANNOT_BUILD as error:
            raise InputError(f"cannot build {self.env_id}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _stacked(env: VecEnv, n_stack: Any) -> VecEnv:
    if n_stack in (None, 0):
        return env
    if type(n_stack) is not int or n_stack < 1:
        raise InputError(f"frame_stack must be a whole number of frames, not {reprlib.repr(n_stack)}")
    try:
        return VecFrameStack(env, n_stack)
    except AssertionError as error:  # of SB3, for spaces that it cannot stack
        raise InputError(f"frame_stack: {' '.join(str(error).split())}") from error


def vec_wrappers(env: VecEnv) -> list[VecEnvWrapper]:
    """
    :param env: A vectorized environment
    :return: its wrappers, the outermost first
    """
    wrappers = []
    while isinstance(env, VecEnvWrapper):
        wrappers.append(env)
        env = env.venv
    return wrappers


def _vec_layers(env: VecEnv) -> list[Layer]:
    return [layer_of(wrapper) for wrapper in reversed(vec_wrappers(env))]
