"""What programs that train in place of the zoo have in common: options, who plays, and the run folder that they leave."""

import argparse
import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import yaml
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_camp.errors import InputError

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser, tasks: Iterable[str], settings: Sequence[str]) -> None:
    """
    :param parser: Of the program
    :param tasks: ids of the tasks that it knows
    :param settings: Their settings with which it can teach
    """

    def setting(text: str) -> tuple[str, Any]:
        key, _, value = text.partition(":")
        if key not in settings:
            raise argparse.ArgumentTypeError(f"{text}: give name:value, as sigma:0.1; the names are {', '.join(settings)}")
        try:
            return key, ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise argparse.ArgumentTypeError(f"{text}: the value is no Python literal") from None

    parser.add_argument("--env", choices=list(tasks), required=True)
    parser.add_argument(
        "--env-kwargs", nargs="+", action=_Once, type=setting, default=[], metavar="NAME:VALUE", help="settings of the task"
    )
    parser.add_argument("-f", "--log-folder", type=Path, default=Path("logs"), help="(default: %(default)s)")
    parser.add_argument("--seed", type=seed, default=0, help="of games and network (default: %(default)s)")
    parser.add_argument("--device", type=_device, default="cpu", help="PyTorch device (default: %(default)s)")
    parser.add_argument("--num-threads", type=int, default=-1, help="of PyTorch")


class _Once(argparse.Action):
    """Keeps pairs of names and values, each name once."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        pairs = [*getattr(namespace, self.dest), *values]
        for name, _ in pairs:
            if [other for other, _ in pairs].count(name) > 1:
                parser.error(f"argument {option_string}: {name} is given twice")
        setattr(namespace, self.dest, pairs)


def add_n_timesteps(parser: argparse.ArgumentParser, default: str) -> None:
    """
    :param parser: Of a program that learns step by step
    :param default: How many steps it learns from unless told otherwise, as text
    """
    parser.add_argument("-n", "--n-timesteps", type=positive, help=f"to learn from (default: {default})")


def positive(text: str) -> int:
    """Type of an option: a whole number, at least 1."""
    return _whole_number(text, 1, "at least 1")


def seed(text: str) -> int:
    """Type of an option: a seed that NumPy, PyTorch and the games take."""
    return _whole_number(text, 0, "from 0 to 2147483647")


def _whole_number(text: str, lowest: int, wanted: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number < 2**31:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number, {wanted}")
    return number


def _device(text: str) -> str:
    try:
        torch.device(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return text


@contextmanager
def run_folder(args: argparse.Namespace, algorithm: str = "dqn") -> Iterator[Path]:
    """
    Take the folder of the run before anything is learned, and give it back if nothing comes of it.

    :param args: What :func:`add_options` read
    :param algorithm: Name of what is trained
    :return: the folder, empty
    :raises InputError: if it is there already
    """
    folder: Path = args.log_folder / algorithm / f"{args.env.replace('/', '-')}_1"
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{folder} is there already: give another folder with -f") from None
    if args.num_threads > 0:
        torch.set_num_threads(args.num_threads)
    try:
        yield folder
    finally:
        for one in new:
            if not any(one.iterdir()):
                one.rmdir()


def made(task: str, make: Callable[[], T]) -> T:
    """
    :param task: id of a task
    :param make: Makes it with the settings of ``--env-kwargs``
    :return: what it makes
    :raises InputError: if it cannot be made with them
    """
    try:
        return make()
    except (InputError, OSError):
        raise
    except Exception as error:  # of any kind, as settings go to games of other packages
        raise InputError(f"--env-kwargs: {task} cannot be made with them: {type(error).__name__}: {error}") from None


def who_plays(
    random: np.random.Generator, own: np.ndarray, advice: np.ndarray, advised: float, by_chance: float
) -> np.ndarray:
    """
    DAgger's mixture of players.

    :param random: Who decides
    :param own: Actions of the network, shape (n_games,)
    :param advice: How good each action is, shape (n_games, n_actions)
    :param advised: Probability of the best of these, none if it is negative
    :param by_chance: Probability of any action in place of either
    :return: actions to do, shape (n_games,)
    """
    n, n_actions = advice.shape
    actions = np.where(random.random(n) < advised, advice.argmax(axis=1), own)
    return np.where(random.random(n) < by_chance, random.integers(n_actions, size=n), actions)


def save(model: BaseAlgorithm, folder: Path, args: argparse.Namespace, hyperparams: dict[str, Any], n_timesteps: int) -> None:
    """
    Leave what ``python -m rl_zoo3.train`` would.

    :param model: What has learned
    :param folder: From :func:`run_folder`
    :param args: What :func:`add_options` read
    :param hyperparams: Policy and its keyword arguments
    :param n_timesteps: How many steps it has learned from
    """
    name = args.env.replace("/", "-")
    settings = folder / name
    settings.mkdir(parents=True)
    kwargs = dict(args.env_kwargs)
    given = {"algo": folder.parent.name, "env": args.env, "env_kwargs": kwargs, "eval_env_kwargs": kwargs, "seed": args.seed}
    (settings / "args.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
    (settings / "config.yml").write_text(yaml.safe_dump({**hyperparams, "n_timesteps": n_timesteps}), encoding="utf-8")
    model.num_timesteps = n_timesteps
    model.save(folder / f"{name}.zip")
