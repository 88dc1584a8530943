"""The zoo's evaluations of a trial, by the certified return where the run asks for it."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import optuna
from rl_zoo3.callbacks import TrialEvalCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.tuning.zoo_run import zoo_run_of

if TYPE_CHECKING:
    from sb3_camp.tuning.callback import CertifiedReturnCallback


class CertifiedTrialEvalCallback(TrialEvalCallback):
    """
    The zoo's callback for trials, which reports the certified objective instead of the mean return if the environment tells of
    one. Otherwise it is the zoo's.

    :param eval_env: The environment used for evaluation
    :param trial: Optuna trial
    """

    def __init__(self, eval_env: VecEnv, trial: optuna.Trial, *args: Any, **kwargs: Any) -> None:
        super().__init__(eval_env, trial, *args, **kwargs)
        self.certified = self._certified(eval_env)

    def _certified(self, eval_env: VecEnv) -> "CertifiedReturnCallback | None":
        run = zoo_run_of(eval_env)
        if run is None or run.objective is None:
            return None
        from sb3_camp.tuning.callback import CertifiedReturnCallback  # slow to import, which other runs are spared

        folder = self.best_model_save_path
        given = {"eval_env": run.environment(), "log_path": folder, "best_model_save_path": folder, "verbose": self.verbose}
        return CertifiedReturnCallback(**{**run.objective, **given})

    def _init_callback(self) -> None:
        super()._init_callback()
        if self.certified is not None:
            with _stopping_the_study():
                self.certified.init_callback(self.model)

    def _on_step(self) -> bool:
        if self.certified is None:
            return super()._on_step()
        if self.eval_freq <= 0 or self.n_calls % self.eval_freq != 0:
            return True
        with _stopping_the_study():
            self.certified.evaluate()
        self.last_mean_reward, self.best_mean_reward = self.certified.last_mean_reward, self.certified.best_mean_reward
        self.eval_idx += 1
        for name, value in zip(self.certified.radius_names, self.certified.last_certified_returns, strict=True):
            self.trial.set_user_attr(f"certified_return_{name}", float(value))
        self.trial.report(self.last_mean_reward, self.eval_idx)
        self.is_pruned = self.trial.should_prune()
        return not self.is_pruned

    def _on_training_end(self) -> None:
        if self.certified is not None:
            self.certified.on_training_end()


@contextlib.contextmanager
def _stopping_the_study() -> Iterator[None]:
    """The zoo prunes a trial with a ValueError, for unlucky hyper-parameters; but wrong input is wrong in all trials."""
    try:
        yield
    except InputError as error:
        raise RuntimeError(str(error)) from error
