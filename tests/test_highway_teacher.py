"""A network on noisy observations that learns from the planner on Highway."""

import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from support.zoo_scripts import ZOO_SCRIPTS, imported_script, run_python, status_of

import sb3_camp  # noqa: F401


@pytest.fixture(scope="module")
def teacher():
    pytest.importorskip("highway_env")
    with imported_script("highway_teacher") as module:
        yield module


class Coins:
    """Games of three steps. The observation is the action that pays, action 1 or 3, and there is nothing else to see."""

    num_envs = 8

    def __init__(self):
        self._random = np.random.default_rng(0)

    def _look(self):
        self.pays = self._random.choice([1, 3], size=self.num_envs)
        return (self.pays[:, None] - 2.0) * np.ones((self.num_envs, 2))

    def reset(self, seed):
        self._steps = 0
        return self._look(), {}

    def step(self, actions):
        self._steps += 1
        rewards, over = (actions == self.pays).astype(float), np.full(self.num_envs, self._steps % 4 == 3)
        return self._look(), rewards, np.zeros(self.num_envs, dtype=bool), over, {}


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_the_network_learns_the_values_of_what_a_noisy_observation_may_stand_for(teacher, sigma, monkeypatch):
    """
    With a coin of -1 or 1 and noise N(0, 1) on two equal entries, the posterior log odds of 1 are 2 (o_1 + o_2). A value that
    is either low or, with probability p > 1/2, high by more than 2, is predicted as high - (1 - p) / p by the smooth L1 loss.
    """
    games = Coins()
    # Action 1 pays 4 if the coin is -1, action 3 pays 4 if it is 1, action 0 always pays 3, the others nothing
    monkeypatch.setattr(
        teacher, "action_values", lambda envs: np.stack([3 + 0 * envs.pays, *(4.0 * (envs.pays == a) for a in range(1, 5))], 1)
    )
    monkeypatch.setattr(teacher, "_LAST_BATCHES", 2000)

    class Space(gym.Env):
        observation_space, action_space = gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Discrete(5)

    model = DQN("MlpPolicy", Space(), buffer_size=1, policy_kwargs=dict(net_arch=[32]), seed=0, device="cpu")
    teacher.learn_from_planner(games, sigma, model, 512, seed=0)
    looks = np.array([[-1.0, -1.0], [1.0, 1.0], [-0.2, 0.2]], dtype=np.float32)
    off = np.exp(-4.0) if sigma else 0.0  # (1 - p) / p where both entries are -1 or both are 1
    high, low, safe = 2.6 - off, -1.4 + off, 1.6  # of 4, 0 and 3, less the mean of all five, 1.4
    with torch.no_grad():
        found = model.q_net(torch.as_tensor(looks)).numpy()
    np.testing.assert_allclose(found[:2], [[safe, high, -1.4, low, -1.4], [safe, low, -1.4, high, -1.4]], atol=0.15)
    if sigma:
        assert model.predict(looks, deterministic=True)[0].tolist() == [1, 3, 0], "in doubt it takes what is safe"
    for ours, target in zip(model.q_net.parameters(), model.q_net_target.parameters(), strict=True):
        assert torch.equal(ours, target)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--env-kwargs", "speed:1"], "the names are sigma, high_speed_reward, config"),
        (["--env-kwargs", "sigma=1"], "give name:value"),
        (["--env-kwargs", "sigma:often"], "the value is no Python literal"),
        (["--env-kwargs", "sigma:-1"], "sigma"),
        (["--env-kwargs", "config:{'vehicles_count': 'many'}"], "--env-kwargs: camp/HighwaySpeed-v0 cannot be made with them"),
        (["-n", "1e3"], "1e3: give a whole number, at least 1"),
        (["-n", "0"], "0: give a whole number, at least 1"),
        (["--seed", "-1"], "give a whole number, from 0 to 2147483647"),
        (["--device", "abacus"], "abacus: "),
        (["-f", "a_file"], "a_file"),
    ],
)
def test_what_it_cannot_use_is_said_before_anything_is_learned(teacher, options, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    monkeypatch.setattr(sys, "argv", ["highway_teacher", "--env", "camp/HighwaySpeed-v0", *options])
    monkeypatch.setattr(teacher, "learn_from_planner", lambda *args: pytest.fail("it learns"))
    assert status_of(teacher.main) == 2 and told in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.rglob("camp-*")), "no folder is left that the next one would stumble over"


def test_a_folder_is_taken_at_the_start_and_given_back_if_nothing_comes_of_it(teacher, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "dqn" / "camp-HighwaySpeed-v0_1"
    monkeypatch.setattr(sys, "argv", ["highway_teacher", "--env", "camp/HighwaySpeed-v0", "-f", str(tmp_path)])

    def interrupted(*args):
        assert folder.is_dir() and teacher.main() == 2, "another one is refused"
        raise KeyboardInterrupt

    monkeypatch.setattr(teacher, "learn_from_planner", interrupted)
    assert teacher.main() == 130 and not folder.exists()
    assert "is there already" in capsys.readouterr().err


@pytest.mark.slow
def test_it_leaves_a_run_of_the_zoo_that_is_evaluated_and_certified(tmp_path):
    run = partial(run_python, tmp_path)
    pytest.importorskip("highway_env")
    script = str(ZOO_SCRIPTS / "highway_teacher.py")
    task = ("--env", "camp/HighwaySpeed-v0", "-f", "logs")
    kwargs = ("--env-kwargs", "sigma:0.25", "config:{'duration': 3, 'vehicles_count': 5}")
    assert "256 of 256 steps" in run(script, *task, *kwargs, "-n", "256", "--num-threads", "1").stdout
    assert "is there already" in run(script, *task, "-n", "256", status=2).stderr
    assert "one number" in run(script, *task[:2], "-f", "other", "--env-kwargs", f"sigma:{[0.1] * 25}", status=2).stderr
    run("-m", "sb3_camp.evaluate", "--algo", "dqn", *task, "-n", "20", "--n-envs", "4")
    told = run("-m", "sb3_camp.certify", "logs/dqn/camp-HighwaySpeed-v0_1", "--min-return", "0").stdout
    assert "0.25" in told
