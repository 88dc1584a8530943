"""Smoothing noise on the observations of an environment."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from sb3_camp.errors import InputError
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.observation_noise import ObservationNoise, Sigma, noise_generator


class NoisyObservationWrapper(gym.ObservationWrapper, gym.utils.RecordConstructorArgs):
    """
    Adds fresh, independent Gaussian noise N(0, sigma^2 I) to every new observation, that of ``reset`` included.

    This is the smoothing noise of policy smoothing (Kumar, Levine and Feizi, "Policy Smoothing for Provably Robust
    Reinforcement Learning", 2021; the CAMP paper, section "Expected Return Certification against Perturbed Observations"):
    returns of episodes that were played on noisy observations certify the expected return under any adversary that moves the
    observations of an episode by at most a given l2 norm in total.

    Put it as close to the environment as possible, before any frame stack, so that each frame is noised exactly once. Any
    fixed function of the noisy observation keeps the certificate: clipping, rounding, stacking, a network. Nothing that the
    policy sees may depend on the clean observation.

    - Float Box: the noisy observation is float32, its space unbounded. ``float64`` observations become ``float32`` too.
    - uint8 Box from 0 to 255 (images): sigma is in pixel values, the noisy image is rounded and clipped back to uint8, so the
      space stays what it was and image policies and replay buffers work as always.
    - Dict: noise with the same sigma on each Box entry, or a sigma of its own on each.

    The noise has a generator of its own, not the environment's ``np_random``: many environments seed that anew at every reset,
    to show a fixed level, and every episode would repeat the same noise. ``reset(seed=...)`` seeds the noise too, to a stream
    that differs from those of the environment; ``reset()`` goes on in its stream. Without any seed the noise starts from the
    operating system's entropy.

    :param env: The environment to wrap
    :param sigma: Standard deviation of the noise, in the units of the observation; 0 leaves the values as they are. Nested
        lists in the shape of the observation give each entry a sigma of its own, a mapping each entry of a Dict observation
        (a number for all of the entry, or lists). The radius of a certificate is then the l2 norm of the perturbations divided
        by sigma, entry by entry, and entries of sigma 0 are not covered
    :param quantize: Round and clip noisy images back to uint8; if False, they are unbounded float32 pixel values
        (which SB3 does not take for images any more)
    :param clean_keys: Entries of a Dict observation to pass on without noise. A certificate then speaks only of adversaries
        that cannot touch these entries. They must not hold a clean copy of what the other entries show: with one, the policy
        would not depend on the noise and the certificate would be void.
    :raises InputError: (a ValueError) if sigma is not finite and >= 0, if the observation space cannot carry the noise, or if
        the environment has such a noise already
    """

    def __init__(self, env: gym.Env, sigma: Sigma, quantize: bool = True, clean_keys: Sequence[str] = ()) -> None:
        noise = ObservationNoise(env.observation_space, sigma, quantize, clean_keys)
        _check_first_noise(env, noise.sigma)
        gym.utils.RecordConstructorArgs.__init__(
            self, sigma=noise.given_sigma, quantize=noise.quantize, clean_keys=list(clean_keys)
        )
        gym.ObservationWrapper.__init__(self, env)
        self.noise = noise
        self.observation_space = noise.space
        self._rng: np.random.Generator | None = None
        self._noise_number = 0
        self._n_seedings = 0
        self.noise_seed: int | None = None
        """The seed that the last seeded reset came with"""
        self._reports_clean_observations = False

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the observation; 1 where each entry has one of its own."""
        return self.noise.sigma

    @property
    def sensor_sigma(self) -> Any:
        """Standard deviation of each entry, as nested lists or a mapping of these; None where all have the same."""
        return self.noise.sensor_sigma

    @property
    def clean_keys(self) -> tuple[str, ...]:
        """What has no noise: entries of a Dict observation, and ``"[i]"`` or ``"key[i]"`` where a single sigma is 0."""
        return self.noise.clean_keys

    @property
    def n_noise_seedings(self) -> int:
        """How many resets came with a seed."""
        return self._n_seedings

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = noise_generator((seed, self._noise_number) if self._noise_number else seed)
            self._n_seedings += 1
            self.noise_seed = seed
        return self.observation(observation), self._with_report(info, observation)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation), reward, terminated, truncated, self._with_report(info, observation)

    def choose_noise(self, number: int) -> None:
        """
        From its next seed on, draw other noise from it than that which belongs to the seed: so the same episodes can be seen
        with several noises.

        :param number: Which noise; 0 is that which belongs to the seed
        """
        self._noise_number = number

    def report_clean_observations(self) -> gym.Space:
        """
        From now on the infos of ``reset`` and ``step`` hold the observation without noise too, under "clean_observation".

        It is there for what may know more while it trains than the policy that is certified
        (:class:`~sb3_camp.camp_dqn.CAMPDQN` with ``reference="clean"``). The policy itself must never see it.

        Of several wrappers (all but one with sigma 0) the one closest to the environment reports.

        :return: Space of the clean observations
        """
        if self.env.has_wrapper_attr("report_clean_observations"):
            return self.env.get_wrapper_attr("report_clean_observations")()
        self._reports_clean_observations = True
        return self.env.observation_space

    def _with_report(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        if not self._reports_clean_observations:
            return info
        # A copy: some envs write each observation, that of the next reset too, into the same array
        return {**info, "clean_observation": deepcopy(observation)}

    def observation(self, observation: Any) -> Any:
        if self._rng is None:  # made only now, so that processes that were forked before do not share it
            self._rng = np.random.default_rng()
        return self.noise(observation, self._rng)


def _check_first_noise(env: gym.Env, sigma: float) -> None:
    """Refuse a second noise when it is built, not only after a training that no certificate can follow."""
    for inner in wrapper_chain(env):
        if isinstance(inner, NoisyObservationWrapper) and inner.sigma > 0 and sigma > 0:
            spec = inner.spec
            task = f"{spec.id} has its own, set by its argument sigma: " if spec and "sigma" in spec.kwargs else ""
            raise InputError(f"2 smoothing noises on top of each other (sigma {inner.sigma:g} and {sigma:g}): {task}use one")
