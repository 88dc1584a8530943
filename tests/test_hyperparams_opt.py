"""The search spaces of the zoo's -optimize, and the way back from a study."""

import argparse
import re

import gymnasium as gym
import optuna
import pytest
import rl_zoo3.exp_manager
import yaml
from stable_baselines3 import DQN

import sb3_camp.zoo
from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.zoo.hyperparams_opt import (
    Unsampled,
    convert_camp_dqn_params,
    convert_gaussian_dqn_params,
    not_sampled,
    of_earlier_trial,
    sample_camp_dqn_params,
    sample_gaussian_dqn_params,
    sample_noisynet_dqn_params,
)

NOISE = [{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.1}}]
SPACES = {
    "camp_dqn": (CAMPDQN, sample_camp_dqn_params, convert_camp_dqn_params),
    "gaussian_dqn": (DQN, sample_gaussian_dqn_params, convert_gaussian_dqn_params),
    "noisynet_dqn": (NoisyNetDQN, sample_noisynet_dqn_params, convert_gaussian_dqn_params),
}


def random_study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def no_her() -> dict:
    return {"using_her_replay_buffer": False, "her_kwargs": {}}


@pytest.mark.parametrize("algo", SPACES)
def test_converter_gives_back_exactly_what_was_sampled(algo):
    _, sample, convert = SPACES[algo]
    study = random_study()
    for _ in range(100):
        trial = study.ask()
        sampled = sample(trial, 0, 1, no_her())
        stored = study.get_trials(deepcopy=False)[trial.number].params
        before = dict(stored)
        assert convert(stored) == sampled
        assert stored == before, "the converter must not change the study's own dictionary"


@pytest.mark.parametrize("algo", SPACES)
def test_every_sample_builds_a_model(algo):
    model_class, sample, _ = SPACES[algo]
    study = random_study()
    env = gym.make("CartPole-v1")
    for _ in range(20):
        sampled = sample(study.ask(), 0, 1, no_her())
        model = model_class("MlpPolicy", env, buffer_size=100, device="cpu", **sampled)
        for name in ("n_steps", "batch_size", "gradient_steps", "gamma"):
            assert getattr(model, name) == sampled[name]
        for name in {"camp_eta", "imitation", "reference"} & sampled.keys():
            assert getattr(model, name) == sampled[name]


def test_camp_search_space_covers_the_paper():
    study = random_study()
    eta, lambdas = [], []
    for _ in range(60):
        trial = study.ask()
        sampled = sample_camp_dqn_params(trial, 0, 1, no_her())
        eta.append(sampled["camp_eta"])
        lambdas.append(sampled["camp_lambda"])
    camp_lambda = trial.distributions["camp_lambda"]
    assert camp_lambda.log and camp_lambda.low <= 0.5 and camp_lambda.high >= 16
    assert any(isinstance(value, float) for value in lambdas), "a constant lambda is never sampled"
    assert any(str(value).startswith("ramp_") for value in lambdas), "a lambda that rises is never sampled"
    assert set(trial.distributions["imitation"].choices) == {"soft", "hard"}
    assert set(trial.distributions["reference"].choices) == {"alternating", "shared"}
    assert "adaptive" in eta, "adaptive eta is never sampled"
    assert any(isinstance(value, float) for value in eta), "fixed eta is never sampled"
    assert all(value == "adaptive" or value > 0 for value in eta)


def test_trials_of_a_study_without_the_schedule_of_lambda_had_a_constant_one():
    trial = random_study().ask()
    sample_camp_dqn_params(trial, 0, 1, no_her())
    params = {name: value for name, value in trial.params.items() if name != "lambda_schedule"}
    assert convert_camp_dqn_params(params)["camp_lambda"] == trial.params["camp_lambda"]


def test_noisynet_is_searched_in_the_space_of_dqn_without_the_exploration():
    noisynet, gaussian = random_study().ask(), random_study().ask()
    sampled = sample_noisynet_dqn_params(noisynet, 0, 1, no_her())
    sample_gaussian_dqn_params(gaussian, 0, 1, no_her())
    exploration = {"exploration_fraction", "exploration_final_eps"}
    assert gaussian.distributions.keys() - noisynet.distributions.keys() == exploration
    assert noisynet.distributions == {k: v for k, v in gaussian.distributions.items() if k not in exploration}
    assert not any(name.startswith("exploration") for name in sampled)
    assert noisynet.user_attrs["gamma"] == sampled["gamma"], "what the zoo remarks on the trial is kept"


def test_n_steps_is_left_out_with_her_where_sb3_would_ignore_it():
    trial = random_study().ask()
    sampled = sample_gaussian_dqn_params(trial, 0, 1, {"using_her_replay_buffer": True, "her_kwargs": {}})
    assert "n_steps" not in sampled and "n_steps" not in trial.params


# What a model would ignore is not sampled, and what earlier versions sampled is still read


class Actions(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("hyperparams", "left_out"),
    [
        ({}, set()),
        ({"reference": "shared"}, set()),
        ({"reference": "clean"}, {"reference"}),
        ({"reference": "agent.zip", "gamma": 0.9}, {"reference", "one_minus_gamma", "n_steps", "target_update_interval"}),
    ],
)
def test_only_what_counts_is_sampled_and_the_rest_stays_as_the_yml_has_it(hyperparams, left_out):
    all_of_them, trial = random_study().ask(), random_study().ask()
    sample_camp_dqn_params(all_of_them, 0, 1, no_her())
    sampled = sample_camp_dqn_params(Unsampled(trial, not_sampled("camp_dqn", hyperparams, None)), 0, 1, no_her())
    # eta has a parameter only if it is not adaptive
    assert (all_of_them.distributions.keys() ^ trial.distributions.keys()) - {"camp_eta_value"} == left_out
    assert left_out == set() or sampled["reference"] == hyperparams["reference"]
    assert sampled["gamma"] == pytest.approx(hyperparams["gamma"]) if "gamma" in hyperparams else sampled["gamma"] > 0.96
    converted = convert_camp_dqn_params(trial.params)
    names = {"gamma" if name == "one_minus_gamma" else name for name in left_out}
    assert not converted.keys() & names
    assert converted == {name: value for name, value in sampled.items() if name not in names}


def test_n_steps_of_sb3_are_not_sampled_for_dict_observations_those_of_camp_are():
    space = gym.spaces.Dict(vector=Actions.observation_space)
    assert [not_sampled(algo, {}, space) for algo in ("gaussian_dqn", "noisynet_dqn", "camp_dqn")] == [{"n_steps": 1}] * 2 + [
        {}
    ]


@pytest.mark.parametrize("replay", ["split", "shared"])
@pytest.mark.parametrize("reference", ["alternating", "shared", "clean", "agent.zip", None])
def test_trials_of_earlier_versions_are_still_read(replay, reference):
    """They held ``replay``, which meant nothing where the yml had a clean reference or a trained agent."""
    trial = random_study().ask()
    sample_camp_dqn_params(trial, 0, 1, no_her())
    params = {name: value for name, value in trial.params.items() if name != "reference"} | {"replay": replay}
    converted = convert_camp_dqn_params(params)
    with pytest.warns(DeprecationWarning, match="reference='(alternating|shared)'"):
        model = CAMPDQN("MlpPolicy", Actions(), buffer_size=100, device="cpu", **converted)
    assert model.reference == {"split": "alternating", "shared": "shared"}[replay]

    yml = {} if reference is None else {"reference": reference}
    settings = of_earlier_trial({"policy": "MlpPolicy", **yml, **converted}, converted)
    if reference is None:
        assert settings["replay"] == replay
    else:
        meant = model.reference if reference in ("alternating", "shared") else reference
        assert settings["reference"] == meant and "replay" not in settings


def test_a_trial_of_today_goes_before_a_yml_of_an_earlier_version():
    yml = {"replay": "shared", "clean_reference": False}
    assert of_earlier_trial(yml | {"reference": "alternating"}, {"reference": "alternating"}) == {"reference": "alternating"}


@pytest.mark.parametrize(
    ("params", "reference"),
    [
        ({"replay": "shared"}, "(alternating|shared)"),
        ({"clean_reference": True, "replay": "split", "env_wrapper": NOISE}, "clean"),
        ({"reference": "clean", "env_wrapper": NOISE}, "clean"),
    ],
)
def test_the_zoo_searches_and_trains_a_trial_whichever_spelling_the_yml_has(params, reference, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sb3_camp.zoo.register()
    entry = dict(policy="MlpPolicy", n_timesteps=60, learning_starts=20, buffer_size=100, **params)
    (tmp_path / "conf.yml").write_text(yaml.safe_dump({"CartPole-v1": entry}))
    study = dict(storage=f"sqlite:///{tmp_path}/s.db", study_name="s", config="conf.yml", log_folder="logs")
    manager = rl_zoo3.exp_manager.ExperimentManager
    common = [argparse.Namespace(), "camp_dqn", "CartPole-v1"]
    search = manager(*common, optimize_hyperparameters=True, n_trials=1, n_evaluations=1, no_optim_plots=True, **study)
    search.setup_experiment()
    search.hyperparameters_optimization()
    model, _ = manager(*common, trial_id=0, **study).setup_experiment()
    assert re.fullmatch(reference, model.reference)
    (trial,) = optuna.load_study(study_name="s", storage=study["storage"]).trials
    assert trial.state.name == "COMPLETE" and trial.params.get("reference", model.reference) == model.reference
    assert ("reference" in trial.params) == (reference != "clean")
