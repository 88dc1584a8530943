"""Bounds on what an evaluation recorded besides the returns: success, crashes, costs, each from a band of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.bounds import certified_return
from sb3_camp.certification.episode_logs import EpisodeLog
from sb3_camp.certification.quantities import certified_cost
from sb3_camp.certification.recorded_bound import AT_LEAST, AT_MOST, RecordedBound
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.text import printable


@dataclass(frozen=True)
class Wanted:
    """
    What of the recorded entries is to be certified.

    :param at_least: Keys of what should be large
    :param at_most: Keys of what should be small
    :param worst: For those that are numbers, a value that no episode is worse than: the lowest, or the highest
    """

    at_least: Sequence[str] = ()
    at_most: Sequence[str] = ()
    worst: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.at_least or self.at_most or self.worst)


def band_alpha(logs: Sequence[EpisodeLog], alpha: float, wanted: Wanted | None = None) -> float:
    """
    The alpha of each band. Looks that were planned share alpha equally. If anything that was recorded is wanted, so do the
    returns and everything recorded, whether it is wanted or not: what was recorded was fixed before the episodes were played,
    what of it is wanted may be chosen afterwards.

    :param logs: the logs
    :param alpha: that of everything together
    :param wanted: what is to be certified
    :return: the share of each band
    """
    n_looks = 1 if logs[0].looks is None else len(logs[0].looks.looks)
    n_bands = 1 + len(logs[0].recorded) if wanted else 1
    return alpha / (n_bands * n_looks)


def recorded_bounds(
    logs: Sequence[EpisodeLog],
    wanted: Wanted,
    sigma: float,
    radii: Sequence[float] | np.ndarray,
    *,
    alpha: float,
    method: str,
) -> list[RecordedBound]:
    """
    Certify recorded entries. What happens or not is certified by one exact binomial test (Clopper & Pearson, 1934), a number
    by its expected value.

    :param logs: logs that may be pooled
    :param wanted: what is to be certified
    :param sigma: standard deviation of the noise on the observations
    :param radii: l2 radii in the units of the observations, ascending
    :param alpha: the share of alpha of each
    :param method: for numbers; where its thresholds must be declared, which are returns, ``"berk-jones"``
    :return: the bounds, those of ``at_least`` first
    :raises InputError: if something was not recorded in all logs, is named twice, is a number whose worst value is not given,
        or has a worse value
    """
    named = [*wanted.at_least, *wanted.at_most]
    for name in named:
        if named.count(name) > 1:
            raise InputError(f"{printable(name)} is named twice in --at-least and --at-most")
    for name in wanted.worst:
        if name not in named:
            raise InputError(f"--worst {printable(name)}: name it in --at-least or --at-most too")
    if not named:
        return []
    first = [(one.key, one.is_event) for one in logs[0].recorded]
    for log in logs[1:]:
        if [(one.key, one.is_event) for one in log.recorded] != first:
            raise InputError(f"{log.path}: does not record the same as {logs[0].path}: evaluate both with the same --record")
    sides = [(name, AT_LEAST) for name in wanted.at_least] + [(name, AT_MOST) for name in wanted.at_most]
    return [_bound(logs, name, side, wanted, sigma, radii, alpha, method) for name, side in sides]


def _bound(
    logs: Sequence[EpisodeLog],
    name: str,
    side: str,
    wanted: Wanted,
    sigma: float,
    radii: Sequence[float] | np.ndarray,
    alpha: float,
    method: str,
) -> RecordedBound:
    names = [one.key.name for one in logs[0].recorded]
    if name not in names:
        there = f"it recorded {', '.join(names)}" if names else "nothing was recorded"
        raise InputError(
            f"{logs[0].path}: no {printable(name)} in it ({printable(there)}): evaluate again with --record {printable(name)}"
        )
    of_logs = [log.recorded[names.index(name)] for log in logs]
    key, is_event = of_logs[0].key, of_logs[0].is_event
    worst = _worst(name, side, is_event, wanted)
    values = np.concatenate([one.values for one in of_logs])
    n_missing = int(np.isnan(values).sum())
    values = np.where(np.isnan(values), worst, values)
    beyond = values.min() if side == AT_LEAST else values.max()
    if beyond < worst if side == AT_LEAST else beyond > worst:
        raise InputError(
            f"--worst {printable(name)}:{exact(worst)}: an episode has {exact(beyond)}: pass the worst that any can have"
        )
    used = "clopper-pearson" if is_event else "berk-jones" if band_of(method).pointwise else method
    options: dict[str, Any] = {"alpha": alpha, "method": used}
    if side == AT_LEAST:
        support = [1.0] if is_event else None
        curve = certified_return(values, sigma, radii, min_return=worst, support=support, **options)
    else:
        support = [0.0] if is_event else None
        curve = certified_cost(values, sigma, radii, max_cost=worst, support=support, **options)
    certified = [float(value) + 0.0 for value in curve]  # no -0
    mean = float(values.mean())
    return RecordedBound(key.name, key.reduction, side, is_event, worst, mean, n_missing, alpha, used, certified)


def _worst(name: str, side: str, is_event: bool, wanted: Wanted) -> float:
    given = wanted.worst.get(name)
    if is_event:
        if given is not None:
            raise InputError(f"--worst {printable(name)}: it happens or not, so its worst is known: leave it out")
        return 0.0 if side == AT_LEAST else 1.0
    if given is None:
        extreme, side_option = ("lowest", "--at-least") if side == AT_LEAST else ("highest", "--at-most")
        raise InputError(
            f"{side_option} {printable(name)}: it is a number: pass the {extreme} that any episode can have, whatever the "
            f"actions, with --worst {printable(name)}:VALUE"
        )
    return given
