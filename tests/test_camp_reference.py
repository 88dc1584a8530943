import gymnasium as gym
import numpy as np
import pytest
import torch as th
from counting_env import CountingEnv
from gymnasium import spaces
from small_camp import Trace, noisy_cartpole, same, sampled_actors, small_model, weights
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN
from sb3_camp.errors import InputError

# A trained agent as the reference


@pytest.fixture(scope="module")
def trained_dqn(tmp_path_factory):
    env = make_vec_env("CartPole-v1", seed=0)
    model = DQN("MlpPolicy", env, learning_starts=50, policy_kwargs=dict(net_arch=[16]), seed=0, device="cpu").learn(300)
    path = tmp_path_factory.mktemp("dqn") / "model.zip"
    model.save(path)
    return model, path


def test_a_dqn_reference_is_copied_frozen_and_contained_in_the_saved_model(trained_dqn, tmp_path):
    dqn, path = trained_dqn
    copy_path = tmp_path / "reference.zip"
    copy_path.write_bytes(path.read_bytes())
    model = small_model(reference=str(copy_path))
    copy_path.unlink()
    assert same(weights(dqn.q_net), weights(model.q_net))
    trace = Trace()
    model.learn(300, callback=trace)
    assert same(weights(dqn.q_net), weights(model.reference_policy.q_net))
    assert not same(weights(dqn.q_net), weights(model.q_net))
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    assert same(weights(model.reference_policy), weights(loaded.reference_policy))
    assert same(weights(model.q_net), weights(loaded.q_net))
    before = weights(loaded.q_net)
    loaded.learn(300)
    assert same(weights(dqn.q_net), weights(loaded.reference_policy.q_net)) and not same(before, weights(loaded.q_net))


def test_with_a_frozen_reference_only_the_primary_acts_and_learns_from_every_step(trained_dqn):
    dqn, _ = trained_dqn
    model = small_model(
        reference=dqn, learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0, gradient_steps=0
    )
    with th.no_grad():
        for parameter in model.q_net.parameters():
            parameter.zero_()
        model.q_net.q_net[-1].bias[1] = 1.0
    trace = Trace()
    model.learn(50, callback=trace)
    assert (np.array(trace.actions) == 1).all()
    assert not same(weights(dqn.q_net), weights(model.q_net))  # the given model itself is left alone
    assert sampled_actors(model) == [None]


def test_a_ppo_reference_is_imitated_by_its_logits(tmp_path):
    ppo = PPO("MlpPolicy", make_vec_env("CartPole-v1", seed=0), n_steps=64, seed=0, device="cpu").learn(64)
    ppo.save(tmp_path / "ppo")
    model = small_model(reference=tmp_path / "ppo")
    obs = th.randn(7, 4)
    expected = ppo.policy.get_distribution(obs).distribution.logits
    assert th.allclose(model._reference_scores(obs), expected)
    model.learn(100)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", device="cpu")
    assert th.allclose(loaded._reference_scores(obs), expected)


def test_imitating_makes_the_primary_act_like_the_reference():
    dqn = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=0), policy_kwargs=dict(net_arch=[16]), seed=5, device="cpu")
    model = small_model(reference=dqn, policy_kwargs=dict(net_arch=[32]), gradient_steps=32, imitation="hard")
    model.learn(2000)
    observations = model.replay_buffer.sample(1000).observations
    agreement = (model.q_net(observations).argmax(dim=1) == dqn.q_net(observations).argmax(dim=1)).float().mean()
    assert agreement > 0.95


def test_a_reference_with_other_spaces_is_refused(trained_dqn):
    _, path = trained_dqn
    with pytest.raises(InputError, match="it observes"):
        small_model(make_vec_env(CountingEnv), reference=path)
    with pytest.raises(InputError, match="its actions"):
        small_model(make_vec_env(ThreeActions), reference=path)


class ThreeActions(gym.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(3)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "model.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not an SB3 checkpoint"):
        small_model(reference=tmp_path / "model.zip")
