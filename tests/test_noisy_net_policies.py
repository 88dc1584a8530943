"""When a NoisyNet policy of DQN draws its weights, and which of its layers are noisy."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.dqn.policies import DQNPolicy
from support.constant_env import ConstantEnv
from torch import nn

from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError
from sb3_camp.noisy_net import NoisyCnnPolicy, NoisyLinear, NoisyMlpPolicy, NoisyMultiInputPolicy

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)


def new_policy(policy_class=NoisyMlpPolicy, space: spaces.Space = VECTOR, **kwargs) -> NoisyMlpPolicy:
    th.manual_seed(0)
    return policy_class(space, spaces.Discrete(3), lambda _: 1e-3, **kwargs)


def undecided_policy() -> NoisyMlpPolicy:
    """Q-values at the mean weights prefer action 2 by very little."""
    policy = new_policy(net_arch=[])
    with th.no_grad():
        policy.q_net.q_net[0].weight.zero_()
        policy.q_net.q_net[0].bias.copy_(th.tensor([0.0, 0.0, 1e-3]))
    return policy


def linear_shapes(module: nn.Module, layer_class: type[nn.Module]) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in module.modules() if type(layer) is layer_class]


# The layers


def test_all_linear_layers_are_noisy_as_in_the_paper():
    layers = {
        "mlp": new_policy(net_arch=[256, 256]),
        "cnn": new_policy(NoisyCnnPolicy, IMAGE),
        "dict": new_policy(NoisyMultiInputPolicy, spaces.Dict(camera=IMAGE, speed=VECTOR)),
    }
    expected = {
        "mlp": [(4, 256), (256, 256), (256, 3)],
        "cnn": [(3136, 512), (512, 3)],
        "dict": [(3136, 256), (260, 64), (64, 64), (64, 3)],
    }
    for name, policy in layers.items():
        for network in (policy.q_net, policy.q_net_target):
            assert linear_shapes(network, NoisyLinear) == expected[name]
            assert linear_shapes(network, nn.Linear) == []


def test_the_optimizer_has_the_means_and_the_sigmas_of_the_online_network_only():
    policy = new_policy(NoisyCnnPolicy, IMAGE)
    optimized = {id(parameter) for group in policy.optimizer.param_groups for parameter in group["params"]}
    assert optimized == {id(parameter) for parameter in policy.q_net.parameters()}
    assert sum(name.endswith("_sigma") for name, _ in policy.q_net.named_parameters()) == 4


def test_initial_noise_is_an_argument_that_the_policy_file_keeps(tmp_path):
    policy = new_policy(sigma_init=0.2)
    assert th.allclose(policy.q_net.q_net[0].weight_sigma, th.tensor(0.1))
    policy.save(tmp_path / "policy.pt")
    loaded = NoisyMlpPolicy.load(tmp_path / "policy.pt")
    assert loaded.sigma_init == loaded.q_net.q_net[0].sigma_init == 0.2
    assert all(th.equal(a, b) for a, b in zip(loaded.parameters(), policy.parameters(), strict=True))


@pytest.mark.parametrize("sigma_init", [-0.1, float("nan"), float("inf"), "0.5", True])
def test_impossible_initial_noise_is_one_line(sigma_init):
    with pytest.raises(InputError, match="sigma_init") as error:
        new_policy(sigma_init=sigma_init)
    assert "\n" not in str(error.value)


# Acting


@pytest.mark.parametrize("training", [False, True])
def test_deterministic_actions_are_those_of_the_mean_weights(training):
    policy = new_policy()
    policy.set_training_mode(training)
    plain = DQNPolicy(VECTOR, spaces.Discrete(3), lambda _: 0.0)
    means = {name: value for name, value in policy.q_net.state_dict().items() if not name.endswith("_sigma")}
    plain.q_net.load_state_dict(means)
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    expected, _ = plain.predict(observations, deterministic=True)
    assert len(np.unique(expected)) > 1
    for _ in range(2):
        np.testing.assert_array_equal(policy.predict(observations, deterministic=True)[0], expected)
    assert np.array_equal(policy(th.as_tensor(observations), deterministic=True).numpy(), expected)


def test_stochastic_actions_take_fresh_weights_at_each_call_in_evaluation_mode_too():
    policy = undecided_policy()
    policy.set_training_mode(False)
    actions = [int(policy.predict(np.zeros(4, np.float32))[0]) for _ in range(200)]
    assert set(actions) == {0, 1, 2}
    assert {int(policy.predict(np.zeros(4, np.float32), deterministic=True)[0]) for _ in range(20)} == {2}


def test_stochastic_actions_of_several_envs_are_independent():
    policy = undecided_policy()
    pairs = np.stack([policy.predict(np.zeros((2, 4), np.float32))[0] for _ in range(3000)])
    shares = np.array([[np.mean((pairs[:, 0] == a) & (pairs[:, 1] == b)) for b in range(3)] for a in range(3)])
    np.testing.assert_allclose(shares, np.outer(shares.sum(axis=1), shares.sum(axis=0)), atol=0.03)


def test_same_seed_same_actions():
    policy, observations = undecided_policy(), np.zeros((100, 4), np.float32)
    actions = []
    for seed in (1, 1, 2):
        th.manual_seed(seed)
        actions.append(policy.predict(observations)[0])
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[0], actions[2])


# The action scores, for attacks, imitation and Q-gaps


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("policy_class", "space"), [(NoisyMlpPolicy, VECTOR), (NoisyCnnPolicy, IMAGE)])
def test_action_scores_are_the_q_values_at_the_mean_weights(policy_class, space, training):
    policy = new_policy(policy_class, space)
    policy.set_training_mode(training)
    observations = np.stack([space.sample() for _ in range(5)])
    inputs = th.as_tensor(observations).float().requires_grad_()
    scores = action_scores(policy)(inputs)
    assert th.equal(scores, action_scores(policy)(inputs))
    np.testing.assert_array_equal(scores.argmax(dim=1).numpy(), policy.predict(observations, deterministic=True)[0])
    (gradient,) = th.autograd.grad(scores[:, 0].sum(), inputs)
    assert (gradient.flatten(1) != 0).any(dim=1).all()
    policy.set_training_mode(training)
    assert th.equal(policy.q_net(inputs), scores) is not training, "the mode of the network must be as before"


# Training by SB3's DQN


def test_sb3s_dqn_draws_anew_for_each_network_at_each_update_and_for_each_step():
    """Seen from outside: one constant observation, weights that do not change, and what the networks make of it."""
    env = ConstantEnv(VECTOR, np.full(4, 0.5, np.float32))
    model = DQN(
        NoisyMlpPolicy, env, learning_rate=0.0, buffer_size=100, learning_starts=4, batch_size=8, train_freq=4,
        gradient_steps=3, exploration_initial_eps=0, exploration_final_eps=0, seed=0, device="cpu",
    )  # fmt: skip
    outputs: dict[str, list[th.Tensor]] = {"acting": [], "online": [], "target": []}

    def record(name):
        def hook(module, _, output):
            outputs["acting" if name == "online" and not module.training else name].append(output.detach())

        return hook

    model.q_net.register_forward_hook(record("online"))
    model.q_net_target.register_forward_hook(record("target"))
    model.learn(44)
    assert [len(outputs[name]) for name in ("acting", "online", "target")] == [40, 30, 30]
    for output in (*outputs["online"], *outputs["target"]):
        assert output.shape[0] == 8 and len(output.unique(dim=0)) == 1, "one draw for the batch"
    all_rows = th.stack([output[0] for values in outputs.values() for output in values])
    assert len(all_rows.unique(dim=0)) == 100, "a draw was used twice"
    assert not model.q_net_target.training


def test_networks_are_back_at_the_mean_weights_after_training():
    model = DQN(NoisyMlpPolicy, gym.make("CartPole-v1"), buffer_size=100, learning_starts=4, seed=0, device="cpu").learn(20)
    observations = th.zeros(1, 4)
    for network in (model.q_net, model.q_net_target):
        assert not th.equal(network(observations), network(observations))
    model.policy.set_training_mode(False)
    for network in (model.q_net, model.q_net_target):
        assert th.equal(network(observations), network(observations))


def test_target_network_takes_over_means_and_sigmas():
    settings = dict(buffer_size=100, learning_starts=10, learning_rate=0.01, seed=0, device="cpu")
    model = DQN(NoisyMlpPolicy, gym.make("CartPole-v1"), tau=0.25, target_update_interval=1000, **settings).learn(40)
    online, target = (dict(network.named_parameters()) for network in (model.q_net, model.q_net_target))
    assert all(not th.equal(online[name], target[name]) for name in online)
    expected = {name: 0.25 * online[name] + 0.75 * target[name] for name in online}
    model._n_calls = model.target_update_interval - 1
    model._on_step()
    for name in expected:
        assert th.allclose(target[name], expected[name]), name
