"""What the command line of ``python -m sb3_camp.attack`` asks for: one attack, or all of them."""

import argparse

from sb3_camp.attack_names import ALL
from sb3_camp.attack_runs.arguments import check_numbers
from sb3_camp.attack_runs.attack_plan import check_name, find_victim, plan_attack
from sb3_camp.attack_runs.attack_suite import run_suite
from sb3_camp.attack_runs.single_attack import attack_into, compare_with_certificate, default_folder


def run_attack(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of the command, as :func:`sb3_camp.evaluation.zoo_arguments.parse` returns them
    :raises InputError: if they cannot be used
    :raises CertificateViolation: if the returns contradict the certificate of the policy
    """
    check_numbers(args)
    check_name(args.attack)
    victim = find_victim(args)
    if args.attack == ALL:
        run_suite(args, victim)
        return
    plan = plan_attack(args, victim, args.attack)
    folder = args.output or default_folder(plan)
    file = attack_into(folder, plan, args)
    compare_with_certificate(file, [victim.path.parent / "certification", folder])
