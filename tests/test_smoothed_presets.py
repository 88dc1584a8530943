"""The settings of hyperparams/baselines for continuous actions: the zoo trains by them, and what it leaves is certified."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate

BASELINES = Path(__file__).parents[1] / "hyperparams" / "baselines"
needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="MuJoCo is not installed")
HOPPER = [0.007, 0.004, 0.012, 0.006, 0.022, 0.04, 0.045, 0.05, 0.075, 0.06, 0.2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "env", "steps", "sigma", "normalised"),
    [
        ("ppo", "Pendulum-v1", 4096, [0.05, 0.05, 0.4], False),
        ("sac", "Pendulum-v1", 250, [0.05, 0.05, 0.4], False),
        pytest.param("ppo", "Hopper-v4", 512, HOPPER, True, marks=needs_mujoco),
        pytest.param("sac", "Hopper-v4", 250, HOPPER, False, marks=needs_mujoco),
    ],
)
def test_the_zoo_trains_by_a_preset_and_its_agent_is_certified(algo, env, steps, sigma, normalised, tmp_path):
    command = f"-m rl_zoo3.train --algo {algo} --env {env} -conf {BASELINES / algo}.yml -n {steps} -f {tmp_path} --device cpu"
    done = subprocess.run(
        [sys.executable, *command.split(), "--eval-freq", "-1", "--verbose", "0"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    options = f"--algo {algo} --env {env} -f {tmp_path} -n 30 --n-envs 10 --device cpu"
    assert evaluate(options.split()) == 0
    run = tmp_path / algo / f"{env}_1"
    known = ["--min-return=-100000"] if env == "Hopper-v4" else []
    assert certify([str(run), "--radii", "0", "1", *known]) == 0
    certificate = json.loads((run / "certification" / "certificate.json").read_text())
    assert certificate["sensor_sigma"] == sigma
    names = [name for entry in certificate["env_wrappers"]["env_wrapper"] for name in entry]
    assert [name.rpartition(".")[2] for name in names] == [
        "NoisyObservationWrapper",
        *["FrozenNormalizeObservation"] * normalised,
    ]


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_presets_have_a_sigma_for_each_sensor_and_the_noise_alone_on_the_raw_observations(algo):
    presets = yaml.load((BASELINES / f"{algo}.yml").read_text(), yaml.SafeLoader)
    for env, n_sensors in (("Pendulum-v1", 3), ("Hopper-v4", 11)):
        (noise,) = presets[env]["env_wrapper"]
        assert len(noise["sb3_camp.wrappers.NoisyObservationWrapper"]["sigma"]) == n_sensors
