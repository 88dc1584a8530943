"""Results on an agent that nobody had to play: a certificate, and an attack that it speaks of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.attack_runs.attack_files import write_attack
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, attack_result
from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes
from sb3_camp.evaluation import Episodes

POLICY: dict[str, Any] = {
    "env_id": "CartPole-v1",
    "env_kwargs": {},
    "env_wrappers": {"env_wrapper": [{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.4}}]},
    "algo": "dqn",
    "model": "model.zip",
    "model_sha256": "0" * 64,
    "timesteps": 0,
    "deterministic": True,
    "sigma": 0.4,
    "clean_keys": [],
}
HOW: dict[str, Any] = {
    "attack": "pgd",
    "objective": "targeted",
    "step_size": None,
    "multiplier": 2.0,
    "q_threshold": 0.0,
    "key": None,
}
PLAYED: dict[str, Any] = {"seed": 0, "n_envs": 4, "device": "cpu"}


def attacked(
    budgets: Sequence[float], returns: Sequence[Sequence[float] | np.ndarray], folder: Path | None = None, **changes: Any
) -> AttackResult:
    """
    :param budgets: Budgets of the attack
    :param returns: Those of the episodes at each
    :param folder: Where to write the attack
    :param changes: Other settings than those above
    """
    settings = AttackSettings(**{**POLICY, **HOW, **PLAYED, "n_episodes": len(returns[0]), **changes})
    all_returns = np.concatenate([np.asarray(one, dtype=float) for one in returns])
    n = all_returns.size
    played = AttackedEpisodes(Episodes(all_returns, np.ones(n, int), np.ones(n)), np.zeros(n), np.ones(n, dtype=int))
    result = attack_result(settings, budgets, played)
    if folder is not None:
        write_attack(result, played, folder)
    return result
