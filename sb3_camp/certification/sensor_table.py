"""What a radius stands for in each sensor: one large deviation, or a small one that stays for the whole episode."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.rounded_text import floor_digits
from sb3_camp.text import printable

MOST_ROWS = 40
"""Of more sensors than these, people are shown the first."""


class Sensor(NamedTuple):
    """
    What of a single sensor has the l2 norm of one sigma; at other radii it is in proportion.

    With T steps, a deviation d at one step has the norm d / sigma in units of sigma, and the constant offset d at all steps
    d / sigma * sqrt(T) (the l2 norm over the episode).

    :param name: Its place in the observation, such as ``[2]`` or ``lidar[0]``; empty where all sensors have the same noise
    :param deviation: Deviation at a single step: sigma of the sensor, in its units; 0 for one without noise, not covered
    :param offset: Offset at all T steps, in the same units
    """

    name: str
    deviation: float
    offset: float


def most_steps(certificate: Certificate) -> tuple[int, str]:
    """
    How long an offset lasts: to the end of the longest episode that there can be, for an attack may make episodes longer.

    :param certificate: the certificate
    :return: the step limit; where none is known, what the user gave for it, or else the length of the longest of the episodes,
        0 where that is not known either; and in words which of these it is
    """
    if certificate.step_limit is not None:
        return certificate.step_limit, f"{certificate.step_limit} steps that an episode can have"
    if certificate.per_step is not None:  # of an older version, whose logs told the limit, or of the user
        limit, assumed = certificate.per_step.steps, certificate.per_step.steps_assumed
        return limit, f"{limit} steps that an episode can have{' (assumed: --steps)' if assumed else ''}"
    seen = certificate.longest_episode or 0
    return seen, f"{seen} steps of the longest episode seen (an attack may make episodes longer, which then allow less)"


def sensors(certificate: Certificate) -> list[Sensor]:
    """
    :param certificate: the certificate; T is that of :func:`most_steps`
    :return: its sensors, a single one without a name where all have the same noise; empty for images, and where the length of
        the episodes is not known
    """
    steps, _ = most_steps(certificate)
    if not steps or certificate.pixels:
        return []
    sigma = certificate.sigma if certificate.sensor_sigma is None else certificate.sensor_sigma
    root = math.sqrt(steps)
    return [Sensor(name, deviation, deviation / root) for name, deviation in _entries(sigma)]


def print_sensors(certificate: Certificate) -> None:
    """
    Print which perturbations of a single sensor have the l2 norm of one sigma, see :class:`Sensor`.

    :param certificate: the certificate
    """
    found, (_, steps) = sensors(certificate), most_steps(certificate)
    if found and certificate.sensor_sigma is None:
        (one,) = found
        print(
            f"\nOf a single sensor, radius {floor_digits(one.deviation, 6)} (1 sigma) covers one deviation of "
            f"{floor_digits(one.deviation, 3)}, or an offset of\n{floor_digits(one.offset, 3)} through all of the {steps}\n"
            "(offset / sigma * sqrt(steps) is its radius in sigma)"
        )
    elif found:
        print(f"\nOf a single sensor, radius 1 covers one deviation, or an offset at all {steps}:")
        print(f"{'sensor':>20} {'one deviation':>14} {'offset':>12}")
        for one in found[:MOST_ROWS]:
            covered = f"{floor_digits(one.deviation, 3):>14} {floor_digits(one.offset, 3):>12}"
            print(f"{printable(one.name):>20} " + (covered if one.deviation > 0 else "   not covered"))
        if len(found) > MOST_ROWS:
            print(f"... and {len(found) - MOST_ROWS} more")


def _entries(sigma: Any, name: str = "", index: tuple[int, ...] = ()) -> Iterator[tuple[str, float]]:
    if isinstance(sigma, dict):
        for key, value in sigma.items():
            yield from _entries(value, key)
    elif isinstance(sigma, list):
        for i, value in enumerate(sigma):
            yield from _entries(value, name, (*index, i))
    else:
        yield (f"{name}[{', '.join(map(str, index))}]" if index else name), float(sigma)
