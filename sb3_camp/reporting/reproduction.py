"""The commands that make a certificate and its attacks again."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from sb3_camp.attack_runs.agent_results import AgentResults, ComparedAttack
from sb3_camp.attack_runs.attack_result import AttackSettings
from sb3_camp.certification.assumptions import GIVEN
from sb3_camp.certification.build import default_radii
from sb3_camp.certification.certificate import Certificate, PerStepBound, Source
from sb3_camp.certification.episode_logs import EpisodeLog, read_log
from sb3_camp.certification.recorded_bound import AT_LEAST, AT_MOST
from sb3_camp.certification.rounded_text import exact
from sb3_camp.certification.source_files import found_above, unchanged_log
from sb3_camp.errors import InputError
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import Scenario

_LINE = 60  # a line that is longer ends in front of the next option
# Fields of AttackSettings that other options stand for, or none
_NO_OPTION = {
    *("env_id", "env_kwargs", "env_wrappers", "algo", "model", "model_sha256", "timesteps", "deterministic", "sigma"),
    *("clean_keys", "attack", "n_episodes", "device", "versions", "native_vec_env", "adversary_sha256"),
}


class Step(NamedTuple):
    """
    :param text: What a command does, and what it needs
    :param command: Its words, none where nobody can tell them
    """

    text: str
    command: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        """The command for a shell, broken in front of options, to be joined with a backslash at the end of each line."""
        lines: list[str] = []
        for word in map(shlex.quote, self.command):
            if lines and not (word.startswith("-") and len(lines[-1]) > _LINE):
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return lines


def reproduction(results: AgentResults) -> list[Step]:
    """
    :param results: A certificate and its attacks
    :return: the commands that make them again, in the folder that their paths are relative to, with the same packages
    """
    certificate, steps = results.certificate, []
    if certificate.model is not None and certificate.model_sha256 is not None:
        text = f"Check the checkpoint. Its SHA-256 must be {certificate.model_sha256}."
        steps.append(Step(text, ["sha256sum", certificate.model]))
    run = _run(certificate, results.file)
    logs = [f"again/{index}/evaluations.npz" for index in range(1, len(certificate.sources) + 1)]
    for source, log in zip(certificate.sources, logs, strict=True):
        steps.append(_evaluation(certificate, source, results.file, run, str(Path(log).parent)))
    if certificate.model_sha256 is None:  # not episodes that can be played again
        logs = [source.path for source in certificate.sources]
    try:
        steps.append(Step("Certify these episodes.", _certify(certificate, logs)))
    except _Untold as reason:
        steps.append(Step(f"Certify these episodes: {reason}."))
    steps += [_attack(attack, run) for attack in results.attacks]
    return steps


def _run(certificate: Certificate, file: Path) -> RunFolder | None:
    """The run folder of the zoo that the checkpoint lies in, from which evaluate takes wrappers."""
    if certificate.model is None:
        return None
    folders = (path.parent for path in found_above(certificate.model, file) if path.is_file())
    folder = next(folders, None)
    try:
        run = RunFolder.read(folder) if folder is not None and RunFolder.is_run_folder(folder) else None
        if run is not None:
            run.has_noise()  # or its settings cannot be those of the episodes
        return run
    except InputError:
        return None


def _evaluation(certificate: Certificate, source: Source, file: Path, run: RunFolder | None, folder: str) -> Step:
    log = _log(source, file)
    if certificate.model is None or certificate.algo is None or certificate.env_id is None:
        return Step(f"The episodes were read from {source.path}, which does not tell how they were played.")
    try:
        command = _play("evaluate", certificate, run)
        if run is not None and not run.has_noise():
            command += ["--sigma", *_sigma(certificate)]
        command += [*_size(source, log, certificate), "-o", folder]
    except _Untold as reason:
        return Step(f"Play the episodes of {source.path}: {reason}.")
    seed = "with the same seed" if log is not None and log.seed is not None else "with a seed of their own: the log is gone"
    return Step(f"Play the {source.episodes or ''} episodes of {source.path} again, {seed}.", command)


def _log(source: Source, file: Path) -> EpisodeLog | None:
    path = unchanged_log(source, file)
    try:
        return None if path is None else read_log(path)
    except InputError:
        return None


def _size(source: Source, log: EpisodeLog | None, certificate: Certificate) -> list[str]:
    if log is not None and log.looks is not None:
        looks = log.looks
        options = ["--until", looks.until, "--max-episodes", str(looks.looks[-1]), "--looks", str(len(looks.looks))]
        options += ["--alpha", exact(looks.alpha), f"--min-return={exact(certificate.min_return)}"]
    else:
        options = [] if source.episodes is None else ["-n", str(source.episodes)]
    recorded = [f"{one.key}:{one.reduction}" for one in certificate.recorded]
    if log is not None:
        recorded = [str(one.key) for one in log.recorded]
    options += ["--record", *_keys(recorded)] if recorded else []
    options += [] if source.n_envs is None else ["--n-envs", str(source.n_envs)]
    options += [] if source.native_vec_env is None else _vec_env(source.native_vec_env)
    options += ["--q-gap"] if source.q_gap is not None else []
    return options + ([] if log is None or log.seed is None else ["--seed", str(log.seed)])


def _keys(names: list[str]) -> list[str]:
    """Names from a file, none of which is an option."""
    if any(name.startswith("-") for name in names):
        raise _Untold("what was recorded has names that no command line can hold")
    return names


def _vec_env(native: bool) -> list[str]:
    return ["--vec-env", "native" if native else "dummy"]


class _Untold(Exception):
    """Why a command cannot be told."""


def _play(command: str, of: Certificate | AttackSettings, run: RunFolder | None) -> list[str]:
    """The arguments by which evaluate and attack name a policy and its environment."""
    played = str(of.env_id)
    trained = getattr(of, "trained_env_id", None) or played
    words = ["python", "-m", f"sb3_camp.{command}", "--algo", str(of.algo), "--env", trained, "--model", str(of.model)]
    if ":" in played or ":" in trained:  # which evaluate takes for a package to import
        raise _Untold("its environment has a name that no command line can hold")
    if trained != played:
        words += ["--play-in", played]
    if of.env_kwargs:
        words += ["--env-kwargs", *_pairs(of.env_kwargs)]
    if run is None and of.env_wrappers:
        # All wrappers are named, a frozen normaliser too
        words += ["--hyperparams", *_pairs(of.env_wrappers), "--vecnormalize", "none"]
    if run is not None and Scenario(played, of.env_kwargs or {}, of.env_wrappers or {}).noise_is_on_normalized():
        words += ["--noise-on", "normalized"]
    if of.deterministic is False:
        words.append("--stochastic")
    return words


def _pairs(entries: Mapping[str, Any]) -> list[str]:
    """``KEY:VALUE``, the value as Python, as the zoo reads it: a key with a colon in it would be read, and run, as a value."""
    if not all(key.isidentifier() for key in entries):
        raise _Untold("its settings have names that no command line can hold")
    return [f"{key}:{value!r}" for key, value in entries.items()]


def _sigma(certificate: Certificate) -> list[str]:
    sigma = certificate.sensor_sigma
    if sigma is None:
        return [exact(certificate.sigma)]
    if isinstance(sigma, dict):
        return [f"{key}:{value!r}" for key, value in sigma.items()]
    if any(isinstance(value, list | dict) for value in sigma):
        raise _Untold("its sigma of each sensor cannot be written as arguments")
    return list(map(exact, sigma))


def _certify(certificate: Certificate, logs: Sequence[str]) -> list[str]:
    words = ["python", "-m", "sb3_camp.certify", *logs, "-o", "again"]
    words += ["--alpha", exact(certificate.alpha), "--method", certificate.method]
    if certificate.sigma_assumed:
        words += ["--sigma", exact(certificate.sigma)]
    if certificate.min_return_basis in (GIVEN, None):
        words.append(f"--min-return={exact(certificate.min_return)}")  # -1e6 alone would be taken for an option
    if certificate.support is not None:
        words += ["--support", *_support(certificate.support)]
    if certificate.radii != default_radii(certificate.sigma).tolist():
        words += ["--radii", *map(exact, certificate.radii)]
    if certificate.targets:
        words += ["--targets", *certificate.targets]
    for option, kind in (("--probability-of", "probability"), ("--quantile", "quantile"), ("--cvar", "cvar")):
        values = [exact(one.at) for one in certificate.quantities if one.kind == kind]
        words += [option, *values] if values else []
    for option, side in (("--at-least", AT_LEAST), ("--at-most", AT_MOST)):
        names = _keys([one.key for one in certificate.recorded if one.side == side])
        words += [option, *names] if names else []
    worst = [f"{one.key}:{exact(one.worst)}" for one in certificate.recorded if not one.is_event]
    words += ["--worst", *worst] if worst else []
    return words + ([] if certificate.per_step is None else _per_step(certificate.per_step))


def _per_step(bound: PerStepBound) -> list[str]:
    epsilon = bound.epsilon if isinstance(bound.epsilon, list) else [bound.epsilon]
    steps = ["--steps", str(bound.steps)] if bound.steps_assumed else []
    return ["--epsilon", *map(exact, epsilon), "--epsilon-norm", bound.norm, *steps]


def _support(values: Sequence[float]) -> list[str]:
    low, high = values[0], values[-1]
    if len(values) > 2 and list(values) == [low + step for step in range(len(values))] and low == int(low):
        return [f"{int(low)}:{int(high)}"]
    return list(map(exact, values))


def _attack(attack: ComparedAttack, run: RunFolder | None) -> Step:
    settings = attack.content.settings
    text = f"Attack the agent with {settings.attack}."
    try:
        words = _play("attack", settings, run)
    except _Untold as reason:
        return Step(f"{text[:-1]}: {reason}.")
    words += ["--attack", settings.attack, "--budget", *(exact(one.budget) for one in attack.content.budgets)]
    words += ["--sigma", exact(settings.sigma), "-n", str(settings.n_episodes), *_vec_env(settings.native_vec_env)]
    if settings.adversary_sha256 is not None:
        text += f" The SHA-256 of the adversary must be {settings.adversary_sha256}."
        words += ["--adversary", str(attack.file.with_name("adversary.zip"))]
    for field in fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default is not MISSING else None
        if field.name not in _NO_OPTION and value is not None and value != default:
            words += [f"--{field.name.replace('_', '-')}", exact(value) if isinstance(value, float) else str(value)]
    return Step(text, [*words, "-o", f"again/{settings.attack}"])
