"""
Play episodes of one fixed policy whose observations an adversary perturbs: ``python -m sb3_camp.attack``.

The command writes ``attack.json``, ``attack.csv`` and ``attack.png`` into ``attacks/<attack>_sigma<S>/`` in the run folder (or
beside the model file), and checks them against the certificate of the same policy, if there is one.
"""

import sys
from collections.abc import Sequence

from sb3_camp.attack_runs.arguments import command_parser
from sb3_camp.command_line import exit_status
from sb3_camp.evaluation.zoo_arguments import parse


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: Arguments of the command line, those of the process by default
    :return: exit status: 0, 2 for bad input, 3 if the returns contradict the certificate of the policy, 130 if interrupted
    """
    return exit_status("attack", lambda: _attack(argv))


def _attack(argv: Sequence[str] | None) -> None:
    args = parse(command_parser(), argv, _register)
    # Only now, as it takes seconds to import
    from sb3_camp.attack_runs.run_attack import run_attack

    run_attack(args)


def _register() -> None:
    import sb3_camp.zoo

    sb3_camp.zoo.register()


if __name__ == "__main__":
    sys.exit(main())
