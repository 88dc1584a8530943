"""
How often do the confidence bands fail? Draws many samples from known distributions and counts those where a band lies above
the true P(return >= C) at any threshold C. No share may exceed alpha by more than its random error; for the Berk-Jones band
under a continuous distribution it should be alpha itself.

    python benchmarks/band_validity.py --alpha 0.05 --repetitions 20000
"""

import argparse
import math

import numpy as np
from scipy import stats

from sb3_camp.certification.bands import METHODS, lower_band

SCORES = np.arange(1, 201)  # the returns of a task of at most 200 steps


def score_law(weights: np.ndarray) -> stats.rv_discrete:
    return stats.rv_discrete(values=(SCORES, weights / weights.sum()))


LAWS = {
    "uniform": stats.uniform(),
    "normal": stats.norm(100, 20),
    "exponential": stats.expon(scale=30),
    "heavy left tail": stats.levy_l(),
    "heavy right tail": stats.pareto(1.1),
    "two-point, 0.5": stats.bernoulli(0.5),
    "two-point, 0.99": stats.bernoulli(0.99),
    "two-point, 0.01": stats.bernoulli(0.01),
    "few ties": stats.binom(6, 0.8),
    "geometric scores": score_law(0.98**SCORES),
    "mostly full score": score_law(np.where(SCORES == 200, 1000.0, 1.0)),
}
N_THRESHOLDS = {"two-point, 0.5": 1, "two-point, 0.99": 1, "two-point, 0.01": 1, "few ties": 6}
N_THRESHOLDS |= {"geometric scores": 200, "mostly full score": 200}


def failure_shares(law: str, m: int, alpha: float, repetitions: int, rng: np.random.Generator) -> dict[str, float]:
    """
    For each method, the share of samples whose band lies above the truth somewhere.

    Thresholds between two returns need no test: the band there is its value at the return above, where the truth is lower.
    """
    tables = {
        method: lower_band(np.arange(m + 1), m, alpha, method, N_THRESHOLDS[law] if method == "clopper-pearson" else None)
        for method in METHODS
        if method != "clopper-pearson" or law in N_THRESHOLDS
    }
    discrete = law in N_THRESHOLDS
    failures = dict.fromkeys(tables, 0)
    for _ in range(repetitions):
        returns = np.sort(LAWS[law].rvs(size=m, random_state=rng))
        truth = LAWS[law].sf(returns - 1 if discrete else returns)  # P(return >= r): a point of the law counts itself
        counts = m - np.searchsorted(returns, returns, side="left")
        for method, table in tables.items():
            failures[method] += bool(np.any(table[counts] > truth + 1e-12))
    return {method: count / repetitions for method, count in failures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpha", type=float, default=0.05, help="allowed failure probability (default: %(default)s)")
    parser.add_argument("--episodes", type=int, nargs="+", default=[20, 200, 2000], help="episodes per sample")
    parser.add_argument("--repetitions", type=int, default=2000, help="samples per law (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the samples (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="200 samples per law")
    args = parser.parse_args()
    if args.short:
        args.repetitions = 200

    rng = np.random.default_rng(args.seed)
    limit = args.alpha + 4 * math.sqrt(args.alpha * (1 - args.alpha) / args.repetitions)
    print(f"share of samples where the band fails; alpha {args.alpha}, with 4 standard errors {limit:.4f}")
    print(f"{'law':20}{'episodes':>10}" + "".join(f"{method:>18}" for method in METHODS))
    worst = 0.0
    for law in LAWS:
        for m in args.episodes:
            shares = failure_shares(law, m, args.alpha, args.repetitions, rng)
            worst = max(worst, *shares.values())
            row = "".join(f"{shares[method]:18.4f}" if method in shares else f"{'-':>18}" for method in METHODS)
            print(f"{law:20}{m:10}" + row, flush=True)
    print(f"highest share {worst:.4f}: {'as promised' if worst <= limit else 'HIGHER THAN PROMISED'}")


if __name__ == "__main__":
    main()
