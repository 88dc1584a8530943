"""What a radius stands for in each sensor: one large deviation, or a small one that stays for the whole episode."""

import math
from collections.abc import Iterator
from typing import Any

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.rounded_text import floor_digits
from sb3_camp.text import printable

_MOST_ROWS = 40


def print_sensors(certificate: Certificate) -> None:
    """
    Print which perturbations of a single sensor have the l2 norm of one sigma.

    With T steps, a deviation d at one step has the norm d / sigma in units of sigma, and the constant offset d at all steps
    d / sigma * sqrt(T) (the l2 norm over the episode). At other radii all of them are in proportion.

    :param certificate: the certificate; T is the longest of its episodes
    """
    if certificate.longest_episode is None or certificate.pixels:
        return
    steps = certificate.longest_episode
    if certificate.sensor_sigma is None:
        offset = floor_digits(certificate.sigma / math.sqrt(steps), 3)
        print(
            f"\nOf a single sensor, radius {floor_digits(certificate.sigma, 6)} (1 sigma) covers one deviation of "
            f"{floor_digits(certificate.sigma, 3)}, or an offset of\n{offset} through all of the {steps} steps of the longest "
            "episode (offset / sigma * sqrt(steps) is its radius in sigma)"
        )
        return
    print(f"\nOf a single sensor, radius 1 covers one deviation, or an offset at all {steps} steps of the longest episode:")
    print(f"{'sensor':>20} {'one deviation':>14} {'offset':>12}")
    rows = list(_rows(certificate.sensor_sigma))
    for name, sigma in rows[:_MOST_ROWS]:
        offset = floor_digits(sigma / math.sqrt(steps), 3)
        print(
            f"{printable(name):>20} {floor_digits(sigma, 3):>14} {offset:>12}" if sigma > 0 else f"{name:>20}    not covered"
        )
    if len(rows) > _MOST_ROWS:
        print(f"... and {len(rows) - _MOST_ROWS} more")


def _rows(sigma: Any, name: str = "", index: tuple[int, ...] = ()) -> Iterator[tuple[str, float]]:
    if isinstance(sigma, dict):
        for key, value in sigma.items():
            yield from _rows(value, key)
    elif isinstance(sigma, list):
        for i, value in enumerate(sigma):
            yield from _rows(value, name, (*index, i))
    else:
        yield (f"{name}[{', '.join(map(str, index))}]" if index else name), float(sigma)
