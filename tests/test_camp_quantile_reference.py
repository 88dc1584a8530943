"""A reference that learns the distribution of the return, imitated by its Wang transform."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from scipy.special import ndtr, ndtri
from support.small_camp import noisy_cartpole, same, small_model, weights

from sb3_camp import CAMPDQN, NoisyObservationWrapper, train_seeds
from sb3_camp.camp_dqn.quantile_reference import N_QUANTILES
from sb3_camp.errors import InputError
from sb3_camp.noisy_net import NoisyMlpPolicy
from sb3_camp.risk import episode_weights


def quantile_model(env=None, parameter=0.0, **kwargs) -> CAMPDQN:
    return small_model(env, reference="clean_quantiles", reference_kwargs=dict(wang_parameter=parameter), **kwargs)


class Lottery(gym.Env):
    """One step: action 0 pays 1, action 1 pays 3 with probability 0.6, else nothing."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}

    def step(self, action):
        pays = 3.0 * (self.np_random.random() < 0.6) if action == 1 else 1.0
        return np.ones(2, np.float32), pays, True, False, {}


@pytest.mark.parametrize(("parameter", "chosen"), [(0.0, 1), (1.0, 0)])
def test_what_is_imitated_is_the_wang_transform_of_the_return(parameter, chosen):
    env = NoisyObservationWrapper(Lottery(), sigma=0.1)
    env.reset(seed=0)
    model = quantile_model(
        env,
        parameter,
        n_steps=1,
        learning_rate=3e-3,
        batch_size=64,
        gradient_steps=8,
        train_freq=16,
        exploration_initial_eps=1.0,
        exploration_final_eps=1.0,
    )
    model.learn(2000)
    batch = model.replay_buffer.sample(500)
    learned = model._reference.scores(batch).mean(0).numpy()
    wins = 0.6 if parameter == 0 else ndtr(ndtri(0.6) - parameter)  # Wang's g(0.6) = 0.227
    assert learned == pytest.approx([1, 3 * wins], abs=0.2)
    assert (model.predict(batch.observations.numpy(), deterministic=True)[0] == chosen).mean() > 0.98


@pytest.mark.parametrize("parameter", [0.0, 0.5, 2.0])
def test_scores_are_the_transforms_of_the_quantiles_in_any_order(parameter):
    model = quantile_model(parameter=parameter).learn(100)
    batch = model.replay_buffer.sample(50)
    quantiles = model.reference_policy.quantile_net(batch.clean_observations).detach().numpy()
    assert quantiles.shape == (50, N_QUANTILES, 2) and (np.diff(quantiles, axis=1) < 0).any(), "not in order"
    scores = model._reference.scores(batch).numpy()
    for own, of_state in zip(scores, quantiles, strict=True):
        for action in range(2):
            returns = of_state[:, action].astype(float)
            assert own[action] == pytest.approx((returns * episode_weights(returns, parameter)).mean(), rel=1e-4)


def test_it_learns_what_follows_the_primarys_action_from_clean_observations():
    model = quantile_model(gamma=0.9).learn(200)
    batch = model.replay_buffer.sample(64)
    reference, primary = model.reference_policy, model.policy
    acts = primary.q_net(batch.next_observations).argmax(1)
    following = reference.quantile_net_target(batch.clean_next_observations)[th.arange(64), :, acts]
    targets = batch.rewards + (1 - batch.dones) * batch.discounts * following
    quantiles = reference.quantile_net(batch.clean_observations)[th.arange(64), :, batch.actions[:, 0]]
    errors = targets[:, None, :] - quantiles[:, :, None]  # batch, level, target
    levels = ((th.arange(N_QUANTILES) + 0.5) / N_QUANTILES)[None, :, None]
    huber = th.where(errors.abs() <= 1, errors**2 / 2, errors.abs() - 0.5)
    expected = ((levels - (errors < 0).float()).abs() * huber).mean()
    assert model._reference.td_loss(batch, primary, 0.9).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_saved_model_keeps_the_parameter_and_goes_on(tmp_path):
    model = quantile_model(parameter=1.5).learn(200)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole())
    batch = model.replay_buffer.sample(20)
    assert th.equal(loaded._reference.scores(batch), model._reference.scores(batch))
    before = weights(loaded.reference_policy)
    loaded.learn(100)
    assert not same(before, weights(loaded.reference_policy))
    other = CAMPDQN.load(tmp_path / "model", reference_kwargs=dict(wang_parameter=0.0))
    assert not th.allclose(other._reference.scores(batch), model._reference.scores(batch))


def test_the_parameter_makes_another_policy_of_the_same_seed():
    one, same_one, other = (quantile_model(parameter=parameter).learn(300) for parameter in (1.0, 1.0, 0.0))
    assert same(weights(one.policy), weights(same_one.policy))
    assert not same(weights(one.policy), weights(other.policy))


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        (dict(reference="clean_quantiles", reference_kwargs=dict(wang=1)), "reference='clean_quantiles'"),
        (dict(reference="clean_quantiles", reference_kwargs=dict(policy=1)), "reference='clean_quantiles'"),
        (dict(reference="clean_quantiles", reference_kwargs=dict(wang_parameter=-1)), "at least 0"),
        (dict(reference="clean_quantiles", reference_kwargs=dict(wang_parameter="1")), "at least 0"),
        (dict(reference="clean_quantiles", reference_kwargs=1.0), "a dict of settings"),
        (dict(reference="clean", reference_kwargs=dict(wang_parameter=1.0)), "reference='clean'"),
        (dict(reference="shared", reference_kwargs=dict(wang_parameter=1.0)), "reference='shared'"),
    ],
)
def test_settings_that_the_reference_does_not_have_are_refused(kwargs, told):
    with pytest.raises(InputError, match=r"reference_kwargs|Wang") as error:
        small_model(**kwargs)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_it_beside_a_policy_that_has_arguments_of_its_own():
    model = quantile_model(policy=NoisyMlpPolicy, policy_kwargs=dict(net_arch=[8], sigma_init=0.1))
    assert model.learn(100).reference_policy.net_arch == [8]


def test_a_trained_agent_has_no_settings():
    agent = small_model().learn(60)
    with pytest.raises(InputError, match="reference_kwargs"):
        small_model(reference=agent, reference_kwargs=dict(wang_parameter=1.0))


def test_models_with_other_parameters_are_not_updated_together():
    with pytest.raises(InputError, match="reference_kwargs"):
        train_seeds([quantile_model(parameter=1.0), quantile_model(parameter=0.0)], 100)
