"""
What the zoo's ``ExperimentManager`` learns: to tell callbacks of its environments, and to maximise the certified return.

A :class:`sb3_camp.tuning.CertifiedReturnCallback` in the hyper-parameter ``callback`` is what asks for it with ``-optimize``:
it stands in the yml or in ``-params`` of the stock command, is kept in the ``config.yml`` of a run, and the training of the
best trial is evaluated by the same entry. Without it, the zoo's search is what it was.
"""

import contextlib
import copy
import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import optuna
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.runs.scenario import WRAPPER_KEYS, noisy_wrappers, takes_sigma
from sb3_camp.tuning.zoo_run import ZooRun, tell_zoo_run
from sb3_camp.zoo.algorithms import ALGORITHMS
from sb3_camp.zoo.command_errors import one_line_errors
from sb3_camp.zoo.hyperparams_opt import Unsampled, not_sampled, of_earlier_trial

if TYPE_CHECKING:
    from sb3_camp.evaluation import EvaluationEnv

SIGMA, SIGMA_RANGE, SEARCHES_SIGMA = "sigma", "sigma_range", "searches_sigma"


def extend_manager(zoo_exp_manager: ModuleType) -> None:
    """
    :param zoo_exp_manager: the module ``rl_zoo3.exp_manager``
    """
    from rl_zoo3.callbacks import TrialEvalCallback

    from sb3_camp.zoo.trial_callback import CertifiedTrialEvalCallback

    if zoo_exp_manager.TrialEvalCallback is TrialEvalCallback:
        zoo_exp_manager.TrialEvalCallback = CertifiedTrialEvalCallback  # type: ignore[attr-defined]
    manager = zoo_exp_manager.ExperimentManager
    for name, extended in _EXTENDED.items():
        zoo_method = getattr(manager, name)
        if not hasattr(zoo_method, "sb3_camp_extended"):
            setattr(manager, name, _extend(zoo_method, extended))


def _extend(zoo_method: Callable[..., Any], extended: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(zoo_method)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return extended(functools.partial(zoo_method, self), self, *args, **kwargs)

    method.sb3_camp_extended = True  # type: ignore[attr-defined]
    return method


def _with_one_line_errors(zoo_method: Callable[..., Any], manager: Any, *args: Any, **kwargs: Any) -> Any:
    with one_line_errors():
        return zoo_method(*args, **kwargs)


def _read_hyperparameters(zoo_method: Callable[..., Any], manager: Any) -> Any:
    if manager.trial_id is None or not (manager.storage and manager.study_name):
        return zoo_method()
    from sb3_camp.tuning.workers import objective_of, open_study

    study = open_study(manager.storage, manager.study_name, create=False)
    objective = None if study is None else objective_of(study)
    if manager.trial_id == 0 and objective is None and manager.algo not in ALGORITHMS:
        return zoo_method()  # which takes 0 for no trial
    _check_trial(manager, study)
    hyperparams, saved_hyperparams = zoo_method()
    for settings in (hyperparams, saved_hyperparams):
        if manager.trial_id == 0:
            settings.update(manager.load_trial(manager.storage, manager.study_name, 0))
            settings.update(manager.custom_hyperparams or {})
        if manager.algo == "camp_dqn":
            _read_earlier_trial(manager, settings)
        if SIGMA in settings and SEARCHES_SIGMA in (objective or {}):  # else it is a setting of somebody's algorithm
            settings.update(_with_sigma(manager, settings, settings.pop(SIGMA)))
    return hyperparams, saved_hyperparams


def _check_trial(manager: Any, study: optuna.Study | None) -> None:
    if study is None:
        raise InputError(f"--study-name: there is no study {manager.study_name!r} in {manager.storage}")
    n_trials = len(study.get_trials(deepcopy=False))
    if not -n_trials <= manager.trial_id < n_trials:
        raise InputError(
            f"--trial-id {manager.trial_id}: the study {manager.study_name!r} has {n_trials} trials, counted from 0"
        )


def _read_earlier_trial(manager: Any, settings: dict[str, Any]) -> None:
    own = manager.custom_hyperparams or {}
    if not own.keys() & {"reference", "replay", "clean_reference"}:
        trial = manager.load_trial(manager.storage, manager.study_name, manager.trial_id)
        todays = of_earlier_trial(settings, trial)
        settings.clear()
        settings.update(todays)


def _preprocess_hyperparams(zoo_method: Callable[..., Any], manager: Any, hyperparams: dict[str, Any]) -> Any:
    manager.sb3_camp_wrappers = {key: hyperparams[key] for key in WRAPPER_KEYS if hyperparams.get(key)}
    if manager.optimize_hyperparameters and manager.algo == "camp_dqn":
        hyperparams = _in_todays_words(hyperparams)  # for the search samples them
    processed = zoo_method(hyperparams)
    manager.sb3_camp_objective = None
    if manager.optimize_hyperparameters:
        manager.specified_callbacks, manager.sb3_camp_objective = _without_certified(manager.specified_callbacks)
    return processed


def _in_todays_words(hyperparams: dict[str, Any]) -> dict[str, Any]:
    from sb3_camp.camp_dqn.reference_option import BY_DEFAULT, OLD_NAMES, in_new_words

    old = {name: hyperparams[name] for name in OLD_NAMES if name in hyperparams}
    others = {name: value for name, value in hyperparams.items() if name not in OLD_NAMES}
    return {**others, "reference": in_new_words(hyperparams.get("reference", BY_DEFAULT), old)}


def _create_envs(zoo_method: Callable[..., Any], manager: Any, *args: Any, **kwargs: Any) -> VecEnv:
    env = zoo_method(*args, **kwargs)
    manager.sb3_camp_observation_space = env.observation_space
    folder = None if manager.optimize_hyperparameters else Path(manager.save_path)
    environment = functools.partial(_evaluation_env, *_scenario(manager))  # and not the manager, which holds its models
    tell_zoo_run(env, ZooRun(environment, folder, getattr(manager, "sb3_camp_objective", None)))
    return env


def _scenario(manager: Any) -> tuple[str, Any, dict[str, Any]]:
    """Id, keyword arguments and wrappers of the environment of an evaluation."""
    env_kwargs = getattr(manager, "_eval_env_kwargs_args", None) or manager.env_kwargs
    return manager.env_name.gym_id, env_kwargs, manager.sb3_camp_wrappers


def _evaluation_env(env_id: str, env_kwargs: Any, wrappers: dict[str, Any]) -> "EvaluationEnv":
    from sb3_camp.evaluation import EvaluationEnv  # slow to import, which other runs are spared

    return EvaluationEnv(env_id, copy.deepcopy(env_kwargs), copy.deepcopy(wrappers))


def _objective(zoo_method: Callable[..., Any], manager: Any, trial: optuna.Trial) -> float:
    zoo_objective = zoo_method.func  # type: ignore[attr-defined]
    fixed = not_sampled(manager.algo, manager._hyperparams, getattr(manager, "sb3_camp_observation_space", None))
    seen: Any = Unsampled(trial, fixed) if fixed else trial
    objective = getattr(manager, "sb3_camp_objective", None)
    if objective is None:
        return zoo_objective(manager, seen)
    with _attendance(manager, trial) as attendance:
        if attendance is not None and attendance.is_surplus():
            print(f"Trial {trial.number} is one too many: another worker has begun the last one")
            return math.nan  # by which the trial fails, and does not count
        sigma_range = objective.get(SIGMA_RANGE)
        if sigma_range is not None:  # threads of --n-jobs share the manager
            manager = _with_noise(copy.copy(manager), trial.suggest_float(SIGMA, *sigma_range, log=True))
        return zoo_objective(manager, seen)


def _hyperparameters_optimization(zoo_method: Callable[..., Any], manager: Any) -> Any:
    with one_line_errors():
        _prepare_study(manager)
        return zoo_method()


def _prepare_study(manager: Any) -> None:
    from sb3_camp.tuning.workers import Attendance, check_objective, open_study, opened_database

    objective = getattr(manager, "sb3_camp_objective", None)
    if objective is not None and objective.get(SIGMA_RANGE) is None:
        from sb3_camp.tuning.callback import certifiable_sigma  # slow to import, which other runs are spared

        certifiable_sigma(_evaluation_env(*_scenario(manager)))  # before the first trial, as it would be wrong in all of them
    if manager.storage and manager.study_name:
        if objective is not None and manager.storage.endswith(".log"):
            # Optuna's lock of a relative path in a sub-folder, if a killed worker leaves it behind, is never broken
            manager.storage = os.path.abspath(manager.storage)
        study = open_study(manager.storage, manager.study_name, create=objective is not None)
        if study is not None:
            check_objective(study, None if objective is None else _described(manager, objective))
        if objective is not None:
            assert study is not None
            manager.sb3_camp_last_beats = {}
            with Attendance(study, None, manager.max_total_trials, manager.sb3_camp_last_beats):
                pass  # it ends when the dead trials are counted no more
    elif manager.storage and not manager.storage.endswith(".log"):
        opened_database(manager.storage)


_EXTENDED: dict[str, Callable[..., Any]] = {
    "setup_experiment": _with_one_line_errors,
    "learn": _with_one_line_errors,
    "read_hyperparameters": _read_hyperparameters,
    "_preprocess_hyperparams": _preprocess_hyperparams,
    "create_envs": _create_envs,
    "objective": _objective,
    "hyperparameters_optimization": _hyperparameters_optimization,
}


def _attendance(manager: Any, trial: optuna.Trial) -> Any:
    from sb3_camp.tuning.workers import Attendance

    if manager.storage is None:
        return contextlib.nullcontext()
    last_beats = manager.__dict__.setdefault("sb3_camp_last_beats", {})  # of all trials of this worker
    return Attendance(trial.study, trial, manager.max_total_trials, last_beats)


def _without_certified(callbacks: Any) -> tuple[list[Any], dict[str, Any] | None]:
    """The entries of ``callback`` but the :class:`CertifiedReturnCallback`, and its arguments, None without one."""
    from rl_zoo3.utils import get_class_by_name

    from sb3_camp.tuning.callback import CertifiedReturnCallback

    others, found = [], []
    for entry in callbacks if isinstance(callbacks, list) else [] if callbacks is None else [callbacks]:
        if isinstance(entry, CertifiedReturnCallback):
            raise InputError("callback: -optimize needs the name of CertifiedReturnCallback and its arguments, not an object")
        name, arguments = next(iter(entry.items())) if isinstance(entry, dict) else (entry, {})
        kind = get_class_by_name(name) if isinstance(name, str) else None
        if isinstance(kind, type) and issubclass(kind, CertifiedReturnCallback):
            found.append(dict(arguments or {}))
        else:
            others.append(entry)
    if len(found) > 1:
        raise InputError("callback: -optimize maximises one objective: leave one CertifiedReturnCallback")
    return others, found[0] if found else None


def _described(manager: Any, objective: dict[str, Any]) -> dict[str, Any]:
    """All that decides the values of a study, apart from the hyper-parameters, and whether the noise is one of these."""
    from sb3_camp.tuning.callback import CertifiedReturnCallback

    callback = CertifiedReturnCallback(**objective)
    environment = _evaluation_env(*_scenario(manager))
    return {
        "algo": manager.algo,
        "env": environment.env_id,
        "env_kwargs": {**(manager.env_kwargs or {}), **(environment.env_kwargs or {})},
        "n_timesteps": manager.n_timesteps,
        "n_evaluations": manager.n_evaluations,
        **callback.criterion.description(),
        "n_eval_episodes": callback.n_eval_episodes,
        "deterministic": callback.deterministic,
        **({} if callback.sigma_range is None else {SEARCHES_SIGMA: True}),
    }


def _with_sigma(manager: Any, settings: Mapping[str, Any], sigma: float) -> dict[str, Any]:
    """The hyper-parameters that change for another noise, the place of which is the task's or in ``env_wrapper``."""
    if takes_sigma(manager.env_name.gym_id):
        if manager.env_kwargs and SIGMA not in manager.env_kwargs:
            raise InputError(f"--env-kwargs replaces the sigma of the trial: add sigma:{sigma!r} to it")
        return {"env_kwargs": {**(settings.get("env_kwargs") or {}), SIGMA: sigma, **manager.env_kwargs}}
    return {"env_wrapper": noisy_wrappers(settings.get("env_wrapper"), sigma)}


def _with_noise(manager: Any, sigma: float) -> Any:
    """A copy of the manager, changed so that its environments have another noise."""
    from rl_zoo3.utils import get_wrapper_class

    if takes_sigma(manager.env_name.gym_id):
        for name in ("env_kwargs", "eval_env_kwargs", "_eval_env_kwargs_args"):
            if getattr(manager, name, None) is not None:
                setattr(manager, name, {**getattr(manager, name), SIGMA: sigma})
    else:
        wrappers = {"env_wrapper": noisy_wrappers(manager.sb3_camp_wrappers.get("env_wrapper"), sigma)}
        manager.sb3_camp_wrappers = {**manager.sb3_camp_wrappers, **wrappers}
        manager.env_wrapper = get_wrapper_class(copy.deepcopy(wrappers))
    return manager
