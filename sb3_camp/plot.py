"""
``python -m sb3_camp.plot``: results of several runs on one picture, and side by side in a table.

``python -m sb3_camp.plot certificate`` draws certificates. From Python:
:func:`sb3_camp.certification.figures.certificate_figure`.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.certificate import read_certificate, write_picture
from sb3_camp.certification.figures import (
    certificate_figure,
    check_one_environment,
    default_labels,
    differing_settings,
)
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plot",
        usage="python -m sb3_camp.plot {certificate} ...",
        description="Lay the results of several runs on one picture.",
    )
    kinds = parser.add_subparsers(title="what to draw", required=True, metavar="{certificate}")
    certificate = kinds.add_parser(
        "certificate",
        help="certified returns over the l2 norm of the attack",
        usage="python -m sb3_camp.plot certificate PATH [PATH ...] [options]",
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
    return parser


def value_at(certificate: dict[str, Any], radius: float) -> float | None:
    """
    The certified return at any radius: the value at the next radius of the certificate, which holds for all smaller ones.

    :param certificate: a certificate
    :param radius: l2 radius in the units of the observations
    :return: the certified return, None beyond the last radius of the certificate
    """
    index = int(np.searchsorted(certificate["radii"], radius, side="left"))
    return certificate["certified_return"][index] if index < len(certificate["radii"]) else None


def _plot_certificates(args: argparse.Namespace) -> None:
    files = [_certificate_file(path) for path in args.paths]
    certificates = [read_certificate(file) for file in files]
    check_one_environment(certificates, list(map(str, files)))
    figure = certificate_figure(certificates, args.labels, pixels=args.pixels, by=args.by)
    write_picture(figure, args.output)
    labels = args.labels or default_labels(certificates, pixels=args.pixels)
    if args.labels and args.by:  # which need not tell the panels apart
        labels = [f"{label}, sigma {one['sigma']:g}" for label, one in zip(labels, certificates, strict=True)]
    _print_table(certificates, labels, args.pixels)
    print(f"Written: {args.output}")


def _certificate_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for file in (path / "certification" / "certificate.json", path / "certificate.json"):
        if file.is_file():
            return file
    raise InputError(f"{path}: no certificate.json in it: make one with python -m sb3_camp.certify {path}")


def _print_table(certificates: list[dict[str, Any]], labels: list[str], pixels: bool) -> None:
    for index, (label, certificate) in enumerate(zip(labels, certificates, strict=True), start=1):
        confidence = f"{100 * (1 - certificate['alpha']):g} %"
        print(f"[{index}] {label}: {certificate['n_episodes']} episodes, {certificate['method']}, confidence {confidence}")
    differing = differing_settings(certificates)
    if differing:
        print(f"They differ in: {', '.join(differing)}")
    head = "radius/255" if pixels else "radius"
    print("\ncertified return\n" + f"{head:>12}" + "".join(f"{f'[{index + 1}]':>12}" for index in range(len(labels))))
    widest = max((certificate["radii"] for certificate in certificates), key=lambda radii: radii[-1])
    # Radii of one of the certificates, so that equal grids show their own values
    indices = np.unique(np.linspace(0, len(widest) - 1, 13).round().astype(int))
    for radius in (widest[index] for index in indices):
        values = (value_at(certificate, radius) for certificate in certificates)
        # A bound is rounded down
        cells = ("-" if value is None else f"{math.floor(1000 * value) / 1000:.3f}" for value in values)
        print(f"{radius / 255 if pixels else radius:12.6g}" + "".join(f"{cell:>12}" for cell in cells))


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 130 if interrupted
    """
    args = _parser().parse_args(argv)
    return exit_status("plot", lambda: args.command(args))


if __name__ == "__main__":
    sys.exit(main())
