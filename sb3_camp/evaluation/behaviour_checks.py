"""
What a certificate needs of an environment, checked by what it does, before an evaluation plays in it.

A few copies are played side by side, with the same seeds and actions, and again after they have played something else. What a
wrapper is called does not matter.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation.episodes import leave_games
from sb3_camp.evaluation.recorder import RETURN_SO_FAR
from sb3_camp.runs.noise_placement import SmoothingNoise

_SEED, _STRIDE = 2**29, 16
_N_STEPS, _N_STEPS_BETWEEN = 4, 8
# How often it is looked again, each time after other episodes, where one of them differs
_MORE_TIMES = 3


class _Copy(NamedTuple):
    """How one of the copies is played."""

    seed: int
    noise: int
    actions: int


# The first is to be compared with another one like it, with others that differ in their noise, and with those of other
# courses, several of them, as what the first reset of a copy draws may be of two kinds only
_FIRST, _LIKE_IT, _OTHER_NOISES, _OTHER_COURSE = 0, 1, (2, 3), 4
_COPIES = [
    *(_Copy(_SEED, noise, 0) for noise in (0, 0, 1, 2)),
    *(_Copy(_SEED + other, 0, other) for other in (1, 2, 3)),
]
_BETWEEN = [_Copy(_SEED + 4 + i, 0, 4 + i) for i in range(len(_COPIES))]

N_COPIES = len(_COPIES)
"""Number of envs that :func:`check_behaviour` takes."""


def entries_without_noise(noise: SmoothingNoise) -> set[str]:
    """
    :param noise: A smoothing noise
    :return: the entries of a Dict observation that have none of it
    """
    sensors = noise.sensor_sigma if isinstance(noise.sensor_sigma, Mapping) else {}
    return {*noise.clean_keys, *(key for key, sigma in sensors.items() if not np.any(sigma))}


def check_behaviour(env: VecEnv, clean_keys: Collection[str] = (), noisy: bool = True) -> None:
    """
    Check that the policy sees the smoothing noise, and that a seeded reset forgets what was before.

    - Two noises on the same course must give different observations, at the reset and at the steps. Where they do not, though
      another course is seen as another one, the policy sees past the noise.
    - A reset with a seed must lead to the observations and rewards that it led to when the environment was new, in each copy,
      whatever that has played before. Where it does not, episodes depend on each other. One episode that differs passes, if
      it stays the only one: the third episode of a BipedalWalker differs from all others in small digits. An environment whose
      copies do not even agree when they are new draws at random in a way of its own, and passes, unless each copy repeats
      itself: then it drew when it was built.

    :param env: :data:`N_COPIES` new envs, as :class:`~sb3_camp.evaluation.EvaluationEnv` builds them
    :param clean_keys: Entries of a Dict observation that have no noise
    :param noisy: Whether its smoothing noise, if it has any, has a sigma above 0
    :raises InputError: if one of these does not hold
    """
    new = list(_played(env, _COPIES, _N_STEPS))
    if noisy and env.has_attr("choose_noise"):
        _check_noise(new, clean_keys)
    if all(_same(seen, _FIRST, seen, _LIKE_IT) for seen in new):
        first = [_FIRST] * N_COPIES
        if not _leads_back(env, new, first) and not all(_leads_back(env, new, first) for _ in range(_MORE_TIMES)):
            raise InputError(
                "a reset with the same seed does not lead to the same observations and rewards once other episodes have been "
                "played, so episodes depend on each other (statistics that move, a curriculum, random numbers that the seed "
                "does not reach): take that out, or see to it that reset forgets what was before"
            )
    elif _leads_back(env, new, range(N_COPIES)):
        raise InputError(
            "each copy of the environment repeats its own episodes with the same seed, but two copies do not agree: either "
            "what was drawn when it was built stays for all its episodes, so that they depend on each other (draw it in "
            "reset, from the seed), or the copies take turns at one generator that reset seeds, as np.random or random is "
            "(draw from self.np_random, or evaluate with --vec-env subproc)"
        )


def _played(env: VecEnv, copies: list[_Copy], n_steps: int) -> Iterator[dict[str, np.ndarray]]:
    """What the policy would see at the reset and after each step, by entry; with ends of episodes and returns among them."""
    leave_games(env)
    env.unwrapped._reset_seeds()  # those that the zoo has given the envs, a different one each, would come before these
    has_noise = env.has_attr("choose_noise")
    for i, copy in enumerate(copies):
        env.env_method("seed_each_episode", copy.seed, _STRIDE, indices=i)
        if has_noise:
            env.env_method("choose_noise", copy.noise, indices=i)
    spaces = [deepcopy(env.action_space) for _ in copies]
    for space, copy in zip(spaces, copies, strict=True):
        space.seed(copy.actions)
    yield {**_entries(env.reset())}
    for _ in range(n_steps):
        observations, _, dones, infos = env.step(np.array([space.sample() for space in spaces]))
        returns = np.array([info.get(RETURN_SO_FAR, np.nan) for info in infos])
        yield {**_entries(observations), "": np.stack([dones, returns], axis=1)}


def _entries(observations: Any) -> dict[str, np.ndarray]:
    entries = observations if isinstance(observations, dict) else {"the observation": observations}
    # Some VecEnvs hand out the arrays that they write the next observations into
    return {key: np.array(values) for key, values in entries.items()}


def _same(one: dict[str, np.ndarray], i: int, other: dict[str, np.ndarray], k: int, keys: Collection[str] = ()) -> bool:
    return all(np.array_equal(one[key][i], other[key][k], equal_nan=True) for key in keys or one)


def _check_noise(new: list[dict[str, np.ndarray]], clean_keys: Collection[str]) -> None:
    reset, *steps = new
    for key in reset:
        if key in clean_keys:
            continue
        for seen, when in (([reset], "at the reset"), (steps, "at the steps")):
            hides_noise = all(_same(one, _FIRST, one, k, [key]) for one in seen for k in _OTHER_NOISES)
            if hides_noise and not all(_same(one, _FIRST, one, _OTHER_COURSE, [key]) for one in seen):
                name = key if key == "the observation" else f"the entry {key!r} of the observation"
                raise InputError(
                    f"two smoothing noises give the policy the same {when}: {name} does not depend on the noise, but on what "
                    "is behind it, so nothing can be certified: put what shows the state or the screen inside of the noise "
                    "(in env_wrapper: before it), or, if only rounding removes the noise, use a larger sigma"
                )


def _leads_back(env: VecEnv, new: list[dict[str, np.ndarray]], courses: Sequence[int]) -> bool:
    """Whether each copy, after other episodes, is led by the course of another one to where it led that when it was new."""
    for _ in _played(env, _BETWEEN, _N_STEPS_BETWEEN):
        pass
    used = list(_played(env, [_COPIES[k] for k in courses], _N_STEPS))
    return all(_same(before, k, after, i) for before, after in zip(new, used, strict=True) for i, k in enumerate(courses))
