"""``certify --support``: the thresholds that share alpha, for a band whose bounds hold one by one."""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np

from sb3_camp.certification.assumptions import Evidence, played_in
from sb3_camp.certification.band_registry import band_of
from sb3_camp.errors import InputError

_MOST_RETURNS = 10_000_000


def find_support(words: Sequence[str] | None, method: str, evidence: Evidence) -> list[float] | None:
    """
    :param words: ``--support``
    :param method: Name of the band
    :param evidence: The episodes
    :return: the thresholds, ascending: as given, or 1 to the step limit where each step is worth 1; None for a band that needs
        none
    :raises InputError: if they cannot be read, do not fit the band, or are neither given nor known
    """
    pointwise = band_of(method).pointwise
    if words is not None:
        if not pointwise:
            raise InputError(f"--support is for the method clopper-pearson, not for {method}")
        return _parsed(words)
    if not pointwise:
        return None
    logs = evidence.logs
    spec = gym.registry.get(played_in(logs[0], evidence.run))
    one_per_step = all(np.array_equal(log.returns, log.lengths) for log in logs)
    if spec is None or spec.max_episode_steps is None or not one_per_step:
        raise InputError(f"{logs[0].path}: {method} needs the possible returns: pass them with --support, or use berk-jones")
    return [float(steps) for steps in range(1, spec.max_episode_steps + 1)]


def _parsed(words: Sequence[str]) -> list[float]:
    values: list[float] = []
    for word in words:
        try:
            if ":" in word:
                first, last = map(int, word.split(":"))
                if last - first >= _MOST_RETURNS:
                    raise InputError(f"--support: {word} holds more than {_MOST_RETURNS} returns: use berk-jones")
                values += map(float, range(first, last + 1))
            else:
                values.append(float(word))
        except InputError:
            raise
        except (ValueError, OverflowError):
            raise InputError(f"--support: {word!r} is neither a number nor a range of whole numbers like 1:200") from None
    if not values or not np.all(np.isfinite(values)):
        raise InputError("--support must hold at least one return, and only finite ones")
    return sorted(set(values))
