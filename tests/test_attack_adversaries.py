"""Adversaries in an environment: bounds over whole episodes, recurrent policies, normalisers, noise to average over."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from support.attacked_envs import RandomFrames, image_space, linear_policy, random_policy, vector_space

from sb3_camp import AdversarialObservationWrapper
from sb3_camp.attacks.adversary_view import AdversaryView
from sb3_camp.errors import InputError
from sb3_camp.policy_view import Remembering, policy_view
from sb3_camp.threat_models import THREATS
from sb3_camp.wrappers.channel import Channel
from sb3_camp.wrappers.episode_budget import StepBounds
from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation

SEEDS = st.integers(0, 2**31)


class Sent(gym.Wrapper):
    """Keeps what comes in and what goes out of an adversary."""

    def __init__(self, env):
        super().__init__(env)
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        self.pairs = [(self.clean.last, observation)]
        return observation, info

    def step(self, action):
        result = self.env.step(action)
        self.pairs.append((self.clean.last, result[0]))
        return result


class Clean(gym.ObservationWrapper):
    def observation(self, observation):
        self.last = np.array(observation)
        return observation


def played(env: gym.Env, policy, seed: int, **adversary):
    """The added perturbations of one episode, float64 (n, D)."""
    clean = Clean(env)
    outer = Sent(AdversarialObservationWrapper(clean, policy, **adversary))
    outer.clean = clean
    observation, _ = outer.reset(seed=seed)
    ended = False
    while not ended:
        observation, _, terminated, truncated, _ = outer.step(policy.predict(observation, deterministic=True)[0])
        ended = terminated or truncated
    return np.stack([sent.astype(np.float64).ravel() - came.astype(np.float64).ravel() for came, sent in outer.pairs])


@pytest.mark.parametrize("threat", THREATS)
@settings(max_examples=12, deadline=None)
@given(SEEDS, st.floats(0.05, 4), st.booleans(), st.sampled_from(["pgd", "mad", "random"]), st.booleans())
def test_episodes_keep_every_bound(threat, seed, budget, per_sensor, attack, images):
    rng = np.random.default_rng(seed)
    space = image_space(3, 3, 1) if images else vector_space(3)
    sigma = 10 ** rng.uniform(-1, 1, 3) if per_sensor and not images else None
    budget = math.ceil(20 * budget) if images else budget
    added = played(
        RandomFrames(space, 5),
        random_policy(space) if not images else _pixels(),
        seed,
        budget=budget,
        attack=attack,
        threat=threat,
        attack_kwargs={} if attack == "random" and threat != "episode-l2" else {"step_size": budget / 10},
        sensor_sigma=None if sigma is None else sigma.tolist(),
        spread=rng.integers(1, 5),
    )
    added = added / (1.0 if sigma is None else sigma)
    if threat == "episode-l2":
        assert math.fsum(np.square(added).ravel()) <= budget**2
    else:
        sizes = np.abs(added).max(axis=1) if threat == "step-linf" else np.linalg.norm(added, axis=1)
        assert np.all(sizes <= budget)


def _pixels():
    """A policy on images of nine pixels."""

    class Observing(gym.Env):
        observation_space, action_space = image_space(3, 3, 1), gym.spaces.Discrete(3)

    return PPO("MlpPolicy", Observing(), seed=0, device="cpu", policy_kwargs={"normalize_images": True}).policy


def test_bounds_on_steps_are_there_again_at_each_step_and_tell_the_largest():
    bounds = StepBounds(1.5, 2)
    bounds.spend(np.array([1.5, 0.3]))
    bounds.spend(np.array([0.2, 0.4]))
    assert bounds.left.tolist() == [1.5, 1.5] and bounds.spent.tolist() == [1.5, 0.4]
    bounds.refill(np.array([True, False]))
    assert bounds.spent.tolist() == [0, 0.4]
    with pytest.raises(RuntimeError):
        bounds.spend(np.array([1.6]), np.array([0]))


def test_a_recurrent_policy_is_attacked_through_its_state():
    """Its state decides the action: the attack has to know it, or it would look at the actions of an empty memory."""

    class Observing(gym.Env):
        observation_space, action_space = vector_space(3), gym.spaces.Discrete(3)

    kwargs = {"lstm_hidden_size": 8, "net_arch": []}
    model = RecurrentPPO("MlpLstmPolicy", Observing(), seed=3, device="cpu", policy_kwargs=kwargs)
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.mul_(3)
    env = AdversarialObservationWrapper(
        RandomFrames(vector_space(3), 40), model, 2.0, threat="step-l2", attack_kwargs={"step_size": 0.1}
    )
    view = policy_view(model.policy)
    for seed in (0, 1):
        observation, info = env.reset(seed=seed)
        states = th.zeros(1, 1, 8), th.zeros(1, 1, 8)
        memory, start, flips = None, True, 0
        for _ in range(39):
            action, memory = model.predict(observation, memory, np.array([start]), deterministic=True)
            seen = Remembering(th.tensor(observation)[None], states)
            assert int(view.scores(seen).argmax()) == int(action), "the adversary's state is the policy's"
            kept = env._memory["states"]
            states = view.advance(seen)
            assert th.allclose(th.stack(states)[:, :, 0], kept, atol=1e-6)
            flips += info["action_flipped"]
            observation, _, _, _, info = env.step(int(action))
            start = False
        assert flips > 5


def test_the_normaliser_outside_is_part_of_the_policy_and_the_budget_is_in_raw_units():
    mean, var = [1.0, -2.0], [4.0, 100.0]
    policy = linear_policy(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), np.array([0.0, -1.0, -1000.0]))
    raw = RandomFrames(vector_space(2), 30)
    channel = Channel(mean=mean, deviation=np.sqrt(np.array(var) + 1e-8).tolist(), clip=10.0)
    adversary = AdversarialObservationWrapper(
        raw, policy, 1.0, threat="step-l2", channel=channel, attack_kwargs={"step_size": 0.01}
    )
    env = FrozenNormalizeObservation(adversary, mean, var)
    observation, info = env.reset(seed=0)
    twin = FrozenNormalizeObservation(RandomFrames(vector_space(2), 30), mean, var)
    clean, _ = twin.reset(seed=0)
    n_flips = 0
    for _ in range(29):
        shown = adversary.layout.observed(channel.normalised(th.as_tensor(adversary.sent)[None]))[0].numpy()
        assert np.array_equal(shown, observation), "digit by digit"
        margin = 3 * clean[0] + 4 * clean[1] - 1
        distance = abs(margin) / np.hypot(3 / np.sqrt(var[0]), 4 / np.sqrt(var[1]))
        assert info["action_flipped"] == (distance < 1) or abs(distance - 1) < 0.02
        n_flips += info["action_flipped"]
        observation, _, _, _, info = env.step(0)
        clean, *_ = twin.step(0)
    assert 3 < n_flips < 29


def test_a_learned_adversary_tells_flips_behind_the_normaliser():
    """It goes one way with all that it has, in units of the sensors."""
    policy = linear_policy(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), np.array([0.0, -1.0, -1000.0]))
    view = AdversaryView((2,), False, 1.0, 30)

    class Observing(gym.Env):
        observation_space, action_space = view.observation_space, view.action_space

    agent = PPO("MlpPolicy", Observing(), policy_kwargs={"net_arch": []}, device="cpu")
    with th.no_grad():
        agent.policy.action_net.weight.zero_()
        agent.policy.action_net.bias.copy_(th.tensor([1.0, 0.0, 10.0]))
    channel = Channel(mean=[1.0, -2.0], deviation=[2.0, 10.0], clip=10.0)
    kwargs = {"agent": agent, "view": view}
    env = AdversarialObservationWrapper(
        RandomFrames(vector_space(2)), policy, 1.0, "learned", attack_kwargs=kwargs, channel=channel
    )
    flips = []
    for seed in range(40):
        env.reset(seed=seed)
        clean, _ = RandomFrames(vector_space(2)).reset(seed=seed)
        margins = [3 * (clean[0] + moved - 1) / 2 + 4 * (clean[1] + 2) / 10 - 1 for moved in (0, 1)]
        _, info = env.reset(seed=seed)
        assert info["perturbation_norm"] == pytest.approx(1, abs=1e-4)
        flips.append((margins[0] > 0) != (margins[1] > 0))
        assert info["action_flipped"] == flips[-1]
    assert 3 < sum(flips) < 37


def test_draws_of_the_noise_come_from_the_attack_and_repeat_with_the_seed():
    policy = random_policy(vector_space(3))

    def added(seed, draws=4):
        return played(
            RandomFrames(vector_space(3), 6),
            policy,
            seed,
            budget=2.0,
            channel=Channel(sigma=0.3, draws=draws),
            attack_kwargs={"step_size": 0.1},
        )

    assert np.array_equal(added(1), added(1)) and added(1).any()
    assert not np.array_equal(added(1), added(1, 5))
    with pytest.raises(InputError, match="no noise"):
        Channel(draws=2)
