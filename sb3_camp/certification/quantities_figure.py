"""The picture of a certificate that has more than the expected return: probabilities, quantiles, means of the worst."""

from typing import TYPE_CHECKING

from sb3_camp.certification.certificate import Certificate
from sb3_camp.certification.certificate_figure import NORM, default_labels, draw_curve, norm_unit, not_covered
from sb3_camp.certification.curve_style import curve_styles, literal
from sb3_camp.certification.quantity_text import meaning_of_bound, short_meaning
from sb3_camp.certification.rounded_text import confidence, exact
from sb3_camp.text import printable

_PROBABILITY = "certified probability"

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def quantities_figure(certificate: Certificate) -> "Figure":
    """
    Draw what a certificate certifies: returns in one panel, probabilities in another, all as staircases.

    :param certificate: a certificate with ``quantities``
    :return: the figure, not registered with pyplot
    """
    from matplotlib.figure import Figure  # slow to import, and no pyplot: nothing global, no display

    of_returns = [("expected return", certificate.certified_return)]
    of_returns += [(short_meaning(one), one.certified) for one in certificate.quantities if one.kind != "probability"]
    of_probability = [(short_meaning(one), one.certified) for one in certificate.quantities if one.kind == "probability"]
    of_probability += [(meaning_of_bound(one), one.certified) for one in certificate.recorded if one.is_event]
    panels = [("certified return", of_returns), *([(_PROBABILITY, of_probability)] if of_probability else [])]
    panels += [(one.key, [(meaning_of_bound(one), one.certified)]) for one in certificate.recorded if not one.is_event]
    figure = Figure(figsize=(6.4 if len(panels) == 1 else 5.0 * len(panels), 4.4), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, certificate, [(literal(label), values) for label, values in curves])
        axes.set_ylabel(literal(printable(title)))
        if title == _PROBABILITY:
            axes.set_ylim(0, 1.02)
    figure.axes[0].set_ylim(bottom=certificate.min_return)
    (name,) = default_labels([certificate])
    texts = [
        f"{name}: {certificate.n_episodes} episodes, {printable(certificate.method)}, confidence "
        f"{confidence(certificate.alpha)} for all curves together, no return below {exact(certificate.min_return)}",
        *not_covered(certificate),
    ]
    figure.suptitle("\n".join(map(literal, texts)), fontsize="small")
    figure.supxlabel(f"radius: {NORM}, {norm_unit([certificate], pixels=False)}", fontsize="medium")
    return figure


def _draw(axes: "Axes", certificate: Certificate, curves: list[tuple[str, list[float]]]) -> None:
    styles = curve_styles([label for label, _ in curves])
    for label, values in curves:
        draw_curve(axes, certificate.radii, values, label, styles[label], 1)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
