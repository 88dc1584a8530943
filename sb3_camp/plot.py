"""``python -m sb3_camp.plot``: the certificates of several runs on one picture, and side by side in a table."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.certificate import curve_label, draw_certificates, read_certificate
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plot",
        usage="python -m sb3_camp.plot PATH [PATH ...] [options]",
        description="Lay the certificates of several runs on one picture.",
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="certificate.json, or a folder (of a run) that holds one"
    )
    parser.add_argument("-o", "--output", metavar="FILE.png", type=Path, default=Path("certificates.png"), help="The picture")
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="One for each PATH (default: algorithm, env and noise)")
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


def _plot(args: argparse.Namespace) -> None:
    if args.output.suffix != ".png":
        raise InputError(f"{args.output}: the picture must be a .png file")
    files = [_certificate_file(path) for path in args.paths]
    certificates = [read_certificate(file) for file in files]
    for file, certificate in zip(files, certificates, strict=True):
        one, other = certificates[0].get("env_id"), certificate.get("env_id")
        if one != other:
            raise InputError(f"{file}: a certificate for {other}, not comparable with {files[0]} for {one}")
    labels = args.labels or _distinct([curve_label(certificate) for certificate in certificates])
    if len(labels) != len(files):
        raise InputError(f"--labels: {len(labels)} for {len(files)} certificates")
    if len(set(labels)) < len(labels):
        raise InputError("--labels must be distinct")
    named = dict(zip(labels, certificates, strict=True))
    draw_certificates(named, args.output)
    _print_table(named)
    print(f"Written: {args.output}")


def _certificate_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for file in (path / "certification" / "certificate.json", path / "certificate.json"):
        if file.is_file():
            return file
    raise InputError(f"{path}: no certificate.json in it: make one with python -m sb3_camp.certify {path}")


def _distinct(labels: list[str]) -> list[str]:
    """Number the labels that occur more than once."""
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: index + 1].count(label)})"
        for index, label in enumerate(labels)
    ]


def _print_table(named: dict[str, dict[str, Any]]) -> None:
    for index, (label, certificate) in enumerate(named.items(), start=1):
        confidence = f"{100 * (1 - certificate['alpha']):g} %"
        print(f"[{index}] {label}: {certificate['n_episodes']} episodes, {certificate['method']}, confidence {confidence}")
    print("\ncertified return\n" + f"{'radius':>12}" + "".join(f"{f'[{index + 1}]':>12}" for index in range(len(named))))
    widest = max((certificate["radii"] for certificate in named.values()), key=lambda radii: radii[-1])
    # Radii of one of the certificates, so that equal grids show their own values
    indices = np.unique(np.linspace(0, len(widest) - 1, 13).round().astype(int))
    for radius in (widest[index] for index in indices):
        values = (value_at(certificate, radius) for certificate in named.values())
        # A bound is rounded down
        cells = ("-" if value is None else f"{math.floor(1000 * value) / 1000:.3f}" for value in values)
        print(f"{radius:12.6g}" + "".join(f"{cell:>12}" for cell in cells))


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 130 if interrupted
    """
    args = _parser().parse_args(argv)
    return exit_status("plot", lambda: _plot(args))


if __name__ == "__main__":
    sys.exit(main())
