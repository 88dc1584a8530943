"""Adversaries in worker processes, and in the zoo's own commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
import yaml
from rl_zoo3.utils import get_wrapper_class
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack
from support.attacked_envs import balancing_dqn

from sb3_camp import AdversarialObservationWrapper
from sb3_camp.wrappers import BatchedAttackVecEnv

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.zip"
    balancing_dqn().save(path)
    return path


class WorkerState(gym.Wrapper):
    """Tells about the process that it is in."""

    def n_threads(self):
        return th.get_num_threads()

    def address_of_parameters(self):
        return [parameter.data_ptr() for parameter in self.get_wrapper_attr("adversary").policy.parameters()]


def attacked_cartpole(model, **kwargs):
    return WorkerState(AdversarialObservationWrapper(gym.make("CartPole-v1"), model, 1.0, **kwargs))


def play(env):
    env.seed(3)
    played = [env.reset()]
    norms = []
    for _ in range(12):
        observations, _, _, infos = env.step(np.zeros(env.num_envs, int))
        played.append(observations)
        norms.append([info["perturbation_norm"] for info in infos])
    assert np.any(norms)
    return np.array(played), np.array(norms)


@pytest.fixture
def four_threads():
    """The main process has had several threads at work, which a fork does not copy."""
    n_threads = th.get_num_threads()
    th.set_num_threads(4)
    th.rand(600, 600) @ th.rand(600, 600)
    yield
    assert th.get_num_threads() == 4
    th.set_num_threads(n_threads)


@pytest.mark.parametrize(
    ("start_method", "agents"),
    [
        ("fork", ["path", "model", "policy", "wrapper"]),
        pytest.param("spawn", ["model", "wrapper"], marks=pytest.mark.slow),
        ("forkserver", ["path"]),
    ],
)
def test_workers_attack_as_the_main_process_does_with_one_thread_each(model_file, start_method, agents, four_threads):
    model = balancing_dqn()
    ready = attacked_cartpole(model)
    make = {
        "path": lambda: attacked_cartpole(model_file),
        "model": lambda: attacked_cartpole(model),
        "policy": lambda: attacked_cartpole(model.policy),
        "wrapper": lambda: ready,  # sent as a whole
    }
    expected, expected_norms = play(DummyVecEnv([make["path"] for _ in agents]))
    env = SubprocVecEnv([make[agent] for agent in agents], start_method=start_method)
    try:
        before = env.env_method("address_of_parameters")
        observations, norms = play(env)
        np.testing.assert_allclose(observations, expected, rtol=1e-6)
        np.testing.assert_allclose(norms, expected_norms, rtol=1e-6)
        assert env.env_method("address_of_parameters") == before
        assert env.env_method("n_threads") == [1] * len(agents)
    finally:
        env.close()


def test_a_gpu_in_a_worker_is_refused_in_one_line_that_tells_the_way_out(model_file, capfd):
    with pytest.raises((EOFError, ConnectionError)):
        SubprocVecEnv([lambda: attacked_cartpole(model_file, device="cuda")], start_method="fork")
    assert re.search(
        r'InputError: AdversarialObservationWrapper: a model on a GPU .*: use DummyVecEnv, .* with device="cpu"\.\n',
        capfd.readouterr().err,
    )


@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a GPU")
def test_attacks_on_a_gpu_are_those_on_the_cpu_and_stay_out_of_workers(model_file, capfd):
    env = attacked_cartpole(model_file, device="cuda")
    assert env.get_wrapper_attr("adversary").policy.device.type == "cuda"
    on_gpu, norms = play(DummyVecEnv([lambda: env]))
    on_cpu, expected_norms = play(DummyVecEnv([lambda: attacked_cartpole(model_file)]))
    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-4)
    np.testing.assert_allclose(norms, expected_norms, atol=1e-4)
    model = balancing_dqn()
    model.policy.to("cuda")
    np.testing.assert_allclose(play(DummyVecEnv([lambda: attacked_cartpole(model)]))[0], on_cpu, atol=1e-4)
    batched = BatchedAttackVecEnv([lambda: attacked_cartpole(model_file, device="auto") for _ in range(2)])
    np.testing.assert_allclose(play(batched)[0][:, :1], on_cpu, atol=1e-4)
    with pytest.raises((EOFError, ConnectionError)):
        SubprocVecEnv([lambda: attacked_cartpole(model)], start_method="fork")
    with pytest.raises((EOFError, ConnectionError)):
        vec_env = SubprocVecEnv([lambda: env], start_method="fork")
        vec_env.reset()
    assert capfd.readouterr().err.count("use DummyVecEnv") == 2


# The zoo


def zoo(module, *arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_zoo_trains_and_enjoys_with_an_adversary_from_a_yml(tmp_path):
    (tmp_path / "models").mkdir()
    victim = balancing_dqn(n_stack=2)
    victim.save(tmp_path / "models" / "victim.zip")
    (tmp_path / "attacked.yml").write_text(
        """
CartPole-v1:
  policy: MlpPolicy
  n_timesteps: 200
  buffer_size: 200
  learning_starts: 300
  frame_stack: 2
  env_wrapper:
    - sb3_camp.wrappers.AdversarialObservationWrapper:
        model: models/victim.zip
        budget: 1.0
        attack: apgd
        n_stack: 2
        stack_padding: zero
        attack_kwargs: {q_threshold: 0.0}
"""
    )
    common = ("--algo", "dqn", "--env", "CartPole-v1", "-f", "logs", "--seed", 1)
    zoo("rl_zoo3.train", *common, "-conf", "attacked.yml", "--eval-freq", 100, "--eval-episodes", 1, cwd=tmp_path)
    # The adversary's own victim plays: without attacks it would make 500 steps
    assert evaluate_policy(victim, VecFrameStack(make_vec_env("CartPole-v1"), 2), 1)[0] == 500
    victim.save(tmp_path / "logs" / "dqn" / "CartPole-v1_1" / "CartPole-v1.zip")
    output = zoo("rl_zoo3.enjoy", *common, "-n", 200, "--no-render", cwd=tmp_path)
    rewards = [float(reward) for reward in re.findall(r"Episode Reward: ([\d.]+)", output)]
    assert len(rewards) > 5 and max(rewards) < 30


def test_the_entry_of_a_yml_builds_the_wrapper(model_file):
    entry = f"""
env_wrapper:
  - sb3_camp.wrappers.AdversarialObservationWrapper: {{model: {model_file}, budget: 0.5, attack: pgd}}
"""
    env = get_wrapper_class(yaml.safe_load(entry))(gym.make("CartPole-v1"))
    assert isinstance(env, AdversarialObservationWrapper)
    assert env.budget == 0.5 and env.adversary.settings == {"step_size": 0.01}


# How strong attacks are


def test_attacks_ruin_an_undefended_agent_and_random_perturbations_of_the_same_size_do_not(model_file):
    returns = {}
    for attack in ("pgd", "apgd", "random"):
        env = make_vec_env(
            "CartPole-v1",
            8,
            seed=1,
            wrapper_class=AdversarialObservationWrapper,
            wrapper_kwargs=dict(model=model_file, budget=1.0, attack=attack, attack_kwargs={"step_size": 0.05}),
            vec_env_cls=BatchedAttackVecEnv,
        )
        returns[attack] = evaluate_policy(balancing_dqn(), env, 8)[0]
    assert returns["pgd"] < 20 and returns["apgd"] < 20
    assert returns["random"] > 450
