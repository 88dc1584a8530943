"""Before an evaluation: the policy must see the noise, and a seeded reset must forget the past, whatever is in between."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    ClipReward,
    DelayObservation,
    DiscretizeObservation,
    FlattenObservation,
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
    TimeAwareObservation,
    TransformObservation,
)
from stable_baselines3.common.atari_wrappers import AtariWrapper, EpisodicLifeEnv
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize
from support.evaluation_envs import CountedEnv, SeededOnce, TwoSignalsEnv, recorded

from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.behaviour_checks import N_COPIES, check_behaviour
from sb3_camp.wrappers import NoisyObservationWrapper


def check(make, wrap=lambda env: env, vec_env_cls=DummyVecEnv, clean_keys=(), around=lambda env: env):
    env = around(vec_env_cls([lambda: recorded(make(), wrap)] * N_COPIES))
    try:
        check_behaviour(env, clean_keys)
    finally:
        env.close()


def cartpole():
    return gym.make("CartPole-v1")


def noisy(env):
    return NoisyObservationWrapper(env, 0.3)


def clipped(env):
    return TransformObservation(env, lambda seen: np.clip(seen, -1, 1), spaces.Box(-1, 1, (4,), np.float32))


# Two noises give two observations


class ReadsTheState(gym.ObservationWrapper):
    def observation(self, observation):
        return np.asarray(self.unwrapped.state, dtype=np.float32)


class ShowsTheStateAtReset(gym.Wrapper):
    def reset(self, **kwargs):
        _, info = self.env.reset(**kwargs)
        return np.asarray(self.unwrapped.state, dtype=np.float32), info


class ShowsTheStateAtSteps(gym.Wrapper):
    def step(self, action):
        _, *others = self.env.step(action)
        return np.asarray(self.unwrapped.state, dtype=np.float32), *others


class RemembersAnEarlierFrame(gym.Wrapper):
    """Takes the observations at another place of the chain, inside of the noise."""

    def __init__(self, env):
        super().__init__(env)
        inner = env.env
        step = inner.step
        inner.step = lambda action: self.keep(step(action))

    def keep(self, result):
        self.clean = result[0]
        return result

    def step(self, action):
        _, *others = self.env.step(action)
        return np.asarray(self.clean, np.float32), *others


class FixedStart(gym.Env):
    """Starts in one state, and goes where the action says; there is no chance in it."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.zeros(1, np.float32)
        return self.state, {}

    def step(self, action):
        self.state = self.state + action
        return self.state, 1.0, False, False, {}


class OneKeyIsClean(gym.ObservationWrapper):
    """Puts a state of its own beside the noisy signal, that no noise has touched."""

    def observation(self, observation):
        return {**observation, "mode": np.float32([len(self.unwrapped.rewards) + self.unwrapped.np_random.random()])}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: ReadsTheState(noisy(env)),
        lambda env: FlattenObservation(FrameStackObservation(ReadsTheState(noisy(env)), 3)),
        lambda env: RemembersAnEarlierFrame(noisy(env)),
    ],
)
@pytest.mark.parametrize("make", [cartpole, FixedStart])
def test_state_behind_the_noise_is_refused(make, wrap):
    with pytest.raises(InputError, match="two smoothing noises give the policy the same"):
        check(make, wrap)


@pytest.mark.parametrize(("wrapper", "when"), [(ShowsTheStateAtReset, "at the reset"), (ShowsTheStateAtSteps, "at the steps")])
def test_it_says_where_the_state_is_shown(wrapper, when):
    with pytest.raises(InputError, match=f"the same {when}: the observation does not depend on the noise"):
        check(cartpole, lambda env: wrapper(noisy(env)))


def test_each_entry_must_be_noisy_except_those_that_are_named():
    def wrap(env):
        return OneKeyIsClean(NoisyObservationWrapper(env, 0.3))

    with pytest.raises(InputError, match="the entry 'mode' of the observation does not depend on the noise"):
        check(TwoSignalsEnv, wrap)
    check(TwoSignalsEnv, wrap, clean_keys=["mode"])


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_processes_are_checked_too(vec_env_cls):
    with pytest.raises(InputError, match="two smoothing noises"):
        check(cartpole, lambda env: ReadsTheState(noisy(env)), vec_env_cls)


@pytest.mark.parametrize(
    "wrap",
    [
        noisy,
        lambda env: DelayObservation(noisy(env), 2),
        lambda env: DelayObservation(noisy(env), 30),
        lambda env: DiscretizeObservation(clipped(noisy(env)), 10),
        lambda env: TimeAwareObservation(noisy(env)),
        lambda env: FrameStackObservation(noisy(env), 4, padding_type="zero"),
        lambda env: NormalizeReward(ClipReward(noisy(env), -1, 1)),
    ],
)
def test_fixed_functions_of_the_noisy_observations_pass(wrap):
    check(cartpole, wrap)


def test_frames_that_vec_frame_stack_pads_pass():
    check(cartpole, noisy, around=lambda env: VecFrameStack(env, 4))


# A seeded reset forgets the past


class StandardizeObs(gym.ObservationWrapper):
    """Divides by the largest observation so far."""

    largest = 1e-3

    def observation(self, observation):
        self.largest = np.maximum(self.largest, np.abs(observation).max())
        return (observation / self.largest).astype(np.float32)


class Curriculum(gym.Wrapper):
    """Starts further out, the more episodes have been played."""

    n = 0

    def reset(self, **kwargs):
        _, info = self.env.reset(**kwargs)
        self.n += 1
        self.unwrapped.state = np.asarray(self.unwrapped.state) + 0.001 * self.n
        return np.asarray(self.unwrapped.state, np.float32), info


class CountsEndedEpisodes(gym.Wrapper):
    n = 0

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.n += terminated or truncated
        return observation + np.float32(self.n), reward, terminated, truncated, info


class Shifted(gym.Wrapper):
    """Starts further out in some episodes, by their number."""

    n = 0

    def __init__(self, env, is_shifted):
        super().__init__(env)
        self.is_shifted = is_shifted

    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        self.n += 1
        self.unwrapped.state = np.asarray(self.unwrapped.state) + 0.001 * self.is_shifted(self.n)
        return np.asarray(self.unwrapped.state, np.float32), {}


PAST = [
    (cartpole, lambda env: noisy(Shifted(env, lambda n: n % 4))),
    (cartpole, lambda env: noisy(Shifted(env, lambda n: n > 2))),
    (cartpole, lambda env: noisy(Shifted(env, lambda n: n in (3, 7)))),
    (cartpole, lambda env: noisy(StandardizeObs(env))),
    (cartpole, lambda env: StandardizeObs(noisy(env))),
    (cartpole, lambda env: NormalizeObservation(noisy(env))),
    (cartpole, lambda env: noisy(Curriculum(env))),
    (lambda: gym.make("CartPole-v1", max_episode_steps=6), lambda env: noisy(CountsEndedEpisodes(env))),
    (lambda: ShowsLevel(SeededOnce()), noisy),
]


class ShowsLevel(gym.ObservationWrapper):
    def observation(self, observation):
        return np.float32([self.unwrapped.level])


class RewardsFall(gym.Wrapper):
    """Pays less with each episode, which no observation shows."""

    n = 0

    def reset(self, **kwargs):
        self.n += 1
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward / self.n, terminated, truncated, info


class KeepsItsFirstDraw(CountedEnv):
    """As a map that is made once, from the first seed and without a draw from the generator of the episodes."""

    level = None

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.level = np.random.default_rng(seed).normal() if self.level is None else self.level
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + self.level, terminated, truncated, info


PAST += [
    (KeepsItsFirstDraw, noisy),
    (lambda: RewardsFall(cartpole()), noisy),
    (lambda: NormalizeReward(gym.make("Pendulum-v1")), noisy),
]


@pytest.mark.parametrize(("make", "wrap"), PAST)
def test_episodes_that_depend_on_what_was_played_before_are_refused(make, wrap):
    with pytest.raises(InputError, match="the same observations and rewards once other episodes have been played"):
        check(make, wrap)


def test_a_third_episode_that_differs_from_all_others_passes():
    """That of BipedalWalker does, in small digits."""
    check(cartpole, lambda env: noisy(Shifted(env, lambda n: n == 3)))


def test_statistics_of_a_vectorized_environment_are_refused_too():
    with pytest.raises(InputError, match="once other episodes have been played"):
        check(cartpole, noisy, around=lambda env: VecNormalize(env, norm_reward=False))
    check(cartpole, noisy, around=lambda env: VecNormalize(env, norm_obs=False))


class DrawsElsewhere(gym.ObservationWrapper):
    """Not reproducible, new or used."""

    def observation(self, observation):
        return observation + np.float32(np.random.default_rng().normal())


def test_an_environment_that_no_seed_reproduces_passes():
    check(cartpole, lambda env: noisy(DrawsElsewhere(env)))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "camp/CartPole5-v0", "camp/Highway-v0"])
def test_real_environments_pass(env_id):
    environment = EvaluationEnv(env_id)
    with (environment if env_id.startswith("camp/") else environment.with_noise(0.1)).opened(N_COPIES) as env:
        check_behaviour(env)


@pytest.mark.parametrize("env_id", ["camp/Freeway-v0", "camp/Pong1r-v0"])
def test_atari_passes(env_id):
    with EvaluationEnv(env_id).opened(N_COPIES) as env:
        check_behaviour(env)


def test_lost_lives_are_no_past():
    import ale_py

    gym.register_envs(ale_py)
    for wrap in (lambda env: AtariWrapper(NoisyObservationWrapper(env, 9.0)), lambda env: EpisodicLifeEnv(noisy_pixels(env))):
        check(lambda: gym.make("BreakoutNoFrameskip-v4"), wrap)


def noisy_pixels(env):
    return NoisyObservationWrapper(env, 9.0)


def test_without_noise_only_the_past_is_checked():
    check(CountedEnv)
    with pytest.raises(InputError, match="once other episodes"):
        check(lambda: ShowsLevel(SeededOnce()))


class DrawsWhenBuilt(CountedEnv):
    """Its parameters are drawn once, by no seed."""

    def __init__(self):
        super().__init__()
        self.mass = np.random.default_rng().random()

    def reset(self, **kwargs):
        observation, info = super().reset(**kwargs)
        return observation + np.float32(self.mass), info


class PaysAsBuilt(DrawsWhenBuilt):
    """What it drew shows in its rewards alone."""

    def reset(self, **kwargs):
        return CountedEnv.reset(self, **kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + self.mass, terminated, truncated, info


class SeedsTheGlobalGenerator(CountedEnv):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        np.random.seed(seed)
        return np.random.random(1).astype(np.float32), {}

    def step(self, action):
        return np.random.random(1).astype(np.float32), *super().step(action)[1:]


def test_a_generator_that_copies_share_is_named_and_processes_have_their_own():
    with pytest.raises(InputError, match=r"np\.random .*--vec-env subproc"):
        check(SeedsTheGlobalGenerator, noisy)
    check(SeedsTheGlobalGenerator, noisy, SubprocVecEnv)


@pytest.mark.parametrize("make", [DrawsWhenBuilt, PaysAsBuilt])
def test_what_was_drawn_when_the_environment_was_built_is_refused(make):
    with pytest.raises(InputError, match="what was drawn when it was built"):
        check(make, noisy)
