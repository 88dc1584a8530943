"""CertifiedReturnCallback in the zoo: in trainings from a yml, and as the objective of -optimize."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
import rl_zoo3.exp_manager
import yaml
from optuna.trial import TrialState
from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER
from support import evaluation_envs  # noqa: F401  registers tests/TwoSignals-v0

from sb3_camp.certification import certified_return
from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.evaluate import main as evaluate
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.tuning.workers import check_objective, open_study
from sb3_camp.zoo import register

ROOT = Path(__file__).resolve().parents[1]
TASK = "camp/CartPole1-v0"
NAME = "sb3_camp.tuning.CertifiedReturnCallback"
NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"
SETTINGS = {"n_eval_episodes": 10, "n_eval_envs": 5, "radii": [0.05, 0.2], "eval_freq": 100}


@pytest.fixture(autouse=True)
def registered():
    register()
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def experiment(folder: Path, algo: str = "dqn", env_id: str = TASK, **kwargs) -> rl_zoo3.exp_manager.ExperimentManager:
    """An experiment with hyper-parameters that fit into a test."""
    hyperparams = {
        "n_timesteps": 200.0,
        "policy": "MlpPolicy",
        "buffer_size": 500,
        "learning_starts": 150,
        **kwargs.pop("hyperparams", {}),
    }
    conf = folder / f"{algo}.yml"
    conf.write_text(yaml.safe_dump({env_id: hyperparams}))
    settings = dict(config=str(conf), seed=1, verbose=0, device="cpu", n_evaluations=2, n_eval_episodes=3, no_optim_plots=True)
    settings.update(pruner="none", log_interval=-1)
    args = argparse.Namespace(env=env_id, algo=algo, env_kwargs=kwargs.get("env_kwargs"))
    return rl_zoo3.exp_manager.ExperimentManager(args, algo, env_id, str(folder / "logs"), **{**settings, **kwargs})


def entry(**kwargs) -> list:
    return [{NAME: {**SETTINGS, **kwargs}}]


def optimized(folder: Path, n_trials: int = 2, **kwargs) -> optuna.Study:
    """A study of a few trials in a journal file."""
    storage = str(folder / "study.log")
    logs = str(folder / "trials")
    exp = experiment(
        folder,
        optimize_hyperparameters=True,
        n_trials=n_trials,
        storage=storage,
        study_name="study",
        optimization_log_path=logs,
        **kwargs,
    )
    assert exp.setup_experiment() is None
    exp.hyperparameters_optimization()
    return load_study(folder)


def load_study(folder: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
    return optuna.load_study(storage=optuna.storages.JournalStorage(backend), study_name="study")


def evaluations(folder: Path, trial: optuna.trial.FrozenTrial, name: str) -> dict:
    with np.load(folder / "trials" / f"trial_{trial.number}" / name) as data:
        return dict(data)


# Trainings


def test_a_training_with_the_stock_commands_ends_in_a_certificate_of_its_best_checkpoint(tmp_path):
    conf = {TASK: {"n_timesteps": 300.0, "policy": "MlpPolicy", "env_kwargs": {"sigma": 0.3}, "callback": entry()}}
    (tmp_path / "conf.yml").write_text(yaml.safe_dump(conf))
    start = "import sb3_camp.zoo; sb3_camp.zoo.register(); from rl_zoo3.train import train; train()"
    train = ["-c", start, "--algo", "camp_dqn", "--env", TASK, "-conf", "conf.yml", "--seed", "1", "--eval-freq", "-1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = tmp_path / "logs/camp_dqn/camp-CartPole1-v0_1"
    model = str(run / "best_certified_model.zip")
    result = subprocess.run([sys.executable, *train], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert evaluate(["--algo", "camp_dqn", "--env", TASK, "--model", model, "-n", "40"]) == 0
    assert certify([str(run)]) == 0
    with np.load(run / "certified_evaluations.npz") as data:
        assert data["timesteps"].tolist() == [100, 200, 300]
        assert data["sigma"] == 0.3, "the env_kwargs of the yml, which the zoo keeps from its own evaluation env"
    certificate = json.loads((run / "certification/certificate.json").read_text())
    assert certificate["sigma"] == 0.3 and certificate["n_episodes"] == 40


def test_env_wrappers_and_the_frame_stack_of_the_yml_reach_the_evaluation(tmp_path):
    wrappers = {"env_wrapper": [{NOISE: {"sigma": 0.15}}], "frame_stack": 3}
    exp = experiment(tmp_path, env_id="CartPole-v1", hyperparams={**wrappers, "callback": entry()}, eval_freq=-1)
    model, _ = exp.setup_experiment()
    exp.learn(model)
    assert model.observation_space.shape == (12,)
    with np.load(Path(exp.save_path) / "certified_evaluations.npz") as data:
        assert data["sigma"] == 0.15 and data["results"].shape == (2, 10)


@pytest.mark.parametrize("options", [{"env_kwargs": {"sigma": 0.5}}, {"eval_env_kwargs": {"sigma": 0.5}}])
def test_the_evaluation_has_the_noise_of_the_command_line(tmp_path, options):
    exp = experiment(tmp_path, hyperparams={"callback": entry(), "env_kwargs": {"sigma": 0.3}}, eval_freq=-1, **options)
    model, _ = exp.setup_experiment()
    exp.learn(model)
    with np.load(Path(exp.save_path) / "certified_evaluations.npz") as data:
        assert data["sigma"] == 0.5


# -optimize


@pytest.mark.parametrize("objective", ["value", "area"])
def test_trials_maximise_the_certified_return(tmp_path, objective):
    study = optimized(tmp_path, hyperparams={"callback": entry(objective=objective)})
    assert len(study.trials) == 2
    for trial in study.trials:
        data = evaluations(tmp_path, trial, "certified_evaluations.npz")
        assert trial.state == TrialState.COMPLETE
        assert trial.value == data["values"][-1]
        assert list(trial.intermediate_values.values()) == data["values"].tolist() and len(data["values"]) == 2
        at_radius = certified_return(data["results"][-1], 0.2, 0.2)
        assert trial.user_attrs["certified_return_0.2"] == at_radius
        assert trial.value == at_radius if objective == "value" else trial.value > at_radius
        assert (tmp_path / "trials" / f"trial_{trial.number}" / "best_certified_model.zip").is_file()


@pytest.mark.parametrize("algo", ["dqn", "camp_dqn"])
def test_without_the_entry_the_objective_is_the_zoos(tmp_path, algo):
    study = optimized(tmp_path, algo=algo)
    for trial in study.trials:
        data = evaluations(tmp_path, trial, "evaluations.npz")
        assert trial.value == data["results"][-1].mean()
        assert list(trial.intermediate_values.values()) == data["results"].mean(axis=1).tolist()
        assert not {"heartbeat", "certified_return_0.2"} & trial.user_attrs.keys()
    assert "certified_objective" not in study.user_attrs


def test_other_callbacks_of_the_yml_stay_in_the_trials(tmp_path):
    checkpoints = {
        "stable_baselines3.common.callbacks.CheckpointCallback": {"save_freq": 50, "save_path": str(tmp_path / "c")}
    }
    optimized(tmp_path, 1, hyperparams={"callback": [checkpoints, *entry()]})
    assert len(list((tmp_path / "c").glob("*.zip"))) == 4


def test_pruning_goes_by_the_certified_return(tmp_path, monkeypatch):
    threshold = optuna.pruners.ThresholdPruner(lower=1e6)
    monkeypatch.setattr(rl_zoo3.exp_manager.ExperimentManager, "_create_pruner", lambda self, method: threshold)
    with pytest.raises(ValueError, match="No trials are completed"):  # of the zoo, which reports the best
        optimized(tmp_path, hyperparams={"callback": entry()})
    for trial in load_study(tmp_path).trials:
        data = evaluations(tmp_path, trial, "certified_evaluations.npz")
        assert trial.state == TrialState.PRUNED
        assert trial.intermediate_values == {1: data["values"][0]}


def test_an_environment_without_noise_is_refused_before_the_first_trial(tmp_path):
    hyperparams = {"callback": entry(), "env_wrapper": [{"stable_baselines3.common.atari_wrappers.ClipRewardEnv": {}}]}
    with pytest.raises(InputError, match="no smoothing noise"):
        optimized(tmp_path, env_id="CartPole-v1", hyperparams=hyperparams)
    assert not (tmp_path / "study.log").exists()


def test_wrong_input_stops_the_study_instead_of_pruning_every_trial(tmp_path):
    with pytest.raises(RuntimeError, match="min_return"):
        optimized(tmp_path, hyperparams={"callback": entry(min_return=1000.0)})
    assert [trial.state for trial in load_study(tmp_path).trials] == [TrialState.FAIL]


def test_one_study_has_one_objective(tmp_path):
    optimized(tmp_path, 1, hyperparams={"callback": entry()})
    for other in ({"callback": entry(objective="area")}, {"callback": entry(n_eval_episodes=20)}, {}):
        with pytest.raises(InputError, match="maximise"):
            optimized(tmp_path, 1, hyperparams=other)
    for other in ({"n_timesteps": 40}, {"env_kwargs": {"sigma": 0.7}}, {"n_evaluations": 3}):
        with pytest.raises(InputError, match=f"with {next(iter(other))} "):
            optimized(tmp_path, 1, hyperparams={"callback": entry()}, **other)
    assert len(load_study(tmp_path).trials) == 1
    optimized(tmp_path, 1, hyperparams={"callback": entry(eval_freq=7, stop_at=3)})
    assert len(load_study(tmp_path).trials) == 2


def test_a_study_of_mean_returns_takes_no_certified_ones(tmp_path):
    optimized(tmp_path, 1)
    with pytest.raises(InputError, match="mean return of the zoo"):
        optimized(tmp_path, 1, hyperparams={"callback": entry()})


# The noise as a parameter


@pytest.mark.parametrize("env_id", [TASK, "CartPole-v1"])
def test_sigma_is_searched_on_demand_and_the_best_trial_goes_back_with_it(tmp_path, env_id):
    wrapper = {"env_wrapper": [{NOISE: {"sigma": 0.1}}]} if env_id == "CartPole-v1" else {}
    hyperparams = {"callback": entry(sigma_range=[0.3, 0.6]), **wrapper}
    study = optimized(tmp_path, env_id=env_id, hyperparams=hyperparams)
    for trial in study.trials:
        data = evaluations(tmp_path, trial, "certified_evaluations.npz")
        assert 0.3 <= trial.params["sigma"] <= 0.6
        assert data["sigma"] == trial.params["sigma"], "trained with one noise and evaluated with another"
    for number in (0, 1):  # the zoo takes 0 for no trial
        storage = str(tmp_path / "study.log")
        options = {"storage": storage, "study_name": "study", "trial_id": number, "hyperparams": hyperparams}
        exp = experiment(tmp_path, env_id=env_id, eval_freq=50, **options)
        model, saved = exp.setup_experiment()
        params = study.trials[number].params
        assert model.get_env().get_attr("sigma") == [params["sigma"]]
        assert model.exploration_fraction == params["exploration_fraction"]
        assert RunFolder.read(Path(exp.save_path)).smoothing_noise() == (params["sigma"], (), None)
        assert "sigma" not in saved


def test_a_command_line_that_would_drop_the_sigma_of_a_trial_is_refused(tmp_path):
    optimized(tmp_path, 1, hyperparams={"callback": entry(sigma_range=[0.3, 0.6])})
    options = {"storage": str(tmp_path / "study.log"), "study_name": "study", "trial_id": 0}
    with pytest.raises(InputError, match="add sigma:"):
        experiment(tmp_path, env_kwargs={"render_mode": None}, **options).setup_experiment()
    exp = experiment(tmp_path, env_kwargs={"sigma": 0.4}, eval_freq=-1, **options)
    assert exp.setup_experiment()[0].get_env().get_attr("sigma") == [0.4]


@pytest.mark.parametrize("objective", [None, {"radii": [0.2]}])
def test_a_sigma_that_a_study_did_not_search_as_noise_is_left_to_the_algorithm(tmp_path, monkeypatch, objective):
    monkeypatch.setitem(HYPERPARAMS_CONVERTER, "dqn", dict)  # as somebody's algorithm that samples sigma and nothing else
    path = str(tmp_path / "study.log")
    study = open_study(path, "study", create=True)
    check_objective(study, objective)
    distributions = {"sigma": optuna.distributions.FloatDistribution(0.1, 1.0)}
    for _ in range(2):
        study.add_trial(optuna.trial.create_trial(params={"sigma": 0.3}, distributions=distributions, value=1.0))
    exp = experiment(tmp_path, storage=path, study_name="study", trial_id=1)
    hyperparams, saved = exp.read_hyperparameters()
    assert hyperparams["sigma"] == saved["sigma"] == 0.3
    assert "env_kwargs" not in hyperparams


def test_a_trial_or_study_that_is_not_there_is_one_line_with_its_name(tmp_path):
    optimized(tmp_path, 1)
    options = {"storage": str(tmp_path / "study.log"), "study_name": "study"}
    for number in (1, 17):
        with pytest.raises(InputError, match=f"--trial-id {number}: the study 'study' has 1 trials, counted from 0"):
            experiment(tmp_path, trial_id=number, **options).setup_experiment()
    with pytest.raises(InputError, match="there is no study 'other'"):
        experiment(tmp_path, trial_id=1, **{**options, "study_name": "other"}).setup_experiment()


def test_sigma_is_not_a_parameter_without_demand(tmp_path):
    study = optimized(tmp_path, 1, hyperparams={"callback": entry()})
    assert "sigma" not in study.trials[0].params


# Dict observations


@pytest.mark.parametrize("algo", ["gaussian_dqn", "noisynet_dqn", "camp_dqn"])
def test_dict_observations_are_tuned_without_n_steps_where_there_are_none(tmp_path, algo):
    hyperparams = {"policy": "MultiInputPolicy", "env_wrapper": [{NOISE: {"sigma": 0.1}}]}
    study = optimized(tmp_path, 4, algo=algo, env_id="tests/TwoSignals-v0", hyperparams=hyperparams)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 4
    assert all(("n_steps" in trial.params) == (algo == "camp_dqn") for trial in study.trials)
