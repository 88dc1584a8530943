"""The Kalman filter that stands for all that memory can do on CartPole."""

import csv
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from support.zoo_scripts import ZOO_SCRIPTS, imported_script


@pytest.fixture(scope="module")
def kalman():
    with imported_script("kalman_search") as module:
        yield module


def test_states_move_as_in_gymnasium(kalman):
    env = gym.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-0.2, 0.2, (20, 4)), rng.integers(0, 2, 20)
    moved = kalman.next_states(states, actions)
    for state, action, after in zip(states, actions, moved, strict=True):
        env.reset(seed=0)
        env.state = state.copy()
        assert np.allclose(env.step(int(action))[0], after, atol=1e-6)


def test_the_first_gain_is_that_of_the_first_state_and_later_gains_settle(kalman):
    gains = kalman.kalman_gains(0.4, 150)
    prior = 0.05**2 / 3
    assert np.allclose(gains[0], np.eye(4) * prior / (prior + 0.4**2))
    assert np.abs(gains[-1] - gains[-2]).max() < 1e-4
    # The covariance of observation minus expectation is what the gain says: gain = P (P + sigma^2)^-1 is symmetric, below 1
    assert np.allclose(gains, gains.transpose(0, 2, 1), atol=1e-9)
    assert np.all(np.linalg.eigvalsh(gains[-1]) < 1) and np.linalg.eigvalsh(gains[-1])[-1] > 0.05


def test_the_error_of_the_estimate_is_as_large_as_the_filter_believes(kalman):
    """Against simulated states, with the prior and the noise of the task; balancing by the true state."""
    sigma, n_envs = 0.3, 4000
    rng = np.random.default_rng(0)
    states = rng.uniform(-0.05, 0.05, (n_envs, 4))
    known = kalman.KalmanFilter(sigma, n_envs)
    gains = kalman.kalman_gains(sigma)
    for step in range(80):
        estimates = known.observe(states + rng.normal(0, sigma, states.shape))
        believed = sigma**2 * gains[step]  # (1 - gain) P = sigma^2 gain
        if step in (0, 5, 30, 79):
            found = np.cov((estimates - states).T)
            assert np.allclose(found, believed, atol=0.12 * np.diag(believed).max()), step
        actions = (states @ [0.05, 0.2, 1.0, 0.3] > 0).astype(int)
        known.act(actions)
        states = kalman.next_states(states, actions)


def test_an_episode_that_starts_knows_nothing_of_the_one_before(kalman):
    policy, fresh = (kalman.KalmanPolicy(0.2, np.array([0.1, 0.3, 1.0, 0.4])) for _ in range(2))
    rng = np.random.default_rng(1)
    observations = rng.normal(0, 0.2, (6, 3, 4))
    state = None
    for step in range(3):
        actions, state = policy.predict(observations[step], state, np.full(3, step == 0))
    others = None
    for step in range(3, 6):
        actions, state = policy.predict(observations[step], state, np.full(3, step == 3))
        expected, others = fresh.predict(observations[step], others, np.full(3, step == 3))
        assert np.array_equal(actions, expected)
        assert np.array_equal(state.estimates, others.estimates)


def test_the_command_certifies_more_than_a_policy_without_memory_can(tmp_path):
    command = [sys.executable, str(ZOO_SCRIPTS / "kalman_search.py"), "-o", str(tmp_path), "--sigmas", "0.4"]
    small = ["--n-candidates", "12", "--n-rounds", "6", "--search-episodes", "60", "--n-episodes", "1000"]
    subprocess.run([*command, *small], check=True, capture_output=True)
    rows = list(csv.DictReader((tmp_path / "kalman.csv").open()))
    assert [row["method"] for row in rows] == ["berk-jones", "dkw", "clopper-pearson"]
    for row in rows:
        bounds = [float(value) for name, value in row.items() if name.startswith("certified_at_")]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[0] < float(row["mean_return"]) <= 200
    assert float(rows[0]["certified_at_0.4"]) > 140  # the best linear policy on one frame: 115.5, on five 157.0


def test_wrong_input_is_one_line_and_status_2(tmp_path):
    command = [sys.executable, str(ZOO_SCRIPTS / "kalman_search.py"), "-o", str(tmp_path / "out"), "--sigmas", "-1"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and "Traceback" not in result.stderr and "sigma" in result.stderr.splitlines()[-1]
