"""
Environment steps per second of training: CAMPDQN against SB3's DQN at equal settings (the CartPole settings of camp_dqn.yml).

CAMPDQN trains two networks where DQN trains one. The two take turns, each time on a model that has been warmed up, so that a
noisy machine disturbs both alike. Prints one line of JSON at the end.
"""

import argparse
import json
import statistics
import time
from typing import Any

import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN, NoisyObservationWrapper

SETTINGS: dict[str, Any] = dict(
    learning_rate=1e-3,
    batch_size=64,
    buffer_size=100_000,
    learning_starts=1000,
    target_update_interval=1000,
    train_freq=256,
    gradient_steps=256,
    n_steps=20,
    policy_kwargs=dict(net_arch=[64, 64]),
    seed=0,
    device="cpu",
)


def steps_per_second(model: DQN, n_steps: int) -> float:
    started, first = time.perf_counter(), model.num_timesteps
    model.learn(n_steps, reset_num_timesteps=False)
    return (model.num_timesteps - first) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="paired measurements")
    parser.add_argument("--steps", type=int, default=2560, help="environment steps of one measurement")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads")
    parser.add_argument("--short", action="store_true", help="3 pairs")
    args = parser.parse_args()
    th.set_num_threads(args.threads)

    models = {}
    for name, algorithm in (("DQN", DQN), ("CAMPDQN split", CAMPDQN), ("CAMPDQN shared", CAMPDQN)):
        env = make_vec_env("CartPole-v1", seed=0, wrapper_class=NoisyObservationWrapper, wrapper_kwargs=dict(sigma=0.4))
        replay = {"replay": name.split()[1]} if algorithm is CAMPDQN else {}
        models[name] = algorithm("MlpPolicy", env, **SETTINGS, **replay).learn(1280)

    speeds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(3 if args.short else args.pairs):
        for name, model in models.items():
            speeds[name].append(steps_per_second(model, args.steps))
    result: dict[str, Any] = {"threads": args.threads, "steps": args.steps}
    for name, values in speeds.items():
        times = [dqn / own for dqn, own in zip(speeds["DQN"], values, strict=True)]
        result[name] = {
            "steps_per_second": round(statistics.median(values), 1),
            "time_per_step_against_DQN": [round(value, 3) for value in (statistics.median(times), min(times), max(times))],
        }
        median, low, high = statistics.median(times), min(times), max(times)
        print(f"{name:15}{statistics.median(values):8.0f} steps/s, {median:.2f} ({low:.2f} to {high:.2f}) times DQN's time")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
