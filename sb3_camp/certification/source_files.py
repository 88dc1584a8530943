"""The logs that a certificate names as its sources, found again where they lie now."""

from collections.abc import Iterator
from pathlib import Path

from sb3_camp.certification.certificate import Certificate, Source
from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes, sha256


def found_above(named: str, file: Path) -> Iterator[Path]:
    """
    Where a file may lie that a certificate names by a path relative to the folder in which a command ran, which is usually
    above the certificate.

    :param named: The path that stands in the certificate
    :param file: The certificate
    :return: candidates, the closest to the certificate first
    """
    path = Path(named)
    yield from (folder / path for folder in file.resolve().parents)
    yield path


def unchanged_log(source: Source, file: Path) -> Path | None:
    """
    :param source: A source of a certificate
    :param file: The certificate
    :return: the log, None if it is gone or is not what it was
    """
    beside = file.resolve().parent / Path(source.path).name
    for place in (beside, *found_above(source.path, file)):
        try:
            if place.is_file() and sha256(read_bytes(place)) == source.sha256:
                return place
        except (InputError, OSError):
            return None
    return None


def changed_logs(certificate: Certificate, file: Path) -> Iterator[Path]:
    """
    :param certificate: A certificate
    :param file: Where it was read
    :return: its logs that are not what they were when it was made, as far as they can be found
    """
    for source in certificate.sources:
        log = next((log for log in found_above(source.path, file) if log.is_file()), None)
        if log is not None and sha256(read_bytes(log)) != source.sha256:
            yield log
