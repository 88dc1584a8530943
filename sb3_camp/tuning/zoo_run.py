"""What the environments of a training in the RL Zoo tell about it to callbacks, which get arguments from a yml only."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.vec_env import VecEnv

if TYPE_CHECKING:
    from collections.abc import Callable

    from sb3_camp.evaluation import EvaluationEnv

_ATTRIBUTE = "zoo_run"


@dataclass(frozen=True)
class ZooRun:
    """
    :param environment: Returns how to build an environment like that of the training, for evaluations
    :param folder: The run folder, None for a trial of ``-optimize``
    :param objective: Arguments of the :class:`sb3_camp.tuning.CertifiedReturnCallback` by which a trial of ``-optimize`` is
        judged, None for the zoo's own objective
    """

    environment: "Callable[[], EvaluationEnv]"
    folder: Path | None
    objective: dict[str, Any] | None = None


def tell_zoo_run(env: VecEnv, run: ZooRun) -> None:
    """
    :param env: An environment that the zoo has built
    :param run: What it shall tell from now on, wrapped or not
    """
    setattr(env, _ATTRIBUTE, run)


def zoo_run_of(env: VecEnv) -> ZooRun | None:
    """
    :param env: An environment
    :return: what it tells, None if the zoo has not built it
    """
    return getattr(env, _ATTRIBUTE, None)
