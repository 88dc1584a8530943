"""The files of a certificate: JSON, CSV and a picture, which are one unit."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from sb3_camp.certification.certificate import Certificate, Quantity
from sb3_camp.certification.certificate_figure import certificate_figure
from sb3_camp.certification.picture_file import save_figure
from sb3_camp.certification.quantities_figure import quantities_figure
from sb3_camp.certification.recorded_bound import RecordedBound
from sb3_camp.files import Write, json_writer, write_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The columns behind radius and certified_return, so that a table that was moved away still says what it is of
_CSV_CONSTANTS = ("sigma", "alpha", "method", "n_episodes", "min_return", "env_id", "algo", "model_sha256")


def write_certificate(certificate: Certificate, folder: Path) -> list[Path]:
    """
    Write ``certificate.csv``, ``certificate.png`` and ``certificate.json``: all of them, or none if one cannot be written.

    :param certificate: The certificate
    :param folder: Where to, made if needed
    :return: the files
    :raises InputError: if they cannot be written
    """
    files = certificate_writers(certificate, folder)
    write_files(files)
    return list(files)


def certificate_writers(certificate: Certificate, folder: Path) -> dict[Path, Write]:
    """
    :param certificate: The certificate
    :param folder: Where to
    :return: the files of :func:`write_certificate`, with what writes each
    """
    return {
        folder / "certificate.csv": lambda file: file.write(_table(certificate).encode()),
        folder / "certificate.png": lambda file: save_figure(_figure(certificate), file),
        folder / "certificate.json": json_writer(certificate.as_json()),
    }


def _figure(certificate: Certificate) -> "Figure":
    has_more = certificate.quantities or certificate.recorded or certificate.per_step
    return quantities_figure(certificate) if has_more else certificate_figure([certificate])


def _table(certificate: Certificate) -> str:
    """The content of ``certificate.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    quantities: list[Quantity | RecordedBound] = [*certificate.quantities, *certificate.recorded]
    writer.writerow(["radius", "certified_return", *(one.name for one in quantities), *_CSV_CONSTANTS])
    constants = [getattr(certificate, name) for name in _CSV_CONSTANTS]
    columns = [certificate.radii, certificate.certified_return, *(one.certified for one in quantities)]
    writer.writerows([*row, *constants] for row in zip(*columns, strict=True))
    return text.getvalue()
