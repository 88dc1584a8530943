"""What an adversary makes of stacked frames, against the wrappers that really stack them."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecTransposeImage
from support.attacked_envs import (
    ACTIONS,
    RandomFrames,
    attacked,
    balancing_dqn,
    greedy_action,
    image_space,
    play,
    random_policy,
    vector_space,
)

from sb3_camp import NoisyObservationWrapper  # registers the tasks
from sb3_camp.errors import InputError
from sb3_camp.wrappers import AdversarialObservationWrapper
from sb3_camp.wrappers.adversary import AttackedFrame
from sb3_camp.wrappers.frame_layout import FrameLayout

SPACES = {
    "vector": vector_space(4),
    "matrix": vector_space(2, 3),
    "channels-last": image_space(36, 36, 1),
    "colours-last": image_space(36, 40, 3),
    "channels-first": image_space(1, 36, 36),
    "grey": image_space(36, 36),
}
VEC_FRAME_STACK = ["vector", "matrix", "channels-last", "colours-last", "channels-first"]


def believed(env):
    """What an adversary thinks that the policy observes, in the layout of the policy."""
    frames = env.get_wrapper_attr("_history").frames
    return env.get_wrapper_attr("layout").observed(th.as_tensor(frames[None]))[0].numpy()


@pytest.mark.parametrize("name", VEC_FRAME_STACK)
def test_the_adversary_knows_what_comes_out_of_a_vec_frame_stack(name):
    space = SPACES[name]
    stack = VecFrameStack(DummyVecEnv([lambda: RandomFrames(space)]), 3)
    policy = random_policy(stack.observation_space)
    env = DummyVecEnv([lambda: attacked(RandomFrames(space), policy, n_stack=3, stack_padding="zero")])
    seen = VecFrameStack(env, 3)
    if name.endswith("-last"):
        seen = VecTransposeImage(seen)
    assert seen.observation_space.shape == policy.observation_space.shape
    seen.seed(0)
    observations = seen.reset()
    flips = 0
    for _ in range(15):
        np.testing.assert_array_equal(believed(env.envs[0]), observations[0])
        observations, _, _, infos = seen.step(policy.predict(observations, deterministic=True)[0])
        flips += infos[0]["action_flipped"]
    assert flips > 2


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.parametrize(("name", "flat"), [("vector", True), ("vector", False), ("matrix", True), ("grey", False)])
def test_the_adversary_knows_what_comes_out_of_a_frame_stack_observation(name, flat, padding):
    space = SPACES[name]

    def stacked(env):
        env = FrameStackObservation(env, 3, padding_type=padding)
        return FlattenObservation(env) if flat else env

    policy = random_policy(stacked(RandomFrames(space)).observation_space)
    env = stacked(attacked(RandomFrames(space), policy, n_stack=3, stack_padding=padding))
    observation, info = env.reset(seed=0)
    flips = info["action_flipped"]
    for _ in range(15):
        np.testing.assert_array_equal(believed(env), observation)
        observation, _, terminated, truncated, info = env.step(greedy_action(policy, observation))
        flips += info["action_flipped"]
        if terminated or truncated:
            observation, _ = env.reset()
    assert flips > 2


class ChannelsLast(gym.ObservationWrapper):
    """(n_stack, height, width) to (height, width, n_stack)."""

    def __init__(self, env):
        super().__init__(env)
        n_stack, height, width = env.observation_space.shape
        self.observation_space = image_space(height, width, n_stack)

    def observation(self, observation):
        return np.moveaxis(observation, 0, -1)


def repeat(env, padding):
    return FrameStackObservation(env, 3, padding_type=padding)


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.parametrize(
    ("name", "stacked"),
    [
        ("vector", lambda env, padding: FlattenObservation(repeat(env, padding))),
        ("vector", repeat),
        ("matrix", lambda env, padding: FlattenObservation(repeat(env, padding))),
        ("matrix", repeat),
        ("grey", repeat),
        ("grey", lambda env, padding: ChannelsLast(repeat(env, padding))),
    ],
    ids=["vector-flat", "vector", "matrix-flat", "matrix", "grey-first", "grey-last"],
)
def test_attacking_the_frames_before_or_in_their_stack_is_the_same(name, stacked, padding):
    space = SPACES[name]
    policy = random_policy(stacked(RandomFrames(space), padding).observation_space)
    before = stacked(attacked(RandomFrames(space), policy, n_stack=3, stack_padding=padding), padding)
    inside = attacked(stacked(RandomFrames(space), padding), policy, n_stack=3, stack_padding=padding)
    (observations, infos), (same, same_infos) = play(before, policy, 20), play(inside, policy, 20)
    np.testing.assert_array_equal(same, observations)
    assert [info["perturbation_norm"] for info in infos] == [info["perturbation_norm"] for info in same_infos]
    assert sum(info["action_flipped"] for info in infos) > 2


def test_the_copies_of_the_first_frame_are_perturbed_alike_and_paid_for_once():
    policy = random_policy(vector_space(20))
    clean = FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4)), 5))
    env = attacked(FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4)), 5)), policy, n_stack=5)
    flips = 0
    for seed in range(10):
        difference = env.reset(seed=seed)[0].astype(float) - clean.reset(seed=seed)[0].astype(float)
        observation, info = env.reset(seed=seed)
        frames = observation.reshape(5, 4)
        np.testing.assert_array_equal(frames, np.repeat(frames[:1], 5, axis=0))
        assert info["perturbation_norm"] == pytest.approx(np.linalg.norm(difference[-4:]), rel=1e-12)
        flips += info["action_flipped"]
    assert flips > 2


def test_older_frames_keep_their_perturbations_and_only_the_newest_gets_one():
    policy = random_policy(vector_space(12))
    clean = FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4), length=20), 3))
    env = attacked(FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4), length=20), 3)), policy, n_stack=3)
    previous = env.reset(seed=0)[0] - clean.reset(seed=0)[0]
    perturbed = 0
    for _ in range(19):
        observation, _, _, _, info = env.step(0)
        difference = observation - clean.step(0)[0]
        np.testing.assert_allclose(difference[:8], previous[4:], atol=1e-6)
        assert info["perturbation_norm"] == pytest.approx(np.linalg.norm(difference[8:]), abs=1e-5)
        perturbed += np.any(difference[8:])
        previous = difference
    assert perturbed > 2


def test_flips_are_told_with_the_older_frames_as_the_policy_has_them():
    policy = random_policy(vector_space(12))
    inner = FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4), length=20), 3))
    env = attacked(inner, policy, n_stack=3)
    observations, infos = play(env, policy, 19)
    frames = {"clean": [], "sent": []}
    clean, _ = play(FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4), length=20), 3)), policy, 19)
    frames["clean"], frames["sent"] = (np.array(stack).reshape(-1, 3, 4) for stack in (clean, observations))
    for t in range(1, 20):
        without = np.concatenate([frames["sent"][t][:2], frames["clean"][t][2:]]).ravel()
        assert infos[t]["action_flipped"] == (greedy_action(policy, without) != greedy_action(policy, observations[t]))


class Numbers(gym.Env):
    """Shows the number of the step, ten for a new game; loses a life at every fourth step, the game ends at the eighth."""

    observation_space = vector_space(1)
    action_space = ACTIONS

    def __init__(self):
        self.ale = self
        self.game = 0

    def lives(self):
        return 3 - self.t // 4

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.game += 1
        return np.array([10.0 * self.game], np.float32), {}

    def step(self, action):
        self.t += 1
        return np.array([10.0 * self.game + self.t], np.float32), 1.0, self.t == 8, False, {}


def numbers_policy(n_stack):
    return random_policy(vector_space(n_stack))


def perturbations(env, clean, actions):
    """Differences of two environments, as arrays (n_stack,), after each step or reset."""
    differences = [env.reset(seed=0)[0] - clean.reset(seed=0)[0]]
    for action in actions:
        observation, _, terminated, _, _ = env.step(action)
        differences.append(observation - clean.step(action)[0])
        if terminated:
            differences.append(env.reset()[0] - clean.reset()[0])
    return differences


class EachPaid(AdversarialObservationWrapper):
    """Adds 1, 2, 3, ... to the newest frames, whatever the policy is."""

    def __init__(self, env, n_stack, **kwargs):
        super().__init__(env, numbers_policy(n_stack), 1000.0, n_stack=n_stack, **kwargs)
        self.n_perturbed = 0
        self.attacker = self._add

    def _add(self, request):
        self.n_perturbed += 1
        frame = request.frames[-1] + np.float32(self.n_perturbed)
        return AttackedFrame(frame, float(self.n_perturbed), True)


def test_after_a_lost_life_a_stack_that_goes_on_keeps_its_perturbations():
    def stacked():
        return EpisodicLifeEnv(FlattenObservation(FrameStackObservation(Numbers(), 3)))

    differences = perturbations(EachPaid(stacked(), 3), stacked(), [0] * 7)
    expected = [
        [1, 1, 1],
        [1, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],  # the life is lost: no action follows
        [4, 0, 5],  # one idle step, to go on
        [0, 5, 6],
        [5, 6, 7],
        [6, 7, 0],  # the game is over
        [8, 8, 8],
    ]
    # the idle step counts as one of the eight of a game, so it is over one step earlier
    np.testing.assert_allclose(differences, expected)


def test_after_a_lost_life_a_stack_outside_starts_anew():
    def stacked(wrap=lambda env: env):
        return FlattenObservation(FrameStackObservation(wrap(EpisodicLifeEnv(Numbers())), 3))

    differences = perturbations(stacked(lambda env: EachPaid(env, 3)), stacked(), [0] * 5)
    expected = [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [5, 5, 5], [5, 5, 6]]
    np.testing.assert_allclose(differences, expected)


class TwoStepsAtOnce(gym.Wrapper):
    def step(self, action):
        self.env.step(action)
        return self.env.step(action)


def test_frames_that_the_adversary_did_not_see_come_into_the_stack_clean():
    def stacked():
        return TwoStepsAtOnce(FlattenObservation(FrameStackObservation(Numbers(), 5)))

    differences = perturbations(EachPaid(stacked(), 5), stacked(), [0] * 3)
    np.testing.assert_allclose(differences, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 2], [1, 0, 2, 0, 3], [2, 0, 3, 0, 4]])


def test_an_environment_that_overwrites_its_observation_is_understood():
    class Overwriting(gym.ObservationWrapper):
        def observation(self, observation):
            self.buffer = getattr(self, "buffer", np.empty_like(observation))
            self.buffer[:] = observation
            return self.buffer

    env = EachPaid(Overwriting(FlattenObservation(FrameStackObservation(Numbers(), 3))), 3)
    clean = FlattenObservation(FrameStackObservation(Numbers(), 3))
    np.testing.assert_allclose(perturbations(env, clean, [0] * 2), [[1, 1, 1], [1, 1, 2], [1, 2, 3]])


def test_what_the_user_does_to_an_observation_does_not_change_the_stack():
    for env in (
        EachPaid(FlattenObservation(FrameStackObservation(Numbers(), 3)), 3),
        EachPaid(Numbers(), 3),
    ):
        env.reset(seed=0)[0][:] = -99
        env.step(0)[0][:] = -99
        assert env.step(0)[0][-1] == 12 + 3
        np.testing.assert_array_equal(believed(env), [11, 13, 15])


def test_noise_outside_of_the_stack_is_no_stack_of_frames():
    stack = FlattenObservation(FrameStackObservation(RandomFrames(vector_space(4)), 3))
    env = attacked(NoisyObservationWrapper(stack, 0.1), random_policy(vector_space(12)), n_stack=3)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"not a stack of n_stack=3 frames .* noise comes before the stack"):
        env.step(0)


def test_noise_inside_of_the_stack_is_attacked_once_per_frame():
    def stacked():
        return FlattenObservation(FrameStackObservation(NoisyObservationWrapper(Numbers(), 0.1), 3))

    differences = perturbations(EachPaid(stacked(), 3), stacked(), [0] * 3)
    np.testing.assert_allclose(differences, [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4]], atol=1e-5)


@pytest.mark.parametrize(
    ("given", "n_stack", "observed"),
    [
        (vector_space(4), 5, vector_space(16)),
        (vector_space(10), 3, vector_space(10)),
        (image_space(36, 36, 1), 4, image_space(3, 36, 36)),
        (image_space(36, 36, 3), 4, image_space(3, 36, 36)),
        (vector_space(2, 3), 1, vector_space(3, 2)),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(given, n_stack, observed):
    with pytest.raises(InputError, match="check model and n_stack"):
        FrameLayout.between(given, observed, n_stack)


def test_stacks_of_dicts_are_refused():
    space = spaces.Dict(position=vector_space(4))
    with pytest.raises(InputError, match="n_stack > 1 is not supported for Dict"):
        AdversarialObservationWrapper(RandomFrames(space), random_policy(space), 1.0, n_stack=2)


@pytest.mark.parametrize(("task", "n_stack"), [("camp/CartPole1-v0", 1), ("camp/CartPole5-v0", 5)])
def test_the_tasks_are_attacked_inside_and_outside_of_their_noise(task, n_stack):
    policy = balancing_dqn(n_stack).policy

    def make(is_inside):
        env = gym.make(task, sigma=0.01)
        kwargs = {"budget": 0.5, "n_stack": n_stack, "attack_kwargs": {"step_size": 0.02}}
        if not is_inside:
            return AdversarialObservationWrapper(env, policy, **kwargs)
        noise = env
        while not isinstance(noise, NoisyObservationWrapper):
            noise = noise.env
        noise.env = AdversarialObservationWrapper(noise.env, policy, **kwargs)
        return env

    clean, _ = play(gym.make(task, sigma=0.01), policy, 50)
    frames = clean[0].reshape(n_stack, 4)
    np.testing.assert_array_equal(frames, np.repeat(frames[:1], n_stack, axis=0))
    for is_inside in (True, False):
        observations, infos = play(make(is_inside), policy, 50)
        frames = observations[0].reshape(n_stack, 4)
        np.testing.assert_array_equal(frames, np.repeat(frames[:1], n_stack, axis=0))
        # What is seen is rounded, to at most sigma / 1024
        np.testing.assert_allclose(np.linalg.norm(frames[0] - clean[0][-4:]), infos[0]["perturbation_norm"], atol=2e-5)
        assert infos[0]["action_flipped"]
        assert 0.1 < sum(info["perturbation_norm"] ** 2 for info in infos) <= 0.25
