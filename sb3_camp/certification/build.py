"""From logs of episodes to a certificate."""

import math
import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from sb3_camp.certification.assumptions import Evidence
from sb3_camp.certification.bands import largest_ratio
from sb3_camp.certification.bounds import certified_radius
from sb3_camp.certification.certificate import Ceiling, Certificate, PerStepBound, Quantity, Source
from sb3_camp.certification.episode_logs import EpisodeLog
from sb3_camp.certification.recorded_bounds import Wanted, band_alpha, recorded_bounds
from sb3_camp.certification.return_band import ratios_of, return_band
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.tasks import is_image_task
from sb3_camp.version import __version__


def default_radii(sigma: float) -> np.ndarray:
    """
    :param sigma: standard deviation of the noise on the observations
    :return: the l2 radii of a certificate unless others are asked for, ascending, shape (121,)
    """
    # Without the last digits, which are those of rounding: 0.225, not 0.22499999999999998
    return np.array([float(f"{radius:.12g}") for radius in sigma * np.linspace(0, 3, 121)])


def certificate_of(evidence: Evidence, radii: Sequence[float] | np.ndarray, **options: Any) -> Certificate:
    """
    :param evidence: the episodes, with what is known of them
    :param radii: l2 radii in the units of the observations, ascending
    :param options: further arguments of :func:`build_certificate`
    :return: the certificate
    :raises InputError: see :func:`build_certificate`
    """
    certificate = replace(
        build_certificate(evidence.logs, evidence.sigma, radii, min_return=evidence.min_return, **options),
        sigma_assumed=evidence.sigma_assumed,
        clean_keys=evidence.clean_keys,
        min_return_basis=evidence.min_return_basis,
        independence_assumed=evidence.independence_assumed,
    )
    if evidence.run is not None:
        certificate = replace(certificate, env_id=certificate.env_id or evidence.run.env_id, algo=evidence.run.algo)
    if certificate.pixels is None and is_image_task(certificate.env_id or ""):
        certificate = replace(certificate, pixels=True)
    return certificate


def build_certificate(
    logs: Sequence[EpisodeLog],
    sigma: float,
    radii: Sequence[float] | np.ndarray,
    *,
    alpha: float = 0.05,
    method: str = "berk-jones",
    min_return: float = 0.0,
    support: Sequence[float] | None = None,
    targets: Sequence[float] = (),
    probability_of: Sequence[float] = (),
    quantiles: Sequence[float] = (),
    cvars: Sequence[float] = (),
    per_step: PerStepBound | None = None,
    wanted: Wanted | None = None,
) -> Certificate:
    """
    Certify the pooled episodes of logs (see :func:`sb3_camp.certification.certified_return`).

    :param logs: what :func:`sb3_camp.certification.pooling.read_logs` returned, so that pooling is sound
    :param sigma: standard deviation of the noise on the observations, in their units
    :param radii: l2 radii in the units of the observations, ascending
    :param alpha: anything in the certificate is wrong with at most this probability; looks that were planned share it
    :param method: ``"berk-jones"``, ``"dkw"`` or ``"clopper-pearson"``
    :param min_return: a return that no episode can fall below
    :param support: for ``"clopper-pearson"``, the thresholds that share alpha, fixed beforehand
    :param targets: returns whose largest certified radius is wanted too
    :param probability_of: returns; the probability to reach each is certified too
    :param quantiles: shares in (0, 1); the return that is reached except with each of these probabilities is certified too
    :param cvars: shares in (0, 1]; the mean return of each of these shares of the worst episodes is certified too
    :param per_step: a bound on the perturbation of each step, at whose radius everything is certified too
    :param wanted: what of the recorded entries is certified too, with a share of alpha for all that were recorded
    :return: the certificate, with what the first log tells of the episodes
    :raises InputError: if a target is not above ``min_return``, or the bound cannot be computed
    """
    for target in targets:
        if not target > min_return:
            raise InputError(f"the target {target:g} is not above the lowest return that an episode can have, {min_return:g}")
    returns = np.concatenate([log.returns for log in logs])
    wanted, looks = wanted or Wanted(), logs[0].looks
    level = band_alpha(logs, alpha, wanted)
    recorded = recorded_bounds(logs, wanted, sigma, radii, alpha=level, method=method)
    options: dict[str, Any] = {"alpha": level, "method": method, "min_return": min_return, "support": support}
    band = return_band(returns, **options)
    ratios = ratios_of(radii, sigma).tolist()
    curve = [band.expected_return(ratio) for ratio in ratios]
    for share in (*quantiles, *cvars):
        if not 0 < share < 1 and not (share == 1 and share in cvars):
            raise InputError(f"a share of the episodes must lie strictly between 0 and 1, got {share:g}")
    bounds = {"probability": band.reach_probability, "quantile": band.quantile, "cvar": band.cvar}
    asked = [(kind, at) for kind, ats in zip(bounds, (probability_of, quantiles, cvars), strict=True) for at in ats]
    quantities = [Quantity(kind, at, [bounds[kind](at, ratio) for ratio in ratios]) for kind, at in asked]
    if per_step is not None:
        (ratio_of_steps,) = ratios_of([per_step.radius], sigma).tolist()
        certified = [bounds[kind](at, ratio_of_steps) for kind, at in asked]
        at_steps = recorded_bounds(logs, wanted, sigma, [per_step.radius], alpha=level, method=method)
        per_step = replace(
            per_step,
            certified_return=band.expected_return(ratio_of_steps),
            certified=certified,
            recorded=[one.certified[0] for one in at_steps],
        )
    reached = {exact(target): certified_radius(returns, sigma, target, **options) for target in targets}
    ratio = largest_ratio(len(returns), level, method, _n_thresholds(support, min_return))
    first = logs[0]
    return Certificate(
        env_id=first.env_id,
        trained_env_id=first.trained_env_id,
        env_kwargs=first.env_kwargs,
        env_wrappers=first.env_wrappers,
        env_versions=next((log.env_versions for log in logs if log.env_versions is not None), None),
        algo=first.algo,
        model=first.model,
        model_sha256=first.model_sha256,
        timesteps=first.timesteps,
        deterministic=first.deterministic,
        sigma=sigma,
        pixels=first.pixels,
        sensor_sigma=first.sensor_sigma,
        clean_keys=first.clean_keys,
        method=method,
        alpha=alpha,
        band_alpha=level,
        looks=None if looks is None else looks.looks,
        min_return=min_return,
        min_return_slope=_slope(returns, ratios, **options),
        support=None if support is None else [float(value) for value in support],
        n_episodes=len(returns),
        longest_episode=max(int(log.lengths.max()) for log in logs),
        step_limit=max((log.step_limit for log in logs if log.step_limit is not None), default=None),
        mean_return=float(returns.mean()),
        radii=[float(radius) for radius in radii],
        certified_return=curve,
        quantities=quantities,
        per_step=per_step,
        recorded=recorded,
        recorded_keys=[one.key.name for one in first.recorded],
        ceiling=Ceiling(ratio, ratio * sigma),
        targets={target: None if math.isnan(radius) else radius for target, radius in reached.items()},
        sources=[_source(log) for log in logs],
        versions={
            "sb3_camp": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    )


def ceiling_of_more(certificate: Certificate, n_episodes: int) -> float:
    """
    :param certificate: a certificate
    :param n_episodes: how many episodes to think of, at least as many as it has
    :return: about the ceiling that they would have (:class:`Ceiling`), in multiples of sigma
    """
    n_thresholds = _n_thresholds(certificate.support, certificate.min_return)
    return largest_ratio(n_episodes, certificate.level, certificate.method, n_thresholds, forecast=True)


def _n_thresholds(support: Sequence[float] | None, min_return: float) -> int | None:
    return None if support is None else max(1, len({value for value in support if value > min_return}))


def _slope(
    returns: np.ndarray,
    ratios: Sequence[float],
    *,
    alpha: float,
    method: str,
    min_return: float,
    support: Sequence[float] | None,
) -> list[float]:
    """By how much the certified return is lower for each 1 that ``min_return`` is lower: what its first threshold misses."""
    lower = min_return - max(1.0, abs(min_return))
    points = None if support is None else [value for value in support if value > min_return] or [min_return]
    band = return_band(returns, alpha=alpha, method=method, min_return=lower, support=points)
    return [1 - band.reach_probability(float(np.nextafter(lower, np.inf)), ratio) for ratio in ratios]


def _source(log: EpisodeLog) -> Source:
    return Source(str(log.path), log.sha256, len(log.returns), log.n_envs, log.native_vec_env, log.q_gap)
