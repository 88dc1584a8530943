"""
From a bound on each step's perturbation to the l2 norm over an episode, which certificates are about.

An episode of at most T steps has T observations that the policy acts on. If the perturbation of each has at most the norm E,
the norm of all together is at most E sqrt(T); if each of d numbers moves by at most E, it is at most E sqrt(T d). An adversary
who keeps to the bound of each step is weaker than one who may spend this norm as it likes, so the certificate holds for it.
But it may say little: with many steps and numbers the radius is large.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sb3_camp.certification.certificate import Certificate, PerStepBound
from sb3_camp.certification.episode_logs import MOST, EpisodeLog
from sb3_camp.certification.quantity_text import meaning, meaning_of_bound, shown, shown_bound
from sb3_camp.certification.rounded_text import exact, floor_decimals, floor_digits
from sb3_camp.errors import InputError

NORMS = ("l2", "linf")
_MOST_STEPS = 10**15
_VACUOUS = 0.01
"""What is certified is called vacuous below this share of what the episodes returned, above the lowest return."""


def per_step_bound(logs: Sequence[EpisodeLog], epsilon: Sequence[float], norm: str, steps: int | None) -> PerStepBound:
    """
    :param logs: Logs that may be pooled
    :param epsilon: The bound on each step's perturbation in the units of the radius, or one for each number of the observation
        in the units of that
    :param norm: ``"l2"``: of the perturbation of a step; ``"linf"``: of each number in it
    :param steps: Most steps of an episode, where the logs do not tell
    :return: the bound with its radius, without what is certified at it
    :raises InputError: if the number of steps or of numbers is not known, or if the bounds do not fit the observation
    """
    if not all(math.isfinite(one) and one >= 0 for one in epsilon):
        raise InputError("--epsilon must be finite numbers that are at least 0")
    if steps is not None and not 1 <= steps <= _MOST_STEPS:
        raise InputError(f"--steps must be from 1 to {_MOST_STEPS}")
    limit, assumed = _most_steps(logs, steps)
    if len(epsilon) > 1:
        return _bound_of_each_sensor(logs[0], list(epsilon), norm, limit, assumed)
    (one,) = epsilon
    if norm == "l2":
        formula = f"R = epsilon * sqrt(steps) = {exact(one)} * sqrt({limit})"
        return PerStepBound(one, norm, limit, assumed, None, _rounded_up(one * math.sqrt(limit)), formula)
    numbers = _noisy_numbers(logs)
    formula = f"R = epsilon * sqrt(steps * numbers) = {exact(one)} * sqrt({limit} * {numbers})"
    return PerStepBound(one, norm, limit, assumed, numbers, _rounded_up(one * math.sqrt(limit * numbers)), formula)


def print_per_step(certificate: Certificate) -> None:
    """
    Print what is certified against an adversary whose perturbation of each step is bounded, and whether it says anything.

    :param certificate: a certificate
    """
    bound = certificate.per_step
    if bound is None or bound.certified_return is None:
        return
    print(f"\nAgainst an adversary who perturbs {meaning_of_steps(bound, certificate)}:")
    if bound.steps_assumed:
        print(f"Assumed: no episode has more than {bound.steps} steps (--steps)")
    print(formula_of_steps(bound, certificate))
    (returns, value), *more = values_at_steps(bound, certificate)
    print(f"certified {returns} {value}")
    for name, value in more:
        print(f"{name}: {value}")
    seen = certificate.mean_return - certificate.min_return
    if bound.certified_return - certificate.min_return < _VACUOUS * seen:
        print(
            f"This is vacuous: less than {_VACUOUS:.0%} of what the episodes returned above {exact(certificate.min_return)}. "
            f"Half of it is certified up to {_share_with_half(certificate, bound)} times this epsilon"
        )


def values_at_steps(bound: PerStepBound, certificate: Certificate) -> list[tuple[str, str]]:
    """
    :param bound: What a certificate says of a bound on each step
    :param certificate: The certificate
    :return: all that is certified there, the expected return first: in words, and the value, none better than it is
    """
    rows = [("expected return", floor_decimals(bound.certified_return or 0.0, 3))]
    rows += [
        (meaning(one), shown(one, [value])[0]) for one, value in zip(certificate.quantities, bound.certified, strict=True)
    ]
    # Files of older versions have none of what was recorded
    of_records = zip(certificate.recorded, bound.recorded, strict=bool(bound.recorded))
    return rows + [(meaning_of_bound(one), shown_bound(one, [value])[0]) for one, value in of_records]


def formula_of_steps(bound: PerStepBound, certificate: Certificate) -> str:
    """
    :param bound: What a certificate says of a bound on each step
    :param certificate: The certificate
    :return: how its radius follows, with its value
    """
    return f"{bound.formula} = {bound.radius:.6g} ({bound.radius / certificate.sigma:.4g} sigma)"


def meaning_of_steps(bound: PerStepBound, certificate: Certificate) -> str:
    """
    :param bound: What a certificate says of a bound on each step
    :param certificate: The certificate
    :return: what the adversary may perturb, in words
    """
    return f"{_perturbed(bound, certificate)} in an episode, at most {bound.steps} steps long"


def _perturbed(bound: PerStepBound, certificate: Certificate) -> str:
    unit = "" if certificate.sensor_sigma is None else ", each in units of the sigma of its sensor"
    if isinstance(bound.epsilon, list):
        numbers = ", ".join(map(exact, bound.epsilon))
        return f"the numbers of each observation by at most {numbers}"
    if bound.norm == "l2":
        return f"each observation by an l2 norm of at most {exact(bound.epsilon)}{unit}"
    return f"each of {bound.numbers} numbers of each observation by at most {exact(bound.epsilon)}{unit}"


def _share_with_half(certificate: Certificate, bound: PerStepBound) -> str:
    half = (certificate.mean_return + certificate.min_return) / 2
    kept = [r for r, value in zip(certificate.radii, certificate.certified_return, strict=True) if value >= half]
    return floor_digits(kept[-1] / bound.radius, 2) if kept else "0"


def _most_steps(logs: Sequence[EpisodeLog], given: int | None) -> tuple[int, bool]:
    """The most steps of an episode, and whether only the user says so."""
    limits = [log.step_limit for log in logs if log.step_limit is not None]
    longest = max(int(log.lengths.max()) for log in logs)
    if limits and given is not None and given != max(limits):
        raise InputError(f"--steps {given}: an episode of {logs[0].env_id} can have {max(limits)} steps: leave it out")
    most = max(limits, default=given)
    if most is None:
        raise InputError(
            f"{logs[0].path}: nothing tells the most steps that an episode can have, by which --epsilon is converted: give "
            f"--steps (the longest seen had {longest}), or evaluate with this version, which notes the step limit"
        )
    if most < longest:
        raise InputError(f"{logs[0].path}: holds an episode of {longest} steps, more than {most}: check --steps")
    return most, not limits


def _noisy_numbers(logs: Sequence[EpisodeLog]) -> int:
    found = {log.noisy_numbers for log in logs if log.noisy_numbers is not None}
    if not found:
        raise InputError(
            f"{logs[0].path}: nothing tells how many numbers of an observation have noise, by which --epsilon-norm linf is "
            "converted: evaluate with this version, or bound the l2 norm of a step"
        )
    return max(found)


def _bound_of_each_sensor(log: EpisodeLog, epsilon: list[float], norm: str, steps: int, assumed: bool) -> PerStepBound:
    """The numbers of an observation perturbed by at most one number each: R = sqrt(T sum_i (epsilon_i / sigma_i)^2)."""
    if norm != "linf":
        raise InputError(f"--epsilon: {len(epsilon)} numbers bound each sensor by itself: give --epsilon-norm linf with them")
    if isinstance(log.sensor_sigma, dict):
        raise InputError("--epsilon: for a Dict observation give one number, in units of the sigma of each sensor")
    units = [1.0] * (log.noisy_numbers or 0) if log.sensor_sigma is None else list(_flat(log.sensor_sigma))
    if len(units) != len(epsilon):
        raise InputError(f"--epsilon: {len(epsilon)} numbers, but the observation has {len(units) or 'an unknown number'}")
    for index, (one, unit) in enumerate(zip(epsilon, units, strict=True)):
        if unit == 0 and one > 0:
            raise InputError(f"--epsilon: sensor [{index}] has no noise, so no perturbation of it is covered: give 0 for it")
    parts = [one if unit == 1 else one / unit for one, unit in zip(epsilon, units, strict=True) if unit > 0]
    divided = "" if log.sensor_sigma is None else " / sigma_i"
    total = math.hypot(*parts)
    formula = f"R = sqrt(steps) * sqrt(sum of (epsilon_i{divided})^2) = sqrt({steps}) * {total:.6g}"
    return PerStepBound(epsilon, norm, steps, assumed, len(parts), _rounded_up(math.sqrt(steps) * total), formula)


def _flat(values: Any) -> Iterator[float]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield float(values)


def _rounded_up(radius: float) -> float:
    """A radius that is no smaller than the exact one, of which this is the rounded value."""
    if not radius <= MOST:
        raise InputError(f"--epsilon: its radius is beyond {MOST:g}")
    return radius * (1 + 8 * 2.0**-53) if radius > 0 else 0.0
