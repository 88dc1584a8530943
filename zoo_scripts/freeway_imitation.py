"""
CAMP by policy imitation, the paper's mode for Atari, on Freeway: train a reference for a short while, let CAMP imitate it, and
certify both.

Each step is a command that you could type yourself, and is printed before it runs. Noisy networks explore Freeway much better
than random actions, so the reference is one of them.
"""

import argparse
from pathlib import Path

from quickstart import run

ENV = "camp/Freeway-v0"
REFERENCE, CAMP = "noisynet_dqn", "camp_dqn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("freeway"), help="folder for models, logs and the picture")
    parser.add_argument("--reference-timesteps", type=int, default=40_000, help="training steps of the reference")
    parser.add_argument("--imitation-timesteps", type=int, default=10_000, help="training steps of CAMP")
    parser.add_argument("--n-episodes", type=int, default=300, help="episodes of each certificate")
    parser.add_argument("--seed", type=int, default=0, help="seed of training and evaluation")
    args = parser.parse_args()
    folder: Path = args.output
    logs = folder / "logs"
    runs = {algo: logs / algo / f"{ENV.replace('/', '-')}_1" for algo in (REFERENCE, CAMP)}
    if existing := [str(path) for path in runs.values() if path.exists()]:
        parser.error(f"{existing[0]} is there already: give another folder with -o")
    reference = runs[REFERENCE] / "best_model.zip"

    common = f"--env {ENV} -f {logs} --seed {args.seed}"
    train = f"-m rl_zoo3.train {common} --eval-episodes 10 --n-eval-envs 5"
    print("\n1. The reference")
    run(
        f"{train} --algo {REFERENCE} -n {args.reference_timesteps} --eval-freq 4000 -params n_steps:20 learning_starts:1000 "
        "buffer_size:20000 train_freq:8 learning_rate:2.5e-4 target_update_interval:500".split()
    )
    print("\n2. CAMP imitates it")
    run(
        f"{train} --algo {CAMP} -n {args.imitation_timesteps} --eval-freq 2000 -params reference:'{reference}' n_steps:1 "
        "learning_starts:1000 buffer_size:10000 train_freq:8 exploration_initial_eps:0.01 exploration_final_eps:0.01".split()
    )
    print("\n3. Fresh episodes and certificates of both")
    for algo, path in runs.items():
        run(f"-m sb3_camp.evaluate {common} --algo {algo} --load-best -n {args.n_episodes} --n-envs 16".split())
        run(f"-m sb3_camp.certify {path}".split())
    print("\n4. The two curves, radii in units of 1/255")
    picture = folder / "certified_curves.png"
    run(["-m", "sb3_camp.plot", "certificate", *map(str, runs.values()), "--pixels", "-o", str(picture)])


if __name__ == "__main__":
    main()
