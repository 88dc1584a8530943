"""The picture of a certificate that has more than the expected return: probabilities, quantiles, means of the worst."""

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import NORM, default_labels, draw_curve, norm_unit, not_covered
from sb3_camp.certification.curve_style import curve_styles, literal
from sb3_camp.certification.per_step import meaning_of_steps
from sb3_camp.certification.quantity_text import meaning_of_bound, short_meaning
from sb3_camp.certification.rounded_text import confidence, exact
from sb3_camp.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PROBABILITY = "certified probability"


class Curve(NamedTuple):
    """
    :param label: for the legend
    :param values: the bound at each radius
    :param at_steps: the bound against a bound on each step, None without one
    """

    label: str
    values: list[float]
    at_steps: float | None


def quantities_figure(certificate: Certificate) -> "Figure":
    """
    Draw what a certificate certifies: returns in one panel, probabilities in another, all as staircases, and what is certified
    against a bound on each step as crosses.

    :param certificate: a certificate with ``quantities``, ``recorded`` or ``per_step``
    :return: the figure, not registered with pyplot
    """
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    of_returns, of_probability, numbers = _panels(certificate)
    panels = [("certified return", of_returns), *([(_PROBABILITY, of_probability)] if of_probability else []), *numbers]
    figure = Figure(figsize=(6.4 if len(panels) == 1 else 5.0 * len(panels), 4.4), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, certificate, curves)
        axes.set_ylabel(literal(printable(title)))
        if title == _PROBABILITY:
            axes.set_ylim(0, 1.02)
    figure.axes[0].set_ylim(bottom=certificate.min_return)
    (name,) = default_labels([certificate])
    texts = [
        f"{name}: {certificate.n_episodes} episodes, {printable(certificate.method)}, confidence "
        f"{confidence(certificate.alpha)} for all curves together, no return below {exact(certificate.min_return)}",
        *_of_steps(certificate),
        *not_covered(certificate),
    ]
    figure.suptitle("\n".join(map(literal, texts)), fontsize="small")
    figure.supxlabel(f"radius: {NORM}, {norm_unit([certificate], pixels=False)}", fontsize="medium")
    return figure


def _panels(certificate: Certificate) -> tuple[list[Curve], list[Curve], list[tuple[str, list[Curve]]]]:
    """The curves that are returns, those that are probabilities, and a panel with one curve for each number."""
    steps = certificate.per_step
    at_steps = [steps.certified_return] if steps is not None else [None]
    of_returns = [Curve("expected return", certificate.certified_return, *at_steps)]
    of_probability: list[Curve] = []
    for one, value in zip_longest(certificate.quantities, [] if steps is None else steps.certified):
        curves = of_probability if one.kind == "probability" else of_returns
        curves.append(Curve(literal(short_meaning(one)), one.certified, value))
    numbers = []
    for bound, value in zip_longest(certificate.recorded, [] if steps is None else steps.recorded):
        curve = Curve(literal(meaning_of_bound(bound)), bound.certified, value)
        if bound.is_event:
            of_probability.append(curve)
        else:
            numbers.append((bound.key, [curve]))
    return of_returns, of_probability, numbers


def _of_steps(certificate: Certificate) -> list[str]:
    """What the crosses are, or where they would be."""
    bound = certificate.per_step
    if bound is None:
        return []
    where = "crosses" if bound.radius <= certificate.radii[-1] else "beyond the picture"
    return [f"{where}: an adversary who perturbs {meaning_of_steps(bound, certificate)} (radius {bound.radius:.6g})"]


def _draw(axes: "Axes", certificate: Certificate, curves: list[Curve]) -> None:
    styles = curve_styles([curve.label for curve in curves])
    for label, values, at_steps in curves:
        draw_curve(axes, certificate.radii, values, label, styles[label], 1)
        bound = certificate.per_step
        if bound is not None and at_steps is not None and bound.radius <= certificate.radii[-1]:
            axes.plot(bound.radius, at_steps, marker="X", markersize=8, color=styles[label]["color"], linestyle="")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
