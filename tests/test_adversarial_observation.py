import math
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from support.attacked_envs import (
    RandomFrames,
    Recorder,
    attacked,
    attacked_constant,
    greedy_action,
    image_space,
    play,
    random_policy,
    two_action_policy,
    vector_space,
)
from support.constant_env import ConstantEnv
from support.evaluation_envs import TwoLivesEnv

from sb3_camp import NoisyObservationWrapper
from sb3_camp.wrappers import AdversarialObservationWrapper
from sb3_camp.wrappers.episode_budget import EpisodeBudgets

ATTACKS = ["pgd", "apgd", "fgsm", "random"]
VECTOR = vector_space(4)
IMAGE = image_space(36, 36, 1)


@pytest.fixture(scope="module")
def policies():
    return {space.shape: random_policy(space) for space in (VECTOR, IMAGE)}


# What is spent


def test_the_action_of_a_linear_policy_is_flipped_at_the_distance_of_its_boundary():
    observation, info = attacked_constant(budget=1.0).reset(seed=0)
    assert info["action_flipped"] and greedy_action(two_action_policy(), observation) == 1
    assert 0.2 <= info["perturbation_norm"] < 0.2 + 0.01
    assert info["perturbation_norm"] == pytest.approx(np.linalg.norm(observation.astype(float)), abs=1e-12)
    np.testing.assert_allclose(observation / np.linalg.norm(observation), [0.6, 0.8], atol=1e-4)


def test_nothing_is_spent_where_the_boundary_is_out_of_reach():
    env = attacked_constant(budget=0.19)
    for observation, info in (env.reset(seed=0), env.step(0)[::4]):
        np.testing.assert_array_equal(observation, [0, 0])
        assert (info["perturbation_norm"], info["budget_left"], info["action_flipped"]) == (0, 0.19, False)


def test_the_budget_is_spent_over_the_episode_and_refilled_by_the_reset_after_it():
    env = attacked_constant(budget=0.5)
    for _ in range(3):
        _, info = env.reset()
        infos = [info, *(env.step(0)[4] for _ in range(10))]
        # 0.2 to 0.21 at each flip: 0.5^2 pays for five of them at most
        assert [info["action_flipped"] for info in infos[:5]] == [True] * 5
        assert not any(info["action_flipped"] for info in infos[6:])
        assert infos[-1]["budget_left"] < 0.23


@given(st.floats(1e-9, 1e9), st.lists(st.floats(0, 1), max_size=30))
def test_no_rounding_lets_an_adversary_spend_more_than_its_budget(total, shares):
    """The squares of the float64 norms in rational numbers, without any rounding."""
    budgets = EpisodeBudgets(total, 2)
    squares = Fraction(0)
    for share in shares:
        norm = share * budgets.left[0]
        budgets.spend(np.array([norm, 0.0]))
        squares += Fraction(norm) ** 2
        assert squares + Fraction(budgets.left[0]) ** 2 <= Fraction(total) ** 2
    left, spent = budgets.left[0], budgets.spent[0]
    assert float(squares) + left**2 == pytest.approx(total**2, rel=1e-12)
    assert spent == pytest.approx(math.sqrt(squares), rel=1e-9, abs=1e-100 * total) and spent <= total
    assert (budgets.left[1], budgets.spent[1]) == (total, 0)
    with pytest.raises(RuntimeError, match="was left"):
        budgets.spend(np.array([math.nextafter(left, math.inf)]), np.array([0]))
    budgets.refill(np.array([0]))
    assert (budgets.left[0], budgets.spent[0]) == (total, 0)


def test_attacks_are_paid_for_to_the_last_bit(policies):
    for attack in ATTACKS:
        env = attacked(RandomFrames(VECTOR, length=60), policies[VECTOR.shape], attack, 1.5)
        for seed in range(3):
            _, info = env.reset(seed=seed)
            infos = [info, *(env.step(0)[4] for _ in range(60))]
            spent = sum(Fraction(info["perturbation_norm"]) ** 2 for info in infos)
            left = Fraction(infos[-1]["budget_left"]) ** 2
            assert spent + left <= Fraction(1.5) ** 2
            assert float(spent + left) == pytest.approx(2.25, rel=1e-9)
            assert spent > 0
            assert np.all(np.diff([info["budget_left"] for info in infos]) <= 0)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "image"])
def test_infos_and_closed_episodes_tell_what_was_really_received(policies, space, attack):
    inner = Recorder(RandomFrames(space))
    policy = policies[space.shape]
    env = attacked(inner, policy, attack=attack)
    received, infos = play(env, policy, 30)
    norms = [info["perturbation_norm"] for info in infos]
    for clean, sent, info in zip(inner.observations, received, infos, strict=True):
        assert sent.dtype == space.dtype and sent.shape == space.shape
        assert info["perturbation_norm"] == pytest.approx(np.linalg.norm(sent.astype(float) - clean.astype(float)), rel=1e-12)
        assert info["action_flipped"] == (greedy_action(policy, sent) != greedy_action(policy, clean))
    assert any(norms)
    env.reset()
    closed = env.take_closed_attacks()
    assert [episode.steps for episode in closed] == [6] * 5 + [0]
    for k, episode in enumerate(closed[:5]):
        episode_norms = norms[7 * k : 7 * (k + 1)]
        assert episode.budget_spent == pytest.approx(math.sqrt(sum(norm**2 for norm in episode_norms)), rel=1e-12)
        assert episode.budget_spent <= env.budget
        assert episode.flips == sum(info["action_flipped"] for info in infos[7 * k : 7 * (k + 1)]) <= 6
        assert episode_norms[-1] == 0  # no action follows the last observation
    assert env.take_closed_attacks() == []


def test_random_attacks_are_seeded_by_the_reset_and_by_nothing_else(policies):
    def received(seed, global_seed):
        np.random.seed(global_seed)
        th.manual_seed(global_seed)
        inner = Recorder(RandomFrames(VECTOR))
        env = attacked(inner, policies[VECTOR.shape], "random")
        return np.array(play(env, policies[VECTOR.shape], 12, seed=seed)[0]), np.array(inner.observations)

    (one, clean), (same, _) = received(5, 0), received(5, 1)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(clean, received(5, 0)[1])
    unseeded = [received(None, 0)[0] - received(None, 0)[1] for _ in range(2)]
    assert not np.allclose(*unseeded)
    # of a stream of its own: neither the environment's nor that of a noise with the same seed
    direction = (one - clean)[0] / np.linalg.norm((one - clean)[0])
    noise = NoisyObservationWrapper(ConstantEnv(VECTOR, np.zeros(4, np.float32)), 1.0).reset(seed=5)[0]
    for other in (noise, np.random.default_rng(5).standard_normal(4)):
        assert abs(direction @ other / np.linalg.norm(other)) < 0.999


def test_the_random_control_has_the_norms_of_pgd_but_rarely_its_flips():
    flips = {}
    for attack in ("pgd", "random"):
        env = attacked_constant(budget=0.21, attack=attack)
        env.reset(seed=0)
        infos = [env.reset()[1] for _ in range(40)]
        assert all(0.2 <= info["perturbation_norm"] < 0.21 for info in infos)
        flips[attack] = sum(info["action_flipped"] for info in infos)
    assert flips["pgd"] == 40 and flips["random"] < 12


# Episodes


class SlowGame(TwoLivesEnv):
    """Loses a life at every tenth step; the game is over when told so, or in a reset that is told so."""

    observation_space = vector_space(2)

    def __init__(self):
        super().__init__()
        self.over_at = {30}

    def lives(self):
        return 9 - self.t // 10

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        _, reward, _, truncated, info = super().step(action)
        return np.zeros(2, np.float32), reward, self.t in self.over_at, truncated, info


def test_a_lost_life_does_not_refill_the_budget_but_the_end_of_the_game_does():
    env = AdversarialObservationWrapper(EpisodicLifeEnv(SlowGame()), two_action_policy(), 0.25)
    _, info = env.reset()
    left = info["budget_left"]
    assert left < 0.16
    ends = 0
    for t in range(1, 35):
        _, _, terminated, _, info = env.step(0)
        if terminated:
            ends += 1
            _, info = env.reset()
        assert (info["budget_left"] < 0.16) and env.unwrapped.game == 1 + (ends >= 3), t
        assert info["action_flipped"] == (ends == 3 and env.unwrapped.t == 0)
    [episode] = env.take_closed_attacks()
    assert 0.2 <= episode.budget_spent < 0.21 and episode.flips == 1


def test_a_game_that_ends_in_the_idle_step_after_a_lost_life_has_really_been_reset():
    game = SlowGame()
    game.over_at = {11}
    env = AdversarialObservationWrapper(EpisodicLifeEnv(game), two_action_policy(), 0.25)
    env.reset()
    for _ in range(10):
        terminated = env.step(0)[2]
    assert terminated and env.take_closed_attacks() == []
    _, info = env.reset()
    assert game.game == 2 and info["action_flipped"]
    assert len(env.take_closed_attacks()) == 1


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        attacked_constant().step(0)


# With noise


def noisy(env, sigma=0.3):
    return NoisyObservationWrapper(env, sigma)


@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "image"])
def test_the_noise_is_the_same_with_an_adversary_that_has_no_budget(policies, space):
    policy = policies[space.shape]
    expected, _ = play(noisy(RandomFrames(space)), policy, 20)
    inside, _ = play(noisy(AdversarialObservationWrapper(RandomFrames(space), policy, 0.0)), policy, 20)
    outside, _ = play(AdversarialObservationWrapper(noisy(RandomFrames(space)), policy, 0), policy, 20)
    np.testing.assert_array_equal(inside, expected)
    np.testing.assert_array_equal(outside, expected)


def test_inside_of_the_noise_the_perturbation_comes_first_and_the_same_noise_on_top(policies):
    policy = policies[VECTOR.shape]
    without, _ = play(noisy(RandomFrames(VECTOR)), policy, 20)
    clean = Recorder(RandomFrames(VECTOR))
    sent = Recorder(attacked(clean, policy))
    observations, infos = play(noisy(sent), policy, 20)
    perturbations = np.array(sent.observations) - np.array(clean.observations)
    assert np.linalg.norm(perturbations) > 0.1
    # Both are rounded, to at most sigma / 1024
    np.testing.assert_allclose(np.array(observations) - np.array(without), perturbations, atol=0.3 / 1000)
    # the flips are those without the noise
    assert [info["action_flipped"] for info in infos] == [
        greedy_action(policy, one) != greedy_action(policy, other)
        for one, other in zip(sent.observations, clean.observations, strict=True)
    ]


def test_outside_of_the_noise_the_adversary_attacks_what_the_policy_sees(policies):
    policy = policies[VECTOR.shape]
    seen = Recorder(noisy(RandomFrames(VECTOR)))
    observations, infos = play(attacked(seen, policy), policy, 20)
    flips = [
        greedy_action(policy, one) != greedy_action(policy, other)
        for one, other in zip(observations, seen.observations, strict=True)
    ]
    assert flips == [info["action_flipped"] for info in infos] and any(flips)
