"""What the numbers and words among the arguments of CAMPDQN may be."""

from numbers import Integral
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

from sb3_camp.camp_dqn.losses import IMITATION_LOSSES
from sb3_camp.errors import InputError


def lambda_schedule(camp_lambda: Any) -> Schedule:
    """
    :param camp_lambda: A number, a function of the current progress remaining, the zoo's notation ``lin_<number>`` (linear
        from the number to 0), or its opposite ``ramp_<number>`` (from 0 to the number)
    :raises InputError: if it is none of these
    """
    if isinstance(camp_lambda, str):
        camp_lambda = _linear_schedule(camp_lambda)
    if not callable(camp_lambda) and not _is_finite_and_not_negative(camp_lambda):
        raise InputError(
            "camp_lambda must be a number >= 0, 'lin_<number>' (linear to 0), 'ramp_<number>' (linear from 0) or a "
            f"schedule, not {camp_lambda!r}."
        )
    return FloatSchedule(camp_lambda)


def check_options(action_space: Any, camp_eta: Any, imitation: Any, compile: Any, n_steps: Any) -> None:
    """
    :param action_space: Space of the actions
    :param camp_eta: "adaptive" or a finite number >= 0
    :param imitation: the name of one of :data:`~sb3_camp.camp_dqn.losses.IMITATION_LOSSES`
    :param compile: "auto", True or False
    :param n_steps: a whole number >= 1
    :raises InputError: if one of them is something else, or if there is only one action
    """
    if isinstance(action_space, spaces.Discrete) and action_space.n < 2:
        raise InputError("CAMPDQN needs at least two actions: the Q-gap is the best minus the second-best.")
    if camp_eta != "adaptive" and not _is_finite_and_not_negative(camp_eta):
        raise InputError(f"camp_eta must be 'adaptive' or a number >= 0, not {camp_eta!r}.")
    if not isinstance(n_steps, Integral) or isinstance(n_steps, bool) or n_steps < 1:
        raise InputError(f"n_steps must be a whole number of at least 1, not {n_steps!r}.")
    for name, value, choices in (
        ("imitation", imitation, tuple(IMITATION_LOSSES)),
        ("compile", compile, ("auto", True, False)),
    ):
        if value not in choices:
            raise InputError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}.")


def _is_finite_and_not_negative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _linear_schedule(text: str) -> Schedule | str:
    notation, _, number = text.partition("_")
    try:
        value = float(number)
    except ValueError:
        return text
    if notation not in ("lin", "ramp") or not _is_finite_and_not_negative(value):
        return text
    start, end = (value, 0.0) if notation == "lin" else (0.0, value)
    return LinearSchedule(start, end, end_fraction=1.0)
