"""
Whether attacks contradict a certificate.

A certificate says that, whatever an adversary of this budget does, P(return >= c) is at least some p, for every return c that
was seen in its evaluation, and it bounds the expected return by these. From the mean of attacked episodes nothing can be
concluded with a known risk: a rare large return that did not come up may move the expectation by any amount. From how many of
them are at least c, it can: that is exact, whatever the distribution is, and so it is what is tested, for all c together.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr, ndtri

from sb3_camp.attack_runs.attack_result import AttackResult, BudgetResult
from sb3_camp.certification.bands import lower_band
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.episode_logs import read_log
from sb3_camp.certification.rounded_text import exact
from sb3_camp.certification.source_files import unchanged_log
from sb3_camp.errors import CertificateViolation, InputError
from sb3_camp.runs.policy_id import DECISIVE_POLICY_KEYS
from sb3_camp.runs.scenario import SCENARIO_KEYS, without_sigma
from sb3_camp.threat_models import is_per_step

# Rounding of a return in the last digits is no lower return
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Compared:
    """
    An attack beside a certificate, at one budget.

    :param budget: The budget
    :param mean_return: Mean return under the attack
    :param certified: Certified expected return at this radius, or at the next larger one of the certificate
    :param verdict: "violation" if the returns contradict the certificate; "inconclusive" if their mean is below what is
        certified, which chance may have done; "above" otherwise
    :param threshold: Of a violation: the return c of which the certificate promises too much
    :param promised: With what probability, at least, the certificate says that an episode returns c or more
    :param most: Upper confidence bound on that probability, from the attacked episodes
    """

    budget: float
    mean_return: float
    certified: float
    verdict: Literal["above", "inconclusive", "violation"]
    threshold: float = math.nan
    promised: float = math.nan
    most: float = math.nan


@dataclass(frozen=True)
class Comparison:
    """
    :param budgets: What came of it, at each budget that is compared, ascending
    :param left_out: In words, which budgets are not, and why; empty if all are
    :param untested: In words, why a contradiction could not be tested for; empty if it was
    """

    budgets: tuple[Compared, ...]
    left_out: str
    untested: str

    @property
    def violations(self) -> list[Compared]:
        """Where the returns contradict the certificate."""
        return [one for one in self.budgets if one.verdict == "violation"]

    def notes(self) -> list[str]:
        """
        :return: in words, what was not compared, or came to no end
        """
        notes = [f"Not compared: {self.left_out}"] if self.left_out else []
        below = [exact(one.budget) for one in self.budgets if one.verdict == "inconclusive"]
        if below:
            why = self.untested or "too few episodes, or chance: attack again with more of them (-n)"
            notes.append(f"Inconclusive: the mean return is below the certified one at budget {', '.join(below)} ({why})")
        return notes


def compare(attack: AttackResult, certificate: Certificate, evaluated: np.ndarray | None) -> Comparison:
    """
    At every budget that the certificate speaks of, all returns c of its evaluation are tested together: the attacked returns
    contradict it if the upper confidence bound on P(return >= c) that they give is below what it promises. If the certificate
    is valid, any contradiction at all is found with probability 1 - ``attack.confidence`` at most.

    :param attack: A comparable attack, see :func:`incomparable`
    :param certificate: The certificate
    :param evaluated: Returns of the episodes that it was made from, see :func:`evaluated_returns`; None if they are lost
    :return: what came of it
    """
    inside = [one for one in attack.budgets if certificate.value_at(one.budget) is not None]
    beyond = [exact(one.budget) for one in attack.budgets if one not in inside]
    left_out, untested = "", ""
    if beyond:
        radius = f"beyond its last radius {exact(certificate.radii[-1])}"
        left_out = f"budgets {radius}: {', '.join(beyond)}" if inside else f"all budgets lie {radius}"
    if evaluated is None:
        untested = "the episodes that the certificate was made from are not there any more: evaluate and certify again"
    elif any(one.returns is None for one in inside):
        untested = "attack.csv, with the attacked episodes, is not beside attack.json"
    alpha = (1 - attack.confidence) / max(1, len(inside))
    return Comparison(
        tuple(_compared(one, certificate, None if untested else evaluated, alpha) for one in inside), left_out, untested
    )


def _compared(one: BudgetResult, certificate: Certificate, evaluated: np.ndarray | None, alpha: float) -> Compared:
    certified = certificate.value_at(one.budget)
    assert certified is not None
    # Not by rounding alone
    verdict: Literal["above", "inconclusive"] = (
        "above" if one.mean_return >= certified - abs(certified) * 1e-12 else "inconclusive"
    )
    if evaluated is not None and one.returns is not None:
        thresholds, promised = _promises(certificate, evaluated, one.budget)
        below = np.searchsorted(np.sort(one.returns), thresholds - _ROUNDING * np.maximum(1, np.abs(thresholds)), side="left")
        most = 1 - lower_band(below, one.returns.size, alpha, "berk-jones")
        worst = int(np.argmin(most - promised))
        if most[worst] < promised[worst]:
            found = (float(values[worst]) for values in (thresholds, promised, most))
            return Compared(one.budget, one.mean_return, certified, "violation", *found)
    return Compared(one.budget, one.mean_return, certified, verdict)


def _promises(certificate: Certificate, evaluated: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """
    :return: the different returns of the evaluation, ascending, and with what probability an episode returns as much or more,
        at least, whatever an adversary of this radius does; both (n,)
    """
    thresholds, tally = np.unique(evaluated, return_counts=True)
    n_thresholds = None
    if certificate.support is not None:  # those of a pointwise band share alpha
        n_thresholds = max(1, sum(value > certificate.min_return for value in set(certificate.support)))
    counts = np.cumsum(tally[::-1])[::-1]
    lower = lower_band(counts, evaluated.size, certificate.level, certificate.method, n_thresholds)
    # Of the lowest possible return nothing needs to be promised
    lower = np.where(thresholds > certificate.min_return, lower, 0.0)
    return thresholds, ndtr(ndtri(lower) - radius / certificate.sigma)


def evaluated_returns(certificate: Certificate, file: Path) -> np.ndarray | None:
    """
    :param certificate: A certificate
    :param file: Where it was read
    :return: the returns that it was made from, from the logs that it names; None if they are not what they were, or gone
    """
    returns = []
    for source in certificate.sources:
        log = unchanged_log(source, file)
        try:
            if log is None:
                return None
            returns.append(read_log(log).returns)
        except InputError:
            return None
    return np.concatenate(returns) if returns else None


def incomparable(attack: AttackResult, certificate: Certificate) -> str | None:
    """
    :param attack: An attack
    :param certificate: A certificate
    :return: why the certificate says nothing about the attack; None if it does, as it is of the same policy, with the same
        noise, in the same environment
    """
    settings = attack.settings.as_json()
    if is_per_step(attack.settings.threat):
        return (
            f"its threat model is {attack.settings.threat}, a bound on each observation, while a certificate is about one l2 "
            "budget for the episode"
        )
    for key in (*DECISIVE_POLICY_KEYS, *SCENARIO_KEYS):
        mine, certified = _comparable(settings, key), _comparable(asdict(certificate), key)
        if certified is None and mine is not None:
            return f"the certificate does not tell its {key}"
        if mine != certified and not (key == "sigma" and math.isclose(mine, certified, rel_tol=1e-9)):
            if key == "model_sha256":
                return "the certificate is for another model file"
            return f"its {key} is {_shown(settings.get(key))}, that of the certificate {_shown(getattr(certificate, key))}"
    if attack.settings.key in (certificate.clean_keys or ()):
        return f"it attacks the entry {attack.settings.key} of the observation, which the certificate does not cover"
    return None


def check_agreement(comparisons: Iterable[tuple[str, Comparison]]) -> None:
    """
    :param comparisons: Name of each attack, and what came of its comparison
    :raises CertificateViolation: if one of them contradicts the certificate
    """
    found = [text for name, comparison in comparisons for text in _texts(name, comparison.violations)]
    if found:
        raise CertificateViolation(f"violation of the certificate: {'; '.join(found)}")


def _texts(name: str, found: list[Compared]) -> Iterator[str]:
    for one in found:
        yield (
            f"{name}: at budget {exact(one.budget)} the certificate says that a return of {one.threshold:.6g} or more has a "
            f"probability of at least {one.promised:.4g}, but by the attacked episodes it is at most {one.most:.4g} "
            f"(mean return {one.mean_return:.6g}, certified {one.certified:.6g})"
        )


def _comparable(result: Mapping[str, Any], key: str) -> Any:
    value = result.get(key)
    return without_sigma(value, result["sigma"]) if key in ("env_kwargs", "env_wrappers") else value


def _shown(value: Any) -> str:
    return exact(value) if isinstance(value, float) else json.dumps(value)
