"""
Numbers as text for people: a bound is never shown higher than it is, a setting always as it is.

All functions take the decimal number that Python shows for a float (``0.7``), not the binary one just below or above it.
"""

from decimal import ROUND_FLOOR, Context, Decimal

# Enough for every float without an exponent
_EXACT = Context(prec=2000, rounding=ROUND_FLOOR)


def floor_decimals(value: float | Decimal, decimals: int) -> str:
    """
    :param value: a finite number
    :param decimals: decimals to show
    :return: the number, rounded down
    """
    return f"{_decimal(value).quantize(Decimal(10) ** -decimals, context=_EXACT):f}"


def ceil_decimals(value: float, decimals: int) -> str:
    """
    :param value: a finite number
    :param decimals: decimals to show
    :return: the number, rounded up
    """
    return f"{-(-_decimal(value)).quantize(Decimal(10) ** -decimals, context=_EXACT) + 0:f}"


def floor_digits(value: float | Decimal, digits: int) -> str:
    """
    :param value: a finite number
    :param digits: significant digits to show, at most
    :return: the number, rounded down
    """
    rounded = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(_decimal(value)).normalize()
    return f"{rounded:f}" if -5 <= rounded.adjusted() < 15 else f"{rounded:e}"


def quotient(value: float, unit: float) -> Decimal:
    """
    :param value: a finite number
    :param unit: what to divide it by
    :return: their quotient, as their decimals have it: 0.3 / 0.1 is 3
    """
    return Context(prec=50, rounding=ROUND_FLOOR).divide(_decimal(value), _decimal(unit))


def exact(value: float) -> str:
    """
    :param value: a finite number
    :return: a text from which Python reads the very same number, with as few digits as possible
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def confidence(alpha: float) -> str:
    """
    :param alpha: probability of being wrong, in (0, 1)
    :return: 1 - alpha, in per cent where that takes no more than ten digits
    """
    percent = _EXACT.subtract(100, 100 * _decimal(alpha)).normalize(_EXACT)
    return f"{percent:f} %" if len(percent.as_tuple().digits) <= 10 else f"1 - {exact(alpha)}"


def percent(share: float) -> str:
    """
    :param share: a finite number
    :return: the same, exactly: in per cent, or as it is where that takes more than ten digits after the point
    """
    percent = (100 * _decimal(share)).normalize(_EXACT)
    return f"{percent:f} %" if int(percent.as_tuple().exponent) >= -10 else exact(share)


def _decimal(value: float | Decimal) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(repr(float(value) + 0.0))  # no -0
