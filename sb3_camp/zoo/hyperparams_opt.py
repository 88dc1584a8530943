"""
Search spaces for the zoo's ``-optimize``, and the way back from a trial to hyper-parameters.

They extend the zoo's search space for DQN. The zoo's functions are imported on use: this module is itself imported while
``rl_zoo3.hyperparams_opt`` loads.
"""

from collections.abc import Mapping
from typing import Any, cast

import optuna
from gymnasium import spaces

# Algorithms whose n-step returns are SB3's, which has none for Dict observations
_N_STEP_ALGOS = ("gaussian_dqn", "noisynet_dqn")
# What the primary's search samples; a reference that sees something else, or is trained already, is the user's choice
_SAMPLED_REFERENCES = ("alternating", "shared")

_NO_EXPLORATION = {"exploration_fraction": 0.0, "exploration_final_eps": 0.0}


def sample_gaussian_dqn_params(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """
    Sampler for DQN hyperparams, n-step returns included.

    ``n_steps`` is not sampled with HER, which would ignore it.

    :param trial: Optuna trial
    :param n_actions: number of dimensions of a continuous action space (unused)
    :param n_envs: number of environments (unused)
    :param additional_args: the zoo's remarks on the replay buffer
    :return: arguments for the constructor of the model
    """
    from rl_zoo3.hyperparams_opt import sample_dqn_params

    hyperparams = sample_dqn_params(trial, n_actions, n_envs, additional_args)
    if not additional_args["using_her_replay_buffer"]:
        hyperparams["n_steps"] = trial.suggest_int("n_steps", 1, 32, log=True)
    return hyperparams


def convert_gaussian_dqn_params(sampled_params: dict[str, Any]) -> dict[str, Any]:
    """
    Turn the parameters of a trial into the hyper-parameters that the sampler returned for it.

    :param sampled_params: ``trial.params``
    :return: arguments for the constructor of the model
    """
    from rl_zoo3.hyperparams_opt import convert_offpolicy_params

    return convert_offpolicy_params(sampled_params)


def sample_noisynet_dqn_params(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """
    Sampler for NoisyNet-DQN hyperparams: those of ``gaussian_dqn`` except the epsilon-greedy exploration, which stays off.

    :param trial: Optuna trial
    :param n_actions: number of dimensions of a continuous action space (unused)
    :param n_envs: number of environments (unused)
    :param additional_args: the zoo's remarks on the replay buffer
    :return: arguments for the constructor of the model
    """
    without_exploration = cast(optuna.Trial, Unsampled(trial, _NO_EXPLORATION))
    hyperparams = sample_gaussian_dqn_params(without_exploration, n_actions, n_envs, additional_args)
    return {name: value for name, value in hyperparams.items() if name not in _NO_EXPLORATION}


def not_sampled(algo: str, hyperparams: Mapping[str, Any], observation_space: spaces.Space | None) -> dict[str, Any]:
    """
    Parameters of the search that the model would ignore, or that are not for the search to choose.

    :param algo: the zoo's name of the algorithm
    :param hyperparams: those that are not sampled, with ``reference`` in today's words
    :param observation_space: what the model observes, None if that is not known
    :return: their names in the trial, and the values they have
    """
    if algo in _N_STEP_ALGOS and isinstance(observation_space, spaces.Dict):
        return {"n_steps": 1}
    reference = hyperparams.get("reference", "alternating")
    if algo != "camp_dqn" or (isinstance(reference, str) and reference in _SAMPLED_REFERENCES):
        return {}
    fixed = {"reference": reference}
    from sb3_camp.camp_dqn.reference_option import is_learning_kind

    if not is_learning_kind(reference):  # a trained agent learns no values
        fixed["one_minus_gamma"] = 1 - hyperparams.get("gamma", 0.99)
        fixed["n_steps"] = hyperparams.get("n_steps", 1)
        fixed["target_update_interval"] = hyperparams.get("target_update_interval", 10_000)
    return fixed


def of_earlier_trial(settings: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any]:
    """
    Settings of CAMP-DQN that hold a trial of a study, where ``reference`` is today's word in one and ``replay`` and
    ``clean_reference`` are those of earlier versions in the other.

    :param settings: hyper-parameters of the yml, with those of the trial in their place
    :param trial: parameters of the trial, as :func:`convert_camp_dqn_params` gives them
    :return: the settings, in the words of one version
    """
    if "reference" in trial:
        return {name: value for name, value in settings.items() if name not in ("replay", "clean_reference")}
    if "replay" in trial and "reference" in settings:
        settings = {name: value for name, value in settings.items() if name != "replay"}
        # For another reference it meant nothing
        if settings["reference"] in _SAMPLED_REFERENCES:
            settings["reference"] = "alternating" if trial["replay"] == "split" else "shared"
    return dict(settings)


class Unsampled:
    """
    A trial that samples some parameters no more, so that they do not stand in the study, where they would mislead.

    :param trial: Optuna trial
    :param values: what these parameters are instead
    """

    def __init__(self, trial: optuna.Trial, values: dict[str, Any]) -> None:
        self._trial = trial
        self._values = values

    def suggest_float(self, name: str, *args: Any, **kwargs: Any) -> float:
        return self._values[name] if name in self._values else self._trial.suggest_float(name, *args, **kwargs)

    def suggest_int(self, name: str, *args: Any, **kwargs: Any) -> int:
        return self._values[name] if name in self._values else self._trial.suggest_int(name, *args, **kwargs)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return self._values[name] if name in self._values else self._trial.suggest_categorical(name, choices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)


def sample_camp_dqn_params(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """
    Sampler for CAMP-DQN hyperparams: those of DQN, n-step returns, and CAMP's own.

    ``reference`` is sampled from "alternating" and "shared"; a yml with a clean reference or a trained agent keeps it, see
    :func:`not_sampled`.

    The trial holds ``camp_eta`` as "adaptive" or "fixed"; only in the second case it holds ``camp_eta_value`` as well. Its
    ``camp_lambda`` is a number, ``lambda_schedule`` says whether lambda is that number all the time or rises to it.

    :param trial: Optuna trial
    :param n_actions: number of dimensions of a continuous action space (unused)
    :param n_envs: number of environments (unused)
    :param additional_args: the zoo's remarks on the replay buffer
    :return: arguments for the constructor of the model
    """
    hyperparams = sample_gaussian_dqn_params(trial, n_actions, n_envs, additional_args)
    # Paper: 0.5 to 16
    camp_lambda = trial.suggest_float("camp_lambda", 0.25, 32, log=True)
    hyperparams["camp_lambda"] = _scheduled(camp_lambda, trial.suggest_categorical("lambda_schedule", ["constant", "ramp"]))
    hyperparams["camp_eta"] = trial.suggest_categorical("camp_eta", ["adaptive", "fixed"])
    if hyperparams["camp_eta"] == "fixed":
        hyperparams["camp_eta"] = trial.suggest_float("camp_eta_value", 0.1, 100, log=True)
    hyperparams["imitation"] = trial.suggest_categorical("imitation", ["soft", "hard"])
    hyperparams["reference"] = trial.suggest_categorical("reference", list(_SAMPLED_REFERENCES))
    return hyperparams


def _scheduled(camp_lambda: float, schedule: str) -> float | str:
    return f"ramp_{camp_lambda}" if schedule == "ramp" else camp_lambda


def convert_camp_dqn_params(sampled_params: dict[str, Any]) -> dict[str, Any]:
    """
    Turn the parameters of a trial into the hyper-parameters that the sampler returned for it.

    A trial of an earlier version holds ``replay``, which :class:`~sb3_camp.camp_dqn.CAMPDQN` still reads.

    :param sampled_params: ``trial.params``
    :return: arguments for the constructor of the model; those that were not sampled are left out
    """
    hyperparams = convert_gaussian_dqn_params({"one_minus_gamma": 0.0, **sampled_params})
    if "one_minus_gamma" not in sampled_params:
        del hyperparams["gamma"]
    # A study of an earlier version holds constant lambdas only
    hyperparams["camp_lambda"] = _scheduled(hyperparams["camp_lambda"], hyperparams.pop("lambda_schedule", "constant"))
    if "camp_eta_value" in hyperparams:
        hyperparams["camp_eta"] = hyperparams.pop("camp_eta_value")
    return hyperparams
