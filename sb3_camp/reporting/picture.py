"""The picture of a report: curves and attacks as inline SVG that shows its numbers to a pointer, without scripts."""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from sb3_camp.attack_runs.attack_figure import draw_attack, draw_violations
from sb3_camp.attack_runs.attack_result import AttackResult
from sb3_camp.attack_runs.consistency import Comparison
from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import draw_curve
from sb3_camp.certification.curve_style import curve_styles, literal
from sb3_camp.certification.quantity_text import meaning_of_bound, short_meaning, shown, shown_bound
from sb3_camp.certification.rounded_text import exact, floor_decimals, floor_digits, quotient
from sb3_camp.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT, _LINE = 7.2, 3.6, 0.18  # of a panel and of a line of its legend, in inches
_MOST_TIPS, _MARKERS, _LONGEST_NAME = 120, 8, 40
_EXPECTED = "certified expected return"
_PREFIX = "picture-"
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"

Curve = tuple[str, list[float], list[str]]
"""What a curve is of, its value at each radius, and the same in words."""


def report_picture(
    certificate: Certificate, attacks: Sequence[AttackResult] = (), comparisons: Sequence[Comparison] = ()
) -> Markup:
    """
    Draw what is certified, as staircases, and the mean returns under attack with their confidence intervals; probabilities
    have a panel of their own. Curves differ in colour, line and marker.

    :param certificate: The certificate
    :param attacks: Attacks that it speaks of
    :param comparisons: What came of the comparison of each
    :return: an ``svg`` element to stand in an HTML page; what a pointer rests on is explained by ``title`` elements
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    returns: list[Curve] = [(_EXPECTED, certificate.certified_return, at_least(certificate.certified_return))]
    probabilities: list[Curve] = []
    for one in certificate.quantities:
        (probabilities if one.kind == "probability" else returns).append(
            (f"certified: {short_meaning(one)}", one.certified, [f"at least {text}" for text in shown(one)])
        )
    numbers: list[list[Curve]] = []
    for bound in certificate.recorded:
        curve = (f"certified: {meaning_of_bound(bound)}", bound.certified, shown_bound(bound))
        if bound.is_event:
            probabilities.append(curve)
        else:
            numbers.append([curve])
    panels = [returns, *([probabilities] if probabilities else []), *numbers]
    titles = ["return of an episode", *(["probability"] if probabilities else [])]
    titles += [literal(printable(bound.key)) for bound in certificate.recorded if not bound.is_event]
    tips: dict[str, str] = {}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": _PREFIX}):
        heights = [_HEIGHT + _LINE * len(curves) for curves in panels]
        heights[0] += _LINE * (1 + len(attacks))
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for axes, curves, title in zip(grid[:, 0], panels, titles, strict=True):
            names = dict(zip(attack_names(attacks), attacks, strict=True)) if curves is returns else {}
            styles = curve_styles([*(label for label, *_ in curves), *names])
            for label, values, _ in curves:
                draw_marked(axes, certificate.radii, values, label, styles[label])
            for name, attack in names.items():
                draw_attack(axes, attack, f"{literal(name)} (mean, {attack.confidence:.0%} interval)", styles[name], 1)
            if curves is returns:
                draw_violations(axes, comparisons, 1)
                _mark_mean(axes, certificate, tips)
            axes.set_ylabel(title)
            if curves is returns:
                axes.set_ylim(bottom=min(certificate.min_return, axes.get_ylim()[0]))
            finish(axes, curves is probabilities)
            add_tips(axes, certificate.radii, curves, tips, certificate.sigma)
            for name, attack in names.items():
                _add_attack_tips(axes, name, attack, tips)
        return inline_svg(
            figure, tips, _PREFIX, "What is certified as a function of the radius; the numbers stand in the table"
        )


def attack_names(attacks: Sequence[AttackResult]) -> list[str]:
    """
    :param attacks: The attacks
    :return: what to call each, distinct
    """
    names = [f"attacked: {printable(attack.settings.attack)[:_LONGEST_NAME]}" for attack in attacks]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: position + 1].count(name)})"
        for position, name in enumerate(names)
    ]


def _mark_mean(axes: "Axes", certificate: Certificate, tips: dict[str, str]) -> None:
    axes.plot(
        0,
        certificate.mean_return,
        marker="*",
        markersize=12,
        color="black",
        linestyle="",
        clip_on=False,
        label="mean return of the episodes, without an attack",
        zorder=9,
        gid=_tip(tips, f"without an attack: mean return {certificate.mean_return:.2f}, certified {_first(certificate)}"),
    )


def _first(certificate: Certificate) -> str:
    return f"{floor_decimals(certificate.certified_return[0], 3)} at radius {exact(certificate.radii[0])}"


def at_least(values: Sequence[float]) -> list[str]:
    """
    :param values: Lower bounds
    :return: the same in words, none higher than it is
    """
    return [f"at least {floor_decimals(value, 3)}" for value in values]


def draw_marked(axes: "Axes", radii: Sequence[float], values: Sequence[float], label: str, style: dict[str, str]) -> None:
    """
    Draw a bound as a staircase with markers, by which it can be told from others without colours.

    :param axes: Where to draw
    :param radii: Radii, ascending
    :param values: The bound at each of them
    :param label: For the legend
    :param style: See :func:`sb3_camp.certification.curve_style.curve_styles`
    """
    line = draw_curve(axes, radii, values, literal(label), style, 1)
    line.set(marker=style["marker"], markevery=max(1, len(radii) // _MARKERS))


def finish(axes: "Axes", of_probability: bool = False) -> None:
    """
    Put the legend of a panel above it, where it hides nothing, and name its axis of radii.

    :param axes: The panel
    :param of_probability: Whether it is of probabilities
    """
    axes.set_xlim(left=0)
    if of_probability:
        axes.set_ylim(0, 1.02)
    axes.set_xlabel("radius: l2 norm of all changes to the observations of an episode")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def add_tips(
    axes: "Axes", radii: Sequence[float], curves: Sequence[Curve], tips: dict[str, str], sigma: float | None = None
) -> None:
    """
    Lay a strip over each step of the staircases, not to be seen, that tells the bounds there.

    :param axes: The panel
    :param radii: Radii, ascending
    :param curves: The curves of the panel
    :param tips: What a pointer is told, by the id of what it rests on: more is added
    :param sigma: In multiples of which radii are told too
    """
    shown = np.unique(np.linspace(0, len(radii) - 1, min(_MOST_TIPS, len(radii))).round().astype(int)).tolist()
    left = 0.0
    for index in shown:
        if radii[index] > left:
            # What holds at its right end holds all over the strip
            bounds = [f"{label} {texts[index]}" for label, _, texts in curves]
            ratio = "" if sigma is None else f" ({floor_decimals(quotient(radii[index], sigma), 3)} sigma)"
            text = f"radius up to {floor_digits(radii[index], 6)}{ratio}: {', '.join(bounds)}"
            axes.axvspan(left, radii[index], facecolor="none", edgecolor="none", linewidth=0, zorder=8, gid=_tip(tips, text))
        left = max(left, radii[index])


def _add_attack_tips(axes: "Axes", name: str, attack: AttackResult, tips: dict[str, str]) -> None:
    for one in attack.budgets:
        interval = one.confidence_interval
        ends = "" if interval is None else f" ({attack.confidence:.0%} interval {interval[0]:.2f} to {interval[1]:.2f})"
        text = f"{name}, budget {exact(one.budget)}: mean return {one.mean_return:.2f}{ends}"
        axes.plot(
            one.budget,
            one.mean_return,
            marker="o",
            markersize=12,
            markerfacecolor="none",
            markeredgecolor="none",
            clip_on=False,
            zorder=9,
            gid=_tip(tips, text),
        )


def _tip(tips: dict[str, str], text: str) -> str:
    """Keep what a pointer is told, and make an id for what it rests on."""
    name = f"tip{len(tips)}"
    tips[name] = text
    return name


def inline_svg(figure: "Figure", tips: dict[str, str], prefix: str, description: str) -> Markup:
    """
    What of matplotlib's file may stand in a page: no metadata, ids that are those of nothing else in the page, ``href``
    instead of ``xlink:href``, and its size left to the page.

    :param figure: A figure
    :param tips: What a pointer is told, by the id of what it rests on
    :param prefix: Of all ids, another one for each picture of a page
    :param description: What the picture shows, for whoever does not see it
    :return: an ``svg`` element
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ET.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        name = element.attrib.pop("id", "")
        if name in tips:
            title = ET.Element("title")
            title.text = tips[name]
            element.insert(0, title)
            element.set("class", "tip")
        elif name in used:
            element.set("id", prefix + name)
        for key, value in list(element.attrib.items()):
            if key == f"{_XLINK}href":
                del element.attrib[key]
                element.set("href", f"#{prefix}{value.removeprefix('#')}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{prefix}"))
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "class": "picture",
        "role": "img",
        "aria-label": description,
    }
    return Markup(ET.tostring(root, encoding="unicode"))
