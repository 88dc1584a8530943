"""
Policies of every kind through the real commands: evaluate, certify, plot, and the callback of trainings.

Each policy does what is right where its reading is above zero, so its worst case is known in closed form: the noisy reading
N(3, 2^2) is pushed straight down, and the probability to be right falls from Phi(3 / 2) to Phi((3 - R) / 2).
"""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from scipy.special import ndtr
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp import CertifiedReturnCallback, certified_return
from sb3_camp.certify import main as certify
from sb3_camp.evaluate import main as evaluate
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.plot import main as plot
from sb3_camp.wrappers import NoisyObservationWrapper

OFFSET, SIGMA = 3.0, 2.0
RADII = np.array([0.0, 1.0, 2.0, 4.0])
ACTIONS = {
    "box": spaces.Box(-2, 2, (1,), np.float32),
    "discrete": spaces.Discrete(2),
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary(2),
}


class Sign(gym.Env):
    """Two steps, the second is what counts: 3 is shown, and an action above zero is right."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)

    def __init__(self, actions="box", masked=False):
        self.action_space = ACTIONS[actions]
        if masked:
            self.action_masks = lambda: np.ones(2, bool)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.first = True
        return np.zeros(1, np.float32), {}

    def step(self, action):
        first, self.first = self.first, False
        return np.array([OFFSET], np.float32), float(not first and np.ravel(action)[0] > 0), not first, False, {}


if "tests/Sign-v0" not in gym.registry:
    gym.register("tests/Sign-v0", Sign, max_episode_steps=2, disable_env_checker=True)
BOX = ("ppo", "a2c", "trpo", "sac", "td3", "ddpg", "tqc", "crossq", "ars", "ppo_lstm")
ALGORITHMS = {
    **{"ppo": PPO, "a2c": A2C, "trpo": TRPO, "sac": SAC, "td3": TD3, "ddpg": DDPG, "tqc": TQC, "crossq": CrossQ, "ars": ARS},
    **{"dqn": DQN, "qrdqn": QRDQN, "ppo_lstm": RecurrentPPO, "ppo_mask": MaskablePPO},
}


def agent(algo, actions):
    """Scores that are x for what is right and -x for the rest, whatever the algorithm puts around them."""
    env = gym.make("tests/Sign-v0", actions=actions)
    settings = {} if algo in ("ppo", "a2c", "trpo", "ars", "ppo_lstm", "ppo_mask") else {"buffer_size": 1}
    policy, network = "MlpPolicy", {"net_arch": []}
    if algo == "ppo_lstm":
        policy, network = "MlpLstmPolicy", {"net_arch": [], "lstm_hidden_size": 1}
    if algo == "qrdqn":
        network["n_quantiles"] = 1
    model = ALGORITHMS[algo](policy, env, policy_kwargs=network, device="cpu", **settings)
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.zero_()
        if algo == "ppo_lstm":  # all gates stand at one half, and what they let through is as good as linear
            model.policy.lstm_actor.weight_ih_l0[2] = 1e-3
        last_layer(model.policy).weight.copy_(th.tensor(WEIGHTS[actions]))
    return model


WEIGHTS = {
    "box": [[1.0]],
    "discrete": [[-1.0], [1.0]],
    "multidiscrete": [[-1.0], [1.0], [0.0], [0.0], [0.0]],
    "multibinary": [[1.0], [0.0]],
}


def last_layer(policy):
    for name in ("action_net", "mu"):
        layer = getattr(policy, name, None) or getattr(getattr(policy, "actor", None), name, None)
        if layer is not None:
            return layer if isinstance(layer, th.nn.Linear) else [one for one in layer if isinstance(one, th.nn.Linear)][-1]
    net = getattr(policy, "q_net", None) or policy.quantile_net
    return (net.q_net if hasattr(net, "q_net") else net.quantile_net)[0]


# The others play by the same code as these
SLOW = {("a2c", "box"), ("trpo", "box"), ("ddpg", "box"), ("crossq", "box"), ("ars", "box"), ("qrdqn", "discrete")}


def saved(algo, actions, folder):
    """An agent in a file, and the options that name it and its environment."""
    file = folder / "model.zip"
    agent(algo, actions).save(file)
    return ("--algo", algo, "--env", "tests/Sign-v0", "--env-kwargs", f"actions:'{actions}'", "--model", file)


CASES = [
    pytest.param(algo, actions, marks=pytest.mark.slow if (algo, actions) in SLOW else ())
    for algo, actions in (
        *((algo, "box") for algo in BOX),
        *((algo, "discrete") for algo in ("dqn", "qrdqn", "ppo_lstm", "ppo_mask", "ars")),
        *(("ppo", "multidiscrete"), ("a2c", "multibinary")),
    )
]


@pytest.mark.parametrize(("algo", "actions"), CASES)
def test_what_is_certified_is_the_truth_about_the_worst_case(algo, actions, tmp_path):
    options = saved(algo, actions, tmp_path)
    more = ("--sigma", SIGMA, "-n", 3000, "--n-envs", 100, "--device", "cpu", "-o", tmp_path)
    assert evaluate([*map(str, (*options, *more))]) == 0
    assert certify([str(tmp_path / "evaluations.npz"), "--min-return", "0", "--radii", *map(str, RADII)]) == 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    # What is remembered of the first reading counts half, so its noise does too; it is forgotten between episodes
    scale = np.sqrt(1.25) if algo == "ppo_lstm" else 1.0
    truth = ndtr(OFFSET / (scale * SIGMA) - RADII / SIGMA)
    curve = np.array(certificate["certified_return"])
    assert np.all(curve <= truth) and np.all(curve >= truth - 0.05)
    assert certificate["mean_return"] == pytest.approx(truth[0], abs=0.025)
    assert (certificate["algo"], certificate["deterministic"]) == (algo, True)
    if (algo, actions) in (("sac", "box"), ("ppo_lstm", "box")):
        picture = tmp_path / "curves.png"
        assert plot(["certificate", str(tmp_path), "-o", str(picture)]) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("algo", "actions", "reason"),
    [
        ("sac", "box", "Between continuous or several actions there is no gap"),
        ("ppo", "multidiscrete", "Between continuous or several actions there is no gap"),
        ("ppo_lstm", "discrete", "remembers earlier observations"),
        ("ppo_mask", "discrete", "chooses among the actions that a mask allows"),
    ],
)
def test_the_q_gap_says_for_which_policies_it_has_a_meaning(algo, actions, reason, tmp_path, capsys):
    options = saved(algo, actions, tmp_path)
    assert evaluate([*map(str, (*options, "--sigma", SIGMA, "-n", 10, "--q-gap", "-o", tmp_path))]) == 2
    error = capsys.readouterr().err
    assert "--q-gap" in error and reason in error and error.count("\n") == 1


def test_masks_that_are_computed_from_the_state_are_refused(tmp_path, capsys):
    agent("ppo_mask", "discrete").save(tmp_path / "model.zip")
    kwargs = ("--env-kwargs", "actions:'discrete'", "masked:True")
    options = ("--algo", "ppo_mask", "--env", "tests/Sign-v0", *kwargs, "--model", tmp_path / "model.zip", "--sigma", SIGMA)
    assert evaluate([*map(str, (*options, "-n", 10, "-o", tmp_path))]) == 2
    error = capsys.readouterr().err
    assert "takes from the state without noise" in error and error.count("\n") == 1
    # Of another policy they are no business: it never asks for them
    agent("ppo", "discrete").save(tmp_path / "model.zip")
    assert evaluate([*map(str, ("--algo", "ppo", *options[2:], "-n", 10, "-o", tmp_path))]) == 0


FAST = {("sac", "box", True), ("ppo_lstm", "box", True), ("ppo", "multidiscrete", False), ("ppo_mask", "discrete", False)}
TRAINED = [
    pytest.param(algo, actions, normalised, marks=() if (algo, actions, normalised) in FAST else pytest.mark.slow)
    for algo, actions in (
        *((algo, "box") for algo in ("sac", "td3", "ddpg", "tqc", "ppo", "a2c", "trpo", "ppo_lstm")),
        *(("ppo", "multidiscrete"), ("ppo_mask", "discrete")),
    )
    for normalised in (False, True)
]


@pytest.mark.parametrize(("algo", "actions", "normalised"), TRAINED)
def test_trainings_are_certified_on_the_way(algo, actions, normalised, tmp_path):
    environment = EvaluationEnv("tests/Sign-v0", {"actions": actions}).with_noise(SIGMA)
    callback = CertifiedReturnCallback(
        environment,
        n_eval_episodes=40,
        n_eval_envs=10,
        eval_freq=32,
        radii=[0.0, 1.0],
        log_path=tmp_path,
        best_model_save_path=tmp_path,
        verbose=0,
    )
    env = make_vec_env(
        "tests/Sign-v0",
        2,
        seed=0,
        env_kwargs={"actions": actions},
        wrapper_class=NoisyObservationWrapper,
        wrapper_kwargs={"sigma": SIGMA},
    )
    if normalised:
        env = VecNormalize(env)
    off_policy = algo in ("sac", "td3", "ddpg", "tqc")
    settings = {"buffer_size": 100, "learning_starts": 20} if off_policy else {"n_steps": 16}
    if algo not in ("a2c",) and not off_policy:
        settings["batch_size"] = 16
    policy = "MlpLstmPolicy" if algo == "ppo_lstm" else "MlpPolicy"
    model = ALGORITHMS[algo](policy, env, policy_kwargs={"net_arch": [4]}, seed=0, device="cpu", **settings)
    model.learn(64, callback=callback, **({"use_masking": False} if algo == "ppo_mask" else {}))
    with np.load(tmp_path / "certified_evaluations.npz") as log:
        assert log["results"].shape == (2, 40)
        for returns, found in zip(log["results"], log["certified_returns"], strict=True):
            np.testing.assert_allclose(found, certified_return(returns, SIGMA, [0.0, 1.0]), rtol=1e-12)
    # The best checkpoint is an agent like any other, with its statistics beside it
    saved = tmp_path / "best_certified_model.zip"
    options = ("--algo", algo, "--env", "tests/Sign-v0", "--env-kwargs", f"actions:'{actions}'", "--model", saved)
    assert evaluate([*map(str, (*options, "--sigma", SIGMA, "-n", 20, "--device", "cpu", "-o", tmp_path / "out"))]) == 0
    with np.load(tmp_path / "out" / "evaluations.npz") as file:
        assert ("FrozenNormalizeObservation" in str(file["env_wrappers"])) is normalised
