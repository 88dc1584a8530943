"""From the results on an agent to the page of its report."""

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.certification.assumptions import KNOWN
from sb3_camp.certification.build import ceiling_of_more
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.recorded_bound import AT_LEAST
from sb3_camp.certification.rounded_text import ceil_decimals, confidence, exact, floor_digits, percent
from sb3_camp.certification.sensor_table import MOST_ROWS, Sensor, most_steps, sensors
from sb3_camp.certification.source_files import changed_logs
from sb3_camp.files import read_bytes, sha256
from sb3_camp.reporting import tested, values
from sb3_camp.reporting.frontier import frontier_section, frontier_step
from sb3_camp.reporting.picture import attack_names, report_picture
from sb3_camp.reporting.reproduction import reproduction
from sb3_camp.text import printable
from sb3_camp.version import __version__


def report_page(results: AgentResults) -> str:
    """
    :param results: A certificate, and the attacks that it speaks of
    :return: an HTML page that needs no other file, no network and no scripts. All that comes from files is escaped
    :raises InputError: if a log of the certificate cannot be read
    """
    certificate, names = results.certificate, attack_names(results.contents)
    return _template("report.html.j2").render(
        certificate=certificate,
        name=" on ".join(name for name in (certificate.algo, certificate.env_id) if name) or "unknown agent",
        confidence=confidence(certificate.alpha),
        alpha=percent(certificate.alpha),
        lowest=exact(certificate.min_return),
        lowest_is_known=certificate.min_return_basis == KNOWN,
        slopes=_slopes(certificate),
        headline=values.headline(certificate),
        assumed_worst=[
            (one.key, "less" if one.side == AT_LEAST else "more", exact(one.worst))
            for one in certificate.recorded
            if not one.is_event
        ],
        last_radius=floor_digits(certificate.radii[-1], 6),
        table=values.certified_table(certificate),
        targets=values.targets(certificate),
        per_step=values.per_step(certificate),
        picture=report_picture(certificate, results.contents, results.comparisons),
        agent=tested.agent_facts(certificate),
        environment=tested.environment_facts(certificate),
        evidence=tested.evidence_facts(certificate),
        unit=tested.unit(certificate),
        sensors=_sensors(certificate),
        most_steps=most_steps(certificate)[1],
        more_sensors=max(0, len(sensors(certificate)) - MOST_ROWS),
        attacks=[(name, tested.attack_text(one.settings)) for name, one in zip(names, results.contents, strict=True)],
        attack_table=values.attack_table(results, names) if results.attacks else None,
        level=" or ".join(sorted({f"{attack.confidence:.0%}" for attack in results.contents})),
        compared=any(comparison.budgets for comparison in results.comparisons),
        violations=list(_violations(results, names)),
        notes=list(_notes(results, names)),
        left_out=results.left_out,
        changed=list(map(str, changed_logs(certificate, results.file))),
        ceiling=_ceiling(certificate),
        frontier=frontier_section(results),
        steps=[*reproduction(results), *([] if results.frontier is None else [frontier_step(results.frontier.content)])],
        file=str(results.file),
        digest=sha256(read_bytes(results.file)),
        version=__version__,
    )


def _template(name: str) -> Any:
    environment = Environment(
        loader=PackageLoader("sb3_camp.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """What no page can hold, such as half a character or a control code, as an escape; HTML is escaped after this."""
    return value if isinstance(value, Markup) else printable(str(value))


def _slopes(certificate: Certificate) -> list[tuple[str, str]]:
    """Radii, and by how much the bound is lower there for each 1 that the lowest return is lower."""
    slope = certificate.min_return_slope
    if slope is None or len(slope) != len(certificate.radii):
        return []
    nearest = min(range(len(slope)), key=lambda index: abs(certificate.radii[index] - certificate.sigma))
    return [
        (floor_digits(certificate.radii[index], 6), ceil_decimals(slope[index], 4))
        for index in sorted({0, nearest, len(slope) - 1})
    ]


def _sensors(certificate: Certificate) -> list[tuple[str, str, str] | tuple[str]]:
    """Name, deviation and offset of each; only the name where changes are not covered."""

    def row(one: Sensor) -> tuple[str, str, str] | tuple[str]:
        name = one.name or "any one entry of the observation"
        return (name, floor_digits(one.deviation, 3), floor_digits(one.offset, 3)) if one.deviation > 0 else (name,)

    return [row(one) for one in sensors(certificate)[:MOST_ROWS]]


def _violations(results: AgentResults, names: list[str]) -> Iterator[str]:
    for name, comparison in zip(names, results.comparisons, strict=True):
        for one in comparison.violations:
            yield (
                f"{name}, budget {exact(one.budget)}: the certificate says that a return of {one.threshold:.6g} or more has a "
                f"probability of at least {one.promised:.4g}; by the attacked episodes it is at most {one.most:.4g}"
            )


def _notes(results: AgentResults, names: list[str]) -> Iterator[str]:
    for name, comparison in zip(names, results.comparisons, strict=True):
        yield from (f"{name}: {note}" for note in comparison.notes())


def _ceiling(certificate: Certificate) -> dict[str, str] | None:
    """The ceiling of the episodes, and that of ten times as many; None where the certificate does not tell."""
    if certificate.ceiling is None:
        return None
    more = ceiling_of_more(certificate, 10 * certificate.n_episodes)
    return {
        "radius": f"{certificate.ceiling.radius:.4g}",
        "ratio": f"{certificate.ceiling.ratio:.2f}",
        "episodes": str(10 * certificate.n_episodes),
        "more_radius": f"{more * certificate.sigma:.4g}",
        "more_ratio": f"{more:.2f}",
    }
