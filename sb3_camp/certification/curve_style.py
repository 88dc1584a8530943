"""Colours, lines and labels of the curves on a picture."""

from collections.abc import Iterable, Sequence

from sb3_camp.errors import InputError

# The palette of Okabe and Ito, "Color universal design" (2008), without its yellow, which is hard to see on white
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one for each colour, so that curves can be told apart without it
_LINES = ("-", "--", "-.", ":")
_N_STYLES = len(_COLOURS) * len(_LINES)  # their numbers have no common divisor, so each pair occurs


def curve_styles(labels: Sequence[str]) -> dict[str, dict[str, str]]:
    """
    :param labels: labels of the curves
    :return: matplotlib's color, linestyle and marker for each label, equal for equal ones
    :raises InputError: if there are more than the eye can tell apart
    """
    distinct = list(dict.fromkeys(labels))
    if len(distinct) > _N_STYLES:
        raise InputError(f"{len(distinct)} labels: the eye can tell at most {_N_STYLES} curves on one picture apart")
    return {label: _style(index) for index, label in enumerate(distinct)}


def _style(index: int) -> dict[str, str]:
    hue = index % len(_COLOURS)
    return {"color": _COLOURS[hue], "linestyle": _LINES[index % len(_LINES)], "marker": _MARKERS[hue]}


def check_labels(labels: Sequence[str], panels: Iterable[Sequence[int]], what: str) -> None:
    """
    :param labels: labels that a user gave; between dollar signs in matplotlib's math notation
    :param panels: which curves stand together, all curves once
    :param what: what the curves are of, in the plural
    :raises InputError: if there is not one for each curve, if they are not distinct within a panel, or cannot be set
    """
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    panels = list(panels)
    n_curves = sum(map(len, panels))
    if len(labels) != n_curves:
        raise InputError(f"labels: {len(labels)} for {n_curves} {what}")
    for members in panels:
        if len({labels[i] for i in members}) < len(members):
            raise InputError("labels must be distinct, so that one can tell the curves of a panel from each other")
    for label in labels:
        try:
            if is_math_text(label):
                MathTextParser("path").parse(label)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"labels: {label!r} is not in matplotlib's math notation (\\$ is a dollar): {reason}") from None


def literal(text: str) -> str:
    """
    :param text: a text
    :return: the text for matplotlib to set as it stands
    """
    return text.replace("$", r"\$")


def shown_label(label: str) -> str:
    """
    :param label: label of a curve
    :return: the label such that the legend shows it: matplotlib hides those that start with an underscore
    """
    return f" {label}" if label.startswith("_") else label
