import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import ARS, QRDQN, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC

from sb3_camp import CAMPDQN
from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError

OBSERVATIONS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


@pytest.mark.parametrize("algorithm", [DQN, CAMPDQN, QRDQN, PPO, A2C, ARS])
def test_the_greedy_action_is_the_argmax_of_the_scores(algorithm):
    model = algorithm("MlpPolicy", gym.make("CartPole-v1"), seed=1, device="cpu")
    with th.no_grad():  # an untrained ARS is all zeros
        for parameter in model.policy.parameters():
            parameter.normal_(std=0.3)
    observations = th.tensor(OBSERVATIONS, requires_grad=True)
    scores = action_scores(model.policy)(observations)
    assert scores.shape == (64, 2)
    actions, _ = model.predict(OBSERVATIONS, deterministic=True)
    assert np.array_equal(scores.argmax(dim=1).numpy(), actions)
    (gradient,) = th.autograd.grad(scores[:, 0].sum() - scores[:, 1].sum(), observations)
    assert (gradient != 0).any(dim=1).all()


def test_scores_of_image_policies_take_unnormalised_pixels():
    class Pixels(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
        action_space = gym.spaces.Discrete(3)

    model = DQN("CnnPolicy", Pixels(), buffer_size=1, seed=0, device="cpu")
    image = np.random.default_rng(0).integers(0, 256, (5, 1, 36, 36)).astype(np.uint8)
    scores = action_scores(model.policy)(th.tensor(image))
    assert np.array_equal(scores.argmax(dim=1).numpy(), model.predict(image, deterministic=True)[0])


def test_continuous_and_recurrent_policies_are_refused_in_one_line():
    sac = SAC("MlpPolicy", gym.make("Pendulum-v1"), buffer_size=1, device="cpu")
    with pytest.raises(InputError, match="Discrete"):
        action_scores(sac.policy)
    recurrent = RecurrentPPO("MlpLstmPolicy", gym.make("CartPole-v1"), device="cpu")
    with pytest.raises(InputError, match="recurrent"):
        action_scores(recurrent.policy)
