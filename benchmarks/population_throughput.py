"""
Several seeds in one process (`sb3_camp.train_seeds`) against each by itself, both with compiled updates: processor time of
one thread per step of one model, at the settings `cartpole` of training_throughput.py.

Populations take turns with single trainings. The speed is that of the steps after the updates have been compiled; what the
steps before take, compilation included, is a column of its own: it is paid once for a population, and once for each single
training. Prints one line of JSON at the end.

    python benchmarks/population_throughput.py --seeds 8 16
"""

import argparse
import json
import statistics
import time

import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from training_throughput import CARTPOLE

from sb3_camp import CAMPDQN, train_seeds

# The first updates are done as ever, the second ones are compiled
WARM_UP = CARTPOLE["learning_starts"] + 3 * CARTPOLE["train_freq"]


class Clock(BaseCallback):
    """Notes the processor time of the first step, of the end of the warm-up and of the end."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def _on_training_start(self) -> None:
        self.times.append(time.process_time())

    def _on_step(self) -> bool:
        if self.num_timesteps == WARM_UP:
            self.times.append(time.process_time())
        return True

    def _on_training_end(self) -> None:
        self.times.append(time.process_time())


def seconds(n_seeds: int, n_steps: int) -> tuple[float, float]:
    """
    :return: of the warm-up of all models; of a step of one model after it
    """
    models = [
        CAMPDQN(env="camp/CartPole1-v0", reference="clean", compile=True, seed=seed, device="cpu", **CARTPOLE)
        for seed in range(n_seeds)
    ]
    clock = Clock()
    train_seeds(models, WARM_UP + n_steps, [clock] + [None] * (n_seeds - 1))
    begin, warm, end = clock.times
    return warm - begin, (end - warm) / n_steps / n_seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[4, 8, 16], help="sizes of populations (default: 4 8 16)")
    parser.add_argument("--steps", type=int, default=2560, help="steps of each model in a measurement (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each size (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="one turn of two seeds")
    args = parser.parse_args()
    th.set_num_threads(1)

    sizes = [1, 2] if args.short else [1, *args.seeds]
    turns = [{size: seconds(size, args.steps) for size in sizes} for _ in range(1 if args.short else args.turns)]
    results = {}
    for size in sizes:
        step = [turn[size][1] for turn in turns]
        against = [turn[size][1] / turn[1][1] for turn in turns]
        warm_up = statistics.median(turn[size][0] for turn in turns)
        results[size] = {"seconds_per_step": step, "against_single": against, "warm_up_seconds": warm_up}
        print(
            f"{size:3} seeds: {1e6 * statistics.median(step):6.0f} us a step of one model, {statistics.median(against):.2f} "
            f"({min(against):.2f} to {max(against):.2f}) times that of one alone; {warm_up:.0f} s to the end of compilation"
        )
    print(json.dumps({"benchmark": "population_throughput", "results": results}))


if __name__ == "__main__":
    main()
