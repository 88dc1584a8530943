"""
Play episodes of one fixed policy on noisy observations, for a certificate: ``python -m sb3_camp.evaluate``.

The command writes ``certification/evaluations.npz`` in the run folder (or beside the model file), in the zoo's format, with
all that ``python -m sb3_camp.certify`` needs to know.
"""

import argparse
import sys
from collections.abc import Sequence

from sb3_camp.command_line import CommandParser, exit_status, invocation
from sb3_camp.evaluation.sigma_argument import HELP as SIGMA_HELP
from sb3_camp.evaluation.zoo_arguments import N_ENVS, N_EPISODES, N_NATIVE_ENVS, add_zoo_arguments, parse


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command line
    """
    parser = CommandParser(
        prog="evaluate",
        usage=f"{invocation('evaluate')} --algo ALGO --env ENV [-f FOLDER | --model PATH --sigma S] [options]",
        description="Play exactly N independent episodes of one fixed policy on noisy observations, for a certificate.",
    )
    add_zoo_arguments(
        parser,
        n_episodes=None,
        n_episodes_help=f"number of episodes (default: {N_EPISODES}, on native CartPole 100000)",
        output_help="folder for the results (default: certification/ beside the model)",
        n_envs=None,
        n_envs_help=f"number of envs that play at once (default: {N_ENVS}, native: {N_NATIVE_ENVS}, subproc: one per core)",
        num_threads=None,
        num_threads_help="number of threads for PyTorch (-1: its default; default: 1, or PyTorch's for images)",
    )
    parser.add_argument(
        "--sigma",
        help=SIGMA_HELP,
        metavar="S",
        nargs="+",
    )
    parser.add_argument(
        "--vec-env",
        help="how the envs step: dummy one by one, subproc in a process each, native as one array, where the task has "
        "a vector environment of its own; auto (the default): native for CartPole in all its forms and for the Highway tasks, "
        "else dummy",
        type=str,
        default="auto",
        choices=["auto", "native", "dummy", "subproc"],
    )
    parser.add_argument(
        "--q-gap",
        help="also store minimum, mean and quantiles of the gap between the two highest action scores over all steps; for "
        "policies with Discrete actions that do not remember what they saw (DQN, QR-DQN, PPO, A2C, TRPO, ARS)",
        action="store_true",
    )
    parser.add_argument(
        "--record",
        help="also store these entries of info for each episode, to certify them too: success, crash, cost; the last value "
        "of an episode unless KEY:sum, KEY:max or KEY:any says otherwise",
        metavar="KEY[:REDUCTION]",
        nargs="+",
        action="extend",
        default=[],
    )
    until = parser.add_argument_group("stop as soon as a return is certified, at looks that are planned beforehand")
    until.add_argument("--until", help="the expected return to certify, and the l2 radius: 150@0.4", metavar="TARGET@RADIUS")
    until.add_argument("--max-episodes", help="number of episodes at the last look", type=int)
    until.add_argument("--looks", help="number of looks, which share alpha (default: 5)", type=int)
    until.add_argument("--alpha", help="of all looks together (default: 0.05)", type=float)
    until.add_argument("--min-return", help="a return that no episode can fall below, as for certify", type=float)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 2 for bad input, 130 if interrupted
    """
    return exit_status("evaluate", lambda: _evaluate(argv), interrupted="the same command with --resume continues")


def _evaluate(argv: Sequence[str] | None) -> None:
    args = parse(command_parser(), argv, _register)
    # Only now, as it takes seconds to import
    from sb3_camp.evaluation.run_evaluation import run_evaluation

    run_evaluation(args)


def _register() -> None:
    from rl_zoo3.utils import ALGOS
    from sb3_contrib import MaskablePPO

    import sb3_camp.zoo

    sb3_camp.zoo.register()
    # Of sb3-contrib's algorithms the only one that the zoo has not: it can be played, though not trained by the zoo
    ALGOS.setdefault("ppo_mask", MaskablePPO)


if __name__ == "__main__":
    sys.exit(main())
