"""
``python -m sb3_camp.plot``: results of several runs on one picture, and side by side in a table.

``python -m sb3_camp.plot certificate`` draws certificates, ``frontier`` the best of several that were certified together,
``attack`` mean returns under attack, and ``both`` a certificate and the attacks on the same agent. From Python:
:func:`sb3_camp.certification.certificate_figure.certificate_figure` and
:func:`sb3_camp.attack_runs.attack_figure.attack_figure`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sb3_camp.attack_runs.plot_commands import add_attack_command, add_both_command
from sb3_camp.certification.certificate import Certificate, read_certificate
from sb3_camp.certification.certificate_figure import (
    certificate_figure,
    check_one_environment,
    default_labels,
    differing_lines,
    not_covered,
)
from sb3_camp.certification.frontier_files import frontier_figure, read_frontier
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.printed_frontier import print_frontier
from sb3_camp.certification.rounded_text import confidence, exact, floor_decimals, floor_digits, quotient
from sb3_camp.certification.source_files import changed_logs
from sb3_camp.command_line import exit_status, invocation, spelled
from sb3_camp.errors import InputError
from sb3_camp.plugins import load_plugins

_ROWS = 12


def command_parser() -> argparse.ArgumentParser:
    """
    :return: parser of the command line
    """
    parser = argparse.ArgumentParser(
        prog="plot",
        usage=f"{invocation('plot')} {{certificate,frontier,attack,both}} ...",
        description="Lay the results of several runs on one picture.",
    )
    kinds = parser.add_subparsers(
        title="what to draw", required=True, metavar="{certificate,frontier,attack,both}", prog="plot"
    )
    certificate = kinds.add_parser(
        "certificate",
        help="certified returns over the l2 norm of the attack",
        usage=f"{invocation('plot')} certificate PATH [PATH ...] [options]",
        description="Lay the certificates of several runs on one picture.",
    )
    certificate.set_defaults(command=_plot_certificates)
    certificate.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="certificate.json, or a folder (of a run) that holds one"
    )
    certificate.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("certificates.png"),
        help="The picture: .png, .pdf or .svg (default: %(default)s)",
    )
    certificate.add_argument(
        "--labels", nargs="+", metavar="LABEL", help="One for each PATH (default: algorithm, env and noise)"
    )
    certificate.add_argument(
        "--pixels", action="store_true", help="Divide radii and sigma by 255, for images whose pixels are 0 to 255"
    )
    certificate.add_argument(
        "--by", choices=["sigma"], help="One panel per sigma; the same label has the same colour in all of them"
    )
    frontier = kinds.add_parser(
        "frontier",
        help="the best of several evaluations at each radius",
        usage=f"{invocation('plot')} frontier PATH [-o FILE]",
        description="Draw what certify --frontier found, and print it.",
    )
    frontier.set_defaults(command=_plot_frontier)
    frontier.add_argument("path", metavar="PATH", type=Path, help="frontier.json, or a folder that holds one")
    frontier.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("frontier.png"),
        help="The picture: .png, .pdf or .svg (default: %(default)s)",
    )
    add_attack_command(kinds)
    add_both_command(kinds)
    return parser


def _plot_certificates(args: argparse.Namespace) -> None:
    files = [_certificate_file(path) for path in args.paths]
    certificates = [read_certificate(file) for file in files]
    check_one_environment([certificate.env_id for certificate in certificates], list(map(str, files)))
    changed = [(file, log) for file, one in zip(files, certificates, strict=True) for log in changed_logs(one, file)]
    figure = certificate_figure(certificates, args.labels, pixels=args.pixels, by=args.by)
    write_picture(figure, args.output)
    labels = args.labels or default_labels(certificates, pixels=args.pixels)
    if args.labels and args.by:  # which need not tell the panels apart
        labels = [f"{label}, sigma {exact(one.sigma)}" for label, one in zip(labels, certificates, strict=True)]
    for file, log in changed:
        print(f"plot: warning: {file}: older than {log}, which has changed since: certify again", file=sys.stderr)
    _print_table(certificates, labels, args.pixels)
    print(f"Written: {args.output}")


def _plot_frontier(args: argparse.Namespace) -> None:
    file = args.path / "frontier.json" if args.path.is_dir() else args.path
    frontier = read_frontier(file)
    write_picture(frontier_figure(frontier), args.output)
    for log in (log for one in frontier.certificates for log in changed_logs(one, file)):
        print(f"plot: warning: {file}: older than {log}, which has changed since: certify again", file=sys.stderr)
    print_frontier(frontier, every=max(1, len(frontier.radii) // _ROWS))
    print(f"Written: {args.output}")


def _certificate_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for file in (path / "certification" / "certificate.json", path / "certificate.json"):
        if file.is_file():
            return file
    raise InputError(f"{path}: no certificate.json in it: make one with {spelled('certify')} {path}")


def _print_table(certificates: list[Certificate], labels: list[str], pixels: bool) -> None:
    for index, (label, certificate) in enumerate(zip(labels, certificates, strict=True), start=1):
        texts = [
            f"{certificate.n_episodes} episodes",
            certificate.method,
            f"confidence {confidence(certificate.alpha)}",
        ]
        print(f"[{index}] {label}: {', '.join([*texts, *not_covered(certificate)])}")
    for line in differing_lines(certificates):
        print(line)
    head = "radius/255" if pixels else "radius"
    print("\ncertified return\n" + f"{head:>12}" + "".join(f"{f'[{index + 1}]':>12}" for index in range(len(labels))))
    widest = max((certificate.radii for certificate in certificates), key=lambda radii: radii[-1])
    # Radii of one of the certificates, so that equal grids show their own values
    indices = np.unique(np.linspace(0, len(widest) - 1, 13).round().astype(int))
    for radius in (widest[index] for index in indices):
        values = (certificate.value_at(radius) for certificate in certificates)
        # A bound is rounded down, and a radius that is shown too small is on the safe side
        cells = ("-" if value is None else floor_decimals(value, 3) for value in values)
        print(f"{floor_digits(quotient(radius, 255 if pixels else 1), 6):>12}" + "".join(f"{cell:>12}" for cell in cells))


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 3 if attacks contradict a certificate, 130 if interrupted
    """
    load_plugins()
    args = command_parser().parse_args(argv)
    return exit_status("plot", lambda: args.command(args))


if __name__ == "__main__":
    sys.exit(main())
