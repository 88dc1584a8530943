"""
Whether attacks and a certificate agree: the mean return under an attack must not be below what is certified against it.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import without_sigma
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import CertificateViolation

MIN_EPISODES = 30
"""With fewer episodes a confidence interval is not worth its name, and contradicts nothing."""


class Violation(NamedTuple):
    """
    :param budget: Budget of the attack
    :param mean_return: Mean return under it
    :param upper: Upper end of its confidence interval, below what is certified
    :param certified: What the certificate says at this radius, or at its next larger one
    """

    budget: float
    mean_return: float
    upper: float
    certified: float


class Comparison(NamedTuple):
    """
    :param budgets: At which budgets an attack is compared with a certificate, ascending
    :param left_out: In words, which budgets are not, and why; empty if all are
    """

    budgets: list[float]
    left_out: str


def comparison(attack: dict[str, Any], certificate: Certificate) -> Comparison:
    """
    :param attack: A comparable attack, see :func:`incomparable`
    :param certificate: The certificate
    :return: what of the attack is compared
    """
    if attack["n_episodes"] < MIN_EPISODES:
        return Comparison([], f"{MIN_EPISODES} episodes are the least for that")
    budgets = [one["budget"] for one in attack["budgets"] if one["confidence_interval"] is not None]
    inside = [budget for budget in budgets if certificate.value_at(budget) is not None]
    beyond = [exact(budget) for budget in budgets if budget not in inside]
    if not beyond:
        return Comparison(inside, "")
    radius = f"beyond its last radius {exact(certificate.radii[-1])}"
    return Comparison(inside, f"budgets {radius}: {', '.join(beyond)}" if inside else f"all budgets lie {radius}")


def violations(attack: dict[str, Any], certificate: Certificate) -> list[Violation]:
    """
    :param attack: A comparable attack, see :func:`incomparable`
    :param certificate: The certificate
    :return: where the whole confidence interval of the mean return lies below the certified return; none if there are fewer
        than :data:`MIN_EPISODES` episodes
    """
    budgets = comparison(attack, certificate).budgets
    return [
        Violation(one["budget"], one["mean_return"], one["confidence_interval"][1], certified)
        for one in attack["budgets"]
        if one["budget"] in budgets
        and (certified := certificate.value_at(one["budget"])) is not None
        and one["confidence_interval"][1] < certified
    ]


def incomparable(attack: Mapping[str, Any], certificate: Certificate) -> str | None:
    """
    :param attack: An attack
    :param certificate: A certificate
    :return: why the certificate says nothing about the attack; None if it does, as it is of the same policy, with the same
        noise, in the same environment
    """
    for key in ("env_id", "model_sha256", "sigma", "deterministic", "clean_keys", "env_kwargs", "env_wrappers"):
        mine = _comparable(key, attack.get(key), attack["sigma"])
        certified = _comparable(key, getattr(certificate, key), certificate.sigma)
        if certified is None:
            return f"the certificate does not tell its {key}"
        if mine != certified and not (key == "sigma" and math.isclose(mine, certified, rel_tol=1e-9)):
            if key == "model_sha256":
                return "the certificate is for another model file"
            return f"its {key} is {_shown(attack[key])}, that of the certificate {_shown(getattr(certificate, key))}"
    if attack.get("key") in (certificate.clean_keys or ()):
        return f"it attacks the entry {attack['key']} of the observation, which the certificate does not cover"
    return None


def check_agreement(attacks: Iterable[tuple[str, dict[str, Any]]], certificate: Certificate) -> None:
    """
    :param attacks: Name and content of comparable attacks
    :param certificate: The certificate
    :raises CertificateViolation: if the mean return under one of them contradicts the certificate
    """
    found = [text for name, attack in attacks for text in _texts(name, violations(attack, certificate))]
    if found:
        raise CertificateViolation(f"violation of the certificate: {'; '.join(found)}")


def _texts(name: str, found: list[Violation]) -> Iterator[str]:
    for one in found:
        yield (
            f"{name}: at budget {exact(one.budget)} the mean return is {one.mean_return:.6g}, its confidence interval ends at "
            f"{one.upper:.6g}, below the certified return {one.certified:.6g}"
        )


def _comparable(key: str, value: Any, sigma: float) -> Any:
    return without_sigma(value, sigma) if key in ("env_kwargs", "env_wrappers") else value


def _shown(value: Any) -> str:
    return exact(value) if isinstance(value, float) else json.dumps(value)
