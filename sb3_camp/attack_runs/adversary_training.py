"""Training the adversary of ``python -m sb3_camp.attack --attack learned``."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from tqdm import tqdm

from sb3_camp.attack_names import LEARNED
from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.files import write_file
from sb3_camp.learned_adversary.games import adversaries_of, native_game, single_game
from sb3_camp.learned_adversary.training import train_adversary
from sb3_camp.learned_adversary.vec_env import AdversaryVecEnv
from sb3_camp.threat_models import size_name
from sb3_camp.wrappers.episode_budget import EpisodeBudgets

_N_ENVS, _N_NATIVE_ENVS = 16, 512
_STEPS, _NATIVE_STEPS = 300_000, 10_000_000
# In a quarter of the episodes a part of the budget is gone from the start, so that one adversary can attack with any budget
_SHORTENED = 0.25


def train_and_save(
    player: AttackPlayer, budget: float, n_timesteps: int | None, seed: int, file: Path, hide_progress: bool
) -> None:
    """
    Train an adversary of the policy, and save it.

    :param player: The policy and its environment
    :param budget: The largest budget that it shall attack with
    :param n_timesteps: Steps to train for, None for the default
    :param seed: Seed of its initial weights, its exploration and the envs
    :param file: Where to
    :param hide_progress: Whether to show no bar
    """
    total = n_timesteps or (_NATIVE_STEPS if player.native else _STEPS)
    print(f"Training an adversary for {total} steps at {size_name(player.threat)} {budget:g} and below")
    with (
        adversary_env(player, budget, seed) as env,
        tqdm(total=total, unit="step", desc="adversary", mininterval=1, disable=hide_progress) as bar,
    ):
        model = train_adversary(env, total, seed=seed, callback=_Progress(env, bar))
        write_file(file, lambda written: model.save(written))  # type: ignore[arg-type]
    if env.returns:
        print(f"The policy returned {np.mean(env.returns[-1000:]):.2f} on average in the last training episodes")
    print(f"Written: {file}")


@contextlib.contextmanager
def adversary_env(player: AttackPlayer, budget: float, seed: int, n_envs: int | None = None) -> Iterator[AdversaryVecEnv]:
    """
    :param player: The policy and its environment
    :param budget: l2 norm for an episode, or bound on the norm at each step
    :param seed: Seed of the envs, and of what is gone of the budgets at the start
    :param n_envs: Number of envs, by default what is fast
    :return: A context with the environment of an adversary of the policy
    """
    view = player.view()
    with contextlib.ExitStack() as stack:
        if player.native:
            n_envs = n_envs or _N_NATIVE_ENVS
            envs, adversary = stack.enter_context(player.opened_native(budget, n_envs))
            budgets = [adversary.budgets]
            game = native_game(player.model, envs, adversary, player.deterministic)
        else:
            n_envs = n_envs or _N_ENVS
            env = stack.enter_context(player.opened_single(LEARNED, {"agent": None, "view": view}, budget, n_envs))
            budgets = [one.budgets for one in adversaries_of(env)]
            game = single_game(player.model, env, player.deterministic)
        learning = AdversaryVecEnv(game, view, n_envs, seed, partial(_shorten, budgets))
        stack.callback(learning.close)
        yield learning


def _shorten(budgets: Sequence[EpisodeBudgets], starts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """
    Cut the budget of some of the episodes that begin by a random part.

    :return: what is left in all envs
    """
    shares = np.where(rng.random(len(starts)) < _SHORTENED, rng.random(len(starts)), 1.0)
    share_of = np.array_split(np.where(starts, shares, 1.0), len(budgets))
    for one, share in zip(budgets, share_of, strict=True):
        one.shorten(share)
    return np.concatenate([one.left for one in budgets])


class _Progress(BaseCallback):
    def __init__(self, env: AdversaryVecEnv, bar: tqdm) -> None:
        super().__init__()
        self._env, self._bar = env, bar

    def _on_step(self) -> bool:
        self._bar.update(self.num_timesteps - self._bar.n)
        if self._env.returns:
            self._bar.set_postfix_str(f"return {np.mean(self._env.returns[-500:]):.1f}", refresh=False)
        return True
