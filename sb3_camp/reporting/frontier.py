"""What a report says of a frontier: several evaluations that hold together, and the best of them at each radius."""

from decimal import Decimal
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.certification.assumptions import KNOWN
from sb3_camp.certification.build import default_radii
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import default_labels, differing_settings, norm_unit
from sb3_camp.certification.curve_style import curve_styles
from sb3_camp.certification.frontier_files import CertifiedFrontier
from sb3_camp.certification.rounded_text import confidence, exact, floor_decimals, floor_digits
from sb3_camp.certification.source_files import changed_logs
from sb3_camp.files import read_bytes, sha256
from sb3_camp.reporting.picture import Curve, add_tips, at_least, draw_marked, finish, inline_svg
from sb3_camp.reporting.reproduction import Step
from sb3_camp.reporting.tested import Fact
from sb3_camp.reporting.values import Table

_PREFIX, _BEST, _ROWS = "frontier-", "the best at each radius", 13
_SIZE, _LINE = (7.2, 3.6), 0.18  # of the panel and of a line of its legend, in inches


class FrontierSection(NamedTuple):
    """
    :param confidence: Of all curves together
    :param share: The alpha of each
    :param joint: Of all curves and the certificate of the report together, None where that would say nothing
    :param members: The evaluations, in words
    :param differing: In what they differ
    :param unit: The unit of the radii
    :param table: The best at each radius, and all that it is the best of
    :param picture: Their curves
    :param last_radius: Beyond which nothing is said
    :param changed: Logs that are not what they were
    :param file: Where it was read
    :param digest: SHA-256 of this file
    """

    confidence: str
    share: str
    joint: str | None
    members: list[Fact]
    differing: list[str]
    unit: str
    table: Table
    picture: Markup
    last_radius: str
    changed: list[str]
    file: str
    digest: str


def frontier_section(results: AgentResults) -> FrontierSection | None:
    """
    :param results: What is known of an agent
    :return: what a report says of the frontier that it is in, None without one
    """
    if results.frontier is None:
        return None
    frontier, certificate = results.frontier.content, results.certificate
    names = [f"[{index}] {label}" for index, label in enumerate(default_labels(frontier.certificates), start=1)]
    both = float(Decimal(repr(frontier.alpha)) + Decimal(repr(certificate.alpha)))  # 0.1 + 0.05 is 0.15
    return FrontierSection(
        confidence(frontier.alpha),
        f"{frontier.certificates[0].alpha:.6g}",
        confidence(both) if both < 1 else None,
        [Fact(name, _member(one, certificate)) for name, one in zip(names, frontier.certificates, strict=True)],
        differing_settings(frontier.certificates),
        norm_unit(frontier.certificates, pixels=False),
        _table(frontier),
        _picture(frontier, names),
        floor_digits(frontier.radii[-1], 6),
        [str(log) for one in frontier.certificates for log in changed_logs(one, results.frontier.file)],
        str(results.frontier.file),
        sha256(read_bytes(results.frontier.file)),
    )


def _member(one: Certificate, certificate: Certificate) -> str:
    texts = [f"{one.n_episodes} episodes, mean return {one.mean_return:.2f} without an attack"]
    texts += ["sigma assumed by whoever made the frontier"] if one.sigma_assumed else []
    texts += ["independence of the episodes assumed by whoever made the frontier"] if one.independence_assumed else []
    texts += [f"file of the agent {one.model or 'not known'}, SHA-256 {one.model_sha256 or 'not known'}"]
    if one.model_sha256 == certificate.model_sha256:
        noise = "and noise " if one.sigma == certificate.sigma and one.sensor_sigma == certificate.sensor_sigma else ""
        texts.append(f"the agent {noise}of this report")
    return "; ".join(texts)


def _table(frontier: CertifiedFrontier) -> Table:
    columns = [f"[{index}]" for index in range(1, len(frontier.certificates) + 1)]
    rows = []
    for index in np.unique(np.linspace(0, len(frontier.radii) - 1, _ROWS).round().astype(int)).tolist():
        curves = [floor_decimals(one.certified_return[index], 3) for one in frontier.certificates]
        best = [columns[frontier.best[index]], floor_decimals(frontier.certified_return[index], 3)]
        rows.append([floor_digits(frontier.radii[index], 6), *best, *curves])
    return Table(["radius R", "best", "its expected return", *columns], rows)


def _picture(frontier: CertifiedFrontier, names: list[str]) -> Markup:
    """The curve of each evaluation, with line and marker of its own, and a broad band under the best."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    tips: dict[str, str] = {}
    curves: list[Curve] = [
        (name, one.certified_return, at_least(one.certified_return))
        for name, one in zip(names, frontier.certificates, strict=True)
    ]
    styles = curve_styles(names)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": _PREFIX}):
        width, height = _SIZE
        figure = Figure(figsize=(width, height + _LINE * (1 + len(curves))), layout="constrained")
        axes = figure.subplots()
        for name, values, _ in curves:
            draw_marked(axes, frontier.radii, values, name, styles[name])
        draw_marked(axes, frontier.radii, frontier.certified_return, _BEST, {"color": "0.75", "linestyle": "-", "marker": ""})
        axes.get_lines()[-1].set(linewidth=8, zorder=0)
        axes.set_ylabel("certified expected return")
        axes.set_ylim(bottom=min(axes.get_ylim()[0], *(one.min_return for one in frontier.certificates)))
        finish(axes)
        add_tips(axes, frontier.radii, curves, tips)
        return inline_svg(figure, tips, _PREFIX, "The certified return of each evaluation as a function of the radius")


def frontier_step(frontier: CertifiedFrontier) -> Step:
    """
    :param frontier: A frontier
    :return: the command that makes it again from its logs, as far as its file tells it
    """
    parts, text = frontier.certificates, "Certify the evaluations of the frontier together"
    logs = [source.path for one in parts for source in one.sources]
    lowest = {one.min_return for one in parts if one.min_return_basis != KNOWN}
    if len(logs) != len(parts) or any(log.startswith("-") for log in logs):
        return Step(f"{text}: which logs are pooled, its file does not tell.")
    if len(lowest) > 1 or any(one.sigma_assumed or one.support is not None for one in parts):
        return Step(f"{text}: they have assumptions of their own, which one command does not hold.")
    words = ["python", "-m", "sb3_camp.certify", "--frontier", *logs, "-o", "again/frontier"]
    words += ["--alpha", exact(frontier.alpha), "--method", parts[0].method, *(f"--min-return={exact(one)}" for one in lowest)]
    if frontier.radii != default_radii(max(one.sigma for one in parts)).tolist():
        words += ["--radii", *map(exact, frontier.radii)]
    return Step(f"{text}.", words)
