"""Copies of a trained agent's policy act as the agent does, whatever it was built with."""

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TRPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv
from support.small_camp import noisy_cartpole, small_model

from sb3_camp import CAMPDQN
from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import load_frozen_policy
from sb3_camp.noisy_net import NoisyNetDQN

CPU = th.device("cpu")
OWN_ARGUMENTS = [
    (DQN, dict(net_arch=[7])),
    (QRDQN, dict(net_arch=[7], n_quantiles=5)),
    (PPO, dict(net_arch=dict(pi=[7], vf=[5]), activation_fn=th.nn.ReLU)),
    (A2C, dict(share_features_extractor=False)),
    (TRPO, dict(ortho_init=False)),
    (ARS, dict(net_arch=[7], with_bias=False)),
    (NoisyNetDQN, dict(net_arch=[7], sigma_init=0.1)),
]


def made(algorithm, policy="MlpPolicy", env=None, **policy_kwargs):
    buffer = dict(buffer_size=10) if issubclass(algorithm, DQN | QRDQN) else {}
    return algorithm(policy, env or noisy_cartpole(), policy_kwargs=policy_kwargs, seed=1, device="cpu", **buffer)


def scores(policy, observations):
    policy.set_training_mode(False)
    with th.no_grad():
        return action_scores(policy)(observations)


def assert_acts_alike(copy, original):
    observations, _ = original.obs_to_tensor(np.stack([original.observation_space.sample() for _ in range(64)]))
    assert th.equal(scores(copy, observations), scores(original, observations))


@pytest.mark.parametrize(("algorithm", "policy_kwargs"), OWN_ARGUMENTS)
def test_a_model_is_copied_with_the_arguments_of_its_policy(algorithm, policy_kwargs, tmp_path):
    model = made(algorithm, **policy_kwargs)
    model.save(tmp_path / "model")
    for agent in (model, tmp_path / "model"):
        copy = load_frozen_policy(agent, CPU)
        assert_acts_alike(copy, model.policy)
        assert not {id(parameter) for parameter in copy.parameters()} & {id(p) for p in model.policy.parameters()}


def test_linear_policies_of_ars_are_copied_as_model_policy_and_checkpoint(tmp_path):
    model = made(ARS, "LinearPolicy")
    model.save(tmp_path / "model")
    for agent in (model, model.policy, tmp_path / "model"):
        assert_acts_alike(load_frozen_policy(agent, CPU), model.policy)


@pytest.mark.parametrize("share", [True, False])
def test_extractors_of_actor_and_critic_are_not_mixed_up(share):
    env = DummyVecEnv([lambda: FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)])
    model = made(PPO, "CnnPolicy", env, share_features_extractor=share)
    for agent in (model, model.policy):
        assert_acts_alike(load_frozen_policy(agent, CPU), model.policy)


def test_a_policy_that_does_not_tell_how_it_was_built_is_refused_instead_of_copied_wrongly():
    policy = made(ARS, net_arch=[7], with_bias=False).policy
    with pytest.raises(InputError, match="model: this ARSPolicy cannot be built again"):
        load_frozen_policy(policy, CPU, role="model")


def test_a_reference_with_arguments_of_its_own_is_rebuilt_from_the_saved_model(tmp_path):
    reference = made(ARS, net_arch=[7], with_bias=False)
    model = small_model(reference=reference)
    model.save(tmp_path / "camp")
    loaded = CAMPDQN.load(tmp_path / "camp", device="cpu")
    assert_acts_alike(loaded.reference_policy, reference.policy)
    assert isinstance(loaded.action_space, spaces.Discrete)
