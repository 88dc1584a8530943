"""What a report says was tested, as names and texts."""

import json
from typing import Any, NamedTuple

from sb3_camp.attack_runs.attack_result import AttackSettings
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.rounded_text import confidence, exact, floor_digits, quotient
from sb3_camp.runs.scenario import Scenario

UNKNOWN = "not known: the logs do not tell"


class Fact(NamedTuple):
    """
    :param name: What it is
    :param text: What is known of it
    """

    name: str
    text: str


def agent_facts(certificate: Certificate) -> list[Fact]:
    """
    :param certificate: the certificate
    :return: what identifies the agent
    """
    actions = {True: "always the best one by its scores (greedy)", False: "drawn at random by its probabilities (sampled)"}
    return [
        Fact("Algorithm", certificate.algo or UNKNOWN),
        Fact("File of the agent", certificate.model or UNKNOWN),
        Fact("SHA-256 of this file", certificate.model_sha256 or UNKNOWN),
        Fact("Trained for", UNKNOWN if certificate.timesteps is None else f"{certificate.timesteps} steps"),
        Fact("Choice of actions", UNKNOWN if certificate.deterministic is None else actions[certificate.deterministic]),
    ]


def environment_facts(certificate: Certificate) -> list[Fact]:
    """
    :param certificate: the certificate
    :return: what identifies the environment and the noise
    """
    same = certificate.trained_env_id is None
    facts = [
        Fact("Tested in", certificate.env_id or UNKNOWN),
        Fact("Trained in", f"{'the same environment' if same else certificate.trained_env_id}"),
        Fact("Settings", _json(certificate.env_kwargs)),
        Fact("Wrappers", _json(certificate.env_wrappers)),
        Fact("Versions", _versions(certificate.env_versions)),
        Fact("Sigma and radii are in", unit(certificate)),
        Fact("Noise on them (sigma)", _noise(certificate)),
    ]
    if certificate.clean_keys:
        facts.append(Fact("Left without noise", f"{', '.join(certificate.clean_keys)} (changes of these are not covered)"))
    return facts


def unit(certificate: Certificate) -> str:
    """
    :param certificate: the certificate
    :return: what sigma, radii and changes of observations are measured in
    """
    if certificate.pixels:
        return "pixel values from 0 to 255"
    if certificate.env_wrappers is None:
        return "the units of the observation where the noise is added"
    if Scenario(certificate.env_id or "", wrappers=certificate.env_wrappers).noise_is_on_normalized():
        return "standard deviations of each entry: observations are normalised before the noise is added"
    return "the units of the observation"


def evidence_facts(certificate: Certificate) -> list[Fact]:
    """
    :param certificate: the certificate
    :return: what the certificate was computed from, and how
    """
    steps = certificate.longest_episode
    facts = [
        Fact("Episodes", str(certificate.n_episodes)),
        Fact("Longest episode", UNKNOWN if steps is None else f"{steps} steps"),
        Fact("Mean return, no attack", f"{certificate.mean_return:.2f} (an estimate, not a bound)"),
        Fact("Lowest possible return", exact(certificate.min_return)),
        Fact("Confidence", f"{confidence(certificate.alpha)} (alpha {exact(certificate.alpha)}), for all numbers together"),
        *_shares(certificate),
        Fact("Method", certificate.method),
        Fact("Computed with", _versions(certificate.versions)),
    ]
    for source in certificate.sources:
        episodes = "" if source.episodes is None else f"{source.episodes} episodes, "
        facts.append(Fact("Log of episodes", f"{source.path} ({episodes}SHA-256 {source.sha256})"))
    return facts


def _shares(certificate: Certificate) -> list[Fact]:
    """How alpha is shared, and what was recorded."""
    looks = certificate.looks
    facts = [] if looks is None else [Fact("Looks planned beforehand", f"after {', '.join(map(str, looks))} episodes")]
    if certificate.is_shared:
        facts.append(Fact("Share of alpha", f"{certificate.level:.6g} for each band"))
    for one in certificate.recorded:
        missing = f"; missing in {one.n_missing} episodes, which count as {exact(one.worst)}" if one.n_missing else ""
        facts.append(Fact(f"Mean of {one.key}, no attack", f"{one.mean:.6g} (an estimate, not a bound){missing}"))
    return facts


def attack_text(settings: AttackSettings) -> str:
    """
    :param settings: how an attack was made
    :return: all except its name, in a line
    """
    step = "default step size" if settings.step_size is None else f"step size {exact(settings.step_size)}"
    texts = [f"objective {settings.objective}", step]
    texts += [] if settings.multiplier is None else [f"multiplier {exact(settings.multiplier)}"]
    texts += [] if settings.key is None else [f"on the entry {settings.key}"]
    return ", ".join([*texts, f"{settings.n_episodes} episodes at each budget, seed {settings.seed}"])


def _noise(certificate: Certificate) -> str:
    if certificate.sensor_sigma is not None:
        return "one of its own for each sensor, see the table of sensors; radii are in multiples of it"
    text = exact(certificate.sigma)
    if certificate.pixels:
        text += f" of 255 ({floor_digits(quotient(certificate.sigma, 255), 6)})"
    return f"{text} on each entry"


def _json(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return UNKNOWN
    return json.dumps(entry, ensure_ascii=False) if entry else "none"


def _versions(versions: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) if versions else UNKNOWN
