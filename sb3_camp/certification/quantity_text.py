"""What a quantity of a certificate is, in words, and how its values are written."""

from collections.abc import Sequence

from sb3_camp.certification.certificate import Quantity
from sb3_camp.certification.recorded_bound import AT_LEAST, RecordedBound
from sb3_camp.certification.rounded_text import ceil_decimals, exact, floor_decimals, percent
from sb3_camp.text import printable

_REDUCED = {
    "last": "{} at the end of an episode",
    "sum": "{}, summed over an episode",
    "max": "largest {} of an episode",
    "any": "{} at any time of an episode",
}
_DECIMALS_OF_PROBABILITY, _DECIMALS = 5, 3


def meaning(quantity: Quantity) -> str:
    """
    :param quantity: a quantity of a certificate
    :return: what it is, in words
    """
    if quantity.kind == "probability":
        return f"probability that an episode returns at least {exact(quantity.at)}"
    if quantity.kind == "quantile":
        return f"return that an episode reaches, except with a probability of {percent(quantity.at)}"
    return f"mean return of the worst {percent(quantity.at)} of the episodes"


def short_meaning(quantity: Quantity) -> str:
    """
    :param quantity: a quantity of a certificate
    :return: what it is in a few words, for the legend of a picture whose axis says whether it is a return or a probability
    """
    if quantity.kind == "probability":
        return f"return of at least {exact(quantity.at)}"
    if quantity.kind == "quantile":
        return f"reached by all except {percent(quantity.at)} of the episodes"
    return f"mean of the worst {percent(quantity.at)} of the episodes"


def shown(quantity: Quantity, values: Sequence[float] | None = None) -> list[str]:
    """
    :param quantity: a quantity of a certificate
    :param values: values of it, by default those at the radii of the certificate
    :return: the values as text, none of them higher than it is
    """
    decimals = _DECIMALS_OF_PROBABILITY if quantity.kind == "probability" else _DECIMALS
    return [floor_decimals(value, decimals) for value in (quantity.certified if values is None else values)]


def meaning_of_bound(bound: RecordedBound) -> str:
    """
    :param bound: a bound on what was recorded
    :return: what it is, in words
    """
    what = _REDUCED.get(bound.reduction, "{}").format(printable(bound.key))
    return f"{'probability' if bound.is_event else 'expected value'} of: {what}, {bound.side.replace('_', ' ')}"


def shown_bound(bound: RecordedBound, values: Sequence[float] | None = None) -> list[str]:
    """
    :param bound: a bound on what was recorded
    :param values: values of it, by default those at the radii of the certificate
    :return: the values as text, none of them better than it is
    """
    rounded = floor_decimals if bound.side == AT_LEAST else ceil_decimals
    decimals = _DECIMALS_OF_PROBABILITY if bound.is_event else _DECIMALS
    return [rounded(value, decimals) for value in (bound.certified if values is None else values)]
