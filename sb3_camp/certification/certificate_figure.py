"""Pictures of certificates: the certified return as a function of the l2 norm of the attack, several on one picture."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.curve_style import check_labels, curve_styles, literal, shown_label
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.runs.scenario import without_sigma
from sb3_camp.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_PIXEL = 255
_IN_TITLE = ("method", "alpha", "number of episodes", "lowest return")
_SHORT = 40
CHOICE_OF_ACTIONS = {
    True: "greedy actions",
    False: "sampled actions",
    None: "greedy or sampled actions (the log does not say)",
}
"""How the policy of a certificate chose them, by its ``deterministic``."""
BAND_TITLES = {"berk-jones": "Berk-Jones band", "dkw": "DKW band", "clopper-pearson": "Clopper-Pearson bounds"}
"""What the methods compute, for a title."""
NORM = "l2 norm of the attack on an episode"
"""What radii and budgets are, for the axis of a picture."""
SENSOR_UNIT = "in units of each sensor's sigma"
"""The unit of both where each sensor has a sigma of its own."""


def certificate_figure(
    certificates: Sequence[Certificate],
    labels: Sequence[str] | None = None,
    *,
    pixels: bool = False,
    by: Literal["sigma"] | None = None,
) -> "Figure":
    """
    Draw the curves of certificates of one environment, each as a staircase: the value at a radius holds for all smaller ones.

    A marker at radius 0 shows the mean return. Band method, alpha, number of episodes and lowest possible return stand in the
    title; where they are not the same for all curves, in the legend behind the label of each. There stand too: keyword
    arguments and wrappers of the environment if they differ, for they may make another task of it, and what an attack must not
    touch (``clean_keys``).

    :param certificates: what :func:`sb3_camp.certification.certificate.read_certificate` returns for each
    :param labels: one for each certificate, distinct within a panel; between dollar signs in matplotlib's math notation.
        The same label has the same colour and line in all panels. Default: :func:`default_labels`
    :param pixels: give radii and sigma in units of 255, for images whose pixels are 0 to 255
    :param by: "sigma" for one panel per sigma, in ascending order; None for one panel
    :return: the figure, not registered with pyplot: save it with ``savefig``, or show it as the last value of a notebook cell
    :raises InputError: if there is no certificate, if they are of different environments, or if the labels do not fit
    """
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    names = [f"certificate {index}" for index in range(1, len(certificates) + 1)]
    check_one_environment([certificate.env_id for certificate in certificates], names)
    panels = _panels(certificates, by)
    if labels is None:
        texts = list(map(literal, default_labels(certificates, pixels=pixels, by=by)))
    else:
        texts = list(labels)
        check_labels(texts, panels.values(), "certificates")
    styles = curve_styles(texts, [certificate.algo for certificate in certificates])
    marks = _settings(certificates)
    differing = differing_settings(certificates)

    n_columns = 2 if len(panels) == 4 else min(3, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    size = (6.4, 4.4) if len(panels) == 1 else (4.0 * n_columns, 3.6 * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False).ravel()
    for axes, (title, members) in zip(grid, panels.items(), strict=False):
        for i in members:
            mark = ", ".join([*(marks[name][i] for name in differing), *map(literal, not_covered(certificates[i]))])
            label, style = texts[i] + (mark and f" ({mark})"), styles[texts[i]]
            draw_certificate(axes, certificates[i], label, style, _PIXEL if pixels else 1)
            mean = certificates[i].mean_return
            axes.plot(0, mean, marker=style["marker"], color=style["color"], linestyle="", clip_on=False)
        if by is not None:
            axes.set_title(f"sigma {title}" + ("/255" if pixels else ""), fontsize="medium")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(certificate.min_return for certificate in certificates))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.suptitle(
        ", ".join(marks[name][0] for name in marks if name in _IN_TITLE and name not in differing), fontsize="small"
    )
    figure.supxlabel(f"radius: {NORM}, {norm_unit(certificates, pixels)}", fontsize="medium")
    figure.supylabel("certified expected return (marker: mean return)", fontsize="medium")
    return figure


def default_labels(
    certificates: Sequence[Certificate], *, pixels: bool = False, by: Literal["sigma"] | None = None
) -> list[str]:
    """
    :param certificates: the certificates
    :param pixels: as for :func:`certificate_figure`
    :param by: as for :func:`certificate_figure`
    :return: algorithm, environment and noise of each, numbered where they occur more than once in a panel; without the noise
        if the panels tell it
    """
    labels = [""] * len(certificates)
    for members in _panels(certificates, by).values():
        names = [_name(certificates[i], pixels, with_sigma=by is None) for i in members]
        for position, (i, name) in enumerate(zip(members, names, strict=True)):
            labels[i] = name if names.count(name) == 1 else f"{name} ({names[: position + 1].count(name)})"
    return labels


def differing_settings(certificates: Sequence[Certificate]) -> list[str]:
    """
    :param certificates: the certificates
    :return: in words, which of band method, alpha, number of episodes, lowest return, choice of actions, keyword arguments and
        wrappers of the environment are not the same for all of them
    """
    return [name for name, texts in _settings(certificates).items() if len(set(texts)) > 1]


def differing_lines(certificates: Sequence[Certificate]) -> list[str]:
    """
    :param certificates: the certificates
    :return: for the terminal, a line with what differs, and one for the keyword arguments and the wrappers of each environment
        and for how actions were chosen where these do; none if nothing differs
    """
    differing = differing_settings(certificates)
    values = [
        f"{key} of [{index}]: {'unknown' if entry is None else printable(json.dumps(entry))}"
        for key in ("env_kwargs", "env_wrappers")
        if key in differing
        for index, one in enumerate(certificates, start=1)
        for entry in [without_sigma(getattr(one, key), one.sigma)]
    ]
    if "choice of actions" in differing:
        values += [f"{CHOICE_OF_ACTIONS[one.deterministic]} of [{index}]" for index, one in enumerate(certificates, start=1)]
    return [f"They differ in: {', '.join(differing)}", *values] if differing else []


def norm_unit(certificates: Sequence[Certificate], pixels: bool) -> str:
    """
    :param certificates: the certificates
    :param pixels: whether radii are divided by 255
    :return: the unit of radii and budgets, for the axis of a picture
    """
    if pixels:
        return "in pixel values / 255"
    if certificates and all(certificate.pixels for certificate in certificates):
        return "in pixel values"
    if any(certificate.sensor_sigma is not None for certificate in certificates):
        return SENSOR_UNIT
    return "in units of the observation"


def not_covered(certificate: Certificate) -> list[str]:
    """
    :param certificate: a certificate
    :return: in words, what an attack must not touch; empty if nothing is excepted
    """
    keys = certificate.clean_keys
    return [f"not covered: entries {', '.join(map(printable, keys))}"] if keys else []


def check_one_environment(env_ids: Sequence[str | None], names: Sequence[str], what: str = "a certificate for") -> None:
    """
    :param env_ids: environment of each certificate, or of each other result
    :param names: what to call each in the message
    :param what: what they are, in the message
    :raises InputError: if there is none, or if they are of different environments
    """
    if not env_ids:
        raise InputError("no certificate to draw")
    for name, env_id in zip(names, env_ids, strict=True):
        if env_id != env_ids[0]:
            raise InputError(f"{name}: {what} {env_id}, not comparable with {names[0]} for {env_ids[0]}")


def _panels(certificates: Sequence[Certificate], by: Literal["sigma"] | None) -> dict[str, list[int]]:
    """Title of each panel, and the positions of its certificates."""
    if by is None:
        return {"": list(range(len(certificates)))}
    panels: dict[str, list[int]] = {}
    for i in sorted(range(len(certificates)), key=lambda i: certificates[i].sigma):
        panels.setdefault(exact(certificates[i].sigma), []).append(i)
    return {title: sorted(members) for title, members in panels.items()}


def _name(certificate: Certificate, pixels: bool, with_sigma: bool) -> str:
    names = [printable(name) for name in (certificate.algo, certificate.env_id) if name]
    if with_sigma or not names:
        names.append(f"sigma {exact(certificate.sigma)}" + ("/255" if pixels else ""))
    return ", ".join(names)


def _settings(certificates: Sequence[Certificate]) -> dict[str, list[str]]:
    """What must be alike for a fair comparison: name of the setting, and its text for each certificate."""
    sigmas = [certificate.sigma for certificate in certificates]
    return {
        "method": [BAND_TITLES.get(certificate.method, literal(certificate.method)) for certificate in certificates],
        "alpha": [_alpha(certificate) for certificate in certificates],
        "number of episodes": [f"{certificate.n_episodes} episodes" for certificate in certificates],
        "lowest return": [f"no return below {exact(certificate.min_return)}" for certificate in certificates],
        "choice of actions": [CHOICE_OF_ACTIONS[certificate.deterministic] for certificate in certificates],
        "sigma of each sensor": [_sensors(certificate.sensor_sigma) for certificate in certificates],
        "env_kwargs": variants("env_kwargs", [certificate.env_kwargs for certificate in certificates], sigmas),
        "env_wrappers": variants("env_wrappers", [certificate.env_wrappers for certificate in certificates], sigmas),
    }


def _alpha(certificate: Certificate) -> str:
    share = f" ({certificate.level:.3g} for the returns)" if certificate.is_shared else ""
    return f"alpha {exact(certificate.alpha)}{share}"


def _sensors(sensor_sigma: Any) -> str:
    """What the unit of the radius is, where it is not that of the observation."""
    if sensor_sigma is None:
        return "radius in units of the observation"
    text = literal(printable(json.dumps(sensor_sigma, sort_keys=True)))
    return f"radius in units of sigma {text if len(text) <= _SHORT else text[: _SHORT - 3] + '...'}"


def variants(key: str, entries: Sequence[dict[str, Any] | None], sigmas: Sequence[float]) -> list[str]:
    """
    :param key: ``env_kwargs`` or ``env_wrappers``
    :param entries: this entry of each certificate, or of each attack
    :param sigmas: the noise of each
    :return: the entry of each as a text, which is equal for equal entries: in short, if need be by a number
    """
    distinct: list[str] = []
    texts = []
    for entry, sigma in zip(entries, sigmas, strict=True):
        entry = without_sigma(entry, sigma)
        variant = json.dumps(entry, sort_keys=True)
        if variant not in distinct:
            distinct.append(variant)
        if entry is None:
            texts.append(f"{key} unknown")
        elif len(variant) <= _SHORT:
            texts.append(f"{key} {literal(variant) if entry else 'none'}")
        else:
            texts.append(f"{key} no. {distinct.index(variant) + 1}")
    return texts


def draw_certificate(axes: "Axes", certificate: Certificate, label: str, style: dict[str, str], unit: int) -> None:
    """
    :param axes: where to draw
    :param certificate: the certificate
    :param label: for the legend
    :param style: see :func:`sb3_camp.certification.curve_style.curve_styles`
    :param unit: what to divide radii by
    """
    draw_curve(axes, certificate.radii, certificate.certified_return, label, style, unit)


def draw_curve(
    axes: "Axes", radii: Sequence[float], values: Sequence[float], label: str, style: dict[str, str], unit: int
) -> "Line2D":
    """
    Draw a bound as a staircase: the value at a radius holds for all smaller ones.

    :param axes: where to draw
    :param radii: radii, ascending
    :param values: the bound at each of them
    :param label: for the legend
    :param style: see :func:`sb3_camp.certification.curve_style.curve_styles`
    :param unit: what to divide radii by
    :return: the staircase
    """
    radii, values = [radius / unit for radius in radii], list(values)
    if radii[0] > 0:
        radii, values = [0.0, *radii], [values[0], *values]
    # Straight lines between the points would lie above the bound
    (line,) = axes.plot(
        radii,
        values,
        drawstyle="steps-pre",
        color=style["color"],
        linestyle=style["linestyle"],
        marker="." if len(radii) == 1 else "",
        label=shown_label(label),
    )
    return line
