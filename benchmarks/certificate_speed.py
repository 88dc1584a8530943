"""
How long does a certificate take, against a plain loop over radii and returns?

The level of the Berk-Jones band is computed once for each number of episodes and alpha, and kept in memory; it is timed
apart. The returns are all distinct, which is the slowest case.

    python benchmarks/certificate_speed.py
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from sb3_camp.certification import certified_return
from sb3_camp.certification.bands import berk_jones_level, lower_band

ALPHA = 0.05


def plain_loop(returns: np.ndarray, radii: np.ndarray, bounds: list[float]) -> list[float]:
    """The sum of the certificate written out, one radius and one return at a time; ``bounds`` of each count are given."""
    normal, m = NormalDist(), len(returns)
    ordered = sorted(returns)
    certified = []
    for radius in radii:
        total, previous = 0.0, 0.0
        for index, value in enumerate(ordered):
            bound = bounds[m - index]
            if bound > 0:
                total += (value - previous) * normal.cdf(normal.inv_cdf(bound) - radius)
            previous = value
        certified.append(total)
    return certified


def seconds(function: Callable[[], Any], repetitions: int) -> float:
    """The fastest of some calls: the others were held up by something else."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--radii", type=int, default=100, help="number of radii (default: %(default)s)")
    parser.add_argument("--loop-up-to", type=int, default=10_000, help="most episodes for the plain loop")
    parser.add_argument("--short", action="store_true", help="10,000 episodes only")
    args = parser.parse_args()
    if args.short:
        args.episodes = [10_000]

    rng = np.random.default_rng(0)
    radii = np.linspace(0, 3, args.radii)
    columns = ["level", f"{args.radii} radii", "1 radius", "plain loop", "ratio"]
    print(f"seconds\n{'episodes':>10}{'method':>12}" + "".join(f"{column:>12}" for column in columns))
    for m in args.episodes:
        returns = rng.gamma(2.0, 30.0, m)
        for method in ("berk-jones", "dkw"):
            level = seconds(partial(berk_jones_level, m, ALPHA), 1) if method == "berk-jones" else 0.0
            certify = partial(certified_return, returns, 1.0, method=method)
            many, one = seconds(partial(certify, radii), 3), seconds(partial(certify, 1.0), 3)
            row = f"{m:10}{method:>12}{level:12.2f}{many:12.4f}{one:12.4f}"
            if m <= args.loop_up_to:
                bounds = lower_band(np.arange(m + 1), m, ALPHA, method).tolist()
                loop = seconds(partial(plain_loop, returns, radii, bounds), 1)
                row += f"{loop:12.2f}{loop / many:12.0f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
