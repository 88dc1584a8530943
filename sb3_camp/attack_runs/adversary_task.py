"""
``camp/Adversary-v0``: the environment of an adversary as a task of Gymnasium, for the zoo's own command.

``python -m rl_zoo3.train --algo ppo --env camp/Adversary-v0 --env-kwargs victim:"'logs/dqn/CartPole-v1_1/best_model.zip'"``
"""

import contextlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from huggingface_sb3 import EnvironmentName
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from sb3_camp.attack_names import LEARNED
from sb3_camp.attack_runs.adversary_training import adversary_env
from sb3_camp.attack_runs.arguments import command_parser
from sb3_camp.attack_runs.attack_plan import find_victim
from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.errors import InputError
from sb3_camp.learned_adversary.vec_env import AdversaryVecEnv
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.threat_models import THREATS, size_name
from sb3_camp.vec_env.zoo_wrapper import monitor_log

# Options of the attack command that tell how the victim plays
_OPTIONS = (
    "threat",
    "env_kwargs",
    "hyperparams",
    "vecnormalize",
    "noise_on",
    "play_in",
    "sigma",
    "key",
    "stochastic",
    "device",
)


class AdversaryEnv(gym.Env):
    """
    A task in which an adversary learns: its actions perturb what a fixed policy, its victim, observes.

    Action and observation are those of :class:`~sb3_camp.attacks.adversary_view.AdversaryView`: direction and size of the
    perturbation, within what is left of the l2 budget of the episode or within the bound on each step; the clean frame, what
    is left, and the progress of the episode. The reward is minus the victim's. The adversary stands in front of the smoothing
    noise, as a certificate assumes.

    The victim is any policy that ``python -m sb3_camp.attack`` can attack, in its own environment.

    :param victim: Checkpoint of the victim, in a run folder of the zoo, or such a folder for its last model; or any checkpoint
        of SB3 if ``algo`` and ``env`` are given
    :param budget: l2 norm that all perturbations of an episode may have together, in units of the observation; with ``threat``
        "step-l2" or "step-linf" the bound on the norm of each
    :param algo: The zoo's name of the victim's algorithm (default: that of its run)
    :param env: Id of the victim's environment (default: that of its run)
    :param options: Options of ``python -m sb3_camp.attack`` by their names with underscores: ``threat``, ``sigma``,
        ``env_kwargs``, ``hyperparams``, ``vecnormalize``, ``noise_on``, ``play_in``, ``key``, ``stochastic``, ``device``
    :raises InputError: if these cannot be used
    """

    metadata = {"render_modes": []}  # noqa: RUF012  as Gymnasium has it

    def __init__(
        self, victim: str, budget: float = 1.0, algo: str | None = None, env: str | None = None, **options: Any
    ) -> None:
        self.budget = float(budget)
        self.player = _player(str(victim), self.budget, algo, env, json.dumps(options, sort_keys=True, default=str))
        view = self.player.view()
        self.observation_space, self.action_space = view.observation_space, view.action_space
        self._opened = contextlib.ExitStack()
        self._game: AdversaryVecEnv | None = None
        self._next: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if self._game is None:
            self._game = self._opened.enter_context(
                adversary_env(self.player, self.budget, int(self.np_random.integers(2**31)), n_envs=1)
            )
        if self._next is None or seed is not None:
            if seed is not None:
                self._game.seed(seed)
            self._next = np.asarray(self._game.reset())[0]
        observation, self._next = self._next, None
        return observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._game is None:
            raise gym.error.ResetNeeded("camp/Adversary-v0: call reset before step.")
        observations, rewards, dones, infos = self._game.step(np.asarray(action)[None])
        if dones[0]:
            # The game goes on by itself: what it shows now belongs to the next episode
            self._next = np.asarray(observations)[0]
            return infos[0]["terminal_observation"], float(rewards[0]), True, False, {}
        return np.asarray(observations)[0], float(rewards[0]), False, False, {}

    def close(self) -> None:
        self._opened.close()
        self._game = None


class _Batched(VecMonitor):
    """An :class:`AdversaryVecEnv` in place of envs that step one by one, which are closed with it."""

    def __init__(self, replaced: DummyVecEnv) -> None:
        first = replaced.envs[0].unwrapped
        if not isinstance(first, AdversaryEnv):
            raise InputError(f"sb3_camp.attack_runs.adversary_task.batched is for camp/Adversary-v0, not for {first}")
        self._opened = contextlib.ExitStack()
        self._opened.callback(replaced.close)
        seed = replaced._seeds[0]
        game = self._opened.enter_context(
            adversary_env(first.player, first.budget, 0 if seed is None else int(seed), replaced.num_envs)
        )
        super().__init__(game)
        self._log = monitor_log(replaced)
        if seed is not None:
            self.seed(int(seed))

    def step_wait(self) -> VecEnvStepReturn:
        result = super().step_wait()
        for i in np.flatnonzero(result[2]):
            self._log(int(i), result[3][i]["episode"])
        return result

    def close(self) -> None:
        self._opened.close()


def batched(venv: VecEnv) -> VecEnv:
    """
    Let the victims of all envs play in one batch, in a native vector environment where theirs has one: a wrapper for
    ``vec_env_wrapper`` in the zoo's yml, as in the one that this package has for ``camp/Adversary-v0``.

    :param venv: A ``DummyVecEnv`` of ``camp/Adversary-v0``, as the zoo builds it
    :return: as many envs of the same task
    :raises InputError: if it is none
    """
    if not isinstance(venv, DummyVecEnv):
        raise InputError("sb3_camp.attack_runs.adversary_task.batched must be the first vec_env_wrapper, --vec-env dummy")
    return _Batched(venv)


@lru_cache(maxsize=4)
def _player(victim: str, budget: float, algo: str | None, env: str | None, options: str) -> AttackPlayer:
    """One for all envs of a process, as they play the same policy."""
    path, given = Path(victim), json.loads(options)
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:
        raise InputError(f"camp/Adversary-v0 has no {unknown[0]}, but victim, budget, algo, env, {', '.join(_OPTIONS)}")
    run = RunFolder.containing(path) if path.exists() else None
    if run is None and (algo is None or env is None):
        raise InputError(f"camp/Adversary-v0: {victim} is no checkpoint in a run folder of the zoo: give algo and env besides")
    if path.is_dir():
        assert run is not None
        path = run.path / f"{run.env_id.replace('/', '-')}.zip"
    algo, env = algo or run.algo, env or run.env_id  # type: ignore[union-attr]
    args = command_parser().parse_args(["--algo", algo, "--env", env, "--model", str(path)])
    for name, value in {"device": "cpu", **given}.items():
        setattr(args, name, Path(value) if name == "vecnormalize" else value)
    args.env, args.attack = EnvironmentName(env), LEARNED
    if args.threat not in THREATS:
        raise InputError(f"camp/Adversary-v0: threat must be one of {', '.join(THREATS)}, not {args.threat!r}")
    setattr(args, size_name(args.threat), [budget])
    return find_victim(args).player
