"""What of a certificate holds together, and what does not, in words for whoever reads or signs it."""

from collections.abc import Sequence

from sb3_camp.certification.rounded_text import confidence, exact
from sb3_camp.text import printable


def joint_statement(alpha: float) -> str:
    """
    All of a certificate follows from bands that are right together. A second certificate has the same band of the returns if
    method, alpha, thresholds and the choice to certify recorded entries or not are the same; otherwise it may be wrong with
    its own alpha, at other times (union bound).

    :param alpha: that of the certificate
    :return: what holds together, and what of the same episodes does not
    """
    two = f" (for two of alpha {exact(alpha)}: confidence {confidence(2 * alpha)})" if 2 * alpha < 1 else ""
    return (
        f"Everything in this certificate holds together with confidence {confidence(alpha)}. Another certificate from the "
        "same episodes (with another method, alpha or thresholds, with recorded bounds or without them, or in a frontier) and "
        f"this one hold together at the sum of their alphas only{two}."
    )


def uncertified_statement(alpha: float, keys: Sequence[str]) -> str:
    """
    :param alpha: that of a certificate
    :param keys: what its episodes recorded, where none of it is certified, so that the returns have all of alpha
    :return: what that means for bounds on these, empty without keys
    """
    if not keys:
        return ""
    return (
        f"The episodes also recorded {', '.join(map(printable, keys))}: none of it is certified here, and the returns have "
        f"all of alpha. To have both at alpha {exact(alpha)}, certify them in one certificate (--at-least, --at-most)."
    )
