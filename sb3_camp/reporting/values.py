"""The numbers of a report, as text: what is certified, and what attacks have left. No bound is shown higher than it is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.attack_runs.attack_result import AttackResult, BudgetResult
from sb3_camp.attack_runs.verdict import Strongest, strongest
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.per_step import formula_of_steps, meaning_of_steps, values_at_steps
from sb3_camp.certification.quantity_text import meaning, meaning_of_bound, shown, shown_bound
from sb3_camp.certification.rounded_text import exact, floor_decimals, floor_digits, quotient
from sb3_camp.errors import InputError

_ROWS = 13
_PIXEL = 255


class Table(NamedTuple):
    """
    :param head: Heads of the columns
    :param rows: Cells of the rows
    """

    head: list[str]
    rows: list[list[str]]


class Headline(NamedTuple):
    """
    :param radius: The radius of the certificate that is nearest to one sigma
    :param ratio: The same in multiples of sigma
    :param certified: What is certified there
    :param says_something: Whether that is more than the lowest possible return
    """

    radius: str
    ratio: str
    certified: str
    says_something: bool


def headline(certificate: Certificate) -> Headline:
    """
    :param certificate: the certificate
    :return: the bound at the radius to quote
    """
    index = min(range(len(certificate.radii)), key=lambda row: abs(certificate.radii[row] - certificate.sigma))
    bound = certificate.certified_return[index]
    return Headline(
        floor_digits(certificate.radii[index], 6),
        floor_digits(quotient(certificate.radii[index], certificate.sigma), 3),
        floor_decimals(bound, 3),
        float(floor_decimals(bound, 3)) > certificate.min_return,
    )


def certified_table(certificate: Certificate) -> Table:
    """
    :param certificate: the certificate
    :return: what is certified, at some of its radii
    """
    pixels = ["radius / 255"] if certificate.pixels else []
    columns = [(meaning(one), shown(one)) for one in certificate.quantities]
    columns += [(meaning_of_bound(one), shown_bound(one)) for one in certificate.recorded]
    head = ["radius R", *pixels, "R / sigma", "expected return", *(name for name, _ in columns)]
    rows = []
    for index in np.unique(np.linspace(0, len(certificate.radii) - 1, _ROWS).round().astype(int)).tolist():
        radius = certificate.radii[index]
        rows.append(
            [
                floor_digits(radius, 6),
                *([floor_digits(quotient(radius, _PIXEL), 6)] if certificate.pixels else []),
                _ratio(certificate, index),
                floor_decimals(certificate.certified_return[index], 3),
                *(values[index] for _, values in columns),
            ]
        )
    return Table(head, rows)


class OfSteps(NamedTuple):
    """
    :param meaning: What the adversary may perturb at each step, in words
    :param formula: How the radius follows
    :param assumed: The number of steps, if only whoever made the certificate says so
    :param table: What is certified at that radius
    """

    meaning: str
    formula: str
    assumed: int | None
    table: Table


def per_step(certificate: Certificate) -> OfSteps | None:
    """
    :param certificate: the certificate
    :return: what is certified against a bound on each step, None if that was not asked for
    """
    bound = certificate.per_step
    if bound is None:
        return None
    rows = [list(row) for row in values_at_steps(bound, certificate)]
    return OfSteps(
        meaning_of_steps(bound, certificate),
        formula_of_steps(bound, certificate),
        bound.steps if bound.steps_assumed else None,
        Table(["what", "certified"], rows),
    )


def targets(certificate: Certificate) -> list[tuple[str, str | None]]:
    """
    :param certificate: the certificate
    :return: the returns that were asked for, with the largest radius at which each is certified, None if there is none
    """
    return [(name, None if radius is None else floor_digits(radius, 6)) for name, radius in certificate.targets.items()]


def attack_table(results: AgentResults, names: Sequence[str]) -> Table:
    """
    :param results: A certificate and the attacks that it speaks of
    :param names: What each attack is called
    :return: mean returns under attack beside what is certified, and those of the strongest attack, if there are several whose
        episodes are there
    """
    rows = []
    best = _strongest(results.contents)
    for budget in np.unique([one.budget for attack in results.contents for one in attack.budgets]).tolist():
        certified = results.certificate.value_at(budget)
        rows.append(
            [
                exact(budget),
                "not covered" if certified is None else floor_decimals(certified, 3),
                *(_mean(attack, budget) for attack in results.contents),
                *([best[budget]] if best else []),
            ]
        )
    return Table(["budget", "certified", *names, *(["the strongest"] if best else [])], rows)


def _strongest(attacks: Sequence[AttackResult]) -> dict[float, str]:
    """Name and mean return of the strongest attack at each budget; empty where there is nothing to choose from."""
    if len(attacks) < 2:
        return {}
    try:
        return {one.budget: f"{one.attack}: {_with_interval(one)}" for one in strongest(attacks)}
    except InputError:  # the returns of one of them are gone
        return {}


def _mean(attack: AttackResult, budget: float) -> str:
    for one in attack.budgets:
        if one.budget == budget:
            return _with_interval(one)
    return "–"


def _with_interval(one: BudgetResult | Strongest) -> str:
    interval = one.confidence_interval
    return f"{one.mean_return:.2f}" + ("" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})")


def _ratio(certificate: Certificate, index: int) -> str:
    return floor_decimals(quotient(certificate.radii[index], certificate.sigma), 3)
