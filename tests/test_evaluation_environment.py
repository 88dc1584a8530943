import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecFrameStack
from support.evaluation_envs import TwoLivesEnv, TwoSignalsEnv

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EpisodeRecorder, EpisodeSeeder, EvaluationEnv
from sb3_camp.evaluation.environment import SmoothingNoise
from sb3_camp.wrappers import NoisyObservationWrapper
from sb3_camp.wrappers.chain import wrapper_chain

NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.2}}
STACK = {"gymnasium.wrappers.FrameStackObservation": {"stack_size": 4}}


def test_noise_is_found_in_the_live_environment():
    assert EvaluationEnv("CartPole-v1").smoothing_noise() is None
    assert EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": NOISE}).smoothing_noise() == (0.2, (), None)
    assert EvaluationEnv("CartPole-v1").with_noise(0.3).smoothing_noise() == (0.3, (), None)


def test_entries_without_noise_are_found_in_the_live_environment():
    noise = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.2, "clean_keys": ["mode"]}}
    noises = [
        EvaluationEnv("tests/TwoSignals-v0", wrappers={"env_wrapper": wrapper}).smoothing_noise()
        for wrapper in (noise, [noise], [noise, {"gymnasium.wrappers.FlattenObservation": {}}])
    ]
    # and in the environment itself
    gym.register(
        "CleanMode-v0", lambda: NoisyObservationWrapper(TwoSignalsEnv(), 0.2, clean_keys=["mode"]), disable_env_checker=True
    )
    noises.append(EvaluationEnv("CleanMode-v0").smoothing_noise())
    del gym.registry["CleanMode-v0"]
    assert noises == [SmoothingNoise(0.2, ("mode",))] * 4


@pytest.mark.parametrize("wrappers", [None, NOISE, [NOISE, STACK]])
def test_rewards_are_recorded_directly_outside_of_monitor(wrappers):
    env = EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": wrappers}).build(2).envs[1]
    while not isinstance(env, EpisodeRecorder):
        assert not isinstance(env, Monitor)
        env = env.env
    assert isinstance(env.env, Monitor)


def test_added_noise_is_outside_of_the_wrappers_and_inside_of_the_frame_stack():
    plain = EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": "rl_zoo3.wrappers.TimeFeatureWrapper", "frame_stack": 3})
    env = plain.with_noise(0.3).build(2)
    assert isinstance(env, VecFrameStack) and env.observation_space.shape == (15,)
    assert [type(wrapper) for wrapper in wrapper_chain(env.unwrapped.envs[0])][:2] == [EpisodeSeeder, NoisyObservationWrapper]
    # Each frame noised once: the older frames of a stack are those that were there before
    first = env.reset()
    second = env.step(np.zeros(2, dtype=int))[0]
    np.testing.assert_array_equal(second[:, 5:10], first[:, 10:])


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([NOISE, NOISE], "2 smoothing noises"),
        ([STACK, NOISE], "comes after FrameStackObservation"),
        (["rl_zoo3.wrappers.HistoryWrapper", NOISE], "comes after HistoryWrapper"),
        ([NOISE, "gymnasium.wrappers.NormalizeObservation"], "NormalizeObservation"),
        (["gymnasium.wrappers.NormalizeObservation", NOISE], "NormalizeObservation"),
        ([NOISE, "gymnasium.wrappers.AddRenderObservation"], "shows the clean state"),
    ],
)
def test_what_would_void_the_certificate_is_an_error(wrappers, message):
    env_id = "Pendulum-v1" if "rl_zoo3.wrappers.HistoryWrapper" in wrappers else "CartPole-v1"
    environment = EvaluationEnv(env_id, {"render_mode": "rgb_array"}, {"env_wrapper": wrappers})
    with pytest.raises(InputError, match=message):
        environment.smoothing_noise()


def test_frame_stack_outside_of_the_noise_is_fine():
    assert EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": [NOISE, STACK]}).smoothing_noise() == (0.2, (), None)


@pytest.mark.parametrize(
    "environment",
    [
        EvaluationEnv("NoSuchEnv-v0"),
        EvaluationEnv("CartPole-v1", {"no_such_argument": 1}),
        EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": "no_such_module.Wrapper"}),
        EvaluationEnv("CartPole-v1", wrappers={"vec_env_wrapper": "stable_baselines3.common.vec_env.VecNormalize"}),
    ],
)
def test_environment_that_cannot_be_used_is_an_error_of_one_line(environment):
    with pytest.raises(InputError) as error:
        environment.build(1)
    assert "\n" not in str(error.value)


def test_lives_as_episodes_of_the_environment_itself_are_an_error():
    gym.register("TwoLives-v0", lambda: EpisodicLifeEnv(TwoLivesEnv()), disable_env_checker=True)
    with pytest.raises(InputError, match="lives of one game are not independent"):
        EvaluationEnv("TwoLives-v0").smoothing_noise()
    del gym.registry["TwoLives-v0"]
