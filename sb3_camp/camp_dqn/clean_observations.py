"""The observations without noise, for a reference that may see them while it trains."""

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError


class CleanObservations:
    """
    Follows the clean observations of the envs, step by step.

    :param env: Envs with a :class:`~sb3_camp.wrappers.NoisyObservationWrapper`, which from now on report them in their infos
    :raises InputError: if the envs have no such wrapper, or if what it wraps does not observe vectors
    """

    def __init__(self, env: VecEnv) -> None:
        if not env.has_attr("report_clean_observations"):
            raise InputError(
                "clean_reference: the environment has no NoisyObservationWrapper that could report what it hides."
            )
        self.env = env
        space = env.env_method("report_clean_observations")[0]
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise InputError(f"clean_reference: the observations must be vectors (a Box of one dimension), not {space}.")
        self.space = space
        self._last: list[np.ndarray] = []

    def begin(self) -> None:
        """The envs were reset."""
        self._last = [np.array(info["clean_observation"]) for info in self.env.unwrapped.reset_infos]

    def complete(self, infos: list[dict[str, Any]], dones: np.ndarray) -> None:
        """
        Put the clean observation that a step started from into its info, beside the one that it led to.

        :param infos: Infos of one step of each env; "last_clean_observation" is added
        :param dones: Whether the episode ended, which had the env reset itself
        """
        for env, (info, done) in enumerate(zip(infos, dones, strict=True)):
            info["last_clean_observation"] = self._last[env]
            newest = self.env.unwrapped.reset_infos[env] if done else info
            self._last[env] = np.array(newest["clean_observation"])
