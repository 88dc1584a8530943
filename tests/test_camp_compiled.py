"""The compiled update does what the update does as ever, and where it cannot be compiled the training goes on without."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch as th
import torch._inductor as inductor
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from support.small_camp import needs_compiler, noisy_cartpole, same, small_model, trained_states, weights

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn import compile_choice
from sb3_camp.camp_dqn.compile_choice import expected_updates, is_worth_compiling


class Images(gym.Env):
    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(1000)))
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action == 1), False, self.steps == 20, {}


class Dicts(Images):
    observation_space = spaces.Dict(image=Images.observation_space, vector=spaces.Box(-1, 1, (3,), np.float32))


def train_both(n_updates, n_calls, batch_size=32, env=noisy_cartpole, **kwargs):
    """The same updates on the same batches, as ever and compiled."""
    models = []
    for compile in (False, True):
        model = small_model(env(), compile=compile, gradient_steps=0, **kwargs).learn(200)
        model.set_random_seed(1)
        for call in range(n_calls):
            model._current_progress_remaining = 1 - call / n_calls
            model.train(n_updates // n_calls, batch_size)
        models.append(model)
    assert models[1]._compiler.functions and not models[1]._compiler.gave_up
    return models


def assert_close(as_ever, compiled, tolerance=1e-3):
    for one, other in zip(trained_states(as_ever), trained_states(compiled), strict=True):
        assert (one - other).norm() <= tolerance * one.norm() + 1e-6
    for name, value in as_ever.logger.name_to_value.items():
        if name.startswith("train/"):
            assert compiled.logger.name_to_value[name] == pytest.approx(value, rel=tolerance, abs=1e-4), name


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "kwargs",
    [
        dict(reference="alternating", camp_lambda="ramp_2", learning_rate=lambda remaining: 1e-4 * remaining),
        dict(reference="shared", imitation="hard", camp_eta=3.0),
        dict(reference="clean", max_grad_norm=0.1),
        dict(reference="clean_quantiles", reference_kwargs=dict(wang_parameter=0.5)),
        dict(reference="agent"),
        dict(reference="ppo", imitation="hard"),
        dict(policy_kwargs=dict(net_arch=[8], activation_fn=th.nn.Tanh, optimizer_kwargs=dict(weight_decay=0.01, eps=1e-4))),
        dict(policy_kwargs=dict(net_arch=[], optimizer_class=th.optim.AdamW, optimizer_kwargs=dict(weight_decay=0.1))),
    ],
    ids=lambda kwargs: kwargs.get("reference") or "policy_kwargs",
)
def test_a_thousand_updates_give_the_same_numbers(kwargs):
    kwargs = dict(learning_rate=1e-4) | kwargs
    if kwargs.get("reference") == "agent":
        kwargs["reference"] = DQN("MlpPolicy", noisy_cartpole(), seed=3, device="cpu")
    elif kwargs.get("reference") == "ppo":
        kwargs["reference"] = PPO("MlpPolicy", noisy_cartpole(), seed=3, device="cpu")
    as_ever, compiled = train_both(1000, n_calls=10, **kwargs)
    assert_close(as_ever, compiled, tolerance=0.02)
    assert len(compiled._compiler.functions) == 1, "schedules must not have anything compiled again"


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(("policy", "env_class"), [("CnnPolicy", Images), ("MultiInputPolicy", Dicts)])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_images_and_dicts_give_the_same_numbers(policy, env_class, n_steps):
    def env():
        return make_vec_env(env_class, n_envs=2, seed=0)

    as_ever, compiled = train_both(
        20, n_calls=2, policy=policy, env=env, policy_kwargs=None, n_steps=n_steps, batch_size=8, learning_rate=1e-4
    )
    assert_close(as_ever, compiled, tolerance=0.02)


@pytest.mark.slow
@needs_compiler
def test_a_compiled_training_is_saved_copied_pickled_and_continued_as_any_other(tmp_path):
    """With SB3's own format: the model of one kind goes on as one of the other kind."""
    model = small_model(compile=True, policy_kwargs=dict(net_arch=[])).learn(200)
    assert model._compiler.functions
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    twin = copy.deepcopy(model)
    assert same(trained_states(twin), trained_states(model)) and not twin._compiler.functions
    assert pickle.loads(pickle.dumps(model._compiler)).functions == {}
    goes_on = []
    for compile in (True, False):
        loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu", compile=compile)
        assert same(trained_states(loaded), trained_states(model))
        loaded.load_replay_buffer(tmp_path / "buffer")
        loaded.set_random_seed(0)
        loaded.learn(16, reset_num_timesteps=False)
        goes_on.append(loaded)
        assert loaded.policy.optimizer.state_dict()["param_groups"] == model.policy.optimizer.state_dict()["param_groups"]
    assert goes_on[0]._compiler.functions
    for one, other in zip(*map(trained_states, goes_on), strict=True):
        th.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


# What cannot be compiled


class Extractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, kind):
        super().__init__(observation_space, 4)
        self.kind = kind
        self.layer = {"batch norm": th.nn.BatchNorm1d(4), "dropout": th.nn.Dropout()}.get(kind, th.nn.Linear(4, 4))

    def forward(self, observations):
        if self.kind == "decides by values" and observations.sum() > 0:
            return -self.layer(observations)
        return self.layer(observations)


@pytest.mark.parametrize("reference", ["alternating", "clean"])
@pytest.mark.parametrize(
    ("policy_kwargs", "reason"),
    [
        (dict(features_extractor_class=Extractor, features_extractor_kwargs=dict(kind="dropout")), "random numbers"),
        (dict(features_extractor_class=Extractor, features_extractor_kwargs=dict(kind="batch norm")), "batch normalisation"),
        (
            dict(features_extractor_class=Extractor, features_extractor_kwargs=dict(kind="decides by values")),
            "goes on without",
        ),
        (dict(optimizer_class=th.optim.RMSprop), "RMSprop, not Adam"),
        (dict(optimizer_kwargs=dict(amsgrad=True)), "option of Adam"),
    ],
)
def test_what_cannot_be_compiled_is_trained_as_ever_with_one_warning(policy_kwargs, reason, reference):
    policy_kwargs = dict(net_arch=[8]) | policy_kwargs
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = small_model(compile=True, policy_kwargs=policy_kwargs, reference=reference).learn(120)
    said = [str(warning.message) for warning in caught if "not compiled" in str(warning.message)]
    assert len(said) == 1 and reason in said[0]
    as_ever = small_model(compile=False, policy_kwargs=policy_kwargs, reference=reference).learn(120)
    assert same(weights(model.policy), weights(as_ever.policy))
    assert same(weights(model.reference_policy), weights(as_ever.reference_policy))


def test_without_a_compiler_that_works_the_training_is_the_same_with_one_warning(tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    as_ever = small_model(compile=False).learn(120)
    with inductor.config.patch({"cpp.cxx": (str(broken),)}), pytest.warns(UserWarning, match="the training goes on without"):
        model = small_model(compile=True).learn(120)
    assert same(weights(model.policy), weights(as_ever.policy))


@pytest.mark.slow
@needs_compiler
def test_a_compiled_update_that_fails_later_is_done_as_ever(monkeypatch):
    model = small_model(compile=True, policy_kwargs=dict(net_arch=[])).learn(120)
    twin = small_model(compile=False, policy_kwargs=dict(net_arch=[])).learn(120)
    for name, parameters in model.get_parameters().items():
        twin.set_parameters({name: copy.deepcopy(parameters)}, exact_match=False)
    (function,) = model._compiler.functions.values()

    def fail(*inputs):
        raise RuntimeError("no memory left\nfor anything")

    monkeypatch.setattr(function, "_run", fail)
    twin.replay_buffer = copy.deepcopy(model.replay_buffer)
    with pytest.warns(UserWarning, match="goes on without: no memory left$"):
        for one in (model, twin):
            one.set_random_seed(0)
            one.train(3, one.batch_size)
    assert model._compiler.gave_up and same(trained_states(model), trained_states(twin))


def test_auto_leaves_convolutions_on_a_cpu_alone(capsys):
    model = small_model(make_vec_env(Images, seed=0), policy="CnnPolicy", policy_kwargs=None, verbose=1)
    model._total_timesteps = 10**7
    assert expected_updates(model) > 20_000 and not is_worth_compiling("auto", model) and is_worth_compiling(True, model)
    assert "not compiled (convolutions on a CPU" in capsys.readouterr().out


def test_auto_asks_how_long_the_training_is_and_for_a_compiler(monkeypatch, capsys):
    model = small_model(train_freq=8, gradient_steps=16, learning_starts=1000)
    model.verbose = 1
    for total, updates in ((500, 0), (1800, 1600), (11_000, 20_000)):
        model._total_timesteps = total
        assert expected_updates(model) == updates
        monkeypatch.setattr(compile_choice, "what_is_missing", lambda device: None)
        assert is_worth_compiling("auto", model) == (updates >= 20_000)
        assert f"{updates:,} in this training" in capsys.readouterr().out
        monkeypatch.setattr(compile_choice, "what_is_missing", lambda device: "there is no C++ compiler")
        assert not is_worth_compiling("auto", model)
        assert is_worth_compiling(True, model) and not is_worth_compiling(False, model)
    model.gradient_steps = -1
    assert expected_updates(model) == 10_000
    assert small_model().learn(60)._compiler is None


@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_compiled_update_gives_the_same_numbers():
    as_ever, compiled = train_both(100, n_calls=2, device="cuda", learning_rate=1e-4)
    assert_close(as_ever, compiled, tolerance=0.02)
