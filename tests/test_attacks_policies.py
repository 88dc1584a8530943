"""Attacks on the policies of Stable-Baselines3, through their action scores."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import QRDQN
from stable_baselines3 import DQN, PPO

from sb3_camp.action_scores import action_scores
from sb3_camp.attacks import apgd, fgsm, pgd

ATTACKS = pytest.mark.parametrize("attack, step_size", [(pgd, 0.02), (apgd, 0.05), (fgsm, 3.0)], ids=["pgd", "apgd", "fgsm"])


class Screens(gym.Env):
    """Stacks of 3 frames of 36 x 36 pixels, channels first, the newest last."""

    observation_space = gym.spaces.Box(0, 255, (3, 36, 36), np.uint8)
    action_space = gym.spaces.Discrete(4)


def policy_of(algorithm, kind: str, env, **settings):
    model = algorithm(kind, env, seed=1, device="cpu", **settings)
    generator = th.Generator().manual_seed(0)
    with th.no_grad():
        for parameter in model.policy.parameters():
            if parameter.ndim > 1:
                parameter.copy_(th.randn(parameter.shape, generator=generator) * (2 / parameter[0].numel()) ** 0.5)
    model.policy.set_training_mode(False)
    return model.policy


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, PPO])
@ATTACKS
@pytest.mark.parametrize("objective", ["targeted", "jeffreys"])
def test_the_policy_takes_the_action_reached_on_what_is_received(algorithm, attack, step_size, objective):
    policy = policy_of(algorithm, "MlpPolicy", gym.make("Acrobot-v1"))
    observations = np.random.default_rng(0).uniform(-1, 1, (24, 6)).astype(np.float32)
    budget = th.full((24,), 3.0, dtype=th.float64)
    result = attack(action_scores(policy), th.tensor(observations), budget, step_size=step_size, objective=objective)
    clean, _ = policy.predict(observations, deterministic=True)
    seen, _ = policy.predict(result.received.numpy(), deterministic=True)
    assert result.flipped.any() or attack is fgsm, "one long step may lead beyond the other action"
    assert np.array_equal(result.flipped.numpy(), seen != clean)
    assert np.array_equal(result.target.numpy(), np.where(seen != clean, seen, -1))


@ATTACKS
def test_of_a_stack_of_images_only_the_newest_changes_and_the_policy_takes_the_action_reached(attack, step_size):
    policy = policy_of(DQN, "CnnPolicy", Screens(), buffer_size=1)
    stacks = th.randint(0, 256, (6, 3, 36, 36), generator=th.Generator().manual_seed(0)).to(th.uint8)
    older, newest = stacks[:, :2], stacks[:, 2]

    def assemble(frames, rows):
        return th.cat([older[rows], frames[:, None]], dim=1)

    budget = th.full((6,), 500.0, dtype=th.float64)
    result = attack(action_scores(policy), newest, budget, step_size=min(500.0, 500 * step_size), assemble=assemble)
    assert result.received.shape == (6, 36, 36) and result.flipped.any()
    received = assemble(result.received, th.arange(6)).numpy()
    clean, seen = (policy.predict(images, deterministic=True)[0] for images in (stacks.numpy(), received))
    assert np.array_equal(result.flipped.numpy(), seen != clean)
    assert np.array_equal(result.target.numpy(), np.where(seen != clean, seen, -1))
