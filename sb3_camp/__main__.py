"""``sb3-camp`` and ``python -m sb3_camp``: the commands of the package under one name."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from sb3_camp.command_line import INTERRUPTED
from sb3_camp.version import __version__

COMMANDS = {
    "evaluate": "play fresh episodes of one fixed policy on noisy observations",
    "certify": "from the log of such an evaluation to a certificate: how much return no attack can take away",
    "attack": "play episodes whose observations an adversary perturbs, and compare them with the certificate",
    "plot": "certificates and attacks of several runs on one picture, and side by side in a table",
    "report": "one HTML file on an agent for whoever signs: what is certified, from what, and what not",
    "card": "a folder for a model hub: the agent, its certificate and a model card; uploaded if you ask for it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status of the command, see there
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and argv[0] in COMMANDS:
        # Each has its own arguments; evaluate and attack need seconds to load, so nothing is loaded for a mere overview
        try:
            return int(import_module(f"sb3_camp.{argv[0]}").main(argv[1:]))
        except KeyboardInterrupt:  # while it is loaded: what a command does, it ends itself
            print(f"{argv[0]}: interrupted", file=sys.stderr)
            return INTERRUPTED
    parser = argparse.ArgumentParser(
        prog="sb3-camp",
        usage="sb3-camp COMMAND [arguments]",
        description="Certified robust reinforcement learning with Stable-Baselines3 and RL Zoo.",
        epilog="sb3-camp COMMAND --help explains the arguments of a command. Training and search are the zoo's own: "
        "python -m rl_zoo3.train --algo camp_dqn ...",
    )
    parser.add_argument("--version", action="version", version=f"sb3_camp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    parser.parse_args(argv)
    raise AssertionError("argparse ends the process where there is no command")


if __name__ == "__main__":
    sys.exit(main())
