"""
The Wang transform, and what each episode counts in it.

S. S. Wang, "A Class of Distortion Operators for Pricing Financial and Insurance Risks", Journal of Risk and Insurance 67(1),
2000. The mean of a return G >= A under the distortion g is

    A + integral over c >= A of g(P(G >= c)),        g(u) = Phi(Phi^-1(u) - parameter),

and with ``parameter`` = R / sigma this is the certified return at the l2 radius R of a policy that is smoothed with noise of
standard deviation sigma, if the distribution of its return is known exactly.
"""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from sb3_camp.errors import InputError


def wang_distortion(probabilities: ArrayLike, parameter: float) -> np.ndarray:
    """
    :param probabilities: Probabilities u, any shape
    :param parameter: Wang's lambda, at least 0; for the certified return at radius R it is R / sigma
    :return: g(u) = Phi(Phi^-1(u) - parameter), at most u, same shape; u itself if the parameter is 0
    :raises InputError: if the parameter is not finite and at least 0
    """
    check_parameter(parameter)
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if parameter == 0:
        return probabilities
    return ndtr(ndtri(probabilities) - parameter)


def episode_weights(returns: ArrayLike, parameter: float, sample: ArrayLike | None = None) -> np.ndarray:
    """
    What each episode counts in the Wang transform of the return: the derivative of the distortion at its rank.

    Episodes with the same return share what their ranks count together: where a of n episodes return more and b at least as
    much, the weight is (g(b/n) - g(a/n)) / ((b - a)/n). So the mean of the weights over the sample is 1, and the mean of
    weight times return is the Wang transform of the sample. The lowest returns weigh most.

    :param returns: Returns of episodes, shape (k,)
    :param parameter: Wang's lambda, at least 0; for the certified return at radius R it is R / sigma
    :param sample: Returns among which they are ranked, shape (n,), each of ``returns`` among them; by default ``returns``
    :return: weights, shape (k,)
    :raises InputError: if the parameter is not finite and at least 0, or if a return is not in the sample
    """
    returns = np.asarray(returns, dtype=np.float64)
    ordered = np.sort(returns if sample is None else np.asarray(sample, dtype=np.float64))
    n = len(ordered)
    first, last = np.searchsorted(ordered, returns, "left"), np.searchsorted(ordered, returns, "right")
    if np.any(first == last):
        raise InputError("each return must be one of the sample")
    if parameter == 0:
        check_parameter(parameter)
        return np.ones_like(returns)
    at_least, more = (n - first) / n, (n - last) / n
    return (wang_distortion(at_least, parameter) - wang_distortion(more, parameter)) / (at_least - more)


def check_parameter(parameter: float) -> None:
    """
    :param parameter: Wang's lambda
    :raises InputError: if it is not finite and at least 0
    """
    if not isinstance(parameter, Real) or not 0 <= parameter < np.inf:
        raise InputError(f"the parameter of the Wang transform must be a number that is at least 0, not {parameter!r}")
