"""The best of several evaluations at each radius, as a record, and its files: ``frontier.json``, ``.csv`` and a picture."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_camp.certification.assumptions import Evidence
from sb3_camp.certification.build import certificate_of
from sb3_camp.certification.certificate import Certificate, parse_certificate
from sb3_camp.certification.certificate_entries import is_number
from sb3_camp.certification.certificate_figure import certificate_figure, check_one_environment, default_labels, draw_curve
from sb3_camp.certification.picture_file import save_figure
from sb3_camp.certification.rounded_text import confidence, exact
from sb3_camp.errors import InputError
from sb3_camp.files import Write, json_writer, read_json, write_files
from sb3_camp.runs.layers import is_smoothing_noise
from sb3_camp.runs.scenario import wrapper_entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRONTIER_FORMAT = "sb3_camp-frontier-1"


@dataclass(frozen=True)
class CertifiedFrontier:
    """
    Certificates that hold together, and the best of them at each radius.

    :param alpha: Any of the certificates is wrong with at most this probability; each has its share
    :param certificates: The certificates, all at the same radii
    """

    alpha: float
    certificates: list[Certificate]

    @property
    def radii(self) -> list[float]:
        """l2 radii in the units of the observations, ascending."""
        return self.certificates[0].radii

    @property
    def best(self) -> list[int]:
        """Which certificate is the highest at each radius, counted from 0; the first of equals."""
        return [int(index) for index in np.argmax([one.certified_return for one in self.certificates], axis=0)]

    @property
    def certified_return(self) -> list[float]:
        """The highest certified return at each radius."""
        return [self.certificates[index].certified_return[row] for row, index in enumerate(self.best)]

    def as_json(self) -> dict[str, Any]:
        """
        :return: what ``frontier.json`` holds
        """
        return {
            "format": FRONTIER_FORMAT,
            "alpha": self.alpha,
            "radii": self.radii,
            "certified_return": self.certified_return,
            "best": self.best,
            "certificates": [one.as_json() for one in self.certificates],
        }


def read_frontier(path: str | Path) -> CertifiedFrontier:
    """
    :param path: A ``frontier.json``
    :return: its content
    :raises InputError: if it cannot be read or is not a sound frontier
    """
    path = Path(path)
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FRONTIER_FORMAT:
        raise InputError(f"{path}: not a frontier of the format {FRONTIER_FORMAT}")
    alpha, parts = content.get("alpha"), content.get("certificates")
    if alpha is None or not is_number(alpha) or not 0 < alpha < 1 or not isinstance(parts, list) or not parts:
        raise InputError(f"{path}: a frontier has an alpha in (0, 1) and one or more certificates")
    certificates = [parse_certificate(part, f"{path}, certificate {number}") for number, part in enumerate(parts, start=1)]
    frontier = CertifiedFrontier(alpha, certificates)
    if any(one.radii != frontier.radii for one in certificates):
        raise InputError(f"{path}: its certificates are not at the same radii")
    if sum(one.alpha for one in certificates) > alpha * (1 + 1e-9):
        raise InputError(f"{path}: its certificates take more alpha than {exact(alpha)}, which they share")
    names = [f"{path}, certificate {number}" for number in range(1, len(certificates) + 1)]
    check_one_environment([one.env_id for one in certificates], names)
    _check_one_scale(names, certificates)
    for name in ("radii", "certified_return", "best"):
        if content.get(name) != getattr(frontier, name):
            raise InputError(f"{path}: {name} is not that of its certificates")
    return frontier


def build_frontier(
    evidences: Sequence[Evidence],
    supports: Sequence[list[float] | None],
    radii: np.ndarray,
    *,
    alpha: float,
    method: str,
) -> CertifiedFrontier:
    """
    Certify evaluations together: each at alpha / K (see :func:`sb3_camp.certification.certified_frontier`).

    :param evidences: K evaluations of one environment, listed before they were played
    :param supports: for ``"clopper-pearson"``, the thresholds of each
    :param radii: l2 radii in the units of the observations, ascending
    :param alpha: any of the certificates is wrong with at most this probability
    :param method: see :func:`sb3_camp.certification.certified_return`
    :return: the certificates, and the best of them at each radius
    :raises InputError: for an alpha outside (0, 1), if one evaluation is there twice, or if they are not of one environment in
        the same units with the same entries covered
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    names = [str(evidence.logs[0].path) for evidence in evidences]
    seen: dict[str, str] = {}
    for evidence in evidences:
        for log in evidence.logs:
            if log.sha256 in seen:
                raise InputError(f"{log.path}: the same episodes as in {seen[log.sha256]}")
            seen[log.sha256] = str(log.path)
    certificates = [
        certificate_of(evidence, radii, alpha=alpha / len(evidences), method=method, support=support)
        for evidence, support in zip(evidences, supports, strict=True)
    ]
    check_one_environment([one.env_id for one in certificates], names, "an evaluation in")
    _check_one_scale(names, certificates)
    return CertifiedFrontier(alpha, certificates)


def _check_one_scale(names: Sequence[str], certificates: Sequence[Certificate]) -> None:
    """Refuse radii in different units: a radius must stand for the same perturbations in all the evaluations."""
    for name, one in zip(names, certificates, strict=True):
        first = certificates[0]
        if one.sensor_sigma != first.sensor_sigma:
            raise InputError(
                f"{name}: its sigma of each sensor is not that of {names[0]}, and radii are in units of it, so they cannot be "
                "compared"
            )
        for what, mine, others in (
            ("clean_keys", one.clean_keys, first.clean_keys),
            ("pixels", one.pixels, first.pixels),
            ("wrappers inside of the noise", _inside_noise(one), _inside_noise(first)),
        ):
            if mine != others and mine is not None and others is not None:
                raise InputError(
                    f"{name}: its {what}: {mine}, those of {names[0]}: {others}, so their radii may be in different units and "
                    "cannot be compared"
                )


def _inside_noise(certificate: Certificate) -> list[tuple[str, Any]] | None:
    """The wrappers between the environment and the noise, which the noise is in the units of; None if unknown."""
    if certificate.env_wrappers is None:
        return None
    entries = wrapper_entries(certificate.env_wrappers)
    noise = next((i for i, (name, _) in enumerate(entries) if is_smoothing_noise(name)), 0)
    return entries[:noise]


def write_frontier(frontier: CertifiedFrontier, folder: Path) -> list[Path]:
    """
    Write ``frontier.csv``, ``frontier.png`` and ``frontier.json``: all of them, or none if one cannot be written.

    :param frontier: the frontier
    :param folder: where to, made if needed
    :return: the files
    :raises InputError: if they cannot be written
    """
    files: dict[Path, Write] = {
        folder / "frontier.csv": lambda file: file.write(_table(frontier).encode()),
        folder / "frontier.png": lambda file: save_figure(frontier_figure(frontier), file),
        folder / "frontier.json": json_writer(frontier.as_json()),
    }
    write_files(files)
    return list(files)


def frontier_figure(frontier: CertifiedFrontier) -> "Figure":
    """
    :param frontier: the frontier
    :return: a figure with the curve of each evaluation and, under them, the best at each radius; not registered with pyplot
    """
    figure = certificate_figure(frontier.certificates)
    (axes,) = figure.axes
    style = {"color": "0.75", "linestyle": "-"}
    draw_curve(axes, frontier.radii, frontier.certified_return, "the best at each radius", style, 1)
    axes.get_lines()[-1].set(linewidth=8, zorder=0)
    axes.legend(fontsize="small")
    figure.suptitle(
        f"{frontier.certificates[0].method}, confidence {confidence(frontier.alpha)} for all curves together",
        fontsize="small",
    )
    return figure


def _table(frontier: CertifiedFrontier) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    labels = default_labels(frontier.certificates)
    writer.writerow(["radius", "certified_return", "best", "sigma", "alpha", *labels])
    curves = [one.certified_return for one in frontier.certificates]
    for row, (radius, value, best) in enumerate(zip(frontier.radii, frontier.certified_return, frontier.best, strict=True)):
        sigma = frontier.certificates[best].sigma
        writer.writerow([radius, value, labels[best], sigma, frontier.alpha, *(curve[row] for curve in curves)])
    return text.getvalue()
