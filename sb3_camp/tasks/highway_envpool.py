"""EnvPool's Highway, in C++, as a vector environment of Gymnasium: a fast place to train in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sb3_camp.errors import InputError

# Settings that both have by one name; those of the speed are a range in highway-env
_SHARED = (
    "lanes_count",
    "vehicles_count",
    "controlled_vehicles",
    "initial_lane_id",
    "duration",
    "simulation_frequency",
    "policy_frequency",
    "ego_spacing",
    "vehicles_density",
    "collision_reward",
    "right_lane_reward",
    "high_speed_reward",
    "lane_change_reward",
    "normalize_reward",
    "offroad_terminal",
)


class EnvPoolHighway(VectorEnv):
    """
    ``highway-fast-v0`` of EnvPool with the settings of highway-env, observations flattened, without noise.

    It resets at the next step, and heeds ``reset_mask``. A ``reset`` with a seed builds its envs anew, since EnvPool takes no
    seed later.

    :param num_envs: Number of environments
    :param settings: Configuration of highway-env, complete
    :raises InputError: if EnvPool is not installed, or has no such setting
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 as in Gymnasium

    def __init__(self, num_envs: int, settings: Mapping[str, Any]) -> None:
        self._options = _envpool_options(settings)
        self.num_envs = num_envs
        self.render_mode = None
        self._pool = self._made(0)
        n_entries = int(np.prod(self._pool.observation_space.shape))
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (n_entries,), np.float32)
        self.single_action_space = spaces.Discrete(int(self._pool.action_space.n))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _made(self, seed: int) -> Any:
        try:
            import envpool
        except ImportError as error:
            raise InputError("the vector environment of Highway needs EnvPool: pip install '.[fast]'") from error
        return envpool.make_gymnasium(
            "highway-fast-v0", num_envs=self.num_envs, num_threads=1, seed=seed % 2**31, **self._options
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """
        :param seed: Seed of all environments
        :param options: ``reset_mask``: which environments to reset; the rows of the others are left as they were
        """
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        if isinstance(seed, int):
            self._pool.close()
            self._pool = self._made(seed)
            mask = np.ones(self.num_envs, dtype=bool)
        if mask.all():
            self._latest = self._flat(self._pool.reset()[0])
        else:
            self._latest = self._latest.copy()
            self._latest[mask] = self._flat(self._pool.reset(np.flatnonzero(mask).astype(np.int32))[0])
        return self._latest, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards, terminations, truncations, infos = self._pool.step(np.asarray(actions, dtype=np.int32))
        self._latest = self._flat(observations)
        kept = {"crashed": np.asarray(infos["crashed"], dtype=bool), "speed": np.asarray(infos["speed"])}
        return self._latest, np.asarray(rewards, dtype=np.float64), terminations, truncations, kept

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()

    @staticmethod
    def _flat(observations: np.ndarray) -> np.ndarray:
        return np.array(observations, dtype=np.float32).reshape(len(observations), -1)


def _envpool_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {name: settings[name] for name in _SHARED}
    options["initial_lane_id"] = -1 if options["initial_lane_id"] is None else options["initial_lane_id"]
    options["reward_speed_low"], options["reward_speed_high"] = settings["reward_speed_range"]
    options["max_episode_steps"] = round(settings["duration"] * settings["policy_frequency"])
    observation = dict(settings["observation"])
    options["observation_vehicles_count"] = observation.pop("vehicles_count", 5)
    if observation != {"type": "Kinematics"} or settings["action"] != {"type": "DiscreteMetaAction"}:
        raise InputError("the vector environment of Highway has the default observation and action of highway-env only")
    return options
