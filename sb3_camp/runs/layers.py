"""
The wrappers between an environment and a policy as layers, and what each shows of the observations that reach it.

A layer is known by what its class is, not by what it is called: the names below count only within the packages that define
them, and of a class from elsewhere only what it inherits unchanged is known.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import gymnasium as gym

from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation
from sb3_camp.wrappers.noisy_observation import NoisyObservationWrapper

NOISE_WRAPPER = NoisyObservationWrapper.__name__
NORMALIZATION_WRAPPER = FrozenNormalizeObservation.__name__


class Shows(Enum):
    """What a layer shows to the policy's side."""

    SAME = "each observation as it is"
    NOISY = "each observation with smoothing noise"
    STACK = "the last observations together"
    FUNCTION = "a fixed function of the observations so far"
    STATISTICS = "observations normalised by statistics that move while episodes are played"
    STATE = "the state or the screen, whatever the observation was"
    UNKNOWN = "something that nothing is known of"


class Layer(NamedTuple):
    """
    :param name: Name of the class, or of the setting
    :param shows: What it shows
    :param sigma: Standard deviation of its smoothing noise, 1 where each entry of the observation has one of its own
    :param clean_keys: What it leaves without noise
    :param sensor_sigma: Standard deviation of each entry, as nested lists or a mapping of these
    """

    name: str
    shows: Shows
    sigma: float = 0.0
    clean_keys: tuple[str, ...] = ()
    sensor_sigma: Any = None


_KNOWN: dict[str, dict[Shows, str]] = {
    "gymnasium": {
        Shows.SAME: (
            "TimeLimit OrderEnforcing PassiveEnvChecker RecordEpisodeStatistics RecordVideo HumanRendering RenderCollection "
            "NormalizeReward StickyAction"
        ),
        Shows.STACK: "FrameStackObservation",
        Shows.FUNCTION: (
            "DelayObservation DiscretizeObservation DtypeObservation FilterObservation FlattenObservation "
            "GrayscaleObservation MaxAndSkipObservation RescaleObservation ReshapeObservation ResizeObservation "
            "TimeAwareObservation"
        ),
        Shows.STATISTICS: "NormalizeObservation",
        Shows.STATE: "AddRenderObservation AtariPreprocessing",
    },
    "stable_baselines3": {
        Shows.SAME: "Monitor StickyActionEnv VecTransposeImage VecMonitor VecCheckNan VecVideoRecorder",
        Shows.STACK: "VecFrameStack",
        # The first three pass on each observation that they get, but not all that there are
        Shows.FUNCTION: "NoopResetEnv FireResetEnv EpisodicLifeEnv MaxAndSkipEnv WarpFrame AtariWrapper VecExtractDictObs",
        Shows.STATISTICS: "VecNormalize",
    },
    "sb3_contrib": {Shows.SAME: "ActionMasker", Shows.FUNCTION: "TimeFeatureWrapper"},
    "rl_zoo3": {
        Shows.SAME: (
            "ActionNoiseWrapper ActionSmoothingWrapper DelayedRewardWrapper PatchedTimeLimit TruncatedOnSuccessWrapper"
        ),
        Shows.STACK: "HistoryWrapper HistoryWrapperObsDict",
        Shows.FUNCTION: "FrameSkip MaskVelocityWrapper TimeFeatureWrapper",
    },
    "sb3_camp": {Shows.SAME: "EpisodeRecorder EpisodeSeeder", Shows.FUNCTION: NORMALIZATION_WRAPPER},
}
_SHOWS = {
    (package, name): shows for package, kinds in _KNOWN.items() for shows, names in kinds.items() for name in names.split()
}
# Methods that make observations, which an object may have replaced for itself
_METHODS = {"step", "reset", "observation", "step_wait", "step_async"}
_STEPS_THAT_LEAVE_OBSERVATIONS = (gym.Wrapper.step, gym.RewardWrapper.step, gym.ActionWrapper.step)


def is_smoothing_noise(name: str) -> bool:
    """
    :param name: full name of a wrapper
    :return: whether it is the smoothing noise of this package
    """
    return name.startswith("sb3_camp.") and name.split(".")[-1] == NOISE_WRAPPER


def is_frozen_normalization(name: str) -> bool:
    """
    :param name: full name of a wrapper
    :return: whether it is the frozen normaliser of this package
    """
    return name.startswith("sb3_camp.") and name.split(".")[-1] == NORMALIZATION_WRAPPER


def layer_of(wrapper: Any) -> Layer:
    """
    :param wrapper: a wrapper of an environment (Gymnasium) or of a vectorized one (Stable-Baselines3)
    :return: what is known of it
    """
    cls = type(wrapper)
    if not _METHODS.isdisjoint(vars(wrapper)):  # its class does not tell what it does
        return Layer(cls.__name__, Shows.UNKNOWN)
    if cls is NoisyObservationWrapper:
        return Layer(cls.__name__, Shows.NOISY, wrapper.sigma, wrapper.clean_keys, wrapper.sensor_sigma)
    shows = _SHOWS.get((cls.__module__.partition(".")[0], cls.__qualname__), Shows.UNKNOWN)
    if shows is Shows.STATISTICS:
        if getattr(wrapper, "norm_obs", True) is False:
            shows = Shows.SAME
        elif not getattr(wrapper, "training", getattr(wrapper, "update_running_mean", True)):
            shows = Shows.FUNCTION
    elif shows is Shows.UNKNOWN and _leaves_observations(cls):
        shows = Shows.SAME
    return Layer(cls.__name__, shows)


def layer_of_entry(name: str, kwargs: Any) -> Layer:
    """
    :param name: full name of a wrapper, as the zoo's yml files hold it; it is never imported
    :param kwargs: its keyword arguments
    :return: what is known of it, except for smoothing noise, which has settings to be checked
    """
    package, short = name.partition(".")[0], name.split(".")[-1]
    shows = _SHOWS.get((package, short), Shows.UNKNOWN)
    if shows is Shows.STATISTICS and isinstance(kwargs, Mapping) and kwargs.get("norm_obs") is False:
        shows = Shows.SAME
    return Layer(short, shows)


def _leaves_observations(cls: type) -> bool:
    """Whether a wrapper of Gymnasium inherits what passes on observations as they are."""
    return issubclass(cls, gym.Wrapper) and cls.step in _STEPS_THAT_LEAVE_OBSERVATIONS and cls.reset is gym.Wrapper.reset
