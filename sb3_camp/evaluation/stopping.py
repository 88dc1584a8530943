"""Evaluations that stop as soon as a target is certified, at looks that were planned beforehand (``evaluate --until``)."""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sb3_camp.certification.assumptions import find_min_return
from sb3_camp.certification.bounds import certified_return
from sb3_camp.certification.episode_logs import MOST, EpisodeLog
from sb3_camp.certification.planning import Look, planned_looks
from sb3_camp.certification.rounded_text import exact, floor_decimals
from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv

N_LOOKS, ALPHA = 5, 0.05
"""Number of looks, and alpha of all of them together, unless others are asked for."""

_FIRST_LOOK = 1000


@dataclass(frozen=True)
class Stopping:
    """
    When an evaluation stops: at the first look at which the target is certified, or at the last.

    :param target: The expected return to certify
    :param radius: At this l2 radius
    :param looks: The looks, fixed beforehand, with the alpha of each
    :param alpha: The alpha of all looks together
    :param n_bands: Number of bands that share the alpha of a look: that of the returns, and one for all that is recorded
    :param sigma: Standard deviation of the noise
    :param min_return: A return that no episode can fall below
    """

    target: float
    radius: float
    looks: list[Look]
    alpha: float
    n_bands: int
    sigma: float
    min_return: float

    @property
    def numbers(self) -> list[int]:
        """Numbers of episodes at the looks."""
        return [look.n_episodes for look in self.looks]

    @property
    def settings(self) -> dict[str, str | int | float | bool]:
        """What the file of the evaluation says of it."""
        until = f"{exact(self.target)}@{exact(self.radius)}"
        return {"until": until, "looks": json.dumps(self.numbers), "looks_alpha": self.alpha}

    @property
    def announcement(self) -> str:
        """What is going to be played, in words."""
        numbers = ", ".join(map(str, self.numbers))
        return f"Episodes: looks at {numbers}, until {exact(self.target)} is certified at radius {exact(self.radius)}"

    def check_lowest(self, returns: np.ndarray) -> None:
        """
        Refuse what is below the lowest return when it is played, not at the next look.

        :param returns: Returns of episodes, shape (n,)
        :raises InputError: if one of them is below ``min_return``
        """
        if returns.size and returns.min() < self.min_return:
            raise InputError(
                f"--until: an episode returned {exact(returns.min())}, below {exact(self.min_return)}: give the lowest return "
                "that any episode can have with --min-return (and --resume, to keep the episodes before it)"
            )

    def is_met(self, returns: np.ndarray) -> bool:
        """
        :param returns: Returns of the episodes so far, shape (n,)
        :return: whether this is a look, and the target is certified at it
        :raises InputError: if a return is below ``min_return``
        """
        if returns.size not in self.numbers:
            return False
        index = self.numbers.index(returns.size)
        alpha = self.looks[index].alpha / self.n_bands
        certified = float(certified_return(returns, self.sigma, self.radius, alpha=alpha, min_return=self.min_return))
        print(
            f"Look {index + 1} of {len(self.looks)}: {returns.size} episodes certify {floor_decimals(certified, 3)} at radius "
            f"{exact(self.radius)}, {exact(self.target)} is {'certified' if certified >= self.target else 'not certified'}",
            flush=True,
        )
        return certified >= self.target


def parse_until(text: str) -> tuple[float, float]:
    """
    :param text: ``TARGET@RADIUS``
    :return: the return to certify, and at which radius
    :raises InputError: if it is none
    """
    target, _, radius = text.partition("@")
    try:
        numbers = float(target), float(radius)
    except ValueError:
        numbers = math.nan, math.nan
    if not (abs(numbers[0]) <= MOST and 0 <= numbers[1] <= MOST):
        raise InputError(f"--until takes TARGET@RADIUS, as 150@0.4: an expected return, and a radius, not {text!r}")
    return numbers


def find_stopping(
    args: argparse.Namespace, environment: EvaluationEnv, versions_of_env: dict[str, str] | None, sigma: float
) -> Stopping | None:
    """
    :param args: Arguments of ``evaluate``
    :param environment: The environment that is played
    :param versions_of_env: Versions of what it comes from
    :param sigma: Standard deviation of the noise
    :return: when the evaluation stops early, None if it does not
    :raises InputError: if the arguments do not fit together, or if the lowest return is neither given nor known
    """
    if args.until is None:
        options = {"--max-episodes": args.max_episodes, "--looks": args.looks, "--alpha": args.alpha}
        for option, given in {**options, "--min-return": args.min_return}.items():
            if given is not None:
                raise InputError(f"{option} is for --until")
        return None
    if args.n_episodes is not None or args.max_episodes is None:
        raise InputError("--until needs --max-episodes, the number of episodes at the last look, in place of -n")
    about = EpisodeLog(
        Path("--until"),
        "",
        np.empty(0),
        np.empty(0, dtype=np.int64),
        env_id=environment.env_id,
        env_kwargs=dict(environment.env_kwargs),
        env_wrappers=dict(environment.wrappers),
        env_versions=versions_of_env,
    )
    min_return, _ = find_min_return([about], None, args.min_return)
    n_looks, alpha = args.looks or N_LOOKS, ALPHA if args.alpha is None else args.alpha
    n_recorded = len(environment.recorded)
    return plan_stopping(
        args.until, args.max_episodes, n_looks, alpha, n_recorded=n_recorded, sigma=sigma, min_return=min_return
    )


def plan_stopping(
    text: str, most: int, n_looks: int, alpha: float, *, n_recorded: int, sigma: float, min_return: float
) -> Stopping:
    """
    :param text: ``TARGET@RADIUS``
    :param most: Number of episodes at the last look
    :param n_looks: Number of looks
    :param alpha: The alpha of all looks together
    :param n_recorded: Number of recorded keys
    :param sigma: Standard deviation of the noise
    :param min_return: A return that no episode can fall below
    :return: when to stop
    :raises InputError: if the arguments cannot be used
    """
    target, radius = parse_until(text)
    if not target > min_return:
        raise InputError(f"--until: {exact(target)} is not above the lowest return that an episode can have, {min_return:g}")
    first = max(1, min(_FIRST_LOOK, most // 2 ** (n_looks - 1))) if n_looks >= 1 else most
    looks = planned_looks(first, most, n_looks, alpha)
    return Stopping(target, radius, looks, alpha, 1 + n_recorded, sigma, min_return)
