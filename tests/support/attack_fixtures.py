"""Fixtures of the tests of the attack command, a plugin of pytest: ``pytest_plugins = ["support.attack_fixtures"]``."""

import shutil

import pytest

from support.attack_agents import POLE, save_balancing
from support.run_folders import make_run, noise


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """File of a DQN that keeps the pole up as long as it is let alone."""
    return save_balancing(tmp_path_factory.mktemp("agent") / "agent.zip")


@pytest.fixture
def smoothed_run(tmp_path, agent, monkeypatch):
    """A run folder of an agent on noise of sigma 0.1, below the working directory."""
    run = make_run(tmp_path / "logs", POLE, env_wrapper=[noise(0.1)])
    shutil.copy(agent, run / "tests-ShortPole-v0.zip")
    monkeypatch.chdir(tmp_path)
    return run
