"""What the environments of a training in the RL Zoo tell about it to callbacks, which get arguments from a yml only."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from sb3_camp.evaluation import EvaluationEnv


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


# Kept beside the environments, never on them: VecNormalize pickles all attributes that it has. By identity, as a wrapper of
# the user may compare by value, and have no hash
_RUNS: dict[int, ZooRun] = {}


def tell_zoo_run(env: VecEnv, run: ZooRun) -> None:
    """
    :param env: An environment that the zoo has built; it is not changed
    :param run: What is known of it from now on, wrapped or not
    """
    if id(env) not in _RUNS:
        finalize(env, _RUNS.pop, id(env), None)
    _RUNS[id(env)] = run


def zoo_run_of(env: VecEnv) -> ZooRun | None:
    """
    :param env: An environment
    :return: what is known of it or of an environment inside of it, None if the zoo has not built it
    """
    while True:
        run = _RUNS.get(id(env))
        if run is not None or not isinstance(env, VecEnvWrapper):
            return run
        env = env.venv
