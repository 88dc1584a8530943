"""
The three certified radii of the paper in closed form, beside the certified return and radius of the exact bound.

From the same episodes, :func:`sb3_camp.certification.certified_radius` is never smaller than :func:`substitute_radius` (which
keeps one term of its sum) and :func:`soft_radius` (which knows of the distribution of the return only its mean), so it is the
one to quote. :func:`local_radius` speaks of another policy, and of single observations.
"""

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.return_band import return_band
from sb3_camp.errors import InputError

if TYPE_CHECKING:
    import torch as th
    from stable_baselines3.common.policies import BasePolicy

    from sb3_camp.action_scores import ActionScores

    PolicyOrScores: TypeAlias = BasePolicy | ActionScores


def substitute_radius(
    returns: ArrayLike,
    sigma: float,
    target: float,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: ArrayLike | None = None,
) -> float:
    """
    The substitute certified radius (paper, Theorem 1, Eq. substitute_radius).

        sigma * [Phi^-1(P(r_1)) - Phi^-1((target - A) / (r_1 - A))],    A = ``min_return``

    with the smallest sampled return r_1 and the lower confidence bound P(r_1) on P(return >= r_1). The paper has A = 0; for
    another A it is the theorem for the returns minus A.

    Guarantee: with confidence 1 - alpha, for all targets together, no attack with an l2 norm of at most this radius over an
    episode brings the expected return below ``target``. All that the episodes earned above r_1 is left out, so a target above
    r_1 is never certified, and the radius is at most :func:`sb3_camp.certification.certified_radius` from the same episodes.

    :param returns: returns of m independent episodes of one fixed policy, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param target: the expected return to keep
    :param alpha: the radius is wrong with at most this probability, in (0, 1)
    :param method: ``"berk-jones"``, ``"dkw"`` or ``"clopper-pearson"`` (needs ``support``)
    :param min_return: a return that no episode can fall below, known beforehand
    :param support: for ``"clopper-pearson"``: the thresholds that share alpha, fixed beforehand; r_1 is then the lowest of
        them that was reached
    :return: radius in the units of the observations; nan where (target - A) / (r_1 - A) is above P(r_1), so that nothing is
        certified; inf where ``target`` is not above ``min_return``
    :raises InputError: as :func:`sb3_camp.certification.certified_radius`, and if r_1 is not above ``min_return``
    """
    certified = certified_radius(
        returns, sigma, target, alpha=alpha, method=method, min_return=min_return, support=support
    )  # which checks all the arguments too
    smallest = float(np.min(np.asarray(returns, dtype=np.float64)))
    if not smallest > min_return:
        raise InputError(
            f"the smallest return is {smallest:g}, but the substitute radius needs it above min_return={min_return:g}: "
            "use certified_radius"
        )
    if not math.isfinite(certified):
        return certified
    band = return_band(returns, alpha=alpha, method=method, min_return=min_return, support=support)
    return _radius(sigma, float(band.probability[0]), _share(target, min_return, float(band.returns[0])))


def soft_radius(
    returns: ArrayLike,
    sigma: float,
    target: float,
    low: float,
    high: float,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    support: ArrayLike | None = None,
) -> float:
    """
    The soft certified radius (paper, Theorem 2, Eq. soft_radius), from a lower confidence bound E on the expected return.

        sigma * [Phi^-1((E - A) / (B - A)) - Phi^-1((target - A) / (B - A))],    A = ``low``, B = ``high``

    E is the certified return at radius 0. With the sample mean in its place, nothing would be certified.

    Guarantee: with confidence 1 - alpha, for all targets together, no attack with an l2 norm of at most this radius over an
    episode brings the expected return below ``target``, whatever the distribution of the return on [A, B] with that mean. The
    worst one pays only A or B, so the radius is at most :func:`sb3_camp.certification.certified_radius` from the same episodes
    (the same if they do pay only A or B), and the wider [A, B], the smaller it is.

    :param returns: returns of m independent episodes of one fixed policy, shape (m,)
    :param sigma: standard deviation of the noise on the observations, in their units
    :param target: the expected return to keep, from ``low`` to ``high``
    :param low: a return that no episode can fall below, known beforehand
    :param high: a return that no episode can exceed, known beforehand
    :param alpha: the radius is wrong with at most this probability, in (0, 1)
    :param method: ``"berk-jones"``, ``"dkw"`` or ``"clopper-pearson"`` (needs ``support``)
    :param support: for ``"clopper-pearson"``: the thresholds that share alpha, fixed beforehand
    :return: radius in the units of the observations; nan where ``target`` is above E; inf where it is ``low``
    :raises InputError: as :func:`sb3_camp.certification.certified_return`, if a return is above ``high``, or if ``target`` is
        not within [``low``, ``high``]
    """
    if not (math.isfinite(high) and low < high):
        raise InputError(f"low must be below high, and both finite, got {low} and {high}")
    mean = float(certified_return(returns, sigma, 0.0, alpha=alpha, method=method, min_return=low, support=support))
    largest = float(np.max(np.asarray(returns, dtype=np.float64)))
    if largest > high:
        raise InputError(f"returns holds {largest:g}, above high={high:g}: pass the highest return an episode can have")
    if not low <= target <= high:
        raise InputError(f"target must lie between low={low:g} and high={high:g}, got {target}")
    return _radius(sigma, _share(mean, low, high), _share(target, low, high))


def local_radius(
    policy: "PolicyOrScores",
    observations: ArrayLike,
    sigma: float,
    *,
    low: float,
    high: float,
    n_samples: int = 10_000,
    n_selection: int = 100,
    alpha: float = 0.05,
    seed: int = 0,
    batch_size: int = 1000,
    device: "th.device | str" = "cpu",
) -> tuple[np.ndarray, np.ndarray]:
    """
    Local certified radius of each observation (paper, Theorem 3, Eq. localradius, with l_i where it prints l_t).

        sigma / 2 * [Phi^-1((Q(s, a1) - l) / (u - l)) - Phi^-1((Q(s, a2) - l) / (u - l))],    l = ``low``, u = ``high``

    Q(s, a) is the expectation, over noise N(0, sigma^2 I) on the observation s, of the policy's action score clipped into
    [l, u]; a1 and a2 are its best and second-best action. It is estimated from samples: a1 is chosen on ``n_selection`` of
    them (as Cohen, Rosenfeld & Kolter, 2019), and on ``n_samples`` fresh ones Q(s, a1) is bounded from below and Q(s, a) of
    all the other actions from above, with confidence 1 - alpha together (empirical Bernstein bounds: Maurer & Pontil, 2009).

    Guarantee: for each observation by itself, with confidence 1 - alpha, a1 stays the action with the highest Q at s + delta
    for every delta with an l2 norm of at most the radius. For n observations together, pass alpha / n.

    It does not say that the policy that acts on ONE noisy observation, which is the one that the certified return speaks of,
    keeps its action: that one may flip at any radius. Nor does it say anything about the return: the paper's step from here to
    the return needs Q to be the optimal value. The radius is largest for the narrowest [l, u] that the scores hardly leave;
    scores outside are clipped, which keeps the guarantee for any [l, u] that was fixed before sampling.

    :param policy: a discrete SB3 policy that :func:`sb3_camp.action_scores.action_scores` knows, or a function from a float32
        tensor of noisy observations, shape ``(batch, *observation shape)``, to scores, shape (batch, n_actions)
    :param observations: clean observations as the policy gets them (images with channels first, frames stacked), shape
        ``(n, *observation shape)``. For a policy with an image space, noisy pixels are rounded and clipped to 0..255, as by
        ``NoisyObservationWrapper``
    :param sigma: standard deviation of the noise, in the units of the observations
    :param low: the lowest score that is told apart
    :param high: the highest score that is told apart
    :param n_samples: noisy copies of each observation that the bounds are computed from, at least 2
    :param n_selection: further noisy copies that a1 is chosen on
    :param alpha: the radius of an observation is wrong with at most this probability, in (0, 1)
    :param seed: seed of the noise
    :param batch_size: noisy copies that are scored at once; the numbers drawn depend on it
    :param device: where the noise is drawn and scored; for a policy, its own device is taken
    :return: radii, float64, shape (n,), 0 where the confidence bounds of a1 and another action overlap, and the actions a1,
        int64, shape (n,)
    :raises InputError: for arguments out of range, observations of another shape than the policy's, or scores that are nan or
        not of shape (batch, n_actions) with at least two actions
    """
    import torch as th  # slow to import, and nothing else of the certification needs it

    _check_sampling(sigma, low, high, n_samples, n_selection, alpha, batch_size)
    if np.ndim(observations) < 1:
        raise InputError("observations must be a batch: its first dimension counts them")
    scores, quantize, device = _scores_of(policy, np.shape(observations)[1:], device)
    clean = th.as_tensor(np.asarray(observations, dtype=np.float32), device=device)
    generator = th.Generator(device).manual_seed(seed)

    def moments(observation: "th.Tensor", n: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and unbiased variance of the clipped scores, scaled to [0, 1], over n noisy copies."""
        total = squares = th.zeros((), dtype=th.float64, device=device)
        for size in [batch_size] * (n // batch_size) + [n % batch_size] * (n % batch_size > 0):
            noise = th.randn((size, *observation.shape), generator=generator, device=device)
            noisy = observation + sigma * noise
            value = scores(noisy.round().clamp(0, 255) if quantize else noisy).double()
            if value.ndim != 2 or len(value) != size or value.shape[1] < 2:
                raise InputError(f"scores must have the shape ({size}, at least 2 actions), got {tuple(value.shape)}")
            value = ((value - low) / (high - low)).clamp(0, 1)
            total, squares = total + value.sum(dim=0), squares + value.square().sum(dim=0)
        variance = (squares - total.square() / n).clamp(min=0) / max(1, n - 1)
        return (total / n).cpu().numpy(), variance.cpu().numpy()

    radii, actions = np.zeros(len(clean)), np.zeros(len(clean), dtype=np.int64)
    with th.no_grad():
        for index, observation in enumerate(clean):
            actions[index] = np.argmax(moments(observation, n_selection)[0])
            mean, variance = moments(observation, n_samples)
            if np.any(np.isnan(mean)):
                raise InputError(f"observations[{index}] has an action score that is nan")
            margin = _bernstein_margin(variance, n_samples, alpha / len(mean))
            best = np.arange(len(mean)) == actions[index]
            bounds = np.clip(np.where(best, mean - margin, mean + margin), 0, 1)
            radii[index] = max(0.0, sigma / 2 * (ndtri(bounds[best][0]) - ndtri(bounds[~best].max())))
    return radii, actions


def _share(value: float, low: float, high: float) -> float:
    """How far up from low to high a value lies; by quarters, whose distances cannot overflow."""
    return (value / 4 - low / 4) / (high / 4 - low / 4)


def _radius(sigma: float, kept: float, needed: float) -> float:
    """What an event of probability ``kept`` may be attacked with until its probability is ``needed``; nan if it is below."""
    if not needed <= kept:
        return math.nan
    return math.inf if needed <= 0 else float(sigma * (ndtri(kept) - ndtri(needed)))


def _bernstein_margin(variance: np.ndarray, n: int, delta: float) -> np.ndarray:
    """How far the mean of n numbers in [0, 1] may lie from its expectation to one side, except with a probability delta."""
    log = math.log(2 / delta)
    return np.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))


def _check_sampling(
    sigma: float, low: float, high: float, n_samples: int, n_selection: int, alpha: float, batch_size: int
) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma, the standard deviation of the noise, must be finite and positive, got {sigma}")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"low must be below high, and both finite, got {low} and {high}")
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    for name, value, least in (("n_samples", n_samples, 2), ("n_selection", n_selection, 1), ("batch_size", batch_size, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}, got {value}")


def _scores_of(
    policy: "PolicyOrScores", shape: tuple[int, ...], device: "th.device | str"
) -> tuple["ActionScores", bool, "th.device | str"]:
    """The score function of a policy, whether its observations are pixels, and its device."""
    from stable_baselines3.common.policies import BasePolicy

    from sb3_camp.action_scores import action_scores

    if not isinstance(policy, BasePolicy):
        return policy, False, device
    space = policy.observation_space
    if shape != space.shape:
        raise InputError(f"observations must have the shape (n, *{space.shape}) for this policy, got (n, *{shape})")
    policy.set_training_mode(False)
    return action_scores(policy), space.dtype == np.uint8, policy.device
