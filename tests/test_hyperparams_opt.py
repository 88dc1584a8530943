"""The search spaces of the zoo's -optimize, and the way back from a study."""

import gymnasium as gym
import optuna
import pytest
from stable_baselines3 import DQN

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.zoo.hyperparams_opt import (
    convert_camp_dqn_params,
    convert_gaussian_dqn_params,
    sample_camp_dqn_params,
    sample_gaussian_dqn_params,
    sample_noisynet_dqn_params,
)

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
        for name in {"camp_eta", "imitation", "replay"} & sampled.keys():
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
    assert set(trial.distributions["replay"].choices) == {"split", "shared"}
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
