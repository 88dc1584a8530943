"""
Why EnvPool's Highway is not quite highway-env's: fixed policies in highway-env's game, in EnvPool's, and in the former with
one rule of the latter.

In highway-env a vehicle that gains by both neighbouring lanes takes the right one, in EnvPool 1.2.5 the left one. With this
one rule changed, the vector environment of this package, which plays highway-env's episodes, has EnvPool's distributions.
Differences of the means with their 95 % intervals, and p-values of two-sample Kolmogorov-Smirnov tests. EnvPool is no
dependency: pip install envpool.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from scipy import stats

from sb3_camp.tasks.highway import _settings
from sb3_camp.tasks.highway_vec import HighwayVectorEnv

QUANTITIES = ("return", "length", "crashed", "speed")
Policy = Callable[[int, np.random.Generator, Any], np.ndarray]


def cautious(n_envs: int, rng: np.random.Generator, observations: np.ndarray) -> np.ndarray:
    """Brakes behind a slower vehicle on its lane, else accelerates: a policy that looks."""
    rows = observations.reshape(n_envs, -1, 5)
    close = (rows[:, 1:, 0] > 0) & (np.abs(rows[:, 1:, 2]) < 0.1) & (rows[:, 1:, 1] > 0) & (rows[:, 1:, 1] < 0.15)
    return np.where(close.any(axis=1), 4, 3)


POLICIES: dict[str, Policy] = {
    "slower": lambda n, rng, observations: np.full(n, 4),
    "idle": lambda n, rng, observations: np.full(n, 1),
    "faster": lambda n, rng, observations: np.full(n, 3),
    "left": lambda n, rng, observations: np.full(n, 0),
    "random": lambda n, rng, observations: rng.integers(5, size=n),
    "cautious": cautious,
}


class LeftFirst(HighwayVectorEnv):
    """With EnvPool's rule: who has chosen the lane on the left does not ask for that on the right."""

    def _is_better(self, who: np.ndarray, lane: np.ndarray, own_acceleration: np.ndarray) -> np.ndarray:
        undecided = self._target_lane.reshape(-1)[who] == self._lane.reshape(-1)[who]
        return super()._is_better(who, lane, own_acceleration) & undecided


def envpool_highway(n_envs: int, settings: dict[str, Any]) -> VectorEnv:
    import envpool

    shared = ("lanes_count", "vehicles_count", "duration", "simulation_frequency", "policy_frequency", "ego_spacing")
    options = {name: settings[name] for name in shared}
    return envpool.make_gymnasium("highway-fast-v0", num_envs=n_envs, num_threads=1, seed=1, **options)


def played(envs: VectorEnv, policy: Policy, n_envs: int) -> np.ndarray:
    """One episode in each env: the quantities, shape (n_envs, 4)."""
    rng = np.random.default_rng(0)
    observations, _ = envs.reset()
    sums = np.zeros((n_envs, 4))
    going = np.ones(n_envs, dtype=bool)
    while going.any():
        actions = policy(n_envs, rng, observations).astype(np.int32)
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        sums[going] += np.stack([rewards, np.ones(n_envs), infos["crashed"], infos["speed"]], axis=1)[going]
        going &= ~(terminations | truncations)
    sums[:, 3] /= sums[:, 1]
    envs.close()
    return sums.round(3)  # EnvPool's rewards are in single precision, and the tests would tell them by that


def seeded(envs: VectorEnv, seed: int) -> VectorEnv:
    envs.reset(seed=seed)
    return envs


def compared(one: np.ndarray, other: np.ndarray) -> str:
    margin = 1.96 * np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    return f"{other.mean() - one.mean():+.4f} ± {margin:.4f} | {stats.ks_2samp(one, other).pvalue:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000, help="of each policy in each game (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="200 episodes")
    args = parser.parse_args()
    try:
        import envpool  # noqa: F401
    except ImportError:
        print("EnvPool is not installed: pip install envpool")
        return 0
    n, settings = 200 if args.short else args.episodes, _settings(None)
    print("| policy | quantity | highway-env | EnvPool | p | EnvPool's rule | p against EnvPool |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, policy in POLICIES.items():
        own = played(seeded(HighwayVectorEnv(n, settings), 0), policy, n)
        other = played(envpool_highway(n, settings), policy, n)
        ruled = played(seeded(LeftFirst(n, settings), 2**20), policy, n)
        for column, quantity in enumerate(QUANTITIES):
            a, b, c = own[:, column], other[:, column], ruled[:, column]
            print(f"| {name} | {quantity} | {a.mean():.3f} | {compared(a, b)} | {compared(b, c)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
