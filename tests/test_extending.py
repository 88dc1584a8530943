"""The page on extensions, word for word: its package is built and installed, and its commands are run."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.fresh_environment import ROOT, Environment, copied_checkout

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FILES = {text.splitlines()[0].removeprefix("# "): text for kind, text in BLOCKS if kind != "sh"}
(COMMANDS,) = (text.replace("\\\n", " ").splitlines() for kind, text in BLOCKS if kind == "sh")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Environment:
    folder = tmp_path_factory.mktemp("extended")
    environment = Environment(folder / "venv")
    environment.install(str(copied_checkout(folder)), cwd=folder)
    for name, text in FILES.items():
        path = folder / "my_package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert COMMANDS[0] == "pip install ."
    environment.install(str(folder / "my_package"), cwd=folder)
    return environment


def run(environment: Environment, command: str, cwd: Path) -> str:
    program, *arguments = shlex.split(command)
    assert program == "python"
    return environment.run(*arguments, cwd=cwd).stdout


@pytest.mark.slow
def test_the_commands_of_the_page(environment, tmp_path):
    assert len(COMMANDS) == 6
    for command in COMMANDS[1:]:
        printed = run(environment, command, tmp_path)
    assert "imitation', 'margin'" in printed and "train/" in printed

    run_folder = tmp_path / "logs" / "double_dqn" / "my-Thermostat-v0_1"
    certificate = json.loads((run_folder / "certification" / "certificate.json").read_text())
    assert (certificate["method"], certificate["sigma"], certificate["n_episodes"]) == ("massart", 0.5, 500)
    assert (certificate["min_return"], certificate["min_return_basis"]) == (-96.0, "known")
    attack = json.loads((run_folder / "attacks" / "cheapest_sigma0.5" / "attack.json").read_text())
    assert attack["attack"] == "cheapest"


def test_a_changed_task_asks_for_its_lowest_return_again(environment):
    code = (
        "from sb3_camp.plugins import load_plugins; load_plugins()\n"
        "from sb3_camp.tasks import lowest_return, default_sigma\n"
        "known = [lowest_return('my/Thermostat-v0', kwargs) for kwargs in ({}, {'sigma': 2}, {'comfort': 2})]\n"
        "assert known == [-96.0, -96.0, None] and default_sigma('my/Thermostat-v0') == 0.5\n"
    )
    environment.run("-c", code, cwd=environment.site_packages)


@pytest.mark.slow
def test_the_reference_is_saved_and_loaded_and_learns_from_all_steps(environment, tmp_path):
    code = """
import torch as th
from sb3_camp.plugins import load_plugins; load_plugins()
from sb3_camp import CAMPDQN

model = CAMPDQN("MlpPolicy", "my/Thermostat-v0", reference="quantiles", imitation="margin", learning_starts=40,
                batch_size=16, n_steps=3, seed=0, device="cpu", policy_kwargs=dict(net_arch=[16]))
before = th.nn.utils.parameters_to_vector(model.reference_policy.quantile_net.parameters()).clone()
model.learn(120)
after = th.nn.utils.parameters_to_vector(model.reference_policy.quantile_net.parameters())
assert not th.equal(before, after)
model.save("saved")
loaded = CAMPDQN.load("saved", device="cpu")
assert loaded.reference == loaded.reference_kind == "quantiles"
weights = [one.reference_policy.state_dict() for one in (model, loaded)]
assert all(th.equal(value, weights[1][name]) for name, value in weights[0].items())
"""
    environment.run("-c", code, cwd=tmp_path)
    for more, message in (
        ("", "imitation must be one of soft, hard, not 'margin'"),
        (
            "custom_objects={'imitation': 'soft'}",
            "'quantiles', which is none of alternating, shared, clean: import the package",
        ),
    ):
        without = f"from sb3_camp import CAMPDQN; CAMPDQN.load('saved', device='cpu', {more})"
        result = environment.run("-c", without, cwd=tmp_path, check=False)
        assert result.returncode == 1 and message in result.stderr


def test_the_band_of_the_page_is_what_it_says(monkeypatch):
    namespace: dict = {}
    exec(FILES["my_package/band.py"], namespace)
    counts = np.arange(101)
    bounds = namespace["massart"](counts, 100, 0.05)
    assert bounds[100] == pytest.approx(1 - np.sqrt(np.log(20) / 200)) and bounds[0] == 0


@pytest.mark.slow
def test_a_plugin_that_fails_is_one_warning_and_the_zoo_and_the_others_go_on(environment, tmp_path):
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[sb3_camp.plugins]\nbroken = broken_plugin:register\n")
    (tmp_path / "broken_plugin.py").write_text("def register(): raise OSError('broken on purpose')\n")
    wanted = "{'camp_dqn', 'double_dqn', 'ppo'}"
    code = f"import rl_zoo3.train; from rl_zoo3.utils import ALGOS; print(sorted({wanted} - ALGOS.keys()))"
    result = environment.run("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert result.stdout.strip() == "[]"
    assert result.stderr.count("goes on without the plugin broken_plugin:register (OSError: broken on purpose)") == 1
    help_text = environment.run("-m", "sb3_camp", "certify", "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "massart" in help_text.stdout
