"""Writing pictures: PNG, PDF or SVG, whole or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sb3_camp.errors import InputError
from sb3_camp.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (".png", ".pdf", ".svg")


def write_picture(figure: "Figure", path: Path) -> None:
    """
    Write a picture, whole or not at all, and never through a link.

    :param figure: A figure
    :param path: A file ending in ``.png``, ``.pdf`` or ``.svg``; its folder is made if needed
    :raises InputError: if the file has another ending, or cannot be written
    """
    kind = path.suffix.lower()
    if kind not in _ENDINGS:
        raise InputError(f"{path}: the picture must be a {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]} file")
    write_file(path, lambda file: save_figure(figure, file, kind[1:]))


def save_figure(figure: "Figure", file: BinaryIO, kind: str = "png") -> None:
    """
    :param figure: A figure
    :param file: Where its picture is written to
    :param kind: Format of the picture, as matplotlib calls it
    """
    from matplotlib import rc_context

    # Publishers refuse the Type 3 fonts that are matplotlib's default in PDF
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format=kind, dpi=150)
