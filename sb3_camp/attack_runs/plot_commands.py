"""The pictures of attacks that ``python -m sb3_camp.plot`` draws: ``attack`` and ``both``."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.attack_runs.agent_results import attack_files, find_results, print_verdict
from sb3_camp.attack_runs.attack_figure import attack_figure, check_attacks, default_labels, differing_settings
from sb3_camp.attack_runs.attack_files import read_attack
from sb3_camp.attack_runs.attack_result import AttackResult
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.rounded_text import floor_decimals, quotient
from sb3_camp.command_line import invocation, spelled
from sb3_camp.errors import InputError
from sb3_camp.threat_models import size_name

_PIXEL = 255


def add_attack_command(kinds: Any) -> None:
    """
    :param kinds: The sub-commands of ``plot``, what ``add_subparsers`` returned
    """
    parser = kinds.add_parser(
        "attack",
        help="mean returns over the budget of the attack",
        usage=f"{invocation('plot')} attack PATH [PATH ...] [options]",
        description="Lay the returns of several agents, or under several attacks, on one picture.",
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="attack.json, or a folder (of a run) that holds some"
    )
    _add_picture_arguments(parser, "attacks.png")
    parser.set_defaults(command=plot_attacks)


def add_both_command(kinds: Any) -> None:
    """
    :param kinds: The sub-commands of ``plot``, what ``add_subparsers`` returned
    """
    parser = kinds.add_parser(
        "both",
        help="the certificate of an agent and its mean returns under attack",
        usage=f"{invocation('plot')} both PATH [PATH ...] [options]",
        description="Lay the certificate of an agent and its returns under attack on one picture. Exit status 3 tells that "
        "attacked episodes contradict the certificate.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="run folder, or other folders and files that hold one certificate.json and some attack.json",
    )
    _add_picture_arguments(parser, "both.png")
    parser.set_defaults(command=plot_both)


def _add_picture_arguments(parser: argparse.ArgumentParser, picture: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path(picture),
        help="The picture: .png, .pdf or .svg (default: %(default)s)",
    )
    parser.add_argument(
        "--labels", nargs="+", metavar="LABEL", help="One for each attack (default: algorithm, env, noise and attack)"
    )
    parser.add_argument(
        "--pixels", action="store_true", help="Divide budgets and sigma by 255, for images whose pixels are 0 to 255"
    )


def plot_attacks(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of ``plot attack``
    """
    read = []
    for path in args.paths:
        files = attack_files(path) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path}: no attack.json in it: make one with {spelled('attack')}")
        read += [(file, read_attack(file)) for file in files]
    contents = [attack for _, attack in read]
    check_attacks(contents, [str(file) for file, _ in read])
    write_picture(attack_figure(contents, args.labels, pixels=args.pixels), args.output)
    _print_table(contents, args.labels, args.pixels)
    print(f"Written: {args.output}")


def plot_both(args: argparse.Namespace) -> None:
    """
    :param args: Arguments of ``plot both``
    :raises CertificateViolation: after the picture has been written, if attacked episodes contradict the certificate
    """
    results = find_results(args.paths)
    if not results.attacks:
        reasons = "; ".join(results.left_out) or f"there is none: make one with {spelled('attack')}"
        raise InputError(f"no attack that is comparable with {results.file}: {reasons}")
    contents, certificate = results.contents, results.certificate
    figure = attack_figure(contents, args.labels, certificate=certificate, comparisons=results.comparisons, pixels=args.pixels)
    write_picture(figure, args.output)
    for text in results.left_out:
        print(f"Left out: {text}")
    _print_table(contents, args.labels, args.pixels, certificate)
    print(f"Written: {args.output}")
    print_verdict(results)


def _print_table(
    attacks: list[AttackResult],
    labels: list[str] | None,
    pixels: bool,
    certificate: Certificate | None = None,
) -> None:
    for index, (label, attack) in enumerate(
        zip(labels or default_labels(attacks, pixels=pixels), attacks, strict=True), start=1
    ):
        print(f"[{index}] {label}: {attack.settings.n_episodes} episodes per budget")
    differing = differing_settings(attacks)
    if differing:
        print(f"They differ in: {', '.join(differing)}")
    name = size_name(attacks[0].settings.threat)
    head = f"{f'{name}/255' if pixels else name:>12}" + ("" if certificate is None else f"{'certified':>12}")
    print(f"\nmean return ({attacks[0].confidence:.0%} confidence interval)\n{head}", end="")
    print("".join(f"{f'[{index + 1}]':>28}" for index in range(len(attacks))))
    for budget in np.unique([one.budget for attack in attacks for one in attack.budgets]).tolist():
        line = f"{quotient(budget, _PIXEL if pixels else 1):>12.6g}"
        if certificate is not None:
            certified = certificate.value_at(budget)
            line += f"{'-' if certified is None else floor_decimals(certified, 3):>12}"
        print(line + "".join(f"{_cell(attack, budget):>28}" for attack in attacks))


def _cell(attack: AttackResult, budget: float) -> str:
    for one in attack.budgets:
        if one.budget == budget:
            interval = one.confidence_interval
            return f"{one.mean_return:.2f}" + ("" if interval is None else f" ({interval[0]:.2f}, {interval[1]:.2f})")
    return "-"
