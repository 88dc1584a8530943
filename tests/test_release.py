"""What the release is made of fits together: workflows, make targets, supported versions, and what the policies promise."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sb3_camp.__main__ import COMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}


def commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "run" in step]


def test_every_step_of_the_workflows_is_a_make_target_that_exists():
    run = [command for workflow in WORKFLOWS.values() for command in commands(workflow)]
    made = [re.sub(r"\$\{\{.*?\}\}", "", command) for command in run if "make " in command]
    targets = {word for command in made for word in command.split("make ")[1].split() if "=" not in word}
    assert {"test", "test-all", "check-dist", "check-wheel", "check-zoo", "docs", "notebooks"} <= targets
    assert targets <= TARGETS
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"] for hook in hooks} == {"make lint", "make type"}


def test_all_systems_and_pythons_that_are_promised_are_tested():
    matrix = WORKFLOWS["tests.yml"]["jobs"]["test"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert matrix["python"] == [f"3.{minor}" for minor in range(10, 15)]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert "Python 3.10 to 3.14 on Linux, macOS and Windows" in (ROOT / "VERSIONING.md").read_text()


def test_the_oldest_zoo_that_is_tested_is_the_oldest_that_is_allowed():
    allowed = dict(re.match(r"([\w-]+)>=([\d.]+)", one).groups() for one in PROJECT["dependencies"])
    pins = dict(line.split("==") for line in (ROOT / ".ci" / "zoo-oldest.txt").read_text().splitlines() if "==" in line)
    for name, version in pins.items():
        assert version.removesuffix(".0") == allowed[name.replace("rl_zoo3", "rl-zoo3")], name
    newest = [line for line in (ROOT / ".ci" / "zoo-newest.txt").read_text().splitlines() if not line.startswith("#")]
    assert set(newest) == set(pins)
    assert WORKFLOWS["tests.yml"]["jobs"]["stock-zoo"]["strategy"]["matrix"]["zoo"] == ["oldest", "newest"]


def test_the_security_policy_says_of_every_command_what_it_trusts():
    policy = (ROOT / "SECURITY.md").read_text()
    assert all(f"`{name}`" in policy for name in COMMANDS)


def test_the_release_checks_the_version_where_it_stands():
    assert re.fullmatch(r'.*\n__version__ = "[\d.]+\w*"\n', (ROOT / "sb3_camp" / "version.py").read_text(), re.DOTALL)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == PROJECT["license"] == "MIT" and citation["cff-version"] == "1.2.0"
    assert citation["preferred-citation"]["title"].startswith("CAMP in the Odyssey")
