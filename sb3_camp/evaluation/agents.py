"""Which checkpoint a command plays, in which environment, and with which normalisation of its observations."""

import argparse
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from rl_zoo3.utils import get_model_path

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.zoo_arguments import nearest
from sb3_camp.runs.layers import Shows
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import WRAPPER_KEYS
from sb3_camp.wrappers.observation_noise import Sigma

NoiseOn = Literal["raw", "normalized"]
NO_STATISTICS = Path("none")
"""What ``--vecnormalize none`` stands for: to play without the statistics that lie beside a checkpoint."""


@dataclass(frozen=True)
class Agent:
    """
    :param model_path: File of the model
    :param environment: The environment that it plays in, as it was configured, without the normaliser
    :param run: The run folder of the zoo that the file lies in, None for a file from elsewhere
    :param trained_env_id: Id of the environment that it was trained in, where it plays in another
    :param statistics: File of the statistics by which its observations are normalised, None if they are not
    :param normalization: These statistics, see :func:`sb3_camp.runs.normalization.read_normalization`
    """

    model_path: Path
    environment: EvaluationEnv
    run: RunFolder | None
    trained_env_id: str | None = None
    statistics: Path | None = None
    normalization: dict[str, Any] | None = None

    def smoothed(self, sigma: Sigma | None, noise_on: NoiseOn | None) -> EvaluationEnv:
        """
        The environment as the policy sees it: with a new smoothing noise where there is none, and with the frozen normaliser.

        :param sigma: Standard deviation of the noise to add if the environment has none, None for no noise
        :param noise_on: "raw": noise on the observations of the environment, in their units, and the normaliser outside of it.
            "normalized": the normaliser inside of the noise, whose sigma is in standard deviations. None: raw
        :return: the environment
        :raises InputError: if the noise cannot stand there
        """
        if noise_on == "normalized":
            return self._noise_on_normalized(sigma)
        environment, noise = self.environment, self.environment.smoothing_noise()
        if sigma is not None and sigma != 0 and (noise is None or noise.sigma == 0):
            environment = environment.with_noise(sigma)
        return environment if self.normalization is None else environment.with_normalization(self.normalization)

    def _noise_on_normalized(self, sigma: Sigma | None) -> EvaluationEnv:
        if self.normalization is None:
            raise InputError(
                f"--noise-on normalized: the observations of {self.model_path} are not normalised: leave it out, or name the "
                "statistics of its VecNormalize with --vecnormalize"
            )
        noise = self.environment.smoothing_noise()
        if noise is not None and noise.sigma > 0:
            raise InputError(
                f"--noise-on normalized: {self.environment.env_id} has a noise of sigma {noise.sigma:g} on its raw "
                "observations already: leave it out"
            )
        environment = self.environment.with_normalization(self.normalization)
        return environment if sigma is None or sigma == 0 else environment.with_outermost_noise(sigma)


def find_agent(args: argparse.Namespace, vec_env: str = "dummy") -> Agent:
    """
    :param args: What :func:`sb3_camp.evaluation.zoo_arguments.parse` returned
    :param vec_env: Kind of VecEnv, see :class:`EvaluationEnv`
    :return: the model that they name and its environment
    :raises InputError: if there is no such model, its run folder does not fit, or its statistics cannot be read
    """
    model_path, env_id = _model_path(args), args.env.gym_id
    run = None
    if args.model is None or RunFolder.is_run_folder(model_path.parent):
        run = RunFolder.read(model_path.parent)
        if run.env_id != env_id:
            raise InputError(f"{run.path} is a run on {run.env_id}, not on {env_id}: check --env")
        if args.hyperparams:
            raise InputError(f"--hyperparams is for --model PATH, the wrappers of this run are in {run.config_file}")
    played = args.play_in or env_id
    _check_env_id(played, f"--play-in {args.play_in}" if args.play_in else f"--env {env_id}", run)
    settings = run.config if run is not None else args.hyperparams or {}
    environment = EvaluationEnv(
        env_id=played,
        env_kwargs=_env_kwargs(args, run),
        wrappers={key: settings[key] for key in WRAPPER_KEYS if settings.get(key)},
        vec_env=vec_env,
    )
    agent = Agent(model_path, environment, run, None if played == env_id else env_id)
    statistics = _statistics(args, model_path, run)
    if statistics is None:
        return agent
    return replace(agent, statistics=statistics, normalization=read_normalization(statistics))


def _statistics(args: argparse.Namespace, model_path: Path, run: RunFolder | None) -> Path | None:
    """The file by which the observations of the agent are normalised, None if they are not."""
    if args.vecnormalize == NO_STATISTICS:
        return None
    if args.vecnormalize is not None:
        return args.vecnormalize
    if run is not None and run.scenario().normalizes() is not Shows.FUNCTION:
        return None
    found = statistics_beside(model_path)
    if run is not None and found is None:
        raise InputError(
            f"{run.config_file}: the observations of this run are normalised, but there is no "
            f"{run.config_file.with_name('vecnormalize.pkl')}: name the file with --vecnormalize"
        )
    return found


def _check_env_id(env_id: str, option: str, run: RunFolder | None) -> None:
    """Name the successors of an environment that the installed packages do not have any more."""
    error: Exception | None = None
    try:
        gym.spec(env_id)
        if not _is_withdrawn(env_id):
            return
    except gym.error.Error as missing:
        error = missing
    later = later_versions(env_id)
    if not later:
        raise InputError(f"{option}: {nearest(env_id, gym.registry)}{' '.join(str(error).split())}") from error
    way = f"--play-in {later[0]}" if run is not None else f"--env {later[0]}"
    names = " and ".join(later)
    raise InputError(
        f"{option}: the installed packages have {names} in place of {env_id}: play in the closest one with {way}, if its "
        "observations and actions are the same"
    )


def later_versions(env_id: str) -> list[str]:
    """
    :param env_id: Id of an environment, ``[namespace/]name-v<version>``
    :return: the ids of its later versions that can be used, the closest first
    """
    name, _, version = env_id.rpartition("-v")
    if not version.isdigit():
        return []
    found = []
    for other in gym.registry:
        match = re.fullmatch(re.escape(name) + r"-v(\d+)", other)
        if match and int(match[1]) > int(version) and not _is_withdrawn(other):
            found.append((int(match[1]), other))
    return [other for _, other in sorted(found)]


def _is_withdrawn(env_id: str) -> bool:
    """Gymnasium keeps the ids of MuJoCo up to v3, only to say where they have gone."""
    return getattr(gym.registry[env_id].entry_point, "__name__", None) == "_raise_mujoco_py_error"


def _model_path(args: argparse.Namespace) -> Path:
    if args.model is not None:
        for path in (args.model, Path(f"{args.model}.zip")):
            if path.is_file():
                return path
        raise InputError(f"--model: no file {args.model}")
    try:
        _, path, _ = get_model_path(
            args.exp_id,
            args.folder,
            args.algo,
            args.env,
            args.load_best,
            args.load_checkpoint,
            args.load_last_checkpoint,
        )
    except (AssertionError, ValueError) as error:
        raise InputError(f"{error}: check --folder, --algo, --env and --exp-id, or give --model PATH") from error
    return Path(path)


def _env_kwargs(args: argparse.Namespace, run: RunFolder | None) -> dict[str, Any]:
    """As in the zoo's ``enjoy``: those of the training's command line replace the config's, and ours are added."""
    env_kwargs: dict[str, Any] = {}
    if run is not None:
        env_kwargs.update(run.config.get("env_kwargs") or {})
        if run.args.get("env_kwargs") is not None:
            env_kwargs = dict(run.args["env_kwargs"])
    return {**env_kwargs, **(args.env_kwargs or {})}
