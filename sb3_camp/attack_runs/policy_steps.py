"""What a policy observes along its own episodes, without noise, as an adversary that does nothing would see it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.type_aliases import PolicyPredictor

from sb3_camp.attack_names import LEARNED
from sb3_camp.attack_runs.attack_player import AttackPlayer
from sb3_camp.learned_adversary.games import Question, single_game
from sb3_camp.wrappers.adversary import AttackAnswers

N_ENVS = 16
"""Number of envs that play at once"""


def observed_steps(player: AttackPlayer, acting: PolicyPredictor, n_steps: int, seed: int) -> Iterator[tuple[Question, Any]]:
    """
    :param player: The policy and its environment
    :param acting: What acts in it, the policy or something around it
    :param n_steps: Number of steps, over all envs
    :param seed: Seed of the envs
    :return: at each step, what an adversary is asked, and what the policy observes of it without noise; both of all envs. When
        the next is asked for, the policy has acted on it, and the next question tells the rewards
    """
    nothing = {"agent": None, "view": player.view()}
    unmoved = np.zeros(N_ENVS), np.zeros(N_ENVS, dtype=bool)
    with player.opened_single(LEARNED, nothing, 0.0, N_ENVS) as env:
        game = single_game(acting, env, player.deterministic)
        question = game.start(seed % 2**32)
        try:
            for _ in range(-(-n_steps // N_ENVS)):
                yield question, _observed(player, question)
                question = game.answer(AttackAnswers(question.requests.frames[:, -1], *unmoved))
        finally:
            game.stop()


def _observed(player: AttackPlayer, question: Question) -> Any:
    requests, frames = question.requests, player.frames
    stacks = frames.channel(0.0, 0).normalised(th.as_tensor(requests.frames, device=player.model.device))
    observed = player.layout().observed(stacks)
    if frames.key is None:
        return observed
    others: Any = player.model.policy.obs_to_tensor(requests.others)[0]  # type: ignore[arg-type]
    return {**others, frames.key: observed}
