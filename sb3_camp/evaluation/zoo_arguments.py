"""The zoo's arguments, by which a command names a policy and its environment, and what they stand for."""

import argparse
import importlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch as th
from huggingface_sb3 import EnvironmentName
from rl_zoo3.utils import ALGOS, StoreDict, get_model_path

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import WRAPPER_KEYS
from sb3_camp.version import __version__


class Agent(NamedTuple):
    """
    :param model_path: File of the model
    :param environment: The environment that it was trained in, as it was configured
    :param run: The run folder of the zoo that the file lies in, None for a file from elsewhere
    """

    model_path: Path
    environment: EvaluationEnv
    run: RunFolder | None


def add_zoo_arguments(
    parser: argparse.ArgumentParser,
    *,
    n_episodes: int,
    n_episodes_help: str,
    output_help: str,
    n_envs: int | None = 64,
    n_envs_help: str = "number of envs that play at once (default: %(default)s)",
    num_threads: int | None = -1,
    num_threads_help: str = "number of threads for PyTorch (-1: its default)",
) -> None:
    """
    Add the arguments that all commands take which play episodes of a trained policy. The zoo must be registered before.

    :param parser: Parser of the command
    :param n_episodes: Default number of episodes
    :param n_episodes_help: What they are
    :param output_help: Where results go
    :param n_envs: Default number of envs, None to leave it to the command
    :param n_envs_help: What to say of it
    :param num_threads: Default number of threads for PyTorch, None to leave it to the command
    :param num_threads_help: What to say of it
    """
    parser.add_argument("--algo", help="RL algorithm, by the zoo's name", type=str, required=True, choices=list(ALGOS))
    parser.add_argument("--env", help="environment ID", type=EnvironmentName, required=True)
    parser.add_argument("-f", "--folder", help="log folder of the zoo", type=str, default="logs")
    parser.add_argument("--exp-id", help="experiment ID (0: latest, -1: no exp folder)", default=0, type=int)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--load-best", help="the best model instead of the last", action="store_true")
    which.add_argument("--load-checkpoint", help="the checkpoint with this number of timesteps instead", type=int)
    which.add_argument("--load-last-checkpoint", help="the last checkpoint instead", action="store_true")
    which.add_argument(
        "--model", help="a model file of SB3 or sb3-contrib from anywhere, instead of a run of the zoo", type=Path
    )
    parser.add_argument("-n", "--n-episodes", help=f"{n_episodes_help} (default: %(default)s)", type=int, default=n_episodes)
    parser.add_argument("--n-envs", help=n_envs_help, type=int, default=n_envs)
    parser.add_argument("--seed", help="random generator seed (default: %(default)s)", type=int, default=0)
    parser.add_argument("--stochastic", help="sample the actions instead of taking the best", action="store_true")
    parser.add_argument("--device", help="PyTorch device (cpu, cuda, ...)", default="auto", type=str)
    parser.add_argument("--num-threads", help=num_threads_help, default=num_threads, type=int)
    parser.add_argument("--env-kwargs", help="keyword arguments of the environment", type=str, nargs="+", action=StoreDict)
    parser.add_argument(
        "-params",
        "--hyperparams",
        help="for --model: env_wrapper, vec_env_wrapper and frame_stack that it was trained with, as in the zoo's yml",
        type=str,
        nargs="+",
        action=StoreDict,
    )
    parser.add_argument("--gym-packages", help="packages that register environments", type=str, nargs="+", default=[])
    parser.add_argument("-o", "--output", help=output_help, type=Path)
    parser.add_argument("--resume", help="continue where the same command was interrupted", action="store_true")
    parser.add_argument("-P", "--progress", help="show a progress bar even if stderr is not a terminal", action="store_true")


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """
    Parse and check the arguments, import the packages that they name and set the number of threads.

    :param parser: The parser, with :func:`add_zoo_arguments`
    :param argv: Arguments of the command line, those of the process by default
    :return: the arguments; ``env`` without the package that registers it
    :raises InputError: if they cannot be used
    """
    try:
        args = parser.parse_args(argv)
    except Exception as error:  # of any kind: the zoo evaluates the values as Python
        raise InputError(f"--env-kwargs and --hyperparams take KEY:VALUE with a Python value: {error}") from error
    for name, least, most in (("n_episodes", 1, 10**7), ("n_envs", 1, 10**6), ("seed", 0, 2**63 - 1)):
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            range_ = f"at least {least}" if value < least else f"at most {most}"
            raise InputError(f"--{name.replace('_', '-')} must be {range_}, not {value}")
    _check_device(args.device)
    unknown = [key for key in args.hyperparams or () if key not in WRAPPER_KEYS]
    if unknown:
        raise InputError(f"--hyperparams takes {', '.join(WRAPPER_KEYS)}, not {', '.join(unknown)}")
    for package in args.gym_packages:
        _import(package, "--gym-packages")
    package, _, env_id = args.env.gym_id.rpartition(":")
    if package:  # that registers the env, as Gymnasium writes it
        _import(package, "--env")
        args.env = EnvironmentName(env_id)
    if args.num_threads is not None and args.num_threads > 0:
        th.set_num_threads(args.num_threads)
    return args


def find_agent(args: argparse.Namespace, vec_env: str = "dummy") -> Agent:
    """
    :param args: What :func:`parse` returned
    :param vec_env: Kind of VecEnv, see :class:`EvaluationEnv`
    :return: the model that they name and its environment
    :raises InputError: if there is no such model, or its run folder does not fit
    """
    model_path = _model_path(args)
    run = None
    if args.model is None or RunFolder.is_run_folder(model_path.parent):
        run = RunFolder.read(model_path.parent)
        if run.env_id != args.env.gym_id:
            raise InputError(f"{run.path} is a run on {run.env_id}, not on {args.env.gym_id}: check --env")
        if args.hyperparams:
            raise InputError(f"--hyperparams is for --model PATH, the wrappers of this run are in {run.config_file}")
    settings = run.config if run is not None else args.hyperparams or {}
    environment = EvaluationEnv(
        env_id=args.env.gym_id,
        env_kwargs=_env_kwargs(args, run),
        wrappers={key: settings[key] for key in WRAPPER_KEYS if settings.get(key)},
        vec_env=vec_env,
    )
    return Agent(model_path, environment, run)


def versions() -> dict[str, str]:
    """
    :return: versions of this package and of those that decide what an episode looks like
    """
    others = ("stable_baselines3", "sb3_contrib", "gymnasium", "numpy", "torch")
    return {"sb3_camp": __version__, **{name: version(name) for name in others}}


def _check_device(device: str) -> None:
    """SB3 would silently take the CPU where there is no GPU."""
    if device == "auto":
        return
    try:
        wanted = th.device(device)
    except RuntimeError:
        raise InputError(f"--device: PyTorch knows no device {device!r}: use auto, cpu or cuda") from None
    if wanted.type == "cuda" and (wanted.index or 0) >= th.cuda.device_count():
        raise InputError(f"--device: there is no GPU for {device!r} that PyTorch can use: use auto or cpu")


def _import(package: str, option: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{option}: cannot import {package}: {error}") from error


def _model_path(args: argparse.Namespace) -> Path:
    if args.model is not None:
        for path in (args.model, args.model.with_name(f"{args.model.name}.zip")):
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
