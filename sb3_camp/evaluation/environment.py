"""The environment of an evaluation: built as the zoo's ``enjoy`` builds it, with exactly one smoothing noise."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.wrappers import AddRenderObservation, FrameStackObservation, NormalizeObservation
from rl_zoo3.utils import create_test_env
from rl_zoo3.wrappers import HistoryWrapper, HistoryWrapperObsDict
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecNormalize,
    unwrap_vec_wrapper,
)

from sb3_camp.errors import InputError
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

_VEC_ENVS: dict[str, type[VecEnv]] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
_NOISE, _RECORDER = (f"{wrapper.__module__}.{wrapper.__name__}" for wrapper in (NoisyObservationWrapper, EpisodeRecorder))

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


class SmoothingNoise(NamedTuple):
    """
    :param sigma: Standard deviation, in the units of the observation
    :param clean_keys: Entries of a Dict observation that have none
    """

    sigma: float
    clean_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationEnv:
    """
    How to build the environment.

    :param env_id: Id of the environment, as Gymnasium registers it
    :param env_kwargs: Keyword arguments of the environment
    :param wrappers: ``env_wrapper``, ``vec_env_wrapper`` and ``frame_stack`` as in the zoo's hyperparameters
    :param vec_env: "dummy" (one process) or "subproc" (one per env), or a class of VecEnv
    :param outermost: What to wrap it in besides, as the entries of ``env_wrapper`` but not part of the environment: the name
        of a function or class, with its keyword arguments. They are called on the outermost wrapper of each env, in turn
    """

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: dict[str, Any] = field(default_factory=dict)
    vec_env: str | type[VecEnv] = "dummy"
    outermost: Sequence[Mapping[str, dict[str, Any]]] = ()

    def build(self, n_envs: int) -> VecEnv:
        """
        :param n_envs: Number of envs
        :return: The vectorized environment, unseeded, with an :class:`EpisodeRecorder` directly outside of each ``Monitor``
        :raises InputError: if it cannot be built
        """
        vec_env_wrapper = self.wrappers.get("vec_env_wrapper")
        hyperparams = {} if vec_env_wrapper is None else {"vec_env_wrapper": vec_env_wrapper}
        env = self._build(n_envs, hyperparams, _VEC_ENVS[self.vec_env] if isinstance(self.vec_env, str) else self.vec_env)
        normalizer = unwrap_vec_wrapper(env, VecNormalize)
        if isinstance(normalizer, VecNormalize) and normalizer.norm_obs:
            env.close()
            raise InputError("vec_env_wrapper: VecNormalize normalizes the noisy observations: take it out")
        n_stack = self.wrappers.get("frame_stack") or 0
        return VecFrameStack(env, n_stack) if n_stack > 0 else env

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

    def with_noise(self, sigma: float) -> "EvaluationEnv":
        """
        :param sigma: Standard deviation of the noise
        :return: The same with smoothing noise: that of the task if it takes a ``sigma``, otherwise outside of ``env_wrapper``
            and inside of the frame stack
        """
        if "sigma" in gym.spec(self.env_id).kwargs:
            return replace(self, env_kwargs={**self.env_kwargs, "sigma": sigma})
        return replace(self, wrappers={**self.wrappers, "env_wrapper": [*self._env_wrappers(), {_NOISE: {"sigma": sigma}}]})

    def smoothing_noise(self) -> SmoothingNoise | None:
        """
        Find the noise in a live environment.

        :return: the only noise, None if there is none
        :raises InputError: if there are several, or if something in the wrong place would void the certificate
        """
        with self.single() as env:
            return _checked_noise(list(wrapper_chain(env)))

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
                hyperparams={**hyperparams, "env_wrapper": [_RECORDER, *self._env_wrappers(), *map(dict, self.outermost)]},
                env_kwargs=self.env_kwargs,
                vec_env_cls=vec_env_class,
            )
        except InputError:
            raise
        except _CANNOT_BUILD as error:
            raise InputError(f"cannot build {self.env_id}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def smoothing_noises(chain: Sequence[gym.Wrapper]) -> list[int]:
    """
    :param chain: The wrappers of an environment
    :return: the positions of those that add noise; if none does, of the first that could, if there is one
    """
    wrappers = [i for i, wrapper in enumerate(chain) if isinstance(wrapper, NoisyObservationWrapper)]
    return [i for i in wrappers if chain[i].get_wrapper_attr("sigma") > 0] or wrappers[:1]


def _checked_noise(chain: list[gym.Wrapper]) -> SmoothingNoise | None:
    for wrapper in chain:
        if isinstance(wrapper, NormalizeObservation):
            raise InputError(
                f"{wrapper.class_name()} changes its running statistics from episode to episode, so neither are the episodes "
                "independent nor is sigma in fixed units: take it out, or normalize by constants"
            )
    positions = smoothing_noises(chain)
    if not positions:
        return None
    if len(positions) > 1:
        sigmas = " and ".join(f"{chain[i].get_wrapper_attr('sigma'):g}" for i in positions)
        raise InputError(f"{len(positions)} smoothing noises on top of each other (sigma {sigmas}): use one")
    above, below = chain[: positions[0]], chain[positions[0] + 1 :]
    for wrapper in below:
        if isinstance(wrapper, FrameStackObservation | HistoryWrapper | HistoryWrapperObsDict):
            raise InputError(
                f"the smoothing noise comes after {wrapper.class_name()}: put it before, so that each frame is noised once"
            )
    for wrapper in above:
        if isinstance(wrapper, AddRenderObservation):
            raise InputError(f"{wrapper.class_name()} shows the clean state outside of the smoothing noise: put it inside")
    noise = chain[positions[0]]
    return SmoothingNoise(float(noise.get_wrapper_attr("sigma")), tuple(noise.get_wrapper_attr("clean_keys")))
