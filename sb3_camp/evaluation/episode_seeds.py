"""A seed of its own for every episode, for the env, its noise and every wrapper in the chain."""

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

NOT_PASSED_ON = (
    "a wrapper outside of the smoothing noise does not pass on the seed of reset, so the noise cannot be reproduced: put the "
    "noise outside of it (in env_wrapper: after it)"
)
SEEDED_AGAIN = (
    "a wrapper outside of the smoothing noise seeds it again, with a seed of its own, so episodes may repeat the same noise "
    "and are not independent: put the noise outside of it (in env_wrapper: after it)"
)


class EpisodeSeeder(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Gives each episode the next seed of a series, where a vectorized environment seeds the first one only.

    An env that keeps its seed plays one level again and again, and its episodes are not independent. With a seed for each
    episode they are, as far as the env takes its seed at all. The series begins with the seed of ``reset(seed=...)`` and goes
    on at each ``reset()``: in the steps that :meth:`seed_each_episode` was given, otherwise with seeds that are drawn from the
    first, so that envs with neighbouring first seeds share none. A reset that does not reach the :class:`EpisodeRecorder`
    continues an episode (a lost life of ``EpisodicLifeEnv``), and takes no seed of the series.

    It belongs outside of all other wrappers of an env.

    :param env: The environment, with an :class:`EpisodeRecorder` in it
    :raises InputError: (a ValueError) if there is none
    """

    def __init__(self, env: gym.Env) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        chain = list(wrapper_chain(env))
        recorders = [wrapper for wrapper in chain if isinstance(wrapper, EpisodeRecorder)]
        if not recorders:
            raise InputError("EpisodeSeeder: there is no EpisodeRecorder inside of it, directly outside of Monitor")
        self._recorder = recorders[0]
        self._noises = [wrapper for wrapper in chain if isinstance(wrapper, NoisyObservationWrapper)]
        self._stride: int | None = None
        self._seed: int | None = None
        self._drawn: np.random.Generator | None = None
        self._n_seedings: list[int] | None = None
        self._fault: str | None = None

    def seed_each_episode(self, first: int, stride: int) -> int:
        """
        Begin a series: the next reset comes with its first seed.

        :param first: The first seed
        :param stride: From each seed of the series to the next
        :return: number of smoothing noises that are given the seeds
        """
        self._seed, self._stride = first, stride
        self._n_seedings = self._fault = None
        return len(self._noises)

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed = seed
            self._drawn = np.random.default_rng(seed)
        elif self._n_seedings is not None and self._n_seedings != self._count():
            self._fault = self._fault or SEEDED_AGAIN  # at one of the steps
        n_resets, before = self._recorder.n_resets, self._count()
        result = self.env.reset(seed=self._seed, **kwargs)
        self._n_seedings = self._count()
        if self._seed is not None and self._recorder.n_resets > n_resets:
            self._fault = self._fault or self._fault_of_noises(self._seed, before)
            self._seed = self._next_seed(self._seed)
        return result

    def _next_seed(self, seed: int) -> int:
        if self._stride is not None:
            return seed + self._stride
        assert self._drawn is not None
        return int(self._drawn.integers(2**31))

    def seed_fault(self) -> str | None:
        """
        :return: what keeps the seeds of the series from the smoothing noise, None if it was seeded by each so far
        """
        return self._fault

    def _count(self) -> list[int]:
        return [noise.n_noise_seedings for noise in self._noises]

    def _fault_of_noises(self, seed: int, before: list[int]) -> str | None:
        for noise, n_before in zip(self._noises, before, strict=True):
            if noise.n_noise_seedings == n_before:
                return NOT_PASSED_ON
            if noise.noise_seed != seed:
                return SEEDED_AGAIN
        return None


def seed_episodes(env: VecEnv, seed: int) -> None:
    """
    Seed the episodes of all envs from the next reset on: episode k of env i with ``seed + i + n_envs * k``.

    :param env: The vectorized environment, with an :class:`EpisodeSeeder` around each env, as
        :class:`~sb3_camp.evaluation.EvaluationEnv` builds it
    :param seed: The first seed
    :raises InputError: if an env has no seeder, or noise outside of it
    """
    if not all(env.env_is_wrapped(EpisodeSeeder)):
        raise InputError(
            "each episode needs a seed of its own: build the envs with EvaluationEnv, or wrap each in an EpisodeSeeder, "
            "outside of all other wrappers"
        )
    n_noises = [env.env_method("seed_each_episode", seed + i, env.num_envs, indices=i)[0] for i in range(env.num_envs)]
    if env.has_attr("n_noise_seedings") and not all(n_noises):
        raise InputError("EpisodeSeeder: put it outside of the smoothing noise, and of all other wrappers")
    env.seed(seed)  # for what the wrappers of the vectorized environment draw


def check_seeds(env: VecEnv) -> None:
    """
    :param env: What was given to :func:`seed_episodes`, after one reset or more
    :raises InputError: if the seed of an episode did not reach the smoothing noise
    """
    for fault in env.env_method("seed_fault"):
        if fault is not None:
            raise InputError(fault)
