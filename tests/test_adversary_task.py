"""``camp/Adversary-v0``: an adversary's environment as a task, trained in by the zoo's own command and used by attack."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import yaml
from sb3_contrib import RecurrentPPO
from stable_baselines3 import SAC
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import load_results
from support.attack_agents import attack, result, save_balancing
from support.evaluate_runs import environment
from support.run_folders import make_run, noise

from sb3_camp.errors import InputError

pytest_plugins = ["support.attack_fixtures"]

IDLE = np.float32([1, 0, 0, 0, -10])
"""Spends next to nothing"""


def made(victim, **options):
    options = {"algo": "dqn", "env": "CartPole-v1", **options}
    return gym.make("camp/Adversary-v0", disable_env_checker=True, victim=str(victim), **options)


def played(env, action, seed=None):
    """Return and length of an episode, and what was seen first."""
    first, _ = env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        _, reward, done, truncated, _ = env.step(action)
        assert not truncated
        total, steps = total + reward, steps + 1
    return total, steps, first


@pytest.mark.parametrize("env_id", ["CartPole-v1", "tests/ShortPole-v0"])
def test_the_reward_is_minus_the_victims_in_native_and_single_envs(agent, env_id):
    env = made(agent, env=env_id, budget=50.0)
    check_env(env, skip_render_check=True)
    env.reset(seed=1)
    lasts = 500 if env_id == "CartPole-v1" else 60
    idle = [played(env, IDLE, seed) for seed in (5, None, 5)]
    assert [one[0] for one in idle] == [-lasts] * 3
    np.testing.assert_array_equal(idle[0][2], idle[2][2])
    assert np.any(idle[0][2] != idle[1][2])
    # Shown a pole that leans to one side
    rewards = [played(env, np.float32([0, 0, sign, sign, 0]))[0] for sign in (-1, 1)]
    assert min(rewards) > -lasts
    env.close()


def test_the_budget_of_an_episode_is_kept_and_what_is_left_is_seen(agent):
    env = made(agent, budget=0.75)
    for _ in range(3):
        observation, _ = env.reset()
        left = [float(observation[-2])]
        done = False
        while not done:
            observation, _, done, _, _ = env.step(env.action_space.sample())
            left.append(float(observation[-2]))
        # A quarter of the episodes begins with less; sigma is 0 here, so it is in units of the observation
        assert min(left) >= 0 and left[0] <= 0.75 and np.all(np.diff(left[:-1]) <= 0)
    env.close()


@pytest.mark.parametrize("threat", ["step-l2", "step-linf"])
def test_a_bound_on_each_step_is_there_again_at_each(agent, threat):
    env = made(agent, budget=0.5, threat=threat)
    assert env.action_space.shape == (4,)
    begins = set()
    for _ in range(20):
        observation, _ = env.reset()
        left, done = {float(observation[-2])}, False
        while not done:
            observation, _, done, _, _ = env.step(env.action_space.sample())
            left.add(float(observation[-2]))
        assert len(left) == 1, "one bound for all of an episode"
        begins |= left
    # A quarter of the episodes has a smaller one
    assert len(begins) > 1 and max(begins) == 0.5 and min(begins) > 0
    env.close()


@pytest.mark.parametrize("name", ["recurrent", "continuous"])
def test_recurrent_and_continuous_victims_play(name, tmp_path):
    if name == "recurrent":
        model, options = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8), {"algo": "ppo_lstm"}
    else:
        model, options = SAC("MlpPolicy", "Pendulum-v1", buffer_size=1), {"algo": "sac", "env": "Pendulum-v1"}
    model.save(tmp_path / "victim.zip")
    env = made(tmp_path / "victim", **options)
    action = np.ones(env.action_space.shape, np.float32)
    total, steps, _ = played(env, action, seed=0)
    assert steps == 200 and total > 0 if name == "continuous" else -total in (steps, steps - 1)
    env.close()


def test_what_is_wrong_is_said(agent, tmp_path):
    for options, message in (
        ({"victim": tmp_path / "none.zip", "algo": None}, "give algo and env besides"),
        ({"victim": agent, "epsilon": 1}, "has no epsilon"),
        ({"victim": agent, "env": "Pendulum-v1"}, "the policy observes"),
        ({"victim": agent, "budget": -1.0}, "budget must be"),
        ({"victim": agent, "threat": "step-l1"}, "threat must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            made(**options).reset()


def zoo(folder, *arguments):
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "camp/Adversary-v0", "-f", folder / "logs"]
    command += ["--device", "cpu", "--num-threads", 1, "--verbose", 0, *arguments]
    done = subprocess.run(list(map(str, command)), env=environment(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "logs" / "ppo" / "camp-Adversary-v0_1"


@pytest.mark.slow
def test_the_zoos_command_trains_an_adversary_that_attack_uses(tmp_path):
    run = make_run(tmp_path / "victims", "CartPole-v1", env_wrapper=[noise(0.3)])
    save_balancing(run / "best_model.zip")
    short = ("-n", 300, "--eval-freq", 100, "--eval-episodes", 2, "-params", "n_envs:4", "n_steps:32", "batch_size:64")
    trained = zoo(tmp_path, "--env-kwargs", f"victim:'{run / 'best_model.zip'}'", "budget:1.5", *short)
    config = yaml.unsafe_load((trained / "camp-Adversary-v0" / "config.yml").read_text())
    assert config["vec_env_wrapper"] == "sb3_camp.attack_runs.adversary_task.batched" and config["gamma"] == 1.0
    assert (trained / "camp-Adversary-v0" / "vecnormalize.pkl").exists()
    episodes = load_results(str(trained))
    assert len(episodes) > 0 and np.all(episodes["r"] < 0)
    means = {}
    for name in ("best_model.zip", "camp-Adversary-v0.zip"):
        common = ("--model", run / "best_model.zip", "-n", 20, "--attack", "learned", "--budget", 1.5)
        out = tmp_path / name
        assert attack(*common, "--adversary", trained / name, "-o", out, env="CartPole-v1") == 0
        (means[name],) = result(out)["budgets"]
        assert result(out)["sigma"] == 0.3 and 0 < means[name]["max_spent"] <= 1.5
    # The same numbers without the statistics are another adversary
    (tmp_path / "bare.zip").write_bytes((trained / "camp-Adversary-v0.zip").read_bytes())
    assert attack(*common, "--adversary", tmp_path / "bare.zip", "-o", tmp_path / "bare", env="CartPole-v1") == 0
    (bare,) = result(tmp_path / "bare")["budgets"]
    assert bare["mean_spent"] != means["camp-Adversary-v0.zip"]["mean_spent"]
