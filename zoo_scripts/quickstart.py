"""
From nothing to two certified curves and a report: CAMP and a DQN trained on the same noise, on CartPole with sigma = 0.4.

Each step is a command that you could type yourself, and is printed before it runs. The two agents run side by side, one core
each.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tqdm import tqdm

ENV = "CartPole-v0"
ALGOS = ("camp_dqn", "gaussian_dqn")


class Step:
    """One command in a process of its own, with its output in a log file."""

    def __init__(self, label: str, arguments: list[str], log: Path):
        self.label = label
        self.log = log
        print(f"$ python {' '.join(arguments)}", flush=True)
        # One thread each: the networks are small, and the two agents share the cores
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    def progress(self, pattern: str) -> int:
        """The last number that the pattern finds in the log, 0 if there is none yet."""
        found = re.findall(pattern, self.log.read_text(errors="replace"))
        return int(found[-1]) if found else 0


def run_together(steps: list[Step], total: int, pattern: str) -> None:
    """Wait for all steps; each shows a bar that advances with the numbers in its log. Stops the script if one fails."""
    bars = [tqdm(total=total, desc=step.label, position=i, mininterval=1.0) for i, step in enumerate(steps)]
    try:
        while any(step.process.poll() is None for step in steps):
            time.sleep(1.0)
            for step, bar in zip(steps, bars, strict=True):
                bar.update(min(step.progress(pattern), total) - bar.n)
    except KeyboardInterrupt:
        for step in steps:
            step.process.terminate()
        raise
    finally:
        for bar in bars:
            bar.close()
    for step in steps:
        if step.process.returncode != 0:
            tail = "\n".join(step.log.read_text(errors="replace").splitlines()[-20:])
            sys.exit(f"{step.label} failed; the end of {step.log}:\n{tail}")


def run(arguments: list[str]) -> None:
    print(f"\n$ python {' '.join(arguments)}", flush=True)
    status = subprocess.run([sys.executable, *arguments]).returncode
    if status != 0:
        sys.exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("quickstart"), help="folder for models, logs and pictures")
    parser.add_argument("-n", "--n-timesteps", type=int, default=50_000, help="training steps of each agent")
    parser.add_argument("--n-episodes", type=int, default=10_000, help="episodes of each certificate")
    parser.add_argument("--seed", type=int, default=0, help="seed of training and evaluation")
    args = parser.parse_args()
    folder: Path = args.output
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    print(f"\n1. Train {' and '.join(ALGOS)} on {ENV}, noise of sigma = 0.4 on every observation (the stock zoo command)\n")
    trainings = [
        Step(
            algo,
            f"-m rl_zoo3.train --algo {algo} --env {ENV} -f {folder}/logs -n {args.n_timesteps} --seed {args.seed} "
            "--eval-freq 5000 --eval-episodes 100 --n-eval-envs 20 --num-threads 1".split(),
            folder / f"train_{algo}.log",
        )
        for algo in ALGOS
    ]
    run_together(trainings, args.n_timesteps, r"total_timesteps\s*\|\s*(\d+)")

    print(f"\n2. Play {args.n_episodes} fresh episodes with the best checkpoint of each\n")
    evaluations = [
        Step(
            algo,
            f"-m sb3_camp.evaluate --algo {algo} --env {ENV} -f {folder}/logs --load-best -n {args.n_episodes} "
            f"--seed {args.seed} --num-threads 1 -P".split(),
            folder / f"evaluate_{algo}.log",
        )
        for algo in ALGOS
    ]
    run_together(evaluations, args.n_episodes, rf"(\d+)/{args.n_episodes}")

    print("\n3. Certify: what return is guaranteed against every adversary with an l2 budget over the whole episode")
    runs = [latest_run(folder / "logs" / algo) for algo in ALGOS]
    for run_folder in runs:
        run(f"-m sb3_camp.certify {run_folder}".split())

    print("\n4. The two curves side by side")
    picture = folder / "certified_curves.png"
    run(["-m", "sb3_camp.plot", "certificate", *map(str, runs), "-o", str(picture)])

    print(f"\n5. All about {ALGOS[0]}'s agent on one page, for whoever has to sign")
    page = folder / "report.html"
    run(["-m", "sb3_camp.report", str(runs[0]), "-o", str(page)])

    print(f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes.")
    print(f"  picture       {picture}")
    print(f"  report        {page}")
    for run_folder in runs:
        print(f"  certificate   {run_folder / 'certification' / 'certificate.json'}")
        print(f"  model         {run_folder / 'best_model.zip'}")


def latest_run(folder: Path) -> Path:
    return max(folder.glob(f"{ENV}_*"), key=lambda path: int(path.name.rsplit("_", 1)[1]))


if __name__ == "__main__":
    main()
