"""The planner that stands for all that there is to see on Highway."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from support.zoo_scripts import ZOO_SCRIPTS, imported_script

SHORT = {"duration": 6, "vehicles_count": 8}


@pytest.fixture(scope="module")
def highway():
    pytest.importorskip("highway_env")
    with imported_script("highway_planner") as module:
        yield module


def test_the_planner_never_returns_less_than_its_rules_in_the_same_episode(highway):
    returns = highway.compare(16, 0, SHORT)
    rules = np.stack([returns[name] for name in highway.RULES])
    assert (returns["planner"] >= rules.max(axis=0) - 1e-9).all()
    assert returns["planner"].mean() > rules.mean(axis=1).max() + 0.1, "and more than the better rule throughout"
    assert returns["planner"].max() <= SHORT["duration"]


def test_the_value_of_an_action_is_what_comes_of_it_and_the_better_rule(highway):
    settings = dict(vectorization_mode="vector_entry_point", sigma=0.0, config=SHORT)
    envs = gym.make_vec(highway.TASK, 4, **settings).unwrapped
    observations, _ = envs.reset(seed=7)
    values = highway.action_values(envs)
    assert values.shape == (4, 5)
    for action in range(5):
        found = []
        for rule in highway.RULES.values():
            twin = gym.make_vec(highway.TASK, 4, **settings).unwrapped
            twin.reset(seed=7)
            observations, rewards, crashed, _, _ = twin.step(np.full(4, action))
            found.append(rewards + np.where(crashed, 0.0, highway.played(twin, rule, observations)))
        np.testing.assert_allclose(values[:, action], np.max(found, axis=0))


def test_copies_of_envs_go_on_as_the_envs_do_and_leave_them_as_they_are(highway):
    envs = gym.make_vec(
        highway.TASK, 4, vectorization_mode="vector_entry_point", sigma=0.0, config={**SHORT, "duration": 3}
    ).unwrapped
    envs.reset(seed=5)
    actions = np.array([3, 3, 0, 2])
    envs.step(actions)
    copies = highway.repeated(envs, 2)
    for _ in range(5):  # beyond the end, so that new episodes begin
        of_copies = copies.step(np.tile(actions, 2))[:4]
        of_envs = envs.step(actions)[:4]
        for one, other in zip(of_copies, of_envs, strict=True):
            assert np.array_equal(one, np.concatenate([other, other]))


def test_the_command_prints_the_same_for_the_same_seed_and_refuses_what_it_does_not_know():
    def run(*options):
        command = [sys.executable, str(ZOO_SCRIPTS / "highway_planner.py"), *options]
        return subprocess.run(command, capture_output=True, text=True)

    good = run("-n", "4", "--config", "{duration: 3, vehicles_count: 5}")
    assert good.returncode == 0, good.stderr
    assert [line.split(":")[0] for line in good.stdout.splitlines()][-1] == "planner" and "mean return" in good.stdout
    bad = run("-n", "4", "--config", "{durations: 3}")
    assert bad.returncode == 2 and len(bad.stderr.splitlines()) == 1 and "durations" in bad.stderr
    assert run("-n", "3").returncode == 2
