import base64
import io
import json
import os
import zipfile

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from rl_zoo3.utils import ALGOS
from sb3_contrib import ARS, QRDQN, MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecFrameStack
from stable_baselines3.dqn.policies import DQNPolicy
from support.evaluation_envs import noisy_cartpoles

import sb3_camp.zoo
from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.evaluation import load_checkpoint, play_episodes
from sb3_camp.evaluation.checkpoint import check_spaces
from sb3_camp.evaluation.checkpoint_kind import check_kind


def edit_member(path, name, payload):
    with zipfile.ZipFile(path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    data = json.loads(files["data"])
    assert name in data
    data[name] = {":type:": "x", ":serialized:": base64.b64encode(payload).decode()}
    files["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)


class LeavesMark:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def small_model(algorithm, **kwargs):
    if algorithm in (PPO, RecurrentPPO):
        kwargs.update(n_steps=8, batch_size=8)
    policy = {RecurrentPPO: "MlpLstmPolicy", ARS: "LinearPolicy"}.get(algorithm, "MlpPolicy")
    return algorithm(policy, noisy_cartpoles(2), seed=0, device="cpu", **kwargs)


@pytest.mark.parametrize("algorithm", [DQN, PPO, CAMPDQN, QRDQN, RecurrentPPO, ARS])
def test_training_only_members_are_never_unpickled(algorithm, tmp_path):
    model = small_model(algorithm, learning_rate=lambda progress: 1e-3 * progress)
    model.save(tmp_path / "model.zip")
    expected = play_episodes(model, noisy_cartpoles(3), 6, seed=0)
    mark = tmp_path / "mark"
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        members = json.loads(archive.read("data"))
    for name in ("learning_rate", "lr_schedule", "exploration_schedule", "clip_range", "camp_lambda", "ep_info_buffer"):
        if name in members:
            edit_member(tmp_path / "model.zip", name, cloudpickle.dumps(LeavesMark(mark)))
    loaded = load_checkpoint(tmp_path / "model.zip", algorithm, "cpu")
    assert not mark.exists()
    np.testing.assert_array_equal(play_episodes(loaded, noisy_cartpoles(3), 6, seed=0), expected)
    assert not loaded.policy.training


@pytest.mark.parametrize("optimize_memory_usage", [False, True])
def test_no_full_replay_buffer_is_allocated(optimize_memory_usage, tmp_path):
    options = {"optimize_memory_usage": optimize_memory_usage}
    if optimize_memory_usage:
        options["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    DQN("MlpPolicy", noisy_cartpoles(1), buffer_size=10_000, device="cpu", **options).save(tmp_path / "model.zip")
    assert load_checkpoint(tmp_path / "model.zip", DQN, "cpu").replay_buffer.observations.shape[0] == 1


def test_member_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "model.zip"
    small_model(DQN, policy_kwargs={"net_arch": [8], "activation_fn": __import__("torch").nn.ReLU}).save(path)
    for payload in (b"not a pickle", b"cno_such_module\nthing\n."):
        edit_member(path, "policy_kwargs", payload)
        with pytest.raises(InputError, match="'policy_kwargs'") as error:
            load_checkpoint(path, DQN)
        assert "\n" not in str(error.value)


def test_what_is_not_a_checkpoint_of_the_algorithm_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(InputError, match=r"text\.zip: does not look like a checkpoint of DQN: check --algo") as error:
        load_checkpoint(tmp_path / "text.zip", DQN)
    assert "\n" not in str(error.value)


# Algorithms by the zoo's names; gaussian_dqn is DQN on noisy observations, and noisynet_dqn DQN with a policy of its own
KINDS = {
    **{name: {name} for name in ("a2c", "ppo", "trpo", "ppo_lstm", "sac", "tqc", "crossq", "ars", "qrdqn", "camp_dqn")},
    **{name: {"td3", "ddpg"} for name in ("td3", "ddpg")},
    **{name: {"dqn", "gaussian_dqn", "noisynet_dqn"} for name in ("dqn", "gaussian_dqn", "noisynet_dqn")},
}


@pytest.fixture(scope="module")
def zoo():
    """The algorithms of the zoo: MaskablePPO is none of them until ``evaluate`` runs, which another test may have done."""
    sb3_camp.zoo.register()
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ALGOS, "ppo_mask", raising=False)
        yield


@pytest.fixture(scope="module")
def checkpoints(zoo):
    """The content of a checkpoint of each algorithm of the zoo."""
    contents = {}
    for name, algorithm in ALGOS.items():
        continuous = name in ("ddpg", "sac", "td3", "tqc", "crossq")
        policy = {"ars": "LinearPolicy", "ppo_lstm": "MlpLstmPolicy"}.get(name, "MlpPolicy")
        kwargs = {"buffer_size": 8} if issubclass(algorithm, OffPolicyAlgorithm) else {}
        file = io.BytesIO()
        algorithm(policy, gym.make("Pendulum-v1" if continuous else "CartPole-v1"), device="cpu", **kwargs).save(file)
        contents[name] = file.getvalue()
    return contents


def test_a_checkpoint_of_another_algorithm_is_refused(checkpoints):
    assert KINDS.keys() == checkpoints.keys()
    for name, content in checkpoints.items():
        for other, algorithm in ALGOS.items():
            if other in KINDS[name]:
                check_kind(content, algorithm)
            else:
                with pytest.raises(InputError, match=f"it is a checkpoint of .*: give --algo .*{name}"):
                    check_kind(content, algorithm)


def test_kinds_without_a_name_in_the_zoo_are_named(checkpoints):
    file = io.BytesIO()
    MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(), n_steps=8, batch_size=8, device="cpu").save(file)
    with pytest.raises(InputError, match="checkpoint of MaskablePPO, not of PPO: which the zoo does not have"):
        check_kind(file.getvalue(), PPO)


class OwnDQN(DQN):
    pass


def test_algorithms_and_policies_from_elsewhere_are_taken_for_what_they_inherit(checkpoints, tmp_path):
    for content in (checkpoints["dqn"], checkpoints["noisynet_dqn"], b"no checkpoint"):
        check_kind(content, OwnDQN)
    with pytest.raises(InputError, match="not of OwnDQN"):
        check_kind(checkpoints["a2c"], OwnDQN)
    model = small_model(DQN)
    model.policy_class = type("OwnPolicy", (DQNPolicy,), {})
    model.save(tmp_path / "own.zip")
    check_kind((tmp_path / "own.zip").read_bytes(), DQN)


def test_what_is_loaded_is_the_content_that_was_read(checkpoints, tmp_path):
    path = tmp_path / "replaced_meanwhile.zip"
    path.write_bytes(checkpoints["ppo"])
    assert isinstance(load_checkpoint(path, DQN, "cpu", content=checkpoints["dqn"]), DQN)
    with pytest.raises(InputError, match=r"replaced_meanwhile\.zip: it is a checkpoint of PPO, not of DQN: give --algo ppo"):
        load_checkpoint(path, DQN, "cpu")


def test_deterministic_actions_ignore_the_exploration_rate(tmp_path):
    results = []
    for rate in (0.0, 0.3):
        model = small_model(DQN)
        model.exploration_rate = rate
        model.save(tmp_path / "model.zip")
        loaded = load_checkpoint(tmp_path / "model.zip", DQN, "cpu")
        assert loaded.exploration_rate == rate
        results.append([play_episodes(loaded, noisy_cartpoles(4), 20, seed=0, deterministic=d)[0] for d in (True, False)])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert not np.array_equal(results[0][1], results[1][1])


def test_spaces_must_fit_but_bounds_may_differ(tmp_path):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=8)
    check_spaces(model, noisy_cartpoles(1), tmp_path)
    with pytest.raises(InputError, match="observes"):
        check_spaces(model, VecFrameStack(noisy_cartpoles(1), 2), tmp_path)
    with pytest.raises(InputError, match="actions"):
        check_spaces(DQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=8), make_vec_env(ThreeActions), tmp_path)


class ThreeActions(gym.Env):
    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(3)
