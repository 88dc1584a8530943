"""What each entry of ``certificate.json`` must be."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from sb3_camp.certification.recorded_bound import is_recorded_bound


def is_number(value: Any) -> bool:
    """
    :param value: a value from a JSON file
    :return: whether it is a finite number
    """
    # Python reads an integer of any size, which no float can hold
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= sys.maxsize


def _is_list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_ceiling(value: Any) -> bool:
    return isinstance(value, dict) and all(is_number(value.get(name)) for name in ("ratio", "radius"))


def _is_sensor_sigma(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return parts is not None and all((is_number(part) and part >= 0) or _is_sensor_sigma(part) for part in parts)


def _is_per_step(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and (is_number(value.get("epsilon")) or _NUMBERS.holds(value.get("epsilon")))
        and all(_is_text(value.get(name)) for name in ("norm", "formula"))
        and _is_count(value.get("steps"))
        and isinstance(value.get("steps_assumed"), bool)
        and "numbers" in value
        and (value["numbers"] is None or _is_count(value["numbers"]))
        and all(is_number(value.get(name)) for name in ("radius", "certified_return"))
        and _NUMBERS.holds(value.get("certified"))
        and _NUMBERS.holds(value.get("recorded", []))
    )


def _are_targets(value: Any) -> bool:
    return isinstance(value, dict) and all(radius is None or is_number(radius) for radius in value.values())


def _is_quantity(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("kind") in ("probability", "quantile", "cvar")
        and is_number(value.get("at"))
        and _NUMBERS.holds(value.get("certified"))
    )


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_text(value.get(name)) for name in ("path", "sha256"))


class Kind(NamedTuple):
    """
    :param holds: Tells whether a value is of this kind
    :param text: The kind in words, after "must be"
    """

    holds: Callable[[Any], bool]
    text: str


_TEXT = Kind(_is_text, "a text")
_NUMBER = Kind(is_number, "a number")
_NUMBERS = Kind(_is_list_of(is_number), "a list of numbers")
_COUNT = Kind(_is_count, "a whole number")
_SWITCH = Kind(lambda value: isinstance(value, bool), "true or false")
_OBJECT = Kind(_is_object, "an object")

KINDS = {
    "env_id": _TEXT,
    "trained_env_id": _TEXT,
    "env_kwargs": _OBJECT,
    "env_wrappers": _OBJECT,
    "env_versions": _OBJECT,
    "algo": _TEXT,
    "model": _TEXT,
    "model_sha256": _TEXT,
    "timesteps": _COUNT,
    "deterministic": _SWITCH,
    "sigma": _NUMBER,
    "sigma_assumed": _SWITCH,
    "pixels": _SWITCH,
    "sensor_sigma": Kind(_is_sensor_sigma, "numbers, as lists or an object of these"),
    "clean_keys": Kind(_is_list_of(_is_text), "a list of texts"),
    "method": _TEXT,
    "alpha": _NUMBER,
    "band_alpha": _NUMBER,
    "looks": Kind(_is_list_of(_is_count), "a list of whole numbers"),
    "min_return": _NUMBER,
    "min_return_basis": _TEXT,
    "min_return_slope": _NUMBERS,
    "support": _NUMBERS,
    "independence_assumed": _SWITCH,
    "n_episodes": _COUNT,
    "longest_episode": Kind(_is_count, "a whole number that is at least 0"),
    "step_limit": _COUNT,
    "mean_return": _NUMBER,
    "radii": _NUMBERS,
    "certified_return": _NUMBERS,
    "quantities": Kind(_is_list_of(_is_quantity), "a list of objects that have a kind, the number at and numbers certified"),
    "per_step": Kind(_is_per_step, "an object as docs/certificate_format.md has it"),
    "recorded": Kind(
        _is_list_of(lambda value: is_recorded_bound(value, is_number)),
        "a list of objects that have key, reduction, side, is_event, worst, mean, n_missing, alpha, method and certified",
    ),
    "recorded_keys": Kind(_is_list_of(_is_text), "a list of texts"),
    "ceiling": Kind(_is_ceiling, "an object with the numbers ratio and radius"),
    "targets": Kind(_are_targets, "an object whose values are numbers or null"),
    "sources": Kind(_is_list_of(_is_source), "a list of objects that have the texts path and sha256"),
    "versions": _OBJECT,
}
