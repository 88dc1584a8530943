"""The tasks: each is the paper's environment, with noise on every frame and the stack of noisy frames inside."""

import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env as check_by_gymnasium
from gymnasium.wrappers import AtariPreprocessing, FlattenObservation
from stable_baselines3 import DQN
from stable_baselines3.common.env_checker import check_env as check_by_sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_camp import NoisyObservationWrapper
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.tasks import TASKS
from sb3_camp.tasks.registry import n_native_episodes

CARTPOLES = ["camp/CartPole1-v0", "camp/CartPole5-v0"]
HIGHWAYS = {"camp/Highway-v0": {}, "camp/HighwaySpeed-v0": {"high_speed_reward": 2.0}}  # with what they change of highway-env
ATARI = {"camp/Pong1r-v0": 0, "camp/Freeway-v0": 1, "camp/BankHeist-v0": 1}  # with their difficulty
FRAME_SHAPES = {
    "camp/CartPole1-v0": (4,),
    "camp/CartPole5-v0": (4,),
    **dict.fromkeys(HIGHWAYS, (25,)),
    **dict.fromkeys(ATARI, (84, 84)),
}
SIGMAS = {"camp/Highway-v0": 0.4, "camp/HighwaySpeed-v0": 0.1, **dict.fromkeys(CARTPOLES, 0.2)}
STACKED = {"camp/CartPole5-v0": 5, **dict.fromkeys(ATARI, 4)}


def frames_of(env_id: str, observation: np.ndarray) -> np.ndarray:
    """The frames of an observation, (n_stack, *frame), the oldest first."""
    return observation.reshape(-1, *FRAME_SHAPES[env_id])


def clean_twin(env_id: str) -> gym.Env:
    """The paper's environment, one frame without noise, made from the ids that the paper names."""
    if env_id in CARTPOLES:
        return gym.make("CartPole-v0")
    if env_id in HIGHWAYS:
        return FlattenObservation(gym.make("highway-fast-v0", config=HIGHWAYS[env_id]))
    game = env_id.removeprefix("camp/").removesuffix("-v0").removesuffix("1r")
    version = "v4" if game == "BankHeist" else "v0"
    return AtariPreprocessing(gym.make(f"{game}NoFrameskip-{version}", difficulty=ATARI[env_id]))


def played_together(env_id: str, n_steps: int, **kwargs):
    """The newest frames of the task and the clean frames of its twin, on the same actions from the same seeds."""
    import ale_py
    import highway_env  # noqa: F401

    gym.register_envs(ale_py)
    env, twin = gym.make(env_id, **kwargs), clean_twin(env_id)
    env.action_space.seed(5)
    frames, clean_frames, seed = [], [], 3
    ended = True
    for _ in range(n_steps):
        if ended:
            frames.append(frames_of(env_id, env.reset(seed=seed)[0])[-1])
            clean_frames.append(twin.reset(seed=seed)[0])
            seed += 1
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        clean, clean_reward, clean_terminated, clean_truncated, _ = twin.step(action)
        frames.append(frames_of(env_id, observation)[-1])
        clean_frames.append(clean)
        assert reward == clean_reward
        if env_id == "camp/Pong1r-v0":
            assert terminated == (reward != 0)
        elif env_id in CARTPOLES or env_id in HIGHWAYS:
            assert (terminated, truncated) == (clean_terminated, clean_truncated)
        ended = terminated or truncated
    return np.array(frames), np.array(clean_frames)


# The environments


@pytest.mark.parametrize("env_id", TASKS)
def test_without_noise_the_newest_frame_is_that_of_the_environment_below(env_id):
    frames, clean_frames = played_together(env_id, 80, sigma=0)
    np.testing.assert_array_equal(frames, clean_frames)


@pytest.mark.parametrize("env_id", TASKS)
def test_the_noise_is_independent_on_every_frame_and_has_the_scale_of_the_registration(env_id):
    sigma = gym.spec(env_id).kwargs["sigma"]
    assert sigma == SIGMAS.get(env_id, 12.75)
    frames, clean_frames = played_together(env_id, 60 if env_id in HIGHWAYS else 200)
    noise = frames.astype(float) - clean_frames
    if env_id in ATARI:
        assert frames.dtype == np.uint8
        inside = (clean_frames > 60) & (clean_frames < 195)  # never clipped
        noise, flat = noise[inside], noise.reshape(len(noise), -1)
        assert np.all(flat.std(axis=1) > 0), "a frame, perhaps the last of an episode, has no noise"
        assert noise.size > 10_000
    else:
        assert frames.dtype == np.float32
        assert np.all(noise != 0)
        assert abs(np.mean(noise[1:] * noise[:-1])) < 5 * sigma**2 / np.sqrt(noise.size)
    # five standard errors, and the variance of rounding
    assert abs(noise.mean()) < 5 * sigma / np.sqrt(noise.size)
    assert noise.std() == pytest.approx(np.hypot(sigma, np.sqrt(1 / 12) * (env_id in ATARI)), rel=5 / np.sqrt(2 * noise.size))


@pytest.mark.parametrize(("env_id", "n_stack"), [*STACKED.items(), ("camp/CartPole5-v0", 3), ("camp/Freeway-v0", 2)])
def test_consecutive_stacks_share_their_noisy_frames_and_a_reset_repeats_one(env_id, n_stack):
    env = gym.make(env_id, n_stack=n_stack)
    env.reset(seed=0)
    for _ in range(3):
        frames = frames_of(env_id, env.reset()[0])
        assert len(frames) == n_stack
        np.testing.assert_array_equal(frames, np.broadcast_to(frames[0], frames.shape))
        for _ in range(8):
            previous = frames
            frames = frames_of(env_id, env.step(env.action_space.sample())[0])
            np.testing.assert_array_equal(frames[:-1], previous[1:])
            assert not np.array_equal(frames[-1], frames[-2])


def test_one_frame_is_no_stack():
    env = gym.make("camp/CartPole1-v0")
    assert env.observation_space.shape == (4,)
    first, second = env.reset(seed=0)[0], env.step(0)[0]
    assert not np.intersect1d(first, second).size


@pytest.mark.parametrize("env_id", CARTPOLES)
def test_cartpole_lasts_200_steps_at_most(env_id):
    env = gym.make(env_id, sigma=0)
    observation, _ = env.reset(seed=1)
    for step in range(1, 201):
        newest = frames_of(env_id, observation)[-1]
        observation, _, terminated, truncated, _ = env.step(int(newest @ [0.1, 0.5, 2, 1] > 0))
        assert not terminated and truncated == (step == 200)
    assert gym.spec(env_id).max_episode_steps == 200


@pytest.mark.parametrize("env_id", ATARI)
def test_a_step_is_four_frames(env_id):
    env = gym.make(env_id)
    env.reset(seed=0)
    ale = env.unwrapped.ale
    for _ in range(10):
        before = ale.getFrameNumber()
        env.step(env.action_space.sample())
        assert ale.getFrameNumber() - before == 4
    paper_id = {"camp/Pong1r-v0": "PongNoFrameskip-v0", "camp/Freeway-v0": "FreewayNoFrameskip-v0"}.get(
        env_id, "BankHeistNoFrameskip-v4"
    )
    sticky = gym.spec(paper_id).kwargs["repeat_action_probability"]
    assert ale.getFloat("repeat_action_probability") == sticky == (0 if env_id == "camp/BankHeist-v0" else 0.25)


@pytest.mark.parametrize(
    ("env_id", "length"), [("camp/Pong1r-v0", None), ("camp/Freeway-v0", 250), ("camp/BankHeist-v0", 250)]
)
def test_episodes_of_atari_end_below_monitor(env_id, length, tmp_path):
    class NoOperation:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.zeros(len(observation), dtype=int), None

    steps = []

    def guard(*_):
        steps.append(1)
        assert len(steps) < 2000, "no episode ends"

    env = make_vec_env(env_id, 2, seed=0, monitor_dir=str(tmp_path))
    returns, lengths = evaluate_policy(NoOperation(), env, 3, return_episode_rewards=True, callback=guard)
    env.close()
    assert len(returns) == 3
    assert lengths == [length] * 3 if length else set(returns) == {-1} and max(lengths) < 100
    rows = [row for log in tmp_path.glob("*.monitor.csv") for row in log.read_text().splitlines()[2:]]
    assert len(rows) >= 3


@pytest.mark.parametrize(("part", "shape"), [({"vehicles_count": 3}, (15,)), ({"features": ["x", "y"]}, (10,)), ({}, (25,))])
def test_nested_settings_of_highway_are_merged(part, shape):
    env = gym.make("camp/Highway-v0", config={"observation": part, "duration": 4})
    assert env.observation_space.shape == shape
    settings = env.unwrapped.config
    assert settings["observation"] == {"type": "Kinematics", **part}
    assert (settings["lanes_count"], settings["vehicles_count"], settings["duration"]) == (3, 20, 4)


def test_the_reward_for_speed_is_a_setting_that_other_settings_leave_alone():
    env = gym.make("camp/HighwaySpeed-v0", config={"duration": 4})
    assert (env.unwrapped.config["high_speed_reward"], env.unwrapped.config["duration"]) == (2.0, 4)
    assert gym.make("camp/Highway-v0", high_speed_reward=1.0).unwrapped.config["high_speed_reward"] == 1.0
    both = gym.make("camp/HighwaySpeed-v0", config={"high_speed_reward": 0.7})
    assert both.unwrapped.config["high_speed_reward"] == 0.7, "the config has the last word"
    native = gym.make_vec("camp/HighwaySpeed-v0", 4, vectorization_mode="vector_entry_point", config={"duration": 4})
    assert native.unwrapped._settings["high_speed_reward"] == 2.0


def test_braking_returns_less_than_speed_where_speed_counts():
    """Nobody is in the way: 30 m/s for 4 seconds and 20 m/s."""
    alone = {"vehicles_count": 0, "duration": 4, "right_lane_reward": 0.0}
    returns = []
    for action in (3, 4):  # faster, slower
        env = gym.make("camp/HighwaySpeed-v0", config=alone)
        env.reset(seed=0)
        rewards = [env.step(action)[1] for _ in range(4)]
        returns.append(rewards[-1])
    assert returns == [pytest.approx(1.0, abs=0.01), pytest.approx(1 / 3, abs=0.01)], "(2 + 1) / 3 and (0 + 1) / 3"


def test_highway_is_reproducible_and_its_rewards_are_never_negative():
    env = gym.make("camp/Highway-v0")
    np.testing.assert_array_equal(env.reset(seed=3)[0], env.reset(seed=3)[0])
    env.action_space.seed(0)
    for _ in range(6):
        env.reset()
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            assert 0 <= reward <= 1
            total, ended = total + reward, terminated or truncated
        assert 0 <= total <= 30


# What else uses them


@pytest.mark.parametrize("env_id", ["camp/CartPole1-v0", "camp/CartPole5-v0", "camp/Highway-v0", "camp/BankHeist-v0"])
def test_both_checkers_pass(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's on unbounded spaces and on wrappers
        check_by_gymnasium(gym.make(env_id), skip_render_check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_by_sb3(gym.make(env_id))


@pytest.mark.parametrize("env_id", TASKS)
def test_making_and_playing_gives_no_warning(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id)
        env.reset(seed=0)
        env.step(env.action_space.sample())


@pytest.mark.parametrize("env_id", ["camp/CartPole1-v0", "camp/CartPole5-v0", *HIGHWAYS, "camp/Pong1r-v0"])
def test_its_spec_rebuilds_it(env_id):
    env = gym.make(env_id, sigma=0.7)
    assert env.spec.id == env_id and env.spec.kwargs["sigma"] == 0.7
    expected = env.reset(seed=2)[0]
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        rebuilt = gym.make(spec)
        assert str(rebuilt) == str(env)
        np.testing.assert_array_equal(rebuilt.reset(seed=2)[0], expected)


@pytest.mark.parametrize("env_id", TASKS)
def test_a_seed_repeats_the_noise_and_a_further_reset_goes_on(env_id):
    env = gym.make(env_id)
    first, second = env.reset(seed=7)[0], env.reset()[0]
    np.testing.assert_array_equal(env.reset(seed=7)[0], first)
    np.testing.assert_array_equal(env.reset()[0], second)
    assert not np.array_equal(first, second)
    assert not np.array_equal(env.reset(seed=8)[0], first)


@pytest.mark.parametrize(
    ("env_id", "mode"), [("camp/CartPole5-v0", "sync"), ("camp/Highway-v0", "sync"), ("camp/Pong1r-v0", "async")]
)
def test_vector_environments_draw_noise_of_their_own(env_id, mode):
    env = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, sigma=1.5)
    observations, _ = env.reset(seed=[4, 4])
    np.testing.assert_array_equal(observations[0], observations[1])
    observations, _ = env.reset(seed=4)
    assert env.observation_space.shape == observations.shape
    assert not np.array_equal(observations[0], observations[1])
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()


@pytest.mark.parametrize("env_id", TASKS)
def test_it_renders_the_clean_scene(env_id):
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.ndim == 3 and picture.shape[-1] == 3 and picture.dtype == np.uint8
    assert not np.any(picture - env.render())
    listed = gym.make(env_id, render_mode="rgb_array_list")
    listed.reset(seed=0)
    listed.step(0)
    assert len(listed.render()) == 2


def test_image_policies_take_the_stack_as_it_is():
    env = gym.make("camp/BankHeist-v0")
    model = DQN("CnnPolicy", env, buffer_size=4, device="cpu")
    assert model.observation_space == env.observation_space
    observation, _ = env.reset(seed=0)
    assert model.predict(observation, deterministic=True)[0] in range(model.action_space.n)


@pytest.mark.parametrize("env_id", TASKS)
def test_evaluation_finds_the_noise_and_sets_it_where_the_task_was_clean(env_id):
    assert EvaluationEnv(env_id).smoothing_noise() == (TASKS[env_id].registration["kwargs"]["sigma"], (), None)
    assert EvaluationEnv(env_id, {"sigma": 0.6}).smoothing_noise() == (0.6, (), None)
    clean = EvaluationEnv(env_id, {"sigma": 0})
    assert clean.smoothing_noise() == (0, (), None)
    noisy = clean.with_noise(0.3)
    assert noisy.smoothing_noise() == (0.3, (), None)
    with noisy.opened(1) as env:
        assert env.observation_space.shape == gym.make(env_id).observation_space.shape


def test_importing_the_package_registers_the_tasks_and_loads_nothing_of_what_they_need():
    code = (
        "import sys, gymnasium, sb3_camp\n"
        f"assert set({list(TASKS)}) <= gymnasium.registry.keys()\n"
        "print(*{'torch', 'stable_baselines3', 'ale_py', 'highway_env', 'cv2', 'scipy'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


# Bad settings


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("camp/CartPole1-v0", {"sigma": -0.1}, "sigma must be a finite number >= 0, not -0.1"),
        ("camp/Freeway-v0", {"sigma": float("nan")}, "sigma must be a finite number >= 0, not nan"),
        ("camp/Highway-v0", {"sigma": "0.4"}, "sigma must be a finite number >= 0, not '0.4'"),
        ("camp/CartPole5-v0", {"n_stack": 0}, "n_stack must be a whole number that is at least 1, not 0"),
        ("camp/CartPole5-v0", {"n_stack": 2.0}, "n_stack must be a whole number that is at least 1, not 2.0"),
        ("camp/Pong1r-v0", {"n_stack": True}, "n_stack must be a whole number that is at least 1, not True"),
        ("camp/HighwaySpeed-v0", {"high_speed_reward": -1}, "high_speed_reward must be a finite number >= 0, not -1"),
        ("camp/Highway-v0", {"config": {"vehicle_count": 3}}, "unknown 'vehicle_count'; it has observation, action"),
        ("camp/Highway-v0", {"config": {"observation": "Kinematics"}}, "observation must be a mapping"),
        ("camp/Highway-v0", {"config": [1]}, "config must be a mapping"),
    ],
)
def test_a_bad_setting_gives_one_clear_line(env_id, kwargs, message):
    with pytest.raises(InputError) as error:
        gym.make(env_id, **kwargs)
    assert message in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(InputError) as error:
        EvaluationEnv(env_id, kwargs).smoothing_noise()
    assert message in str(error.value)


def test_an_unknown_setting_is_named():
    with pytest.raises(TypeError, match=r"'n_stack'.*camp/CartPole1-v0"):
        gym.make("camp/CartPole1-v0", n_stack=5)


@pytest.mark.parametrize("env_id", TASKS)
def test_a_second_noise_is_refused_before_a_training(env_id):
    with pytest.raises(InputError, match=f"2 smoothing noises .*{env_id} has its own, set by its argument sigma: use one"):
        NoisyObservationWrapper(gym.make(env_id), 0.3)
    NoisyObservationWrapper(gym.make(env_id, sigma=0), 0.3)


@pytest.mark.parametrize(
    ("env_id", "n_episodes"),
    [("camp/CartPole5-v0", 100_000), ("CartPole-v1", 100_000), ("camp/Highway-v0", 10_000), ("camp/Pong1r-v0", None)],
)
def test_as_many_episodes_by_default_as_a_minute_or_two_allow(env_id, n_episodes):
    assert n_native_episodes(env_id) == n_episodes
