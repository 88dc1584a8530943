"""
Environment steps per second of training: CAMPDQN against SB3's DQN at equal settings.

CAMPDQN trains two networks where DQN trains one ("alternating", "shared" and "clean", see its argument `reference`), or one
network that imitates a frozen one ("frozen", the paper's Atari mode), each with the compiled update (the compilation is not
counted) and without ("eager"). All take turns, each on a model that has been warmed up, and ratios are taken turn by turn,
so that a noisy machine disturbs all alike. After that, a run apart with a clock around the parts of the training tells where
the time goes: sampling of batches; update (forward, backward, optimizer); acting; env; bookkeeping (buffer, callbacks,
logs). If SBX is installed (`pip install sbx-rl`, not a dependency), its DQN in JAX takes part, with one-step returns, the
only ones it has. Prints one line of JSON at the end.

    python benchmarks/training_throughput.py --settings paper-cartpole --threads 1 2

cartpole: camp_dqn.yml. paper-cartpole, paper-atari: hyperparams/paper/camp_dqn.yml. The burn-in is shortened, and with it the
buffer where only its size would cost time.
"""

import argparse
import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN

PAPER_CARTPOLE: dict[str, Any] = dict(
    policy="MlpPolicy",
    learning_rate=5e-5,
    batch_size=1024,
    buffer_size=100_000,
    learning_starts=1000,
    target_update_interval=10,
    train_freq=256,
    gradient_steps=128,
    exploration_final_eps=0.0,
    policy_kwargs=dict(net_arch=[256, 256]),
)
CARTPOLE: dict[str, Any] = dict(
    policy="MlpPolicy",
    learning_rate=1e-3,
    batch_size=64,
    buffer_size=100_000,
    learning_starts=1000,
    target_update_interval=1000,
    train_freq=256,
    gradient_steps=256,
    exploration_final_eps=0.04,
    n_steps=20,
    policy_kwargs=dict(net_arch=[64, 64]),
)
PAPER_ATARI: dict[str, Any] = dict(
    policy="CnnPolicy",
    learning_rate=1e-4,
    batch_size=32,
    buffer_size=10_000,
    learning_starts=200,
    target_update_interval=1000,
    train_freq=4,
    gradient_steps=1,
    exploration_initial_eps=0.01,
    exploration_final_eps=0.01,
)
# The task, its settings, the steps of the warm-up and of one measurement, and the kinds of CAMPDQN
SETTINGS: dict[str, tuple[str, dict[str, Any], int, int, tuple[str, ...]]] = {
    "cartpole": ("camp/CartPole1-v0", CARTPOLE, 1280, 512, ("alternating", "shared", "clean")),
    "paper-cartpole": ("camp/CartPole1-v0", PAPER_CARTPOLE, 1280, 256, ("alternating", "shared")),
    "paper-atari": ("camp/Pong1r-v0", PAPER_ATARI, 240, 64, ("alternating", "frozen")),
}
PARTS = ("sampling", "update", "acting", "env", "bookkeeping")


class Clock:
    """Adds up the time spent in functions. On a GPU it waits for what they started, as it would count elsewhere otherwise."""

    def __init__(self, device: th.device) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._wait = th.cuda.synchronize if device.type == "cuda" else lambda: None

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = function(*args, **kwargs)
            self._wait()
            self.seconds[part] += time.perf_counter() - started
            return result

        return timed

    def around_each(self, part: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same for a function that yields one result after the other."""

        def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            take = self.around(part, next)
            results = function(*args, **kwargs)
            while (result := take(results, None)) is not None:
                yield result

        return timed


def seconds_per_step(model: DQN, n_steps: int) -> float:
    first, started = model.num_timesteps, time.perf_counter()
    model.learn(n_steps, reset_num_timesteps=False)
    if model.device.type == "cuda":
        th.cuda.synchronize()
    return (time.perf_counter() - started) / (model.num_timesteps - first)


def shares(model: DQN, n_steps: int) -> dict[str, float]:
    """
    :return: share of the time of training that each of ``PARTS`` takes
    """
    clock = Clock(model.device)
    with ExitStack() as stack:

        def watch(owner: Any, name: str, part: str) -> None:
            around = clock.around_each if name == "batches" else clock.around
            stack.enter_context(patch.object(owner, name, around(part, getattr(owner, name))))

        watch(model, "train", "train")
        watch(model, "_sample_action", "acting")
        watch(model.env, "step", "env")
        if isinstance(model, CAMPDQN):
            watch(model._reference, "batches", "sampling")
        else:
            watch(model.replay_buffer, "sample", "sampling")
        first = model.num_timesteps
        total = seconds_per_step(model, n_steps) * (model.num_timesteps - first)
    parts = dict(clock.seconds)
    parts["update"] = parts.pop("train") - parts["sampling"]
    parts["bookkeeping"] = total - sum(parts.values())
    return {part: parts[part] / total for part in PARTS}


def make_models(env_id: str, settings: dict[str, Any], warm_up: int, kinds: tuple[str, ...], device: str) -> dict[str, DQN]:
    def env() -> Any:
        return make_vec_env(env_id, seed=0)

    models: dict[str, DQN] = {"DQN": DQN(env=env(), seed=0, device=device, **settings)}
    for kind in kinds:
        own = {"reference": models["DQN"] if kind == "frozen" else kind}
        for name, compile in ((kind, True), (f"{kind} eager", False)):
            models[f"CAMPDQN {name}"] = CAMPDQN(env=env(), seed=0, device=device, compile=compile, **settings, **own)
    if find_spec("sbx") and settings["policy"] == "MlpPolicy":
        from sbx import DQN as SBXDQN

        models["SBX DQN"] = SBXDQN(env=env(), seed=0, **{k: v for k, v in settings.items() if k != "n_steps"})
    for model in models.values():
        model.learn(warm_up)
    return models


def spread(ratios: list[float]) -> list[float]:
    """
    :return: median, least and most
    """
    return [round(value, 3) for value in (statistics.median(ratios), min(ratios), max(ratios))]


def measure(models: dict[str, DQN], n_steps: int, n_turns: int, threads: list[int]) -> dict[str, Any]:
    """
    :param models: What is compared, "DQN" among them
    :param n_steps: Environment steps of one measurement
    :param n_turns: Number of turns
    :param threads: Numbers of PyTorch threads
    :return: by number of threads and model: speed, and time of a step against DQN's, and against one's own with the first
        number of threads
    """
    seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
    for _ in range(n_turns):
        for number, (name, model) in itertools.product(threads, models.items()):
            th.set_num_threads(number)
            seconds[number, name].append(seconds_per_step(model, n_steps))
    result: dict[str, Any] = {}
    for (number, name), times in seconds.items():
        th.set_num_threads(number)
        against = {"DQN": seconds[number, "DQN"], f"{threads[0]}_threads": seconds[threads[0], name]}
        row: dict[str, Any] = {"steps_per_second": round(1 / statistics.median(times), 1)}
        for other, others in against.items():
            row[f"time_against_{other}"] = spread([own / base for own, base in zip(times, others, strict=True)])
        if isinstance(models[name], DQN):
            row["shares"] = {part: round(share, 3) for part, share in shares(models[name], 2 * n_steps).items()}
        result.setdefault(f"{number}_threads", {})[name] = row
        median, low, high = row["time_against_DQN"]
        print(
            f"{number} threads {name:27}{row['steps_per_second']:8.0f} steps/s, {median:.2f} ({low:.2f} to {high:.2f}) "
            "times DQN's time; " + ", ".join(f"{part} {share:.0%}" for part, share in row.get("shares", {}).items()),
            flush=True,
        )
        if number != threads[0]:
            median, low, high = row[f"time_against_{threads[0]}_threads"]
            print(f"{'':10}{median:.2f} ({low:.2f} to {high:.2f}) times its time with {threads[0]} threads", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="(default: all)")
    parser.add_argument("--turns", type=int, default=15, help="measurements of each model (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="numbers of PyTorch threads (default: 1)")
    parser.add_argument("--device", default="cpu", help="PyTorch device: cpu, cuda (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="3 turns")
    args = parser.parse_args()
    th.set_num_threads(args.threads[0])

    results = {}
    for name in args.settings:
        env_id, settings, warm_up, n_steps, kinds = SETTINGS[name]
        print(f"{name}: {env_id}, {n_steps} steps a measurement")
        models = make_models(env_id, settings, warm_up, kinds, args.device)
        results[name] = measure(models, n_steps, 3 if args.short else args.turns, args.threads)
    print(json.dumps({"benchmark": "training_throughput", "device": args.device, "results": results}))


if __name__ == "__main__":
    main()
