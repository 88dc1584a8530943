"""The main numbers of a certificate where a training is logged: TensorBoard, W&B, MLflow, by way of SB3's logger."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.rounded_text import exact

if TYPE_CHECKING:
    from stable_baselines3.common.logger import Logger

_SIGMAS = (0.0, 0.5, 1.0, 2.0)
_PREFIX = "certificate/"
_OTHER = re.compile(r"[^A-Za-z0-9_\-. :/]")
_LONGEST_NAME = len(_PREFIX) + 33


def logged_numbers(certificate: Certificate, radii: Sequence[float] | None = None) -> dict[str, float]:
    """
    :param certificate: A certificate
    :param radii: l2 radii in the units of the observations; default: 0, 1/2, 1 and 2 sigma
    :return: what :func:`log_certificate` logs, by name: ``certificate/certified_return_R`` for each radius R, the same for
        each of ``quantities`` (``certificate/probability_of_150_R``) and ``recorded`` (``certificate/crashed_any_at_most_R``),
        ``certificate/certified_radius_T`` for each target T (nan: not certified), and ``mean_return``, ``sigma``, ``alpha``,
        ``n_episodes`` and ``ceiling_radius``. Radii beyond the certificate are left out. Names hold letters, digits and
        ``_-. :/`` only: other characters of a recorded key become underscores
    """
    numbers = {
        "mean_return": certificate.mean_return,
        "sigma": certificate.sigma,
        "alpha": certificate.alpha,
        "n_episodes": certificate.n_episodes,
    }
    if certificate.ceiling is not None:
        numbers["ceiling_radius"] = certificate.ceiling.radius
    curves = {"certified_return": certificate.certified_return}
    curves |= {one.name: one.certified for one in certificate.quantities}
    curves |= {one.name: one.certified for one in certificate.recorded}
    for radius in [factor * certificate.sigma for factor in _SIGMAS] if radii is None else radii:
        index = certificate.index_at(radius)
        if index is not None:
            numbers |= {f"{name}_{exact(radius)}": values[index] for name, values in curves.items()}
    for target, reached in certificate.targets.items():
        numbers[f"certified_radius_{target}"] = math.nan if reached is None else reached
    return {f"{_PREFIX}{name}": value for name, value in zip(_accepted(list(numbers)), numbers.values(), strict=True)}


def _accepted(names: Sequence[str]) -> list[str]:
    """Names that MLflow accepts, distinct: of other characters than these, as in the key of a recorded entry, underscores."""
    accepted: list[str] = []
    for name in names:
        plain = _OTHER.sub("_", name)
        others = sum(_OTHER.sub("_", earlier) == plain for earlier in names[: len(accepted)])
        accepted.append(f"{plain}_no_{others + 1}" if others else plain)
    return accepted


def log_certificate(
    certificate: Certificate, logger: "Logger", radii: Sequence[float] | None = None, step: int | None = None
) -> None:
    """
    Log a certificate to wherever an SB3 logger writes: TensorBoard, CSV, and what watches TensorBoard (W&B) or is an output
    format of its own (MLflow).

    :param certificate: A certificate, see :func:`sb3_camp.certification.certificate.read_certificate`
    :param logger: The logger of a model (``model.logger``), or one of ``stable_baselines3.common.logger.configure``
    :param radii: l2 radii in the units of the observations; default: 0, 1/2, 1 and 2 sigma
    :param step: Where it stands on the axis of steps; default: the steps that the policy had been trained for, 0 if unknown
    """
    for name, value in logged_numbers(certificate, radii).items():
        # SB3's table cuts longer names, and fails where two become alike
        logger.record(name, value, exclude=("stdout", "log") if len(name) > _LONGEST_NAME else None)
    logger.dump(step if step is not None else certificate.timesteps or 0)
