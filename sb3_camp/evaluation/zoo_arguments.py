"""The zoo's arguments, by which a command names a policy and its environment, and what they stand for."""

import argparse
import difflib
import importlib
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sb3_camp.errors import InputError
from sb3_camp.runs.scenario import WRAPPER_KEYS
from sb3_camp.version import __version__

# The zoo, SB3 and PyTorch take seconds to import, so they are imported when the arguments are known: --help needs none of them

# Envs that play at once: the fastest measured, see benchmarks/evaluation_speed.py
N_ENVS, N_NATIVE_ENVS = 64, 1024
# Episodes of an evaluation, unless the task knows how many a minute allows
N_EPISODES = 10_000


class _StoreDict(argparse.Action):
    """The zoo's action for ``KEY:VALUE``, which evaluates values as Python."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        from rl_zoo3.utils import StoreDict

        StoreDict(self.option_strings, self.dest, nargs=self.nargs)(parser, namespace, values, option_string)


def add_zoo_arguments(
    parser: argparse.ArgumentParser,
    *,
    n_episodes: int | None,
    n_episodes_help: str,
    output_help: str,
    n_envs: int | None = N_ENVS,
    n_envs_help: str = "number of envs that play at once (default: %(default)s)",
    num_threads: int | None = -1,
    num_threads_help: str = "number of threads for PyTorch (-1: its default)",
) -> None:
    """
    Add the arguments that all commands take which play episodes of a trained policy.

    :param parser: Parser of the command
    :param n_episodes: Default number of episodes, None to leave it to the command
    :param n_episodes_help: What they are
    :param output_help: Where results go
    :param n_envs: Default number of envs, None to leave it to the command
    :param n_envs_help: What to say of it
    :param num_threads: Default number of threads for PyTorch, None to leave it to the command
    :param num_threads_help: What to say of it
    """
    parser.add_argument("--algo", help="RL algorithm, by the zoo's name (camp_dqn, dqn, ppo ...)", type=str, required=True)
    parser.add_argument("--env", help="environment ID", type=str, required=True)
    parser.add_argument("-f", "--folder", help="log folder of the zoo", type=str, default="logs")
    parser.add_argument("--exp-id", help="experiment ID (0: latest, -1: no exp folder)", default=0, type=int)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--load-best", help="the best model instead of the last", action="store_true")
    which.add_argument("--load-checkpoint", help="the checkpoint with this number of timesteps instead", type=int)
    which.add_argument("--load-last-checkpoint", help="the last checkpoint instead", action="store_true")
    which.add_argument(
        "--model", help="a model file of SB3 or sb3-contrib from anywhere, instead of a run of the zoo", type=Path
    )
    parser.add_argument("-n", "--n-episodes", help=n_episodes_help, type=int, default=n_episodes)
    parser.add_argument("--n-envs", help=n_envs_help, type=int, default=n_envs)
    parser.add_argument("--seed", help="random generator seed (default: %(default)s)", type=int, default=0)
    parser.add_argument("--stochastic", help="sample the actions instead of taking the best", action="store_true")
    parser.add_argument("--device", help="PyTorch device (cpu, cuda, ...)", default="auto", type=str)
    parser.add_argument("--num-threads", help=num_threads_help, default=num_threads, type=int)
    parser.add_argument("--env-kwargs", help="keyword arguments of the environment", type=str, nargs="+", action=_StoreDict)
    parser.add_argument(
        "-params",
        "--hyperparams",
        help="for --model: env_wrapper, vec_env_wrapper and frame_stack that it was trained with, as in the zoo's yml",
        type=str,
        nargs="+",
        action=_StoreDict,
    )
    parser.add_argument(
        "--vecnormalize",
        help="the file of VecNormalize by which the observations of the policy are normalised (default: the one that SB3 or "
        "the zoo left beside the model; none: without)",
        metavar="PATH",
        type=Path,
    )
    parser.add_argument(
        "--noise-on",
        help="for normalised observations: noise on the raw ones, in their units (the default), or on the normalised ones, in "
        "standard deviations",
        choices=["raw", "normalized"],
    )
    parser.add_argument(
        "--play-in",
        help="play in this environment, a successor of the one in which the agent was trained",
        metavar="ENV",
        type=str,
    )
    parser.add_argument(
        "--gym-packages", help="packages that register environments or algorithms", type=str, nargs="+", default=[]
    )
    parser.add_argument("-o", "--output", help=output_help, type=Path)
    parser.add_argument("--resume", help="continue where the same command was interrupted", action="store_true")
    parser.add_argument("-P", "--progress", help="show a progress bar even if stderr is not a terminal", action="store_true")


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, register: Callable[[], object] = lambda: None
) -> argparse.Namespace:
    """
    Parse and check the arguments, import the packages that they name and set the number of threads.

    :param parser: The parser, with :func:`add_zoo_arguments`
    :param argv: Arguments of the command line, those of the process by default
    :param register: Called when the line has been read: registers further algorithms with the zoo
    :return: the arguments; ``env`` as the zoo's ``EnvironmentName``, without the package that registers it
    :raises InputError: if they cannot be used
    """
    try:
        args = parser.parse_args(argv)
    except Exception as error:  # of any kind: the zoo evaluates the values as Python
        raise InputError(f"--env-kwargs and --hyperparams take KEY:VALUE with a Python value: {error}") from error
    for name, least, most in (
        ("n_episodes", 1, 10**7),
        ("max_episodes", 1, 10**7),
        ("looks", 1, 1000),
        ("n_envs", 1, 10**6),
        ("seed", 0, 2**63 - 1),
    ):
        value = getattr(args, name, None)
        if value is not None and not least <= value <= most:
            range_ = f"at least {least}" if value < least else f"at most {most}"
            raise InputError(f"--{name.replace('_', '-')} must be {range_}, not {value}")
    register()
    unknown = [key for key in args.hyperparams or () if key not in WRAPPER_KEYS]
    if unknown:
        raise InputError(f"--hyperparams takes {', '.join(WRAPPER_KEYS)}, not {', '.join(unknown)}")
    for package in args.gym_packages:
        _import(package, "--gym-packages")
    from huggingface_sb3 import EnvironmentName

    package, _, env_id = args.env.rpartition(":")
    if package:  # that registers the env, as Gymnasium writes it
        _import(package, "--env")
    args.env = EnvironmentName(env_id)
    _check_algo(args.algo)  # only now, as the packages may bring algorithms
    _check_device(args.device)
    if args.num_threads is not None and args.num_threads > 0:
        import torch as th

        th.set_num_threads(args.num_threads)
    return args


def versions() -> dict[str, str]:
    """
    :return: versions of this package and of those that decide what an episode looks like
    """
    others = ("stable_baselines3", "sb3_contrib", "gymnasium", "numpy", "torch")
    return {"sb3_camp": __version__, **{name: version(name) for name in others}}


def _check_algo(algo: str) -> None:
    from rl_zoo3.utils import ALGOS

    if algo not in ALGOS:
        meant = nearest(algo, ALGOS)
        raise InputError(f"--algo: the zoo has no {algo}: {meant}choose one of {', '.join(ALGOS)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """
    :param name: A name that is none of these
    :param names: Those that there are
    :return: A question whether the most similar one is meant, empty if none is similar
    """
    by_lower_case = {one.lower(): one for one in names}
    found = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f"did you mean {by_lower_case[found[0]]}? " if found else ""


def _check_device(device: str) -> None:
    """SB3 would silently take the CPU where there is no GPU."""
    if device == "auto":
        return
    import torch as th

    try:
        wanted = th.device(device)
    except RuntimeError:
        raise InputError(f"--device: PyTorch knows no device {device!r}: use auto, cpu or cuda") from None
    if wanted.type == "cuda" and (wanted.index or 0) >= th.cuda.device_count():
        raise InputError(f"--device: there is no GPU for {device!r} that PyTorch can use: use auto or cpu")
    try:
        th.ones(1, device=wanted).item()
    except RuntimeError:  # "meta" computes nothing, others are not built in
        raise InputError(f"--device: PyTorch computes nothing on {device!r} here: use auto, cpu or cuda") from None


def _import(package: str, option: str) -> None:
    try:
        importlib.import_module(package)
    except (ImportError, ValueError, TypeError) as error:  # the last two for what can be no name of a module, "" or ".name"
        raise InputError(f"{option}: cannot import {package!r}: {error}") from error
