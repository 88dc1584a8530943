"""The arguments of ``python -m sb3_camp.attack``."""

import argparse
from pathlib import Path

import numpy as np
from gymnasium import spaces

from sb3_camp.attacks.registry import ATTACKS, LEARNED
from sb3_camp.command_line import invocation
from sb3_camp.errors import InputError
from sb3_camp.evaluation.zoo_arguments import add_zoo_arguments

_BUDGETS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_PIXEL = 255
# Squares of larger numbers are out of the range of float32
_LARGEST = 1e18


def attack_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command; the zoo must be registered before
    """
    parser = argparse.ArgumentParser(
        prog="attack",
        usage=f"{invocation('attack')} --algo ALGO --env ENV [-f FOLDER | --model PATH] [--attack NAME] [options]",
        description="Play exactly N episodes of one fixed policy at each budget of an adversary on its observations.",
    )
    parser.add_argument("--attack", help="the attack (default: %(default)s)", choices=[*ATTACKS, LEARNED], default="pgd")
    parser.add_argument(
        "--adversary", help="for learned: the trained adversary, a checkpoint of SB3 (default: train one, by PPO)", type=Path
    )
    parser.add_argument(
        "--adversary-timesteps",
        help="steps to train an adversary for (default: 4,000,000 in a native vector environment, else 300,000)",
        type=int,
    )
    parser.add_argument(
        "--budget",
        help="l2 norms of all perturbations of an episode together, in units of the observation (default: 0 0.2 0.4 0.6 0.8 "
        "1, for images times 255)",
        type=float,
        nargs="+",
    )
    parser.add_argument(
        "--sigma",
        help="standard deviation of the noise that the policy acts on, outside of the adversary (default: that of the run, "
        "none for an agent without; 0 attacks without noise)",
        type=float,
    )
    parser.add_argument("--objective", help="what the attack climbs", choices=["targeted", "jeffreys"], default="targeted")
    parser.add_argument(
        "--step-size",
        help="step size of the attack (default: 0.01 for pgd and random, for images times 255; 0.05 * budget for apgd and "
        "fgsm)",
        type=float,
    )
    parser.add_argument(
        "--multiplier", help="an observation gets this times budget left / step size steps (default: 2)", type=float
    )
    parser.add_argument(
        "--q-threshold",
        help="leave targets alone whose action score is within this of the best (default: %(default)s)",
        type=float,
        default=0.0,
    )
    parser.add_argument("--key", help="entry of a Dict observation to attack (default: the only one with noise)")
    parser.add_argument(
        "--vec-env",
        help="how the envs step: native as one array, dummy one by one; auto (the default): native for CartPole in all its "
        "forms, else dummy",
        choices=["auto", "native", "dummy"],
        default="auto",
    )
    add_zoo_arguments(
        parser,
        n_episodes=1_000,
        n_episodes_help="number of episodes at each budget (default: %(default)s)",
        output_help="folder for the results (default: attacks/<attack>_sigma<S>/ beside the model)",
        n_envs=None,
        n_envs_help="number of envs that play at once (default: 64, native: 1024)",
    )
    return parser


def check_numbers(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of the command; a -0 among them becomes 0
    :raises InputError: if a number cannot be used
    """
    for name in ("sigma", "q_threshold"):
        value = getattr(args, name)
        if value is not None:
            if not 0 <= value <= _LARGEST:
                raise InputError(f"--{name.replace('_', '-')} must be a number from 0 to {_LARGEST:g}, not {value:g}")
            setattr(args, name, abs(value))
    for name in ("step_size", "multiplier"):
        value = getattr(args, name)
        if value is not None and not 0 < value <= _LARGEST:
            raise InputError(f"--{name.replace('_', '-')} must be a positive number up to {_LARGEST:g}, not {value:g}")
    if args.attack == "fgsm" and args.multiplier is not None:
        raise InputError("--multiplier is not for fgsm, which takes one step")
    if args.attack != LEARNED and (args.adversary is not None or args.adversary_timesteps is not None):
        raise InputError("--adversary and --adversary-timesteps are for --attack learned")
    if args.adversary is not None and args.adversary_timesteps is not None:
        raise InputError("--adversary-timesteps is for an adversary that is trained now, not for --adversary")
    if args.adversary_timesteps is not None and args.adversary_timesteps < 1:
        raise InputError(f"--adversary-timesteps must be at least 1, not {args.adversary_timesteps}")
    for budget in args.budget or ():
        if not 0 <= budget <= _LARGEST:
            raise InputError(f"--budget: budgets must be numbers from 0 to {_LARGEST:g}, not {budget:g}")


def attack_budgets(args: argparse.Namespace, space: spaces.Box) -> list[float]:
    """
    :param args: Arguments of the command
    :param space: Space of the frames that are attacked
    :return: the budgets, ascending
    """
    unit = _PIXEL if space.dtype == np.uint8 else 1
    return [unit * budget for budget in _BUDGETS] if args.budget is None else sorted({abs(budget) for budget in args.budget})
