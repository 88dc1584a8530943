"""The zoo's ExperimentManager as a library: what it did without this package, it does with it."""

import argparse
import gc
import multiprocessing
import weakref

import optuna
import pytest
import rl_zoo3.exp_manager

from sb3_camp.zoo import register


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    register()
    monkeypatch.chdir(tmp_path)


def manager(**kwargs) -> rl_zoo3.exp_manager.ExperimentManager:
    settings = dict(n_timesteps=100, eval_freq=50, n_eval_episodes=1, seed=1, verbose=0, device="cpu", log_interval=-1)
    return rl_zoo3.exp_manager.ExperimentManager(argparse.Namespace(), "dqn", "CartPole-v1", "logs", **{**settings, **kwargs})


@pytest.mark.parametrize("vec_env_type", ["dummy", "subproc"])
def test_a_manager_that_is_dropped_is_freed_with_its_model_and_its_processes(vec_env_type):
    exp = manager(vec_env_type=vec_env_type, hyperparams={"learning_starts": 50, "buffer_size": 100})
    model, _ = exp.setup_experiment()
    exp.learn(model)
    dropped = [weakref.ref(exp), weakref.ref(model), weakref.ref(model.get_env())]
    del exp, model
    gc.collect()
    assert [one() for one in dropped] == [None] * 3
    for child in multiprocessing.active_children():
        child.join(60)
        assert child.exitcode is not None


def study_of_two_trials() -> dict[str, str]:
    where = {"storage": "sqlite:///s.db", "study_name": "s"}
    study = optuna.create_study(storage=where["storage"], study_name="s")
    distributions = {"learning_rate": optuna.distributions.FloatDistribution(1e-5, 1.0, log=True)}
    for rate in (0.25, 0.5):
        study.add_trial(optuna.trial.create_trial(params={"learning_rate": rate}, distributions=distributions, value=rate))
    return where


def test_a_trial_is_loaded_with_the_zoos_arguments_and_errors():
    where = study_of_two_trials()
    exp = manager()
    assert (
        exp.load_trial(*where.values(), 1, False)
        == exp.load_trial(**where, trial_id=1, convert=False)
        == {"learning_rate": 0.5}
    )
    with pytest.raises(IndexError):
        exp.load_trial(*where.values(), 2)
    with pytest.raises(KeyError):
        exp.load_trial(where["storage"], "other", 0)


def test_trial_0_of_somebodys_study_is_left_to_the_zoo(monkeypatch):
    where = study_of_two_trials()
    monkeypatch.setitem(rl_zoo3.exp_manager.HYPERPARAMS_CONVERTER, "dqn", dict)
    in_yml = manager().read_hyperparameters()[0]["learning_rate"]
    assert manager(**where, trial_id=0).read_hyperparameters()[0]["learning_rate"] == in_yml
    assert manager(**where, trial_id=1).read_hyperparameters()[0]["learning_rate"] == 0.5
    for absent in ({**where, "study_name": "other"}, {"storage": "other.log", "study_name": "s"}):
        assert manager(**absent, trial_id=0).read_hyperparameters()[0]["learning_rate"] == in_yml


def test_what_the_methods_of_a_fork_return_comes_back(monkeypatch):
    from sb3_camp.zoo.manager import extend_manager

    class Fork:
        TrialEvalCallback = None

        class ExperimentManager(rl_zoo3.exp_manager.ExperimentManager):
            def learn(self, model, *args):
                return "model", model, args

            def setup_experiment(self, *args):
                return "set up", args

            def hyperparameters_optimization(self):
                return "study"

    extend_manager(Fork)
    exp = Fork.ExperimentManager(argparse.Namespace(), "dqn", "CartPole-v1", "logs")
    assert exp.learn(1, 2) == ("model", 1, (2,)) and exp.setup_experiment(3) == ("set up", (3,))
    assert exp.hyperparameters_optimization() == "study"
