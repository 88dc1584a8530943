"""Exactly N independent episodes of one fixed policy."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_wrapper

from sb3_camp.errors import InputError


def play_episodes(
    model: PolicyPredictor,
    env: VecEnv,
    n_episodes: int,
    *,
    seed: int,
    deterministic: bool = True,
    on_episode: Callable[[], object] | None = None,
    on_step: Callable[[Any, np.ndarray], object] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Play ``n_episodes`` episodes, as evenly shared out among the envs as possible.

    The share of each env is fixed beforehand, so that envs with short episodes do not contribute more of them. An episode ends
    where the outermost env ends it, at a time limit outside of ``Monitor`` too. Its return is the one that ``Monitor`` counts,
    on the raw rewards, if ``Monitor`` closes its episode at the same step, else the sum of the rewards. A lost life
    (``EpisodicLifeEnv``) does not end an episode.

    :param model: The policy, anything with SB3's ``predict``, recurrent or not
    :param env: The envs; they are seeded with seed, seed + 1, ... and reset
    :param n_episodes: Number of episodes, at least 1
    :param seed: Seeds the envs and the random choices of the policy
    :param deterministic: Whether the policy is to act without random choices
    :param on_episode: Called after each finished episode that counts
    :param on_step: Called before each step with the observations that the policy acts on, and with a bool array (n_envs,) that
        tells which envs are in an episode that counts
    :return: returns (n_episodes,) float64 and lengths in steps (n_episodes,) int64, by turns of the envs: the first episode of
        each env, then the second of each ...; any first part of them is as unbiased as the whole
    :raises InputError: if an episode ends outside of ``Monitor`` where a wrapper changes the rewards, or if there is an
        ``EpisodicLifeEnv`` without ``Monitor``
    """
    quotas = [(n_episodes + i) // env.num_envs for i in range(env.num_envs)]
    played: list[list[tuple[float, int]]] = [[] for _ in quotas]
    n_missing = n_episodes
    set_random_seed(seed)
    if any(env.env_is_wrapped(EpisodicLifeEnv)):
        # Otherwise the reset, in spite of its seed, would continue a game that was left in the middle
        env.env_method("set_wrapper_attr", "was_real_done", True)
    env.seed(seed)
    observations = env.reset()
    ends = _EpisodeEnds(env)
    states = None
    episode_starts = np.ones(env.num_envs, dtype=bool)
    while n_missing > 0:
        if on_step is not None:
            on_step(observations, np.array([len(done) < quota for done, quota in zip(played, quotas, strict=True)]))
        actions, states = model.predict(
            observations,  # type: ignore[arg-type]
            state=states,
            episode_start=episode_starts,
            deterministic=deterministic,
        )
        observations, rewards, episode_starts, infos = env.step(actions)
        for i, episode in ends.after_step(rewards, episode_starts, infos):
            if len(played[i]) < quotas[i]:
                played[i].append(episode)
                n_missing -= 1
                if on_episode is not None:
                    on_episode()
    turns = [episodes[k] for k in range(max(quotas)) for episodes in played if k < len(episodes)]
    returns, lengths = zip(*turns, strict=True)
    return np.array(returns, dtype=np.float64), np.array(lengths, dtype=np.int64)


class _EpisodeEnds:
    """Tells the ends of episodes from other dones, and keeps the sums of the rewards."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.sums = np.zeros(env.num_envs, dtype=np.float64)
        self.lengths = np.zeros(env.num_envs, dtype=np.int64)
        self.has_lives = env.env_is_wrapped(EpisodicLifeEnv)
        if any(self.has_lives) and not all(env.env_is_wrapped(Monitor)):
            raise InputError("EpisodicLifeEnv hides the ends of games: put a Monitor inside of it, or leave it out")
        self.games = [self._game(i) if self.has_lives[i] else (0, 0) for i in range(env.num_envs)]

    def after_step(
        self, rewards: np.ndarray, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> list[tuple[int, tuple[float, int]]]:
        """
        :return: index of the env, and return and length of its episode, for each env whose episode has ended at this step
        """
        self.sums += rewards
        self.lengths += 1
        ended = []
        for i in np.flatnonzero(dones):
            episode = self._episode(int(i), infos[i])
            if episode is not None:
                ended.append((int(i), episode))
                self.sums[i] = 0
                self.lengths[i] = 0
        return ended

    def _episode(self, i: int, info: dict[str, Any]) -> tuple[float, int] | None:
        start, n_closed = self.games[i]
        if self.has_lives[i]:
            self.games[i] = self._game(i)
        if "episode" in info:
            return float(info["episode"]["r"]), int(info["episode"]["l"])
        if self.has_lives[i]:
            if self.games[i][0] == start:
                return None  # the game goes on
            if self.games[i][1] > n_closed:
                # The reset after a lost life is one idle step in truth, and the game was over at it
                return_ = self.env.env_method("get_episode_rewards", indices=i)[0][n_closed]
                length = self.env.env_method("get_episode_lengths", indices=i)[0][n_closed]
                return round(float(return_), 6), int(length)
        self._check_raw_rewards()
        return float(self.sums[i]), int(self.lengths[i])

    def _game(self, i: int) -> tuple[int, int]:
        """Which game an env is in, by its Monitor: the step at which the game was started, and the number of games closed."""
        n_steps = self.env.env_method("get_total_steps", indices=i)[0]
        n_closed = len(self.env.env_method("get_episode_lengths", indices=i)[0])
        return n_steps - len(self.env.get_attr("rewards", indices=i)[0]), n_closed

    def _check_raw_rewards(self) -> None:
        normalizer = unwrap_vec_wrapper(self.env, VecNormalize)
        changes_rewards = isinstance(normalizer, VecNormalize) and normalizer.norm_reward
        for wrapper in (gym.RewardWrapper, gym.wrappers.NormalizeReward):
            changes_rewards = changes_rewards or any(self.env.env_is_wrapped(wrapper))
        if changes_rewards:
            raise InputError(
                "an episode ended outside of Monitor and a wrapper changes the rewards, so its raw return is unknown: put "
                "what ends the episode (TimeLimit, ...) inside, into the registration of the env, or leave out the wrapper"
            )
