"""
CAMP beside the Gaussian baseline on CartPole-v0 at sigma = 0.4: several seeds, best and last checkpoint, certified returns.

Trains with the stock zoo command, evaluates each checkpoint on fresh episodes and writes one csv row per checkpoint. Runs two
pipelines side by side. What is finished already is not done again, so an interrupted study can be continued.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

from quickstart import ENV, Step, run_together

from sb3_camp.certification.shown import floor_decimals

RADII = ("0", "0.2", "0.4", "0.6", "0.8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("cartpole_study"), help="folder for runs and results")
    parser.add_argument("-n", "--n-timesteps", type=int, default=100_000)
    parser.add_argument("--n-episodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--algos", nargs="+", default=["camp_dqn", "gaussian_dqn"])
    args = parser.parse_args()
    folder: Path = args.output
    folder.mkdir(parents=True, exist_ok=True)

    agents = [(algo, seed) for seed in args.seeds for algo in args.algos]
    missing = [agent for agent in agents if not (run_folder(folder, *agent) / f"{ENV}.zip").is_file()]
    for agent in missing:
        shutil.rmtree(run_folder(folder, *agent), ignore_errors=True)  # of a training that was interrupted
    for pair in in_pairs(missing):
        trainings = [
            Step(
                f"{algo} seed {seed}",
                f"-m rl_zoo3.train --algo {algo} --env {ENV} -f {folder}/seed{seed} -n {args.n_timesteps} --seed {seed} "
                "--eval-freq 5000 --eval-episodes 100 --n-eval-envs 20 --num-threads 1".split(),
                folder / f"train_{algo}_{seed}.log",
            )
            for algo, seed in pair
        ]
        run_together(trainings, args.n_timesteps, r"total_timesteps\s*\|\s*(\d+)")

    checkpoints = [(algo, seed, which) for algo, seed in agents for which in ("best", "last")]
    for pair in in_pairs(checkpoints):
        evaluations = [
            Step(
                f"{algo} seed {seed} {which}",
                f"-m sb3_camp.evaluate --algo {algo} --env {ENV} -f {folder}/seed{seed} --exp-id 1 -n {args.n_episodes} "
                f"--seed {seed} --num-threads 1 -P --resume -o {results(folder, algo, seed, which)} "
                f"{'--load-best' if which == 'best' else ''}".split(),
                folder / f"evaluate_{algo}_{seed}_{which}.log",
            )
            for algo, seed, which in pair
        ]
        run_together(evaluations, args.n_episodes, rf"(\d+)/{args.n_episodes}")

    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["algo", "seed", "checkpoint", "mean_return", *(f"certified_at_{radius}" for radius in RADII)])
        for algo, seed, which in checkpoints:
            output = results(folder, algo, seed, which)
            arguments = f"-m sb3_camp.certify {output}/evaluations.npz -o {output} --radii {' '.join(RADII)}".split()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            certificate = json.loads((output / "certificate.json").read_text())
            bounds = [floor_decimals(value, 2) for value in certificate["certified_return"]]
            writer.writerow([algo, seed, which, f"{certificate['mean_return']:.2f}", *bounds])
    print((folder / "results.csv").read_text())


def run_folder(folder: Path, algo: str, seed: int) -> Path:
    return folder / f"seed{seed}" / algo / f"{ENV}_1"


def results(folder: Path, algo: str, seed: int, which: str) -> Path:
    return run_folder(folder, algo, seed) / f"certification_{which}"


def in_pairs(items: list) -> list[list]:
    return [items[i : i + 2] for i in range(0, len(items), 2)]


if __name__ == "__main__":
    main()
