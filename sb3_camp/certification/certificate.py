"""A certificate: what was certified, from which episodes, under which assumptions. As JSON, CSV and a picture."""

import csv
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from sb3_camp.certification.bands import largest_ratio
from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.certificate_figure import certificate_figure
from sb3_camp.certification.episode_logs import EpisodeLog
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CERTIFICATE_FORMAT = "sb3_camp-certificate-1"
_PICTURES = (".png", ".pdf", ".svg")


def build_certificate(
    logs: Sequence[EpisodeLog],
    sigma: float,
    radii: Sequence[float] | np.ndarray,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: Sequence[float] | None = None,
    targets: Sequence[float] = (),
    sigma_assumed: bool = False,
) -> dict[str, Any]:
    """
    Certify the pooled episodes of logs (see :func:`sb3_camp.certification.certified_return`).

    :param logs: what :func:`sb3_camp.certification.pooling.read_logs` returned, so that pooling is sound
    :param sigma: standard deviation of the noise on the observations, in their units
    :param radii: l2 radii in the units of the observations, ascending
    :param alpha: the certificate is wrong with at most this probability
    :param method: ``"berk-jones"``, ``"dkw"`` or ``"clopper-pearson"``
    :param min_return: a return that no episode can fall below
    :param support: for ``"clopper-pearson"``, the returns that are possible
    :param targets: returns whose largest certified radius is wanted too
    :param sigma_assumed: whether neither the logs nor the run folder tells sigma
    :return: the content of ``certificate.json``
    :raises InputError: if a return is below ``min_return``, a target is not above it, or the bound cannot be computed
    """
    for log in logs:
        if log.returns.min() < min_return:
            raise InputError(
                f"{log.path}: holds the return {log.returns.min():g}, below {min_return:g}: pass the lowest return that any "
                "episode of this task can have with --min-return"
            )
    for target in targets:
        if not target > min_return:
            raise InputError(f"the target {target:g} is not above the lowest return that an episode can have, {min_return:g}")
    returns = np.concatenate([log.returns for log in logs])
    options: dict[str, Any] = {"alpha": alpha, "method": method, "min_return": min_return, "support": support}
    curve = certified_return(returns, sigma, radii, **options)
    reached = {exact(target): certified_radius(returns, sigma, target, **options) for target in targets}
    n_thresholds = None if support is None else max(1, len({value for value in support if value > min_return}))
    ratio = largest_ratio(len(returns), alpha, method, n_thresholds)
    first = logs[0]
    return {
        "format": CERTIFICATE_FORMAT,
        "env_id": first.env_id,
        "env_kwargs": first.env_kwargs,
        "env_wrappers": first.env_wrappers,
        "algo": first.algo,
        "model": first.model,
        "model_sha256": first.model_sha256,
        "timesteps": first.timesteps,
        "deterministic": first.deterministic,
        "sigma": sigma,
        "sigma_assumed": sigma_assumed,
        "clean_keys": first.clean_keys,
        "method": method,
        "alpha": alpha,
        "min_return": min_return,
        "support": None if support is None else [float(value) for value in support],
        "n_episodes": len(returns),
        "mean_return": float(returns.mean()),
        "radii": [float(radius) for radius in radii],
        "certified_return": [float(value) for value in curve],
        "ceiling": {"ratio": ratio, "radius": ratio * sigma},
        "targets": {target: None if math.isnan(radius) else radius for target, radius in reached.items()},
        "sources": [_source(log) for log in logs],
        "versions": {
            "sb3_camp": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    }


def _source(log: EpisodeLog) -> dict[str, Any]:
    source: dict[str, Any] = {"path": str(log.path), "sha256": log.sha256, "episodes": len(log.returns)}
    return source if log.q_gap is None else {**source, "q_gap": log.q_gap}


def write_certificate(certificate: dict[str, Any], folder: Path) -> list[Path]:
    """
    Write ``certificate.csv``, ``certificate.png`` and ``certificate.json``, each whole or not at all.

    :param certificate: what :func:`build_certificate` returned
    :param folder: where to, made if needed
    :return: the files
    """
    folder.mkdir(parents=True, exist_ok=True)

    def write_csv(path: Path) -> None:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["radius", "certified_return"])
            writer.writerows(zip(certificate["radii"], certificate["certified_return"], strict=True))

    def write_json(path: Path) -> None:
        path.write_text(json.dumps(certificate, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    files = {
        folder / "certificate.csv": write_csv,
        folder / "certificate.png": lambda path: save_figure(certificate_figure([certificate]), path),
        folder / "certificate.json": write_json,
    }
    for path, write in files.items():
        replace_file(path, write)
    return list(files)


def write_picture(figure: "Figure", path: Path) -> None:
    """
    Write a picture, whole or not at all.

    :param figure: what :func:`sb3_camp.certification.certificate_figure.certificate_figure` returned
    :param path: a file ending in ``.png``, ``.pdf`` or ``.svg``; its folder is made if needed
    :raises InputError: if the file has another ending
    """
    if path.suffix.lower() not in _PICTURES:
        raise InputError(f"{path}: the picture must be a {', '.join(_PICTURES[:-1])} or {_PICTURES[-1]} file")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda partial: save_figure(figure, partial))


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """
    Write a file, whole or not at all.

    :param path: the file
    :param write: writes it to a path of the same ending
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def save_figure(figure: "Figure", path: Path) -> None:
    """
    :param figure: a figure
    :param path: the picture, of any ending that matplotlib knows
    """
    from matplotlib import rc_context

    # Publishers refuse the Type 3 fonts that are matplotlib's default in PDF
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, dpi=150)


def value_at(certificate: dict[str, Any], radius: float) -> float | None:
    """
    The certified return at any radius: the value at the next radius of the certificate, which holds for all smaller ones.

    :param certificate: a certificate
    :param radius: l2 radius in the units of the observations
    :return: the certified return, None beyond the last radius of the certificate
    """
    index = int(np.searchsorted(certificate["radii"], radius, side="left"))
    return certificate["certified_return"][index] if index < len(certificate["radii"]) else None


def read_certificate(path: str | Path) -> dict[str, Any]:
    """
    :param path: a ``certificate.json``
    :return: its content
    :raises InputError: if it is not a sound certificate
    """
    path = Path(path)
    try:
        certificate = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
    if not isinstance(certificate, dict) or certificate.get("format") != CERTIFICATE_FORMAT:
        raise InputError(f"{path}: not a certificate of the format {CERTIFICATE_FORMAT}")
    for key in ("sigma", "alpha", "min_return", "mean_return", "n_episodes"):
        if not is_number(certificate.get(key)):
            raise InputError(f"{path}: {key} must be a number, not {certificate.get(key)!r}")
    for key in ("radii", "certified_return"):
        if not isinstance(certificate.get(key), list) or not all(map(is_number, certificate[key])):
            raise InputError(f"{path}: {key} must be a list of numbers")
    radii = certificate["radii"]
    if not radii or len(radii) != len(certificate["certified_return"]) or any(np.diff(radii) <= 0):
        raise InputError(f"{path}: radii must ascend and have one certified_return each")
    curve = np.array(certificate["certified_return"])
    if radii[0] < 0 or any(np.diff(curve) > 1e-9 * np.abs(curve).max()):  # rounding
        raise InputError(f"{path}: radii must be at least 0, and certified_return must not rise with them")
    for key, sound in (("sigma", certificate["sigma"] > 0), ("alpha", 0 < certificate["alpha"] < 1)):
        if not sound:
            raise InputError(f"{path}: {key} cannot be {certificate[key]}")
    if not isinstance(certificate.get("method"), str):
        raise InputError(f"{path}: method must be a text")
    _check_origin(path, certificate)
    return certificate


def _check_origin(path: Path, certificate: dict[str, Any]) -> None:
    for key in ("env_kwargs", "env_wrappers"):
        if not isinstance(certificate.get(key), dict | None):
            raise InputError(f"{path}: {key} must be an object or null")
    clean_keys, sources = certificate.get("clean_keys"), certificate.get("sources")
    if not isinstance(clean_keys, list | None) or not all(isinstance(key, str) for key in clean_keys or ()):
        raise InputError(f"{path}: clean_keys must be a list of texts or null")
    if not isinstance(sources, list) or not all(map(_is_source, sources)):
        raise InputError(f"{path}: sources must be a list of objects that have the texts path and sha256")


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("path"), str) and isinstance(value.get("sha256"), str)


def is_number(value: Any) -> bool:
    """
    :param value: a value from a JSON file
    :return: whether it is a finite number
    """
    # Python reads an integer of any size, which no float can hold
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
