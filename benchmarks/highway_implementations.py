"""
Whether EnvPool's Highway is the same game as highway-env's: returns, lengths, crashes and speeds of fixed policies in both.

Two-sample Kolmogorov-Smirnov tests, and the difference of the means with its 95 % interval. ``--episodes`` of highway-env are
played for each policy, which take most of the time; of EnvPool twenty times as many.
"""

import argparse
import sys
from collections.abc import Callable

import numpy as np
from scipy import stats

from sb3_camp.tasks.highway import make_highway, make_highway_vec

QUANTITIES = ("return", "length", "crashed", "speed")
Policy = Callable[[int, np.random.Generator], np.ndarray]
POLICIES: dict[str, Policy] = {
    "slower": lambda n, rng: np.full(n, 4),
    "idle": lambda n, rng: np.full(n, 1),
    "faster": lambda n, rng: np.full(n, 3),
    "left": lambda n, rng: np.full(n, 0),
    "random": lambda n, rng: rng.integers(5, size=n),
}


def in_highway_env(policy: Policy, n_episodes: int) -> np.ndarray:
    """Quantities of each episode, shape (n_episodes, 4)."""
    env, rng = make_highway(0.0), np.random.default_rng(0)
    episodes = []
    for episode in range(n_episodes):
        env.reset(seed=episode)
        rewards, speeds, info, over = [], [], {}, False
        while not over:
            _, reward, terminated, truncated, info = env.step(int(policy(1, rng)[0]))
            rewards.append(float(reward))
            speeds.append(info["speed"])
            over = terminated or truncated
        episodes.append((sum(rewards), len(rewards), info["crashed"], np.mean(speeds)))
    return np.array(episodes, dtype=np.float64)


def in_envpool(policy: Policy, n_episodes: int) -> np.ndarray:
    """The same of one episode in each of as many envs."""
    envs, rng = make_highway_vec(n_episodes, 0.0), np.random.default_rng(1)
    envs.reset(seed=0)
    sums = np.zeros((n_episodes, 4))
    going = np.ones(n_episodes, dtype=bool)
    while going.any():
        _, rewards, terminations, truncations, infos = envs.step(policy(n_episodes, rng))
        sums[going] += np.stack([rewards, np.ones(n_episodes), infos["crashed"], infos["speed"]], axis=1)[going]
        going &= ~(terminations | truncations)
    sums[:, 3] /= sums[:, 1]
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000, help="of highway-env, for each policy")
    parser.add_argument("--short", action="store_true", help="5 episodes")
    args = parser.parse_args()
    try:
        import envpool  # noqa: F401
    except ImportError:
        print("EnvPool is not installed: pip install '.[fast]'")
        return 0
    n_episodes = 5 if args.short else args.episodes
    print("| policy | quantity | highway-env | EnvPool | difference | p (KS) |\n| --- | --- | --- | --- | --- | --- |")
    for name, policy in POLICIES.items():
        one, other = in_highway_env(policy, n_episodes), in_envpool(policy, 20 * n_episodes)
        for column, quantity in enumerate(QUANTITIES):
            a, b = one[:, column], other[:, column]
            margin = 1.96 * np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
            p = stats.ks_2samp(a, b).pvalue
            means = f"{a.mean():.3f} | {b.mean():.3f} | {a.mean() - b.mean():+.3f} ± {margin:.3f}"
            print(f"| {name} | {quantity} | {means} | {p:.2g} |")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
