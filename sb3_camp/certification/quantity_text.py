"""What a quantity of a certificate is, in words, and how its values are written."""

from sb3_camp.certification.certificate import Quantity
from sb3_camp.certification.rounded_text import exact, percent


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


def decimals(quantity: Quantity) -> int:
    """
    :param quantity: a quantity of a certificate
    :return: how many decimals of its values people are shown
    """
    return 5 if quantity.kind == "probability" else 3
