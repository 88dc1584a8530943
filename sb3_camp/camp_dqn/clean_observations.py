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
                "reference: it sees the observations without noise, but the environment has no NoisyObservationWrapper to "
                "report them: add one, or choose reference='shared' (in the zoo: -params \"reference:'shared'\")."
            )
        self.env = env
        space = env.env_method("report_clean_observations")[0]
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise InputError(f"reference: what it sees without noise must be vectors (a Box of one dimension), not {space}.")
        # Of no class of the env's own, for the model keeps it, and is loaded where that class may not be
        self.space = spaces.Box(space.low, space.high, dtype=space.dtype.type)
        self._last: list[np.ndarray] = []

    def begin(self) -> None:
        """
        The envs were reset.

        :raises InputError: if the infos of the reset do not hold the clean observations
        """
        self._last = [_reported(info) for info in self.env.unwrapped.reset_infos]

    def complete(self, infos: list[dict[str, Any]], dones: np.ndarray) -> None:
        """
        Put the clean observation that a step started from into its info, beside the one that it led to.

        :param infos: Infos of one step of each env; "last_clean_observation" is added
        :param dones: Whether the episode ended, which had the env reset itself
        :raises InputError: if the infos do not hold the clean observations
        """
        for env, (info, done) in enumerate(zip(infos, dones, strict=True)):
            info["last_clean_observation"] = self._last[env]
            reached = _reported(info)
            self._last[env] = _reported(self.env.unwrapped.reset_infos[env]) if done else reached


def _reported(info: dict[str, Any]) -> np.ndarray:
    if "clean_observation" not in info:
        raise InputError(
            "reference: it sees the observations without noise, but the infos do not hold them: the wrappers around "
            "NoisyObservationWrapper must pass on its infos, those of reset too."
        )
    return np.array(info["clean_observation"])
