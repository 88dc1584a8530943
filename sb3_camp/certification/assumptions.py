"""
What is known of the episodes in logs, and what only the user says: the noise that was on the observations, the entries that
have none, the lowest return.

A file is trusted only for what it can know. An evaluation by ``sb3_camp.evaluate`` knows its noise. A log of the zoo or of SB3
does not: it may have been put into the folder of a run whose settings have noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_camp.certification.episode_logs import MOST, EpisodeLog
from sb3_camp.certification.independence import check_independent
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.runs.layers import Shows, is_smoothing_noise, layer_of_entry
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import Scenario, takes_sigma, wrapper_entries
from sb3_camp.tasks.registry import n_native_episodes
from sb3_camp.tasks.returns import is_gymnasiums, lowest_return, registration_of

# Packages that an environment of Gymnasium and the wrappers known here come from
_MAY_MAKE_GYMNASIUMS = {"gymnasium", "stable_baselines3", "sb3_contrib", "rl_zoo3"}
GIVEN, KNOWN = "given", "known"
"""Where the lowest return comes from: from the user, or from a table of this package. With a monitor log it is the user's in
any case, as the log does not tell with which settings its episodes were played."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """
    Episodes that may be pooled, with all that a certificate must know of them.

    :param logs: the logs, see :func:`sb3_camp.certification.pooling.read_logs`
    :param run: the run folder that they lie in
    :param sigma: standard deviation of the noise on the observations
    :param sigma_assumed: whether no log tells it, only the user or the settings of the run
    :param clean_keys: the entries of the observation that have no noise
    :param min_return: a return that no episode can fall below
    :param min_return_basis: :data:`GIVEN` or :data:`KNOWN`
    :param independence_assumed: whether a log shows too little to check that its episodes are independent
    """

    logs: list[EpisodeLog]
    run: RunFolder | None
    sigma: float
    sigma_assumed: bool
    clean_keys: list[str] | None
    min_return: float
    min_return_basis: str
    independence_assumed: bool

    @property
    def returns(self) -> np.ndarray:
        """Returns of all episodes, float64, shape (n,)."""
        return np.concatenate([log.returns for log in self.logs])


def find_evidence(logs: list[EpisodeLog], sigma: float | None, min_return: float | None) -> Evidence:
    """
    :param logs: logs that may be pooled
    :param sigma: ``--sigma``
    :param min_return: ``--min-return``
    :return: the logs with what is known of their episodes
    :raises InputError: if something is neither known nor given, if what is known does not agree, or if the episodes of a log
        cannot be independent
    """
    run = find_run(logs)
    noise, assumed = find_sigma(logs[0], run, sigma)
    check_sensor_sigma(logs[0], run)
    clean_keys = find_clean_keys(logs[0], run)
    lowest, basis = find_min_return(logs, run, min_return)
    for log in logs:
        if log.n_envs is not None:  # evaluate has checked its own, but not every version of it
            looks = () if log.looks is None else log.looks.looks
            check_independent(log.returns, log.lengths, log.n_envs, str(log.path), looks)
        if log.returns.min() < lowest:
            raise InputError(
                f"{log.path}: holds the return {log.returns.min():g}, below {lowest:g}: pass the lowest return that any "
                "episode of this task can have with --min-return"
            )
    return Evidence(logs, run, noise, assumed, clean_keys, lowest, basis, not all(map(_shows_independence, logs)))


def _shows_independence(log: EpisodeLog) -> bool:
    """
    Whether episodes that have something in common would show it: what a single env drew once and kept, all of its episodes
    have, and in a vector environment that nothing is known of, what a seeded reset of all drew.
    """
    if log.n_envs in (None, 1):
        return False
    return not log.native_vec_env or (log.env_id in gym.registry and n_native_episodes(log.env_id) is not None)


def find_run(logs: Sequence[EpisodeLog]) -> RunFolder | None:
    """
    :param logs: the logs
    :return: the run folder that all of them lie in, None if they lie in none
    :raises InputError: if they lie in different ones, or do not belong where they lie
    """
    runs = [RunFolder.containing(log.path) for log in logs]
    for log, run in zip(logs, runs, strict=True):
        if (run and run.path) != (runs[0] and runs[0].path):
            raise InputError(f"{log.path}: not in the same run folder as {logs[0].path}")
        if run is None:
            continue
        logged_in = log.trained_env_id or log.env_id
        for name, logged, configured in (("env_id", logged_in, run.env_id), ("algo", log.algo, run.algo)):
            if logged is not None and logged != configured:
                raise InputError(f"{log.path}: its {name} is {logged}, but it lies in the folder of a run of {configured}")
    return runs[0]


def played_in(log: EpisodeLog, run: RunFolder | None) -> str:
    """
    :param log: one of the logs
    :param run: the run folder that it lies in
    :return: id of the environment of the episodes, empty if nothing tells
    """
    return log.env_id or (run.env_id if run is not None else "")


def find_sigma(log: EpisodeLog, run: RunFolder | None, given: float | None) -> tuple[float, bool]:
    """
    :param log: one of the logs, which agree in their noise
    :param run: the run folder that it lies in
    :param given: ``--sigma``
    :return: standard deviation of the noise that the episodes were played with, and whether it is an assumption: of the user,
        or that a monitor log was played with the settings of the run, which ``enjoy --env-kwargs`` changes
    :raises InputError: if nothing tells it, if those that tell do not agree, or if there is no noise
    """
    if given is not None and not 0 <= given <= MOST:
        raise InputError(f"--sigma must be a finite number that is at least 0, not {given:g}")
    _check_own_settings(log)
    said = [] if log.sigma is None else [(str(log.path), log.sigma)]
    configured = 0.0 if run is None else _configured_sigma(log, run)
    # A model that was trained without noise may be evaluated with it: then the log says so
    if run is not None and configured > 0:
        said.append((str(run.config_file), configured))
    if given is not None:
        said.append(("--sigma", given))
    has_noise = log.sigma is not None or (run is not None and configured > 0 and _has_its_noise(log, run))
    if not has_noise:
        _check_may_be_assumed(log, run, configured, given)
    where, sigma = said[0]
    if sigma == 0:
        raise InputError(f"{where}: no smoothing noise on observations, so there is nothing to certify (log: {log.path})")
    for other, value in said[1:]:
        if not math.isclose(value, sigma, rel_tol=1e-6):
            way_out = (
                ": if enjoy played with this noise (--env-kwargs), put the log outside of the run folder"
                if log.is_monitor and other == "--sigma"
                else ""
            )
            raise InputError(f"{log.path}: {where} says sigma {sigma:g}, but {other} says {value:g}{way_out}")
    return sigma, log.is_monitor or not has_noise


def _check_own_settings(log: EpisodeLog) -> None:
    """Refuse an evaluation whose noise is another than that of the wrappers and settings which it says it was played in."""
    if not log.is_evaluation or log.env_wrappers is None or log.env_id is None:
        return
    scenario = Scenario(log.env_id, log.env_kwargs or {}, log.env_wrappers)
    # The first layer of a task is its own noise: where the log does not tell its sigma, the default may have been another
    by_default = takes_sigma(log.env_id) and "sigma" not in scenario.env_kwargs
    layers = scenario.layers(str(log.path))
    for layer in layers[1:] if by_default else layers:
        if layer.shows is not Shows.NOISY or layer.sigma == 0:
            continue
        same = log.sigma is not None and math.isclose(layer.sigma, log.sigma, rel_tol=1e-6)
        if not same or layer.sensor_sigma != log.sensor_sigma or not set(layer.clean_keys) <= set(log.clean_keys or ()):
            raise InputError(
                f"{log.path}: its sigma, sensor_sigma or clean_keys are not those of the noise in its own settings "
                f"({layer.name} has sigma {layer.sigma:g}): it was changed: evaluate again"
            )


def _configured_sigma(log: EpisodeLog, run: RunFolder) -> float:
    """The noise of the run by its settings, 0 without, or where they are of another environment than that of the episodes."""
    if log.trained_env_id is not None:
        return 0.0
    if log.env_kwargs is not None:  # may set another sigma than the training had
        run = replace(run, args={**run.args, "env_kwargs": log.env_kwargs})
    noise = run.smoothing_noise(not log.is_monitor and not log.is_evaluation, unknown_were_checked=log.is_evaluation)
    return 0.0 if noise is None else noise.sigma


def _has_its_noise(log: EpisodeLog, run: RunFolder) -> bool:
    """Whether the noise in the settings of the run was on the episodes of a log that does not know it itself."""
    if log.is_monitor:  # which stands inside of any noise wrapper
        return log.env_id == run.env_id and takes_sigma(run.env_id)
    # The log of the zoo's own evaluations; one of the same kind elsewhere in the folder may be of any environment
    return log.path.resolve() == (run.path / "evaluations.npz").resolve()


def _check_may_be_assumed(log: EpisodeLog, run: RunFolder | None, configured: float, given: float | None) -> None:
    if run is not None and configured == 0:
        unknown = _unknown_noise(run)
        if unknown is None:
            raise InputError(
                f"{run.config_file}: no smoothing noise on observations, so there is nothing to certify (log: {log.path}): "
                f"run {run.evaluate_command()}"
            )
        if given is None:
            raise InputError(
                f"{run.config_file}: {unknown} is not of this package, so nothing is known of its noise: if the episodes of "
                f"{log.path} had fresh Gaussian noise on each observation, say its sigma with --sigma; otherwise run "
                f"{run.evaluate_command()}"
            )
    if given is None:
        hint = f" ({run.config_file} has sigma {configured:g}, but the log may be of other episodes)" if run else ""
        raise InputError(
            f"{log.path}: nothing tells the noise that was on the observations{hint}: if there was noise, say its sigma with "
            f"--sigma, which the certificate will call an assumption, or use {spelled('evaluate')}"
        )


def _unknown_noise(run: RunFolder) -> str | None:
    """What in a run may add noise of its own, None if nothing may."""
    foreign = run.foreign_noise()
    if foreign is not None:
        return foreign
    env_kwargs = run.scenario().env_kwargs
    return f"the environment {run.env_id}" if "sigma" in env_kwargs or run.env_id not in gym.registry else None


def check_sensor_sigma(log: EpisodeLog, run: RunFolder | None) -> None:
    """
    :param log: one of the logs
    :param run: the run folder that it lies in
    :raises InputError: if log and run do not agree in the noise of each sensor
    """
    noise = None if run is None or log.trained_env_id is not None else run.smoothing_noise(unknown_were_checked=True)
    if run is None or noise is None or noise.sigma == 0 or not log.is_evaluation:
        return
    if noise.sensor_sigma != log.sensor_sigma:
        raise InputError(
            f"{log.path}: its sigma of each sensor is {log.sensor_sigma}, but {run.config_file} says {noise.sensor_sigma}: "
            "evaluate again"
        )


def find_clean_keys(log: EpisodeLog, run: RunFolder | None) -> list[str] | None:
    """
    :param log: one of the logs
    :param run: the run folder that it lies in
    :return: the entries of the observation that have no noise; None if nothing tells
    :raises InputError: if log and run do not agree
    """
    noise = None if run is None else run.smoothing_noise(unknown_were_checked=True)
    configured = None if noise is None else sorted(noise.clean_keys)
    if log.clean_keys is not None and configured is not None and log.clean_keys != configured:
        assert run is not None
        raise InputError(
            f"{log.path}: its clean_keys are {log.clean_keys}, but {run.config_file} says {configured}: evaluate again"
        )
    return configured if log.clean_keys is None else log.clean_keys


def find_min_return(logs: Sequence[EpisodeLog], run: RunFolder | None, given: float | None) -> tuple[float, str]:
    """
    The lowest return that any episode can have. What was seen does not show it: the worst episode may be one that only an
    adversary brings about.

    :param logs: the logs
    :param run: the run folder that they lie in
    :param given: ``--min-return``
    :return: the lowest return, and :data:`GIVEN` or :data:`KNOWN`
    :raises InputError: if it is neither given nor known, or if the given one is above the known one
    """
    if given is not None and not abs(given) <= MOST:
        raise InputError(f"--min-return must be a finite number, not {given:g}")
    log = logs[0]
    env_id = played_in(log, run)
    env_kwargs = _given_env_kwargs(log, run)
    known = None if env_kwargs is None else lowest_return(env_id, env_kwargs)
    changed_by = None if known is None else _what_may_lower(known, log, run, env_id)
    if given is not None:
        if known is not None and changed_by is None and given > known:
            raise InputError(f"--min-return {given:g}: an episode of {env_id} can return {known:g}: leave it out")
        return given, GIVEN
    if known is not None and changed_by is None:
        return known, GIVEN if log.is_monitor else KNOWN
    raise InputError(f"{log.path}: {_how_to_find(logs, env_id, env_kwargs, changed_by)}")


def _what_may_lower(known: float, log: EpisodeLog, run: RunFolder | None, env_id: str) -> str | None:
    """
    Why an episode of an evaluation may return less than the environment's known lowest return, None if it cannot: a wrapper of
    unknown kind may join several episodes to one, and a package may have registered another environment under the id.
    """
    wrappers = log.env_wrappers
    if wrappers is None:
        wrappers = {} if run is None or log.trained_env_id is not None else run.scenario().wrappers
    entries = [(name, kwargs) for name, kwargs in wrapper_entries(wrappers) if not is_smoothing_noise(name)]
    for name, kwargs in entries:
        # The raw rewards are counted, so where none is negative no wrapper makes a return that is
        if known < 0 and layer_of_entry(name, kwargs).shows is Shows.UNKNOWN:
            return f"what the wrapper {name} makes of an episode of {env_id} is not known, nor is its lowest return"
    if registration_of(env_id) in (log.env_versions or {}):
        return f"the {registration_of(env_id)} is another than the one whose lowest return is known"
    expected = _MAY_MAKE_GYMNASIUMS | {_package(name) for name, _ in entries}
    foreign = sorted(name for name in log.env_versions or () if _package(name) not in expected)
    if is_gymnasiums(env_id) and foreign:
        return f"{env_id} is not Gymnasium's own alone, but also of {', '.join(foreign)}, so its lowest return is not known"
    return None


def _package(name: str) -> str:
    """The package of a module or class, or of a distribution as far as that is named like it."""
    return name.partition(".")[0].replace("-", "_").lower()


def _how_to_find(logs: Sequence[EpisodeLog], env_id: str, env_kwargs: dict[str, Any] | None, changed_by: str | None) -> str:
    """Why the lowest return is asked for, and where the user finds it."""
    if changed_by is not None:
        reason = changed_by
    elif env_kwargs is None:
        reason = f"nothing tells with which settings {env_id or 'the environment'} was made, so its lowest return is not known"
    elif env_kwargs and lowest_return(env_id, {}) is not None:
        reason = f"settings of {env_id} were changed ({', '.join(env_kwargs)}), so that its lowest return is not known"
    else:
        reason = f"the lowest return of {env_id or 'the environment'} is not known, and the episodes seen need not show it"
    seen = min((log.min_reward for log in logs if log.min_reward is not None), default=math.inf)
    lowest = f" (seen: {exact(seen)})" if seen < 0 else ""
    spec = gym.registry.get(env_id)
    limit = "" if spec is None or spec.max_episode_steps is None else f" ({spec.max_episode_steps} unless changed)"
    return (
        f"{reason}: pass --min-return, a return that no episode can fall below whatever the actions: 0 if no reward is "
        f"negative, otherwise the lowest reward of a step{lowest} times the most steps of an episode{limit}"
    )


def _given_env_kwargs(log: EpisodeLog, run: RunFolder | None) -> dict[str, Any] | None:
    """What the log says, or all that the zoo may have given to the environment that it was played in; None if unknown."""
    if log.env_kwargs is not None or run is None:
        return log.env_kwargs
    given = (run.config.get("env_kwargs"), run.args.get("env_kwargs"), run.args.get("eval_env_kwargs"))
    return {name: value for kwargs in given for name, value in (kwargs or {}).items()}
