"""Episodes under attack: what each returned, and what the adversary spent in it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.evaluation.episodes import Episodes, by_turns, joined, play_episodes
from sb3_camp.evaluation.vector_episodes import play_vector_episodes
from sb3_camp.wrappers.adversarial_observation import AttackedEpisode
from sb3_camp.wrappers.vector_adversary import VectorAdversary


class AttackedEpisodes(NamedTuple):
    """
    :param episodes: n episodes
    :param budget_spent: l2 norm of all that the adversary added in each, float64, shape (n,)
    :param flips: In how many steps of each it changed the greedy action, int64, shape (n,)
    """

    episodes: Episodes
    budget_spent: np.ndarray
    flips: np.ndarray

    @classmethod
    def none(cls) -> "AttackedEpisodes":
        """
        :return: no episodes
        """
        return cls(Episodes.none(), np.empty(0), np.empty(0, dtype=np.int64))

    def followed_by(self, other: "AttackedEpisodes") -> "AttackedEpisodes":
        """
        :param other: What comes after it
        :return: both as one
        """
        episodes = joined([self.episodes, other.episodes])
        budget_spent = np.concatenate([self.budget_spent, other.budget_spent])
        return AttackedEpisodes(episodes, budget_spent, np.concatenate([self.flips, other.flips]))

    def part(self, start: int, stop: int) -> "AttackedEpisodes":
        """
        :param start: The first
        :param stop: The first that is not wanted any more
        :return: these episodes
        """
        episodes = Episodes(*(values[start:stop] for values in self.episodes))
        return AttackedEpisodes(episodes, self.budget_spent[start:stop], self.flips[start:stop])


def play_attacked_episodes(
    model: BaseAlgorithm, env: VecEnv, chunk: Chunk, *, deterministic: bool, on_episode: Callable[[], object]
) -> AttackedEpisodes:
    """
    Play the episodes of a chunk under attack.

    :param model: The policy
    :param env: Envs with an adversary in each, see :mod:`sb3_camp.attack_runs.attacked_env`
    :param chunk: Number of episodes, and seed
    :param deterministic: Whether the policy is to act without random choices
    :param on_episode: Called after each finished episode that counts
    :return: the episodes, by turns of the envs
    :raises InputError: if an episode cannot be paired with what its adversary spent, or if a return is not finite; see also
        :func:`sb3_camp.evaluation.play_episodes`
    """
    attacks: list[list[AttackedEpisode]] = [[] for _ in range(env.num_envs)]

    def take(i: int) -> None:
        attacks[i].append(_the_only(env.env_method("take_closed_attacks", indices=i)[0]))
        on_episode()

    episodes = play_episodes(
        model,
        env,
        chunk.n_episodes,
        seed=chunk.seed,
        deterministic=deterministic,
        # What the first reset has closed is what was left over from before
        on_start=lambda: env.env_method("take_closed_attacks"),
        on_episode=take,
    )
    if not np.all(np.isfinite(episodes.returns)):
        raise InputError("the environment gives rewards whose sum is not a finite number, so there is no mean return")
    turns = by_turns(attacks)
    return AttackedEpisodes(
        episodes,
        np.array([attack.budget_spent for attack in turns], dtype=np.float64),
        np.array([attack.flips for attack in turns], dtype=np.int64),
    )


def play_attacked_vector_episodes(
    model: BaseAlgorithm,
    envs: VectorEnv,
    adversary: VectorAdversary,
    chunk: Chunk,
    step_limit: float,
    *,
    deterministic: bool,
    on_episode: Callable[[], object],
) -> AttackedEpisodes:
    """
    What :func:`play_attacked_episodes` does, in a vector environment of Gymnasium.

    :param model: The policy
    :param envs: The vector environment
    :param adversary: The adversary in it
    :param chunk: Number of episodes, and seed
    :param step_limit: Number of steps that no episode exceeds
    :param deterministic: Whether the policy is to act without random choices
    :param on_episode: Called after each finished episode that counts
    :return: the episodes, by turns of the envs
    """
    attacks: list[list[AttackedEpisode]] = [[] for _ in range(envs.num_envs)]

    def take(i: int) -> None:
        spent, flips, steps = adversary.budgets.spent[i], adversary.flips[i], adversary.steps[i]
        attacks[i].append(AttackedEpisode(float(spent), int(flips), int(steps)))
        on_episode()

    def attack_only_what_counts(observations: Any, counted: np.ndarray) -> None:
        adversary.wanted = counted | adversary.ended  # which begin another episode with this step

    adversary.wanted[:] = True
    episodes = play_vector_episodes(
        model,
        envs,
        chunk.n_episodes,
        seed=chunk.seed,
        deterministic=deterministic,
        step_limit=step_limit,
        on_episode=take,
        on_step=attack_only_what_counts,
    )
    turns = by_turns(attacks)
    return AttackedEpisodes(
        episodes,
        np.array([attack.budget_spent for attack in turns], dtype=np.float64),
        np.array([attack.flips for attack in turns], dtype=np.int64),
    )


def _the_only(closed: list[AttackedEpisode]) -> AttackedEpisode:
    if len(closed) != 1:
        raise InputError(
            f"a wrapper outside of the adversary reset the game {len(closed)} times in one episode, so the adversary's budget "
            "is not that of the episode: put the wrapper inside of the noise (in env_wrapper: before it)"
        )
    return closed[0]
