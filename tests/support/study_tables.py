"""Tables of a small study whose numbers are known."""

import csv
from pathlib import Path

from support.experiments import script

results = script("results")

TASK, SIGMA = "camp/CartPole1-v0", "0.4"
CAMP0, CAMP4, PPO = ("camp_dqn", "0"), ("camp_dqn", "4"), ("ppo", "")


def line(agent, seed, checkpoint, quantity, method, x, value, task=TASK, sigma=SIGMA, variant="default"):
    return [task, sigma, agent[0], agent[1], variant, str(seed), checkpoint, quantity, method, str(x), str(value)]


def certified(agent, seed, values, checkpoint="best", method="berk-jones", **where):
    return [line(agent, seed, checkpoint, "certified_return", method, x, value, **where) for x, value in values.items()]


LINES = [
    *certified(CAMP0, 0, {0: 150, 0.4: 90, 0.8: 40}),
    *certified(CAMP0, 1, {0: 160, 0.4: 80, 0.8: 50}),
    *certified(CAMP0, 2, {0: 140, 0.4: 100.06, 0.8: 30}),
    *certified(CAMP4, 0, {0: 155, 0.4: 95, 0.8: 45}),
    *certified(CAMP4, 1, {0: 165, 0.4: 85, 0.8: 55}),
    *certified(CAMP4, 2, {0: 145, 0.4: 105, 0.8: 35}),
    *certified(PPO, 0, {0.2: 120, 0.5: 70}),
    *certified(PPO, 0, {0: 1, 0.5: 0}, checkpoint="last"),
    *certified(PPO, 0, {0: 2, 0.5: 1}, method="dkw"),
    *(line(CAMP0, seed, "", "validation_return", "", x, 10 * seed + x) for seed in range(3) for x in (100, 200)),
    *(line(PPO, 0, "", "validation_return", "", x, x / 2) for x in (128, 256, 384)),
    *(line(CAMP0, seed, "best", "mean_return", "", "", 170 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "attacked_return", "pgd", x, 170 + seed - 100 * x) for seed in range(3) for x in (0, 0.5)),
    *(line(CAMP0, seed, "best", "attacked_return", "pgd-sigma0", x, 190 - 100 * x) for seed in range(3) for x in (0, 0.5)),
    *(line(CAMP0, seed, "best", "q_gap_mean", "", "", 2.5 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "q_gap_min", "", "", 1.25e-7 + seed) for seed in range(3)),
    *(line(CAMP0, seed, "best", "q_gap_quantile", "", 0.5, 2 + seed) for seed in range(3)),
]
COSTS = [
    [TASK, SIGMA, "camp_dqn", "0", "default", str(seed), step, wall, "90", memory, speed]
    for seed, wall, memory, speed in ((0, "100", "410.5", "1000"), (1, "140", "", "700"), (2, "120", "400", "800"))
    for step in ("evaluate-best", "train")
]


def write(path, columns, lines):
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *lines])
    return path


def written(folder: Path) -> Path:
    """The tables of the study as files: ``costs.csv``, and ``results.csv``, which is returned."""
    write(folder / "costs.csv", results.COST_COLUMNS, COSTS)
    return write(folder / "results.csv", results.RESULT_COLUMNS, LINES)


def records(table):
    return table.to_dict("records")
