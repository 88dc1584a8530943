"""The adversary of a vector environment, against its twin for single ones."""

import gymnasium as gym
import numpy as np
import pytest
from support.attacked_envs import balancing_dqn

from sb3_camp.attack_runs.attack_player import AttackPlayer, plays_native
from sb3_camp.attack_runs.attacked_env import AttackedFrames, attacked_frames
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.wrappers.adversary import AttackAnswers


def player(environment, model, sigma, native, n_envs, tmp_path):
    frames = attacked_frames(environment, model, tmp_path / "model.zip")
    return AttackPlayer(model, environment, frames, sigma, native, n_envs, True)


@pytest.mark.parametrize(
    ("env_id", "n_stack"), [("camp/CartPole1-v0", 1), pytest.param("camp/CartPole5-v0", 5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("sigma", [0.0, 0.2])
def test_returns_flips_and_spending_have_the_distribution_of_single_envs(env_id, n_stack, sigma, tmp_path):
    environment = EvaluationEnv(env_id, env_kwargs={"max_episode_steps": 60})
    model = balancing_dqn(n_stack)
    played = {}
    for native in (False, True):
        one = player(environment, model, sigma, native, 100, tmp_path)
        assert native == plays_native(environment, one.frames, sigma, "auto" if native else "dummy")
        with one.opened("fgsm", {"step_size": 0.3}, 0.8) as play:
            played[native] = play(Chunk(200, 2**30 + 1), lambda: None)
    for result in played.values():
        assert np.all(result.budget_spent <= 0.8) and np.all((result.budget_spent > 0) == (result.flips > 0))
        assert result.episodes.returns.std() > 0 or sigma == 0
    for get in (lambda one: one.episodes.returns, lambda one: one.budget_spent, lambda one: one.flips):
        a, b = get(played[False]), get(played[True])
        error = np.sqrt(a.var() / a.size + b.var() / b.size)
        assert abs(a.mean() - b.mean()) <= 4 * error + 1e-9


def test_frames_of_the_policy_are_those_that_were_sent_and_its_stack_is_known_to_the_adversary(tmp_path):
    environment = EvaluationEnv("camp/CartPole5-v0", env_kwargs={"max_episode_steps": 12})
    model = balancing_dqn(5)
    one = player(environment, model, 0.0, True, 7, tmp_path)
    with one.opened_native(3.0) as (envs, adversary):
        sent = []

        def attack(requests):
            clean = requests.frames[:, -1]
            answers = clean + np.float32(0.125)
            stacks = np.where(requests.is_newest[..., None], answers[:, None], requests.frames)
            sent.append(stacks.reshape(len(stacks), -1))
            return AttackAnswers(answers, np.full(len(clean), 0.25), np.zeros(len(clean), bool))

        adversary.attacker = attack
        observations, _ = envs.reset(seed=3)
        np.testing.assert_array_equal(observations, sent[-1])
        for _ in range(40):
            observations, _, terminated, truncated, _ = envs.step(np.ones(7, dtype=int))
            alive = ~(terminated | truncated)
            np.testing.assert_array_equal(observations[alive], sent[-1])
            np.testing.assert_allclose(adversary.budgets.spent[alive], 0.25 * np.sqrt(adversary.steps[alive] + 1), rtol=1e-9)


def test_envs_without_a_native_vector_environment_step_one_by_one():
    frames = AttackedFrames(gym.spaces.Box(-1, 1, (6,)), 1, "reset", None)
    assert not plays_native(EvaluationEnv("Acrobot-v1"), frames, 0.0, "auto")
    with pytest.raises(InputError, match="--vec-env native: "):
        plays_native(EvaluationEnv("Acrobot-v1"), frames, 0.0, "native")
