"""The one rule of where the smoothing noise may stand, asked of live environments and of settings alike."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RescaleAction, TransformObservation
from rl_zoo3.wrappers import HistoryWrapper
from sb3_contrib.common.wrappers import TimeFeatureWrapper
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.runs.layers import Layer, Shows, layer_of, layer_of_entry
from sb3_camp.runs.noise_placement import smoothing_noise
from sb3_camp.runs.scenario import Scenario, without_sigma
from sb3_camp.wrappers import NoisyObservationWrapper

NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.2}}
HERE = "test_noise_placement"
NOISY = Layer("noise", Shows.NOISY, 0.2)


class ReadsTheState(gym.ObservationWrapper):
    """Shows the state of the environment, whatever observation reaches it."""

    def observation(self, observation):
        return np.asarray(self.unwrapped.state, dtype=np.float32)


class OverridesStep(gym.Wrapper):
    """Could do anything."""

    def step(self, action):
        return self.env.step(action)


class OverridesReset(gym.Wrapper):
    """Could show the state once."""

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


class NormalizeActionWrapper(gym.ActionWrapper):
    """Scales actions; its name sounds like a normaliser of observations."""

    def action(self, action):
        return action


class HalvesRewards(gym.RewardWrapper):
    def reward(self, reward):
        return reward / 2


class FrameStackObservation(gym.ObservationWrapper):
    """Called like one of Gymnasium's, but from here."""

    def observation(self, observation):
        return observation


class QuietNoise(NoisyObservationWrapper):
    """A subclass may do anything, add no noise for example."""

    def observation(self, observation):
        return observation


def wrapped(*wrappers):
    return EvaluationEnv("CartPole-v1", {"render_mode": "rgb_array"}, {"env_wrapper": list(wrappers)})


@pytest.mark.parametrize("name", ["ReadsTheState", "OverridesStep", "OverridesReset", "FrameStackObservation"])
def test_what_nothing_is_known_of_may_stand_inside_of_the_noise_only(name):
    unknown = f"{HERE}.{name}"
    assert wrapped(unknown, NOISE).smoothing_noise() == (0.2, (), None)
    with pytest.raises(InputError, match=f"{name} stands between the smoothing noise and the policy"):
        wrapped(NOISE, unknown).smoothing_noise()
    # In settings too, unless a live environment was asked
    settings = Scenario("CartPole-v1", wrappers={"env_wrapper": [NOISE, unknown]})
    with pytest.raises(InputError, match=rf"config.yml: {name} stands between"):
        settings.configured_noise("config.yml")
    assert settings.configured_noise(unknown_were_checked=True) == (0.2, (), None)


@pytest.mark.parametrize("name", ["NormalizeActionWrapper", "HalvesRewards"])
def test_what_passes_observations_on_unchanged_may_stand_anywhere_whatever_its_name(name):
    assert wrapped(NOISE, f"{HERE}.{name}").smoothing_noise() == (0.2, (), None)
    assert wrapped(f"{HERE}.{name}", NOISE).smoothing_noise() == (0.2, (), None)


@pytest.mark.parametrize(
    "entry",
    [
        "gymnasium.wrappers.FlattenObservation",
        {"gymnasium.wrappers.FrameStackObservation": {"stack_size": 3}},
        {"gymnasium.wrappers.ReshapeObservation": {"shape": (2, 2)}},
        {"gymnasium.wrappers.DtypeObservation": {"dtype": np.float64}},
        {"gymnasium.wrappers.DelayObservation": {"delay": 2}},
        "gymnasium.wrappers.TimeAwareObservation",
        "sb3_contrib.common.wrappers.TimeFeatureWrapper",
        {"gymnasium.wrappers.MaxAndSkipObservation": {"skip": 2}},
    ],
)
def test_a_fixed_function_of_noisy_observations_may_follow_in_both_views(entry):
    assert wrapped(NOISE, entry).smoothing_noise() == (0.2, (), None)
    assert Scenario("CartPole-v1", wrappers={"env_wrapper": [NOISE, entry]}).configured_noise() == (0.2, (), None)


@pytest.mark.parametrize("entry", ["gymnasium.wrappers.AddRenderObservation", "gymnasium.wrappers.AtariPreprocessing"])
def test_what_reads_the_screen_must_be_inside(entry):
    with pytest.raises(InputError, match="shows the clean state"):
        Scenario("CartPole-v1", wrappers={"env_wrapper": [NOISE, entry]}).configured_noise()
    assert Scenario("CartPole-v1", wrappers={"env_wrapper": [entry, NOISE]}).configured_noise() == (0.2, (), None)


def test_live_and_configured_layers_of_the_same_wrappers_agree():
    env = gym.make("Pendulum-v1")
    for wrapper in (HistoryWrapper(env), TimeFeatureWrapper(env), RescaleAction(env, -1.0, 1.0)):
        name = f"{type(wrapper).__module__}.{type(wrapper).__name__}"
        live, configured = layer_of(wrapper), layer_of_entry(name, {})
        # An action wrapper is known by what it inherits, which a name does not tell
        assert live == configured or (live.shows, configured.shows) == (Shows.SAME, Shows.UNKNOWN)


def test_a_function_of_the_users_and_a_subclass_of_the_noise_are_unknown():
    env = gym.make("CartPole-v1")
    assert layer_of(TransformObservation(env, lambda _: env.unwrapped.state, None)).shows is Shows.UNKNOWN
    assert layer_of(QuietNoise(env, 0.3)).shows is Shows.UNKNOWN


def test_statistics_of_a_normaliser_may_be_frozen_but_not_move():
    moving = VecNormalize(make_vec_env("CartPole-v1"))
    assert layer_of(moving).shows is Shows.STATISTICS
    moving.training = False
    assert layer_of(moving).shows is Shows.FUNCTION
    assert layer_of(VecNormalize(make_vec_env("CartPole-v1"), norm_obs=False)).shows is Shows.SAME


def test_nested_normalisers_are_all_looked_at():
    stacked = [
        {"stable_baselines3.common.vec_env.VecNormalize": {"norm_obs": True}},
        {"stable_baselines3.common.vec_env.VecNormalize": {"norm_obs": False}},
    ]
    for entries in (stacked, stacked[::-1]):
        with pytest.raises(InputError, match="VecNormalize normalises"):
            EvaluationEnv("CartPole-v1", wrappers={"vec_env_wrapper": entries}).build(1)


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([], None),
        ([Layer("a", Shows.STATE)], None),
        ([Layer("off", Shows.NOISY, 0.0), Layer("a", Shows.UNKNOWN)], (0.0, (), None)),
        ([Layer("off", Shows.NOISY, 0.0), NOISY, Layer("off", Shows.NOISY, 0.0)], (0.2, (), None)),
        (
            [Layer("a", Shows.STATE), Layer("b", Shows.UNKNOWN), NOISY, Layer("c", Shows.STACK), Layer("d", Shows.FUNCTION)],
            (0.2, (), None),
        ),
        ([NOISY, NOISY], "2 smoothing noises"),
        ([Layer("a", Shows.STACK), NOISY], "comes after a"),
        ([Layer("a", Shows.STATISTICS), NOISY], "a normalises"),
        ([NOISY, Layer("a", Shows.STATISTICS)], "a normalises"),
        ([NOISY, Layer("a", Shows.STATE)], "a shows the clean state"),
        ([NOISY, Layer("a", Shows.UNKNOWN)], "a stands between"),
    ],
)
def test_the_rule(layers, found):
    if isinstance(found, str):
        with pytest.raises(InputError, match=f"where: .*{found}"):
            smoothing_noise(layers, "where")
    else:
        assert smoothing_noise(layers) == found


def test_added_noise_takes_the_place_that_the_scenario_has_for_it():
    task = Scenario("camp/CartPole1-v0", {"render_mode": None}).with_noise(0.7)
    assert task.env_kwargs == {"render_mode": None, "sigma": 0.7} and task.configured_noise() == (0.7, (), None)
    plain = Scenario("CartPole-v1", wrappers={"env_wrapper": "a.B", "frame_stack": 2}).with_noise(0.7)
    assert plain.wrappers["env_wrapper"][0] == "a.B" and plain.configured_noise() == (0.7, (), None)
    assert plain.with_noise(0.3).wrappers["env_wrapper"] == [
        "a.B",
        {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.3}},
    ]
    for scenario in (task, plain):
        entries, others = ((one.env_kwargs, one.wrappers) for one in (scenario, scenario.with_noise(0.1)))
        assert [without_sigma(one, 0.7) for one in entries] == [without_sigma(one, 0.1) for one in others]
        assert [without_sigma(one, 0.7) for one in others] == list(others) != list(entries)


def test_a_keyword_sigma_of_another_environment_is_left_alone():
    gym.register("Sigma-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", kwargs={"sigma": 10.0})
    try:
        scenario = Scenario("Sigma-v0", {"sigma": 3.0})
        assert scenario.configured_noise() is None
        assert scenario.with_noise(0.1).env_kwargs == without_sigma(scenario.env_kwargs, 0.1) == {"sigma": 3.0}
        assert scenario.with_noise(0.1).configured_noise() == (0.1, (), None)
    finally:
        del gym.registry["Sigma-v0"]


class ReplacesItsOwnStep(gym.Wrapper):
    """Its class passes observations on, but the object does not."""

    def __init__(self, env):
        super().__init__(env)
        self.step = self.show_the_state

    def show_the_state(self, action):
        _, *others = self.env.step(action)
        return np.asarray(self.unwrapped.state, dtype=np.float32), *others


@pytest.mark.parametrize("method", ["step", "reset"])
def test_an_object_that_replaces_a_method_is_unknown_whatever_its_class_is(method):
    wrapper = gym.make("CartPole-v1")  # a TimeLimit
    assert layer_of(wrapper).shows is Shows.SAME
    setattr(wrapper, method, getattr(wrapper, method))
    assert layer_of(wrapper).shows is Shows.UNKNOWN
    environment = EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": [NOISE, f"{HERE}.ReplacesItsOwnStep"]})
    with pytest.raises(InputError, match="ReplacesItsOwnStep stands between the smoothing noise and the policy"):
        environment.smoothing_noise()
