"""Which entries of ``info`` an evaluation has recorded, for people."""

from collections.abc import Sequence

import numpy as np

from sb3_camp.certification.episode_logs import MOST
from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episodes import Episodes
from sb3_camp.evaluation.recorder import EpisodeRecorder
from sb3_camp.evaluation.records import can_record
from sb3_camp.evaluation.zoo_arguments import nearest
from sb3_camp.runs.recorded_key import RecordedKey
from sb3_camp.text import printable
from sb3_camp.wrappers.chain import wrapper_chain

_DESCRIPTIONS = {"last": "last value", "sum": "sum", "max": "largest value", "any": "1 if ever not 0"}
_N_STEPS = 500


def describe_key(key: RecordedKey) -> str:
    """
    :param key: What is recorded
    :return: the same in words
    """
    return f"{printable(key.name)} ({_DESCRIPTIONS[key.reduction]})"


def check_recorded(environment: EvaluationEnv, episodes: Episodes) -> None:
    """
    :param environment: The environment of an evaluation
    :param episodes: Episodes that were played in it
    :raises InputError: if what was to be recorded has occurred in none of them, or if it is too large
    """
    for key, values in zip(environment.recorded, episodes.recorded.T, strict=True):
        if not np.isnan(values).all():
            if np.nanmax(np.abs(values)) > MOST:
                raise InputError(
                    f"--record {printable(key.name)}: the {key.reduction} of an episode is beyond {MOST:g}, the most of a log"
                )
            continue
        seen = _info_keys(environment)
        if key.name in seen:
            raise InputError(
                f"--record: {printable(key.name)} was in the info of none of {len(values)} episodes, though "
                f"{environment.env_id} shows it at times: a native vector environment may not, --vec-env dummy does"
            )
        there = f"it has {', '.join(sorted(seen))}" if seen else "it has no numbers and no booleans"
        raise InputError(
            f"--record: {nearest(key.name, seen)}the info of {environment.env_id} had no {printable(key.name)} in "
            f"{len(values)} episodes: {printable(there)} (what wrappers around the environment add is not recorded)"
        )


def print_recorded(keys: Sequence[RecordedKey], episodes: Episodes) -> None:
    """
    Print the mean of what was recorded, and in how many episodes it was missing.

    :param keys: What is recorded
    :param episodes: The episodes
    """
    for key, values in zip(keys, episodes.recorded.T, strict=True):
        n_missing = int(np.isnan(values).sum())
        missing = f", missing in {n_missing} episodes, which a certificate will count as the worst" if n_missing else ""
        print(f"Recorded {describe_key(key)}: mean {np.nanmean(values):.6g}{missing}")


def _info_keys(environment: EvaluationEnv) -> set[str]:
    """The keys that can be recorded, as far as some random steps show them."""
    keys: set[str] = set()
    with environment.single() as outermost:
        env = next(wrapper.env for wrapper in wrapper_chain(outermost) if isinstance(wrapper, EpisodeRecorder))
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(_N_STEPS):
            *_, terminated, truncated, info = env.step(env.action_space.sample())
            keys |= {key for key, value in info.items() if can_record(value)}
            if terminated or truncated:
                env.reset()
    return keys
