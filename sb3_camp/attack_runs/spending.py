"""When the budget of an episode is spent: at once, evenly, or as a pilot has found to hurt most."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch as th

from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.attack_runs.policy_steps import observed_steps
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.policy_view import policy_view

PILOT_EPISODES = 64
"""Episodes for each way to spend that a pilot tries"""

_STEPS = 4_000
# Seeds far from those of the episodes that count
_PILOT_SEED = 2**31
_QUANTILES = (0.5, 0.75, 0.9, 0.97)
_SHARES = (1.0, 1 / 4, 1 / 16)


class Spending(NamedTuple):
    """
    :param q_threshold: Least loss of score that is worth an attack
    :param spread: At one observation, at most budget / sqrt(spread) is spent
    """

    q_threshold: float
    spread: float


def spending(player: AttackPlayer, attack: str, settings: dict[str, Any], budget: float, spend: str, seed: int) -> Spending:
    """
    :param player: The policy and its environment
    :param attack: Name of the attack
    :param settings: Its arguments
    :param budget: The largest budget
    :param spend: "early": whenever something can be reached. "even": at most budget / sqrt(step limit) at each observation.
        "pilot": of some thresholds on the loss of score, or, where the actions are not discrete, of some shares of the step
        limit over which the budget is spread, that which leaves least in a pilot of its own episodes
    :param seed: Seed of the command
    :return: when to spend
    """
    goes_on = player.attack(attack).goes_on
    limit = float(player.view().step_limit)
    first = Spending(settings.get("q_threshold", 0.0), limit if spend == "even" else 1.0)
    if spend != "pilot" or budget == 0:
        return first
    print(f"Finding out when to spend, by {PILOT_EPISODES} episodes at budget {budget:g} for each of:")
    best, least = first, np.inf
    for candidate in _candidates(player, first, limit, goes_on, seed):
        left = _mean_return(player, attack, settings, budget, candidate, seed)
        print(f"  losses above {candidate.q_threshold:g}, spread over {candidate.spread:g} observations: return {left:.2f}")
        if left < least:
            best, least = candidate, left
    return best


def _candidates(player: AttackPlayer, first: Spending, limit: float, goes_on: bool, seed: int) -> Iterator[Spending]:
    if goes_on:
        yield from (first._replace(spread=max(1.0, share * limit)) for share in _SHARES)
        return
    yield first
    scores = policy_view(player.model.policy).scores
    assert scores is not None
    losses = []
    for _, observed in observed_steps(player, player.model, _STEPS, seed + _PILOT_SEED):
        with th.no_grad():
            values = scores(observed)
        losses.append((values.amax(dim=1) - values.amin(dim=1)).cpu().numpy())
    thresholds = np.quantile(np.concatenate(losses).astype(np.float64), _QUANTILES)
    for threshold in dict.fromkeys(float(f"{value:.6g}") for value in thresholds):
        if threshold > first.q_threshold:
            yield first._replace(q_threshold=threshold)


def _mean_return(
    player: AttackPlayer, attack: str, settings: dict[str, Any], budget: float, candidate: Spending, seed: int
) -> float:
    trial = replace(player, spread=candidate.spread, n_envs=min(player.n_envs, PILOT_EPISODES))
    if "q_threshold" in player.attack(attack).arguments:
        settings = {**settings, "q_threshold": candidate.q_threshold}
    returns = []
    with trial.opened(attack, settings, budget) as play:
        for chunk in plan_chunks(PILOT_EPISODES, trial.n_envs, (seed + _PILOT_SEED) % 2**32):
            returns.append(play(chunk, lambda: None).episodes.returns)
    return float(np.concatenate(returns).mean())
