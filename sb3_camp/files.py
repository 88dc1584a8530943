"""
Reading and writing files: whole or not at all, never through a planted link, and never more than fits.

The folders that the commands read and write may come from elsewhere. So a temporary file is a new one with a name that nobody
can know beforehand, a result replaces whatever stands at its place (a link too, never what it points to), and only regular
files of a size that can be right are read.
"""

import contextlib
import hashlib
import io
import json
import os
import secrets
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sb3_camp.errors import InputError

MOST_BYTES = 2 * 1024**3
"""Larger logs and results are not read: a hundred million episodes take less."""

_MOST_UNPACKED = 4 * 1024**3
# What np.load and zipfile raise for damaged or hostile content, besides their own errors
_NPZ_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)

Write = Callable[[BinaryIO], object]


def write_files(files: Mapping[Path, Write]) -> None:
    """
    Write files that belong together: all of them, or none if one cannot be written (a full disk).

    :param files: For each file what writes its content. Their folders are made if needed. They appear in this order, so put
        the one that vouches for the others last
    :raises InputError: if a file cannot be written
    """
    with contextlib.ExitStack() as undo:
        written: list[tuple[Path, Path]] = []
        for path, write in files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # A new file ("x"), under a name that nobody could plant a link at
                temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
                with open(temporary, "xb") as file:
                    undo.callback(temporary.unlink, missing_ok=True)
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror or error}: choose another folder with -o") from error
            written.append((temporary, path))
        for temporary, path in written:
            try:
                os.replace(temporary, path)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror or error}: choose another folder with -o") from error


def write_file(path: Path, write: Write) -> None:
    """
    :param path: The file, written whole or not at all, see :func:`write_files`
    :param write: Writes its content
    :raises InputError: if it cannot be written
    """
    write_files({path: write})


def json_writer(value: Any) -> Write:
    """
    :param value: What JSON can hold; not a number that is not finite
    :return: what writes it as a JSON file
    """
    content = json_bytes(value)
    return lambda file: file.write(content)


def json_bytes(value: Any) -> bytes:
    """
    :param value: What JSON can hold; not a number that is not finite
    :return: the content of its file
    """
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def npz_writer(entries: Mapping[str, Any]) -> Write:
    """
    :param entries: Arrays and scalars by name, nothing that NumPy would pickle
    :return: what writes them as a compressed npz file
    """

    def write(file: BinaryIO) -> None:
        for name, value in entries.items():
            if np.asarray(value).dtype.hasobject:
                raise TypeError(f"{name} would be pickled: {value!r}")
        # NumPy's stub takes the names for its own arguments
        np.savez_compressed(file, **entries)  # type: ignore[arg-type]

    return write


def check_writable(folder: Path) -> None:
    """
    Make the folder, and find out before any long work whether files can be written there.

    :param folder: A folder
    :raises InputError: if not
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror or error}: choose another folder with -o") from error


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """
    A context in which no other command of this package writes results into the folder, which is made if needed.

    The folder itself is locked, so that nothing is left behind when a command is killed. Where the system has no such lock
    (Windows, some network drives) nothing is checked.

    :param folder: A folder
    :raises InputError: if another command writes there now, or if the folder cannot be written
    """
    check_writable(folder)
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another command writes its results there now, so this one changed nothing: wait until it has "
                "ended, or choose another folder with -o"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """
    :param path: A file
    :param most: Number of bytes that it may have
    :return: its content
    :raises InputError: if it cannot be read, is no regular file (a device, a pipe), or is larger
    """
    try:
        # Without waiting for the other end of a pipe
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{path}: not a regular file")
            if status.st_size > most:
                raise InputError(f"{path}: {status.st_size} bytes, more than the {most} that such a file can have")
            # Not read(most), which would set aside as much memory before it reads
            return file.read(status.st_size)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def sha256(content: bytes) -> str:
    """
    :param content: Any bytes
    :return: their SHA-256, in hexadecimal digits
    """
    return hashlib.sha256(content).hexdigest()


def read_json(path: Path) -> Any:
    """
    :param path: A JSON file
    :return: its content; ``Infinity`` and ``NaN``, which Python writes though JSON has none, are refused
    :raises InputError: if it cannot be read, or is not JSON
    """
    content = read_bytes(path, most=256 * 1024**2)
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None


def read_npz(path: Path, content: bytes, wanted: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """
    Read plain arrays from an npz file. Nothing is unpickled, and members that nobody wants are not unpacked.

    :param path: The file, for messages
    :param content: Its content
    :param wanted: Names of the arrays to read if they are there, None for all
    :return: the arrays by name
    :raises InputError: if the file is damaged, holds anything else under a wanted name, or would take too much memory
    """
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.namelist()
            if len(set(members)) < len(members):
                raise InputError(f"{path}: damaged: it holds an array of one name more than once")
            left = _MOST_UNPACKED
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if wanted is not None and name not in wanted:
                    continue
                if not member.filename.endswith(".npy"):
                    raise InputError(f"{path}: damaged, or not an npz file of plain arrays: {name!r} is none")
                left -= member.file_size
                if left < 0:
                    raise InputError(f"{path}: its arrays take more than {_MOST_UNPACKED} bytes of memory")
                # The whole member, so that its checksum, which covers the header too, is compared
                with archive.open(member) as file:
                    unpacked = file.read(member.file_size + 1)
                arrays[name] = np.lib.format.read_array(io.BytesIO(unpacked), allow_pickle=False)
    except InputError:
        raise
    except _NPZ_ERRORS as error:
        raise InputError(f"{path}: damaged, or not an npz file of plain arrays: {' '.join(str(error).split())}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged, or not an npz file: {error}") from None
    return arrays


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")
