"""The arguments of ``python -m sb3_camp.attack``."""

import argparse
from pathlib import Path

from sb3_camp.attack_names import ALL, LEARNED, ROBUST_SARSA, TRANSFER
from sb3_camp.command_line import CommandParser, invocation
from sb3_camp.errors import InputError
from sb3_camp.evaluation.sigma_argument import ShareOfDeviation, parse_sigma
from sb3_camp.evaluation.zoo_arguments import add_zoo_arguments
from sb3_camp.threat_models import THREATS, is_per_step
from sb3_camp.wrappers.observation_noise import Sigma

# Squares of larger numbers are out of the range of float32
_LARGEST = 1e18
_MOST_DRAWS = 10_000


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command, which needs neither PyTorch nor the zoo
    """
    parser = CommandParser(
        prog="attack",
        usage=f"{invocation('attack')} --algo ALGO --env ENV [-f FOLDER | --model PATH] [--attack NAME] [options]",
        description="Play exactly N episodes of one fixed policy at each budget of an adversary on its observations.",
    )
    parser.add_argument(
        "--attack",
        help="the attack: pgd, apgd, fgsm, random, mad, critic, robust-sarsa, transfer, learned, or one that a package "
        "registers; all: those that apply, one after the other, and which is the strongest (default: %(default)s)",
        metavar="NAME",
        default="pgd",
    )
    parser.add_argument(
        "--adversary", help="for learned: the trained adversary, a checkpoint of SB3 (default: train one, by PPO)", type=Path
    )
    parser.add_argument(
        "--adversary-timesteps",
        help="steps to train an adversary for (default: 10,000,000 in a native vector environment, else 300,000)",
        type=int,
    )
    parser.add_argument(
        "--threat",
        help="the threat model: episode-l2, one l2 budget for all of an episode, of which certificates speak; step-l2 and "
        "step-linf, a bound on the norm of the perturbation of each observation (default: %(default)s)",
        choices=THREATS,
        default="episode-l2",
    )
    parser.add_argument(
        "--epsilon",
        help="for --threat step-l2 and step-linf: the bounds, in units of the observation (of sigma where each sensor has its "
        "own, of standard deviations where the noise is on normalised observations)",
        type=float,
        nargs="+",
    )
    parser.add_argument(
        "--eot",
        help="average over this many draws of the smoothing noise (default: attack as if there were none)",
        metavar="K",
        type=int,
        default=0,
    )
    parser.add_argument(
        "--spend",
        help="for --threat episode-l2: spend the budget as early as possible, evenly over the steps of an episode, or as a "
        "pilot finds to hurt most (default: even for attacks that go as far as they may, else early)",
        choices=["early", "even", "pilot"],
    )
    parser.add_argument(
        "--critic", help="for robust-sarsa: the learned critic of the policy, a .npz (default: learn one)", type=Path
    )
    parser.add_argument(
        "--transfer-from",
        help="for transfer: checkpoint of another agent of the same task, of any algorithm, whose gradients show the way",
        metavar="PATH",
        type=Path,
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
        help="standard deviation of the noise that the policy acts on, outside of the adversary, one number or one for each "
        "sensor (default: that of the run, none for an agent without; 0 attacks without noise)",
        nargs="+",
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
        "forms and for the Highway tasks, else dummy",
        choices=["auto", "native", "dummy"],
        default="auto",
    )
    add_zoo_arguments(
        parser,
        n_episodes=1_000,
        n_episodes_help="number of episodes at each budget (default: %(default)s)",
        output_help="folder for the results (default: attacks/<attack>_sigma<S>/ beside the model; all: attacks/)",
        n_envs=None,
        n_envs_help="number of envs that play at once (default: 64, native: 1024)",
    )
    return parser


def check_numbers(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of the command; a -0 among them becomes 0
    :raises InputError: if a number cannot be used
    """
    args.sigma = _sigma(args.sigma)
    if not 0 <= args.q_threshold <= _LARGEST:
        raise InputError(f"--q-threshold must be a number from 0 to {_LARGEST:g}, not {args.q_threshold:g}")
    args.q_threshold = abs(args.q_threshold)
    for name in ("step_size", "multiplier"):
        value = getattr(args, name)
        if value is not None and not 0 < value <= _LARGEST:
            raise InputError(f"--{name.replace('_', '-')} must be a positive number up to {_LARGEST:g}, not {value:g}")
    if args.attack not in (LEARNED, ALL) and (args.adversary is not None or args.adversary_timesteps is not None):
        raise InputError("--adversary and --adversary-timesteps are for --attack learned and all")
    if args.attack not in (ROBUST_SARSA, ALL) and args.critic is not None:
        raise InputError("--critic is for --attack robust-sarsa and all")
    if args.attack not in (TRANSFER, ALL) and args.transfer_from is not None:
        raise InputError("--transfer-from is for --attack transfer and all")
    if args.adversary is not None and args.adversary_timesteps is not None:
        raise InputError("--adversary-timesteps is for an adversary that is trained now, not for --adversary")
    if args.adversary_timesteps is not None and args.adversary_timesteps < 1:
        raise InputError(f"--adversary-timesteps must be at least 1, not {args.adversary_timesteps}")
    _check_sizes(args)


def _check_sizes(args: argparse.Namespace) -> None:
    """Those that the threat model has, and no others."""
    if is_per_step(args.threat):
        if args.budget is not None or args.epsilon is None:
            raise InputError(f"--threat {args.threat} bounds each observation: give its bound with --epsilon, and no --budget")
        if args.spend is not None:
            raise InputError("--spend is for --threat episode-l2, whose budget can be spent once")
    elif args.epsilon is not None:
        raise InputError("--epsilon is for --threat step-l2 and step-linf")
    if args.attack == LEARNED and args.spend is not None:
        raise InputError("--spend is not for --attack learned, which has learned when to spend")
    if args.attack == LEARNED and args.eot:
        raise InputError("--eot is not for --attack learned, which has learned with the noise")
    if not 0 <= args.eot <= _MOST_DRAWS:
        raise InputError(f"--eot must be a number of draws from 0 to {_MOST_DRAWS}, not {args.eot}")
    for name in ("budget", "epsilon"):
        for size in getattr(args, name) or ():
            if not 0 <= size <= _LARGEST:
                raise InputError(f"--{name}: {name}s must be numbers from 0 to {_LARGEST:g}, not {size:g}")


def _sigma(words: list[str] | None) -> Sigma | None:
    """As ``evaluate`` reads it, but 0 is a sigma too."""
    if words is not None and len(words) == 1 and ":" not in words[0]:
        try:
            number = float(words[0])
        except ValueError:
            raise InputError(f"--sigma takes numbers, or KEY:NUMBER, not {words[0]}") from None
        if not 0 <= number <= _LARGEST:
            raise InputError(f"--sigma must be a number from 0 to {_LARGEST:g}, not {number:g}")
        return abs(number)
    sigma = parse_sigma(words)
    if isinstance(sigma, ShareOfDeviation):
        raise InputError("--sigma auto:SHARE is for evaluate: give the sigmas that it has told")
    return sigma
