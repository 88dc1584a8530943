"""What attacks may ask of policies: the actions are those that the policy takes, and everything can be differentiated."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from support.attacked_envs import vector_space

from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView, Remembering, policy_view


class Observing(gym.Env):
    """
    :param actions: Its action space
    """

    observation_space = vector_space(4)

    def __init__(self, actions: gym.Space) -> None:
        self.action_space = actions


BOX = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
OBSERVATIONS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
CONTINUOUS = [PPO, A2C, TRPO, ARS, SAC, TD3, DDPG, TQC, CrossQ]


def model_of(algorithm, actions: gym.Space = BOX, **kwargs):
    policy = "LinearPolicy" if algorithm is ARS else "MlpPolicy"
    if algorithm in (DQN, QRDQN, SAC, TD3, DDPG, TQC, CrossQ):
        kwargs["buffer_size"] = 1
    model = algorithm(policy, Observing(actions), seed=1, device="cpu", **kwargs)
    with th.no_grad():  # an untrained ARS is all zeros
        for parameter in model.policy.parameters():
            parameter.normal_(std=0.3 if parameter.numel() < 5000 else 0.03)
    model.policy.set_training_mode(False)
    return model


def view_of(*args, **kwargs) -> tuple[PolicyView, th.Tensor]:
    return policy_view(model_of(*args, **kwargs).policy), th.tensor(OBSERVATIONS, requires_grad=True)


@pytest.mark.parametrize("algorithm", CONTINUOUS)
def test_means_are_the_greedy_actions_scaled_to_the_space(algorithm):
    model = model_of(algorithm)
    view, observations = policy_view(model.policy), th.tensor(OBSERVATIONS, requires_grad=True)
    means = view.means(observations)
    taken, _ = model.predict(OBSERVATIONS, deterministic=True)
    assert means.detach().numpy() == pytest.approx(2 * (taken - BOX.low) / (BOX.high - BOX.low) - 1, abs=1e-5)
    (gradient,) = th.autograd.grad(means.sum(), observations)
    assert (gradient != 0).any(dim=1).all(), "also where the action is clipped"
    assert view.scores is None and {"distance", "actions"} <= set(view.serves)


@pytest.mark.parametrize("sde", [False, True])
@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_the_distance_of_gaussian_policies_is_their_divergence(algorithm, sde):
    model = model_of(algorithm, use_sde=sde)
    view, observations = policy_view(model.policy), th.tensor(OBSERVATIONS, requires_grad=True)
    other = observations + 0.1
    (mine,), (others,) = view.distributions(observations), view.distributions(other)
    assert mine.mean.shape == (64, 2) and not th.equal(mine.mean, others.mean), "not one object that changes"
    s, t = mine.stddev, others.stddev
    expected = (th.log(t / s) + (s**2 + (mine.mean - others.mean) ** 2) / (2 * t**2) - 0.5).sum(dim=1)
    distance = view.action_distance(observations)
    assert distance(other).detach().numpy() == pytest.approx(expected.detach().numpy(), rel=1e-4, abs=1e-6)
    assert distance(observations).abs().max() < 1e-6


@pytest.mark.parametrize("algorithm", [TD3, DDPG, ARS])
def test_the_distance_of_policies_without_a_distribution_is_that_of_their_actions(algorithm):
    view, observations = view_of(algorithm)
    other = observations.detach() + 0.1
    expected = (view.means(other) - view.means(observations)).square().sum(dim=1)
    assert th.allclose(view.action_distance(observations)(other), expected)


@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG, TQC, CrossQ])
def test_q_is_the_mean_of_the_critics(algorithm):
    view, observations = view_of(algorithm)
    actions = th.rand(64, 2) * 2 - 1
    values = view.policy.critic(observations, actions)
    expected = values.mean(dim=(1, 2)) if algorithm is TQC else th.cat(values, dim=1).mean(dim=1)
    assert th.allclose(view.q(observations, actions), expected) and view.value is None
    (gradient,) = th.autograd.grad(view.q(observations.detach(), view.means(observations)).sum(), observations)
    assert (gradient != 0).any(dim=1).all()


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_q_of_a_q_network_is_that_of_each_action(algorithm):
    view, observations = view_of(algorithm, gym.spaces.Discrete(3))
    for action, share in enumerate(th.eye(3)):
        assert th.allclose(view.q(observations, share.expand(64, 3)), view.scores(observations)[:, action], atol=1e-5)
    assert "q" in view.serves and view.value is None


@pytest.mark.parametrize("algorithm", [PPO, A2C, TRPO])
@pytest.mark.parametrize(
    "actions", [gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2), BOX], ids=str
)
def test_actor_critics_of_every_action_space_have_a_value_and_a_distance(algorithm, actions):
    view, observations = view_of(algorithm, actions)
    assert th.equal(view.value(observations), view.policy.predict_values(observations).squeeze(1))
    distance = view.action_distance(observations)
    assert distance(observations).abs().max() < 1e-6
    far = distance(observations + 1)
    assert far.shape == (64,) and (far > 0).all()
    (gradient,) = th.autograd.grad(far.sum(), observations)
    assert (gradient != 0).any(dim=1).all()
    assert ("actions" in view.serves) == isinstance(actions, gym.spaces.Discrete | gym.spaces.Box)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_the_distance_of_q_networks_does_not_depend_on_the_unit_of_their_scores(algorithm, scale):
    distances = []
    for factor in (1.0, scale):
        view, observations = view_of(algorithm, gym.spaces.Discrete(3))
        scaled = PolicyView(view.policy, scores=lambda observed, view=view, factor=factor: factor * view.scores(observed))
        distances.append(scaled.action_distance(observations)(observations + 0.01))
    assert th.allclose(*distances, rtol=1e-2, atol=1e-4) and (distances[0] > 0).any()
    probabilities = scaled.soft_actions(observations)(observations)
    assert th.allclose(probabilities.sum(dim=1), th.ones(64)) and th.equal(
        probabilities.argmax(1), scaled.scores(observations).argmax(1)
    )


@pytest.mark.parametrize("actions", [gym.spaces.Discrete(3), BOX], ids=str)
def test_a_recurrent_policy_is_followed_through_its_states(actions):
    model = RecurrentPPO("MlpLstmPolicy", Observing(actions), seed=0, device="cpu")
    view = policy_view(model.policy)
    shape = model.policy.lstm_hidden_state_shape
    states = th.zeros(shape[0], 64, shape[2]), th.zeros(shape[0], 64, shape[2])
    memory = None
    for step in range(3):
        seen = OBSERVATIONS + step
        taken, memory = model.predict(seen, state=memory, episode_start=np.full(64, step == 0), deterministic=True)
        observed = Remembering(th.tensor(seen, requires_grad=True), states)
        if isinstance(actions, gym.spaces.Discrete):
            assert np.array_equal(view.scores(observed).argmax(dim=1).numpy(), taken)
        else:
            expected = 2 * (taken - BOX.low) / (BOX.high - BOX.low) - 1
            assert view.means(observed).detach().numpy() == pytest.approx(expected, abs=1e-5)
        states = view.advance(observed)
        assert np.allclose(states[0].detach().numpy(), memory[0], atol=1e-6)


def test_masks_and_unknown_policies_are_refused_in_one_line():
    with pytest.raises(InputError, match="mask"):
        policy_view(model_of(MaskablePPO, gym.spaces.Discrete(3)).policy)

    class Unknown(type(model_of(PPO).policy).__mro__[1]):
        def _predict(self, observation, deterministic=False):
            raise NotImplementedError

    with pytest.raises(InputError, match="not known"):
        policy_view(Unknown(vector_space(4), gym.spaces.Discrete(2)))
