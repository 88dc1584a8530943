"""
How much does each confidence band certify from the same returns, and how many episodes does it need?

First, for each sample of returns, the certified return by method at R / sigma = 0, 1, 2, 2.5, 3, 3.5, and the gain over dkw.
Then the number of episodes from which each method certifies what dkw certifies from the whole sample: of m episodes of the
same distribution, as many as it says are at least C (rounded down), for every C.

    python benchmarks/band_tightness.py --returns FILE.npz     one array of returns under each key
"""

import argparse
from pathlib import Path

import numpy as np

from sb3_camp.certification import certified_return
from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.bands import METHODS

RATIOS = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 3.5])
RETURNS = Path(__file__).parent.parent / "tests" / "data" / "linear_policy_returns.npz"


def expected_sample(returns: np.ndarray, m: int) -> np.ndarray:
    """m returns distributed as a sample, so that no share of returns >= C is above that of the sample; the rest is lowest."""
    values, tally = np.unique(returns, return_counts=True)
    at_least = np.cumsum(tally[::-1])[::-1] * m // len(returns)
    return np.repeat(values, -np.diff(at_least, append=0))


def episodes_needed(returns: np.ndarray, ratio: float, wanted: float, certify, most: int) -> int | None:
    """The smallest number of episodes that certifies what is wanted, by bisection; None if ``most`` are too few."""
    low, high = 0, most
    if certify(expected_sample(returns, most), ratio) < wanted:
        return None
    while high - low > max(1, high // 200):  # to half a percent: every number of episodes has a level of its own to compute
        middle = (low + high) // 2
        if certify(expected_sample(returns, middle), ratio) >= wanted:
            high = middle
        else:
            low = middle
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--returns", type=Path, default=RETURNS, help="samples of returns (default: those of the tests)")
    parser.add_argument("--alpha", type=float, default=0.05, help="failure probability (default: %(default)s)")
    parser.add_argument("--support", type=int, default=200, help="the returns are whole numbers from 1 to this")
    parser.add_argument("--short", action="store_true", help="the number of episodes at R / sigma = 0 and 2.5 only")
    args = parser.parse_args()

    def certifier(method: str):
        support = range(1, args.support + 1) if band_of(method).pointwise else None
        return lambda returns, ratios: certified_return(returns, 1.0, ratios, alpha=args.alpha, method=method, support=support)

    certifiers = {method: certifier(method) for method in METHODS}
    with np.load(args.returns, allow_pickle=False) as file:
        samples = {key: np.asarray(file[key], dtype=np.float64) for key in file.files}

    head = f"{'R / sigma':>34}" + "".join(f"{ratio:10g}" for ratio in RATIOS)
    print(f"certified return, alpha {args.alpha:g}\n{head}")
    curves = {name: {m: certify(returns, RATIOS) for m, certify in certifiers.items()} for name, returns in samples.items()}
    for name, returns in samples.items():
        for method in METHODS:
            print(f"{name:18}{method:>16}" + "".join(f"{value:10.3f}" for value in curves[name][method]))
        print(f"{'':18}{f'mean {returns.mean():.2f}':>16}")
    print(f"\ntimes what dkw certifies, median of {len(samples)} samples\n{head}")
    for method in METHODS:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.median([curve[method] / curve["dkw"] for curve in curves.values()], axis=0)
        print(f"{'':18}{method:>16}" + "".join(f"{gain:10.3f}" for gain in gains))

    ratios = np.array([0.0, 2.5]) if args.short else RATIOS
    print("\nepisodes that certify what dkw certifies from the whole sample, to half a percent")
    print(f"{'R / sigma':>34}" + "".join(f"{ratio:10g}" for ratio in ratios))
    for name, returns in samples.items():
        wanted = dict(zip(RATIOS, curves[name]["dkw"], strict=True))
        most = 2 * len(returns)
        for method in ("berk-jones", "clopper-pearson"):
            needed = [episodes_needed(returns, ratio, wanted[ratio], certifiers[method], most) for ratio in ratios]
            cells = (f"> {most}" if number is None else str(number) for number in needed)
            print(f"{name:18}{method:>16}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
