"""Exactly N independent episodes of one fixed policy."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.certification.episode_logs import MOST
from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_seeds import check_seeds, seed_episodes
from sb3_camp.evaluation.independent_actions import actor, check_no_masks
from sb3_camp.evaluation.recorder import N_CLOSED, Episode, EpisodeRecorder
from sb3_camp.evaluation.records import Unrecordable, as_arrays

_T = TypeVar("_T")


class _Columns(NamedTuple):
    returns: np.ndarray
    lengths: np.ndarray
    min_rewards: np.ndarray


class Episodes(_Columns):
    """
    A tuple of the first three, with what was recorded besides.

    :param returns: Sums of the raw rewards, float64, without the rounding errors of the additions, shape (n,)
    :param lengths: Numbers of raw steps, int64, shape (n,)
    :param min_rewards: Lowest raw reward of a single step in each, float64, shape (n,)
    :param recorded: Value of each of k recorded keys of ``info``, nan where no step had the key, float64, shape (n, k)
    :param are_boolean: Whether it comes from booleans only, bool, shape (n, k)
    """

    recorded: np.ndarray
    are_boolean: np.ndarray

    def __new__(
        cls,
        returns: np.ndarray,
        lengths: np.ndarray,
        min_rewards: np.ndarray,
        recorded: np.ndarray | None = None,
        are_boolean: np.ndarray | None = None,
    ) -> "Episodes":
        self = super().__new__(cls, returns, lengths, min_rewards)
        self.recorded = np.empty((len(returns), 0)) if recorded is None else recorded
        self.are_boolean = np.empty((len(returns), 0), dtype=bool) if are_boolean is None else are_boolean
        return self

    @classmethod
    def none(cls, n_keys: int = 0) -> "Episodes":
        """
        :param n_keys: Number of recorded keys
        :return: no episodes
        """
        return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), *as_arrays([], n_keys))


def play_episodes(
    model: PolicyPredictor,
    env: VecEnv,
    n_episodes: int,
    *,
    seed: int,
    deterministic: bool = True,
    on_start: Callable[[], object] | None = None,
    on_episode: Callable[[int], object] | None = None,
    on_step: Callable[[Any, np.ndarray], object] | None = None,
) -> Episodes:
    """
    Play ``n_episodes`` episodes, as evenly shared out among the envs as possible.

    The share of each env is fixed beforehand, so that envs with short episodes do not contribute more of them. An episode ends
    where the outermost env ends it and its reset reaches the :class:`EpisodeRecorder`, so a lost life (``EpisodicLifeEnv``)
    does not end one. Rewards and steps are those that the recorder saw, from its reset on.

    :param model: The policy, anything with SB3's ``predict``, recurrent or not
    :param env: The envs, each with an :class:`EpisodeRecorder` and an :class:`EpisodeSeeder`, as :class:`EvaluationEnv` builds
        them. They are reset; episode k of env i has the seed ``seed + i + n_envs * k``
    :param n_episodes: Number of episodes, at least 1
    :param seed: Seeds the envs and the random choices of the policy, less than 2^32
    :param deterministic: Whether the policy is to act without random choices
    :param on_start: Called after the envs have been reset for their first episodes
    :param on_episode: Called after each finished episode that counts, and the reset that ended it, with the index of its env
    :param on_step: Called before each step with the observations that the policy acts on, and with a bool array (n_envs,) that
        tells which envs are in an episode that counts
    :return: the episodes by turns of the envs: the first episode of each env, then the second of each ...; any first part of
        them is as unbiased as the whole
    :raises InputError: if an env has no recorder or no seeder, if it has action masks that the policy needs, if a wrapper
        keeps resets from the env, or the seed of an episode from the smoothing noise, or if what is to be recorded is neither
        a finite number nor a boolean
    """
    quotas = [(n_episodes + i) // env.num_envs for i in range(env.num_envs)]
    played: list[list[Episode]] = [[] for _ in quotas]
    n_missing = n_episodes
    check_no_masks(model, env)
    set_random_seed(seed)
    act = actor(model, deterministic)  # before an env is reset, which may seed the global generators
    ends = _EpisodeEnds(env)
    seed_episodes(env, seed)
    observations = env.reset()
    ends.check_reset()
    check_seeds(env)
    if on_start is not None:
        on_start()
    states = None
    episode_starts = np.ones(env.num_envs, dtype=bool)
    while n_missing > 0:
        if on_step is not None:
            on_step(observations, np.array([len(done) < quota for done, quota in zip(played, quotas, strict=True)]))
        actions, states = act(observations, state=states, episode_start=episode_starts)
        observations, _, episode_starts, infos = env.step(actions)
        for i in map(int, np.flatnonzero(episode_starts)):
            episode = ends.take(i, infos[i])
            if episode is not None and len(played[i]) < quotas[i]:
                played[i].append(episode)
                n_missing -= 1
                if on_episode is not None:
                    on_episode(i)
    check_seeds(env)
    ends.check_records()
    turns = by_turns(played)
    return Episodes(
        np.array([episode.rounded_return() for episode in turns], dtype=np.float64),
        np.array([episode.length for episode in turns], dtype=np.int64),
        np.array([episode.min_reward for episode in turns], dtype=np.float64),
        *as_arrays([episode.recorded for episode in turns], len(turns[0].recorded)),
    )


def joined(parts: Sequence[Episodes]) -> Episodes:
    """
    :param parts: Episodes, one or more parts
    :return: all of them, one part after the other
    """
    returns, lengths, min_rewards = (np.concatenate(column) for column in zip(*parts, strict=True))
    recorded, are_boolean = (np.concatenate([getattr(one, name) for one in parts]) for name in ("recorded", "are_boolean"))
    return Episodes(returns, lengths, min_rewards, recorded, are_boolean)


def by_turns(of_envs: Sequence[Sequence[_T]]) -> list[_T]:
    """
    :param of_envs: What belongs to the episodes of each env, in the order in which they were played
    :return: that of the first episode of each env, then that of the second of each ...
    """
    most = max(map(len, of_envs), default=0)
    return [values[k] for k in range(most) for values in of_envs if k < len(values)]


def check_finite(episodes: Episodes) -> None:
    """
    :param episodes: Episodes
    :raises InputError: if a return is not finite, or so large that nothing can be certified from it
    """
    bad = np.flatnonzero(~(np.abs(episodes.returns) <= MOST))
    if bad.size:
        raise InputError(
            f"an episode returned {episodes.returns[bad[0]]}: rewards must be finite numbers, and their sum at most {MOST:g}, "
            "or nothing can be certified: see to it in the environment"
        )


def leave_games(env: VecEnv) -> bool:
    """
    Make the next reset a real one, where an ``EpisodicLifeEnv`` would, in spite of its seed, go on with a game that was left
    in the middle.

    :param env: The vectorized environment
    :return: whether it has lives
    """
    has_lives = env.has_attr("was_real_done")
    if has_lives:
        env.env_method("set_wrapper_attr", "was_real_done", True)
    return has_lives


class _EpisodeEnds:
    """Tells the ends of episodes from other dones, by whether the reset that follows reaches the recorder of the env."""

    def __init__(self, env: VecEnv) -> None:
        if not all(env.env_is_wrapped(EpisodeRecorder)):
            raise InputError(
                "the rewards are counted by an EpisodeRecorder: build the envs with EvaluationEnv, or wrap each in one, "
                "directly outside of its Monitor"
            )
        self._env = env
        self._has_lives = leave_games(env)
        env.env_method("take_closed_episodes")

    def check_reset(self) -> None:
        """Call it after the first reset."""
        if not all(self._env.env_method("take_closed_episodes")):
            self._refuse_continuation()

    def check_records(self) -> None:
        """Call it after the last step."""
        for fault in self._env.env_method("record_fault"):
            if fault is not None:
                raise Unrecordable(fault)

    def take(self, i: int, info: dict[str, Any]) -> Episode | None:
        """
        :param i: Index of an env that is done, and has been reset
        :param info: The ``info`` of its last step
        :return: its episode, None if it goes on
        """
        n_before = info.get(N_CLOSED, 0)
        closed = self._env.env_method("take_closed_episodes", n_before, indices=i)[0]
        if not closed:
            if not self._has_lives:
                self._refuse_continuation()
            return None
        if N_CLOSED not in info and len(closed) > 1:
            raise InputError(
                "a wrapper replaces the info of the env, and the env was reset more than once, so it is unknown which steps "
                "the last episode had: the wrapper must pass on the entries of info"
            )
        # More than one where a wrapper resets the env within an episode of its own. Those after it were begun by the reset and
        # thrown away by it: no-ops at which the game was over, say
        return reduce(Episode.followed_by, closed[: n_before + 1])

    @staticmethod
    def _refuse_continuation() -> None:
        raise InputError(
            "a wrapper keeps a reset from the env, which goes on where it was, so the episodes are not independent: leave the "
            "wrapper out"
        )
