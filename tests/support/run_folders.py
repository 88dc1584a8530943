"""Run folders as the zoo dumps them, and wrappers by the names that ymls give them."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import yaml

from sb3_camp.runs.run_folder import RunFolder

NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"


STACK = "gymnasium.wrappers.FrameStackObservation"


NORMALISER = "gymnasium.wrappers.NormalizeObservation"


def noise(sigma: Any) -> dict[str, Any]:
    return {NOISE: {"sigma": sigma}}


def sigma(run: RunFolder, **options: Any) -> float:
    found = run.smoothing_noise(**options)
    return 0.0 if found is None else found.sigma


def make_run(
    logs: Path, env_id: str = "CartPole-v1", algo: str = "dqn", number: int = 1, args: Any = (), **config: Any
) -> Path:
    """Make the settings of a run folder the way the zoo dumps them."""
    env_name = env_id.split(":")[-1].replace("/", "-")
    run = logs / algo / f"{env_name}_{number}"
    settings = run / env_name
    settings.mkdir(parents=True)
    every = {
        "algo": algo,
        "env": env_id,
        "env_kwargs": None,
        "eval_env_kwargs": None,
        "gym_packages": [],
        "seed": 3,
        **dict(args),
    }
    (settings / "args.yml").write_text(yaml.dump(OrderedDict(sorted(every.items()))))
    config = {"n_timesteps": 50000.0, "policy": "MlpPolicy", "train_freq": (4, "step"), **config}
    (settings / "config.yml").write_text(yaml.dump(OrderedDict(sorted(config.items()))))
    return run
