"""Certified return of the policy during its training."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, EventCallback
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.evaluation import Episodes, EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.episode_plan import n_seeds
from sb3_camp.evaluation.native import has_known_native, opened_native, step_limit
from sb3_camp.runs.layers import is_frozen_normalization
from sb3_camp.runs.normalization import normalization_of
from sb3_camp.runs.scenario import wrapper_entries
from sb3_camp.tasks.returns import lowest_return
from sb3_camp.tuning.criterion import CertifiedCriterion
from sb3_camp.tuning.log_names import distinct_names
from sb3_camp.tuning.random_state import kept_random_state
from sb3_camp.tuning.selection import mark_selected, selection_seed, write_selection_log
from sb3_camp.tuning.zoo_run import zoo_run_of

_N_ENVS, _N_NATIVE_ENVS = 32, 1024


def certifiable_sigma(environment: EvaluationEnv) -> float:
    """
    :param environment: The environment of evaluations
    :return: standard deviation of its smoothing noise, positive
    :raises InputError: if there is none, or none that can carry a certificate
    """
    noise = environment.smoothing_noise()
    if noise is None or noise.sigma == 0:
        raise InputError(f"{environment.env_id} has no smoothing noise on its observations: nothing can be certified")
    return noise.sigma


def check_min_return(environment: EvaluationEnv, min_return: float) -> None:
    """
    :param environment: The environment of evaluations
    :param min_return: A return that no episode is said to fall below
    :raises InputError: if it is known that an episode can
    """
    known = lowest_return(environment.env_id.split(":")[-1], environment.env_kwargs or {})
    if known is not None and min_return > known:
        raise InputError(
            f"CertifiedReturnCallback: min_return {min_return:g}: an episode of {environment.env_id} can return {known:g}: "
            f"pass min_return={exact(known)}"
        )


class CertifiedReturnCallback(EventCallback):
    """
    Evaluates the policy by its certified return, on noisy observations, and keeps the best checkpoint.

    The sibling of SB3's ``EvalCallback`` for smoothed policies. Each evaluation plays exactly ``n_eval_episodes`` independent
    episodes, shared out evenly among many envs, and logs

    - ``eval/certified_return_R`` for each radius R, ``eval/certified_radius_T`` for each target T (nan: nothing is certified),
      ``eval/certified_objective`` (the number that counts, see ``objective``), ``eval/smoothed_mean_reward`` and
      ``eval/smoothed_mean_ep_length`` (plain means over the episodes);
    - with ``probability_of``, ``quantiles`` and ``cvars``, from the same band: ``eval/probability_of_C_R``,
      ``eval/quantile_Q_R`` and ``eval/cvar_Q_R`` at each radius R;
    - ``certified_evaluations.npz`` in ``log_path``, for k evaluations: ``timesteps`` (k,), ``results`` and ``ep_lengths``
      (k, m), ``certified_returns`` (k, r) with ``radii`` (r,), ``certified_radii`` (k, t) with ``targets`` (t,), ``values``
      (k,), and the settings;
    - ``best_certified_model.zip`` in ``best_model_save_path``: the checkpoint with the highest value, and beside it
      ``best_certified_model_vecnormalize.pkl`` if the training normalises observations.

    A training with ``VecNormalize`` is evaluated with its statistics of that moment, frozen, outside of the noise of
    ``eval_env``: radii are in the units of the observations in front of the normaliser.

    A checkpoint that was selected looks better on the episodes of the selection than it is. So ``certify`` refuses
    ``certified_evaluations.npz``, and the checkpoint bears a mark: ``python -m sb3_camp.evaluate --model
    .../best_certified_model.zip`` plays fresh episodes, whose seeds are never those of a selection.

    The training takes no notice of the evaluations: the same seed gives the same policy with and without them.

    The RL Zoo takes it in a yml: ``callback: [{sb3_camp.tuning.CertifiedReturnCallback: {eval_freq: 5000, radii: [0.2]}}]``.
    There, the environment is that of the run, and the files go into the run folder. With ``-optimize`` the same entry makes
    the certified return what the study maximises.

    :param eval_env: How to build the environment, with the smoothing noise. In the zoo it may be left out
    :param callback_on_new_best: Callback to trigger when there is a new best model
    :param callback_after_eval: Callback to trigger after every evaluation. SB3's ``StopTrainingOnNoModelImprovement`` and
        the like go by the ``objective``, which stands in ``best_mean_reward`` and ``last_mean_reward``
    :param n_eval_episodes: Number m of episodes of an evaluation. Few episodes certify little at large radii
    :param eval_freq: Evaluate whenever that many further steps, of all training envs together, have been made
    :param n_eval_envs: Number of envs that play at once, at most one for each episode; by default 32, or 1024 of those that
        step as one array (CartPole and its tasks)
    :param radii: l2 radii, in the units of the observation, that are logged
    :param targets: Returns whose certified radius is logged
    :param probability_of: Returns; the certified probability to reach each is logged
    :param quantiles: Shares in (0, 1); the certified return that is reached except with each of these probabilities is logged
    :param cvars: Shares in (0, 1); the certified mean return of each of these shares of the worst episodes is logged
    :param objective: What counts: ``"value"``, the certified return at ``objective_radius``, or ``"area"``, its mean over all
        radii up to there (the area under the certified curve, divided by the radius)
    :param objective_radius: See ``objective``; by default the largest of ``radii``
    :param stop_at: End the training when the objective is at least this; not in ``-optimize``
    :param alpha: Each evaluation by itself holds with confidence 1 - alpha
    :param method: Method of the lower band, see :func:`sb3_camp.certification.certified_return`
    :param min_return: A return that no episode can fall below; not above the one that is known of the environment
    :param support: For the method ``"clopper-pearson"``: the thresholds that share alpha, fixed beforehand
    :param deterministic: Whether the policy is to act without random choices
    :param seed: Seeds the episodes, non-negative; every evaluation has episodes of its own
    :param log_path: Folder of ``certified_evaluations.npz``; no file if None, except in the zoo
    :param best_model_save_path: Folder of ``best_certified_model.zip``; no file if None, except in the zoo
    :param sigma_range: For ``-optimize`` only: lowest and highest standard deviation of the smoothing noise, which then is a
        parameter ``sigma`` of the study, sampled on a logarithmic scale
    :param verbose: Verbosity level: 0 for no output, 1 for the results of evaluations
    :raises InputError: (a ValueError) for arguments that cannot be used; at the start of the training, if the environment has
        no smoothing noise, or noise that cannot carry a certificate, or if an episode is known to be able to return less
        than ``min_return``
    """

    def __init__(
        self,
        eval_env: EvaluationEnv | None = None,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        n_eval_episodes: int = 200,
        eval_freq: int = 10000,
        *,
        n_eval_envs: int | None = None,
        radii: Sequence[float],
        targets: Sequence[float] = (),
        probability_of: Sequence[float] = (),
        quantiles: Sequence[float] = (),
        cvars: Sequence[float] = (),
        objective: str = "value",
        objective_radius: float | None = None,
        stop_at: float | None = None,
        alpha: float = 0.05,
        method: str = "berk-jones",
        min_return: float = 0.0,
        support: Sequence[float] | None = None,
        deterministic: bool = True,
        seed: int = 0,
        log_path: str | Path | None = None,
        best_model_save_path: str | Path | None = None,
        sigma_range: tuple[float, float] | None = None,
        verbose: int = 1,
    ) -> None:
        super().__init__(callback_after_eval, verbose=verbose)
        if eval_env is not None and not isinstance(eval_env, EvaluationEnv):
            raise InputError(f"eval_env must be an EvaluationEnv of sb3_camp.evaluation, not {type(eval_env).__name__}")
        for name, value in (("n_eval_episodes", n_eval_episodes), ("eval_freq", eval_freq), ("n_eval_envs", n_eval_envs)):
            if value is not None and not value >= 1:
                raise InputError(f"{name} must be at least 1, not {value}")
        self.radii = np.atleast_1d(np.asarray(radii, dtype=np.float64))
        if self.radii.size == 0 or not np.all(np.isfinite(self.radii) & (self.radii >= 0)):
            raise InputError(f"radii must be one or more numbers that are at least 0, not {radii}")
        self.targets = np.atleast_1d(np.asarray(targets, dtype=np.float64))
        if not np.all(np.isfinite(self.targets)):
            raise InputError(f"targets must be finite numbers, not {targets}")
        objective_radius = float(self.radii.max()) if objective_radius is None else float(objective_radius)
        self.criterion = CertifiedCriterion(objective, objective_radius, alpha, method, min_return, support)
        asked = zip(("probability", "quantile", "cvar"), (probability_of, quantiles, cvars), strict=True)
        self._asked = [(kind, float(at)) for kind, ats in asked for at in ats]
        lowest = [max(support) if support else min_return]
        self.criterion.quantities(lowest, 1.0, self.radii, self._asked)  # refuses what cannot be used
        self.radius_names = distinct_names("radii", self.radii)
        self.target_names = distinct_names("targets", self.targets)
        if sigma_range is not None and not (len(sigma_range) == 2 and 0 < sigma_range[0] <= sigma_range[1] < np.inf):
            raise InputError(f"sigma_range must be a lowest and a highest sigma, both positive, not {sigma_range}")
        self.eval_env = eval_env
        self.callback_on_new_best = callback_on_new_best
        if callback_on_new_best is not None:
            callback_on_new_best.parent = self
        self.n_eval_episodes = int(n_eval_episodes)
        self.n_eval_envs = n_eval_envs
        self.eval_freq = int(eval_freq)
        self.stop_at = stop_at
        self.deterministic = deterministic
        self.seed = seed
        self.log_path = None if log_path is None else Path(log_path)
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.sigma_range = sigma_range
        self.sigma = np.nan
        self.last_mean_reward = self.best_mean_reward = -np.inf
        self.last_certified_returns = np.full(self.radii.shape, np.nan)
        self._evaluations: list[dict[str, Any]] = []
        self._next_evaluation = 0
        self._n_seeds = 0
        self._envs = contextlib.ExitStack()
        self._player: tuple[Callable[..., Episodes], int] | None = None

    def _init_callback(self) -> None:
        run = zoo_run_of(self.training_env)
        if self.eval_env is None:
            if run is None:
                raise InputError("CertifiedReturnCallback needs eval_env=EvaluationEnv(...) outside of the RL Zoo")
            self.eval_env = run.environment()
        if run is not None:
            self.log_path = self.log_path or run.folder
            self.best_model_save_path = self.best_model_save_path or run.folder
        self.sigma = certifiable_sigma(self._environment())
        check_min_return(self._environment(), self.criterion.min_return)
        for folder in (self.log_path, self.best_model_save_path):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        if self.callback_on_new_best is not None:
            self.callback_on_new_best.init_callback(self.model)

    def _on_training_start(self) -> None:
        self._next_evaluation = self.model.num_timesteps + self.eval_freq

    def _on_step(self) -> bool:
        if self.num_timesteps < self._next_evaluation:
            return True
        self._next_evaluation += self.eval_freq * (1 + (self.num_timesteps - self._next_evaluation) // self.eval_freq)
        is_best = self.evaluate()
        go_on = True
        if is_best and self.callback_on_new_best is not None:
            go_on = self.callback_on_new_best.on_step()
        if self.callback is not None:
            go_on = go_on and self._on_event()
        if self.stop_at is not None and self.last_mean_reward >= self.stop_at:
            if self.verbose >= 1:
                print(
                    f"Stopping training because the certified objective {self.last_mean_reward:.2f} reached {self.stop_at:g}"
                )
            go_on = False
        return go_on

    def evaluate(self) -> bool:
        """
        Evaluate the policy as it is, log the results, and save the model if it is the best so far.

        :return: whether it is
        """
        with kept_random_state(self.model.device):
            if self._player is None or self._normalizer() is not None:
                self._envs.close()
                self._player = self._open_player()
            play, n_envs = self._player
            first_seed = selection_seed(self.seed, self._n_seeds)
            self._n_seeds += n_seeds(self.n_eval_episodes, n_envs)
            episodes = play(self.n_eval_episodes, seed=first_seed, deterministic=self.deterministic)
        returns = episodes.returns
        self.last_mean_reward = self.criterion(returns, self.sigma)
        self.last_certified_returns = self.criterion.curve(returns, self.sigma, self.radii)
        self._evaluations.append(
            {
                "timesteps": self.model.num_timesteps,
                "results": returns,
                "ep_lengths": episodes.lengths,
                "certified_returns": self.last_certified_returns,
                "certified_radii": self.criterion.radii(returns, self.sigma, list(self.targets)),
                "values": self.last_mean_reward,
                "first_env_seeds": first_seed,
                "last_env_seeds": first_seed + n_seeds(self.n_eval_episodes, n_envs) - 1,
            }
        )
        self._log(episodes)
        if self.log_path is not None:
            self._write_log(self.log_path / "certified_evaluations.npz")
        is_best = self.last_mean_reward > self.best_mean_reward
        if is_best:
            self.best_mean_reward = self.last_mean_reward
            self._save_best()
        return is_best

    def _open_player(self) -> tuple[Callable[..., Episodes], int]:
        """What plays the episodes, in envs that stay open until the end of the training, and their number."""
        environment = self._environment()
        native = has_known_native(environment)
        n_envs = min(self.n_eval_envs or (_N_NATIVE_ENVS if native else _N_ENVS), self.n_eval_episodes)
        if native:
            vector_env = self._envs.enter_context(opened_native(environment, n_envs))
            return partial(play_vector_episodes, self.model, vector_env, step_limit=step_limit(environment)), n_envs
        return partial(play_episodes, self.model, self._envs.enter_context(environment.opened(n_envs))), n_envs

    def _normalizer(self) -> VecNormalize | None:
        """What normalises the observations of the training, if anything does."""
        normalizer = self.model.get_vec_normalize_env()
        return normalizer if normalizer is not None and normalizer.norm_obs else None

    def _environment(self) -> EvaluationEnv:
        """The environment of an evaluation; in a training that normalises with its statistics of now, which are frozen."""
        assert self.eval_env is not None
        normalizer = self._normalizer()
        if normalizer is None:
            return self.eval_env
        names = [name for name, _ in wrapper_entries(self.eval_env.wrappers)]
        if any(map(is_frozen_normalization, names)):
            raise InputError("eval_env: leave out its normaliser, the statistics of the training are used")
        arguments = normalization_of(normalizer)
        assert arguments is not None
        return self.eval_env.with_normalization(arguments)

    def _log(self, episodes: Episodes) -> None:
        latest = self._evaluations[-1]
        for name, value in zip(self.radius_names, latest["certified_returns"], strict=True):
            self.logger.record(f"eval/certified_return_{name}", float(value))
        for name, radius in zip(self.target_names, latest["certified_radii"], strict=True):
            self.logger.record(f"eval/certified_radius_{name}", float(radius))
        quantities = self.criterion.quantities(episodes.returns, self.sigma, self.radii, self._asked)
        for (kind, at), bounds in zip(self._asked, quantities, strict=True):
            for name, bound in zip(self.radius_names, bounds, strict=True):
                self.logger.record(f"eval/{kind}{'_of' if kind == 'probability' else ''}_{exact(at)}_{name}", float(bound))
        self.logger.record("eval/certified_objective", self.last_mean_reward)
        self.logger.record("eval/smoothed_mean_reward", float(episodes.returns.mean()))
        self.logger.record("eval/smoothed_mean_ep_length", float(episodes.lengths.mean()))
        self.logger.record("time/total_timesteps", self.model.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.model.num_timesteps)
        if self.verbose >= 1:
            values = zip(self.radius_names, latest["certified_returns"], strict=True)
            curve = ", ".join(f"{name}: {value:.2f}" for name, value in values)
            print(
                f"Eval num_timesteps={self.model.num_timesteps}, certified return at radius {curve} "
                f"(mean {episodes.returns.mean():.2f}, {self.n_eval_episodes} episodes, sigma {self.sigma:g})"
            )

    def _write_log(self, path: Path) -> None:
        columns = {name: np.array([row[name] for row in self._evaluations]) for name in self._evaluations[0]}
        criterion = self.criterion.description()
        support = criterion.pop("support")
        if support is not None:
            criterion["support"] = np.asarray(support, dtype=np.float64)
        write_selection_log(path, radii=self.radii, targets=self.targets, sigma=self.sigma, **criterion, **columns)

    def _save_best(self) -> None:
        if self.verbose >= 1:
            print("New best certified return!")
        if self.best_model_save_path is None:
            return
        path = self.best_model_save_path / "best_certified_model.zip"
        self.model.save(path)
        normalizer = self._normalizer()
        if normalizer is not None:
            normalizer.save(str(path.with_name(f"{path.stem}_vecnormalize.pkl")))
        mark_selected(
            path,
            criterion=self.criterion.description(),
            value=self.best_mean_reward,
            sigma=self.sigma,
            timesteps=self.model.num_timesteps,
            n_episodes=self.n_eval_episodes,
            first_env_seed=self._evaluations[-1]["first_env_seeds"],
            last_env_seed=self._evaluations[-1]["last_env_seeds"],
        )

    def _on_training_end(self) -> None:
        self._envs.close()
        self._player = None

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        """
        Update the references to the local variables.

        :param locals_: the local variables during rollout collection
        """
        if self.callback is not None:
            self.callback.update_locals(locals_)
