"""Colours, lines and labels of the curves on a picture."""

from collections.abc import Iterable, Sequence
from zlib import crc32

from sb3_camp.errors import InputError

# The palette of Okabe and Ito, "Color universal design" (2008), without its yellow, which is hard to see on white
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one for each colour, so that curves can be told apart without it
_LINES = ("-", "--", "-.", ":")
_N_STYLES = len(_COLOURS) * len(_LINES)  # their numbers have no common divisor, so each pair occurs

# Which colour an algorithm has, on every picture that compares it with others
_COLOUR_OF = {"camp_dqn": 0, "gaussian_dqn": 1, "noisynet_dqn": 2, "ppo": 3, "ars": 4, "dqn": 5}
# Further curves of the same algorithm: how much of black (negative) or white is mixed in
_SHADES = (0.0, -0.45, 0.25, -0.7, -0.2, -0.6, 0.12)  # as many as there are colours


def curve_styles(labels: Sequence[str], algorithms: Sequence[str | None] | None = None) -> dict[str, dict[str, str]]:
    """
    Where algorithms are compared, each has its colour, the same on every picture, and its curves are shades of it. Of one
    algorithm alone, or of other things, the curves have different colours, in their order.

    :param labels: labels of the curves
    :param algorithms: the zoo's name of the algorithm of each curve, None where it is not known. Default: the curves are of
        other things
    :return: matplotlib's color, linestyle and marker for each label, equal for equal ones and distinct for others
    :raises InputError: if there are more than the eye can tell apart
    """
    algorithm_of: dict[str, str] = {}
    for label, algorithm in zip(labels, algorithms or ["camp_dqn"] * len(labels), strict=True):
        algorithm_of.setdefault(label, algorithm or label)
    if len(algorithm_of) > _N_STYLES:
        raise InputError(f"{len(algorithm_of)} labels: the eye can tell at most {_N_STYLES} curves on one picture apart")
    hue_of = {label: _hue(algorithm) for label, algorithm in algorithm_of.items()}
    if len(set(hue_of.values())) <= 1:
        return {label: _style(hue + index, index) for index, (label, hue) in enumerate(hue_of.items())}
    # Whose colour it is comes first
    of_hue: dict[int, list[str]] = {}
    for label in sorted(hue_of, key=lambda label: algorithm_of[label] not in _COLOUR_OF):
        of_hue.setdefault(hue_of[label], []).append(label)
    return {label: _shaded_style(hue, of_hue[hue].index(label)) for label, hue in hue_of.items()}


def _hue(algorithm: str) -> int:
    """Of an algorithm that the list does not have, by its name alone; never black, which is for certificates."""
    return _COLOUR_OF.get(algorithm, crc32(algorithm.encode()) % (len(_COLOURS) - 1))


def _style(hue: int, index: int) -> dict[str, str]:
    hue %= len(_COLOURS)
    return {"color": _COLOURS[hue], "linestyle": _LINES[index % len(_LINES)], "marker": _MARKERS[hue]}


def _shaded_style(hue: int, rank: int) -> dict[str, str]:
    """Style of one of the curves of an algorithm: neighbours differ in shade, line and marker."""
    shade = _SHADES[rank % len(_SHADES)]
    return {**_style(hue, hue + rank), "color": _mixed(_COLOURS[hue], shade), "marker": _MARKERS[(hue + rank) % len(_MARKERS)]}


def _mixed(colour: str, shade: float) -> str:
    target, share = (255, shade) if shade > 0 else (0, -shade)
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round((1 - share) * part + share * target):02X}" for part in parts)


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
