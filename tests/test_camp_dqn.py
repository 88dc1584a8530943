import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from support.small_camp import Trace, noisy_cartpole, same, sampled_actors, small_model, weights
from torch.nn import functional as F

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn.losses import adaptive_eta, imitation_loss, robustness_loss
from sb3_camp.camp_dqn.replay_buffers import Actor
from sb3_camp.errors import InputError

# Algorithm 1: who acts, and which buffer gets the step


@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_networks_act_in_turn_and_each_owns_the_steps_where_it_acted(n_envs):
    model = small_model(noisy_cartpole(n_envs), learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    with th.no_grad():  # two networks that can be told apart: one always pushes left, the other always right
        for policy, action in ((model.policy, 0), (model.reference_policy, 1)):
            for parameter in policy.q_net.parameters():
                parameter.zero_()
            policy.q_net.q_net[-1].bias[action] = 1.0
    model.gradient_steps = 0
    trace = Trace()
    model.learn(60 * n_envs, callback=trace)
    for step, actions in enumerate(trace.actions):
        assert (actions == step % 2).all()
    buffer = model.replay_buffer
    assert set(buffer.sample(200, actor=Actor.PRIMARY).actions.flatten().tolist()) == {0}
    assert set(buffer.sample(200, actor=Actor.REFERENCE).actions.flatten().tolist()) == {1}


def test_warm_up_acts_at_random_and_explores_each_env_on_its_own():
    model = small_model(noisy_cartpole(16), exploration_initial_eps=0.5, exploration_final_eps=0.5, learning_starts=320)
    with th.no_grad():
        for policy in (model.policy, model.reference_policy):
            for parameter in policy.q_net.parameters():
                parameter.zero_()
            policy.q_net.q_net[-1].bias[1] = 1.0
    model.gradient_steps = 0
    trace = Trace()
    model.learn(16 * 420, callback=trace)
    actions = np.array(trace.actions)
    assert abs(actions[:20].mean() - 0.5) < 5 * 0.5 / np.sqrt(320)  # warm-up: uniform
    assert abs(actions[20:].mean() - 0.75) < 5 * 0.44 / np.sqrt(16 * 400)  # half greedy, half uniform
    exploring = (actions[20:] == 0).sum(axis=1)
    assert exploring.var() < 3 * 16 * 0.25 * 0.75 / 2  # binomial per env; one coin for all would give about 12


# The update


def test_the_update_is_the_one_of_the_equations():
    model = small_model(
        n_steps=1, gradient_steps=0, camp_lambda=2.5, policy_kwargs=dict(net_arch=[16], optimizer_class=th.optim.SGD)
    )
    model.learn(200)
    learning_rate, gamma = 1e-3, model.gamma
    state = np.random.get_state()
    reference_batch = model.replay_buffer.sample(32, actor=Actor.REFERENCE)
    primary_batch = model.replay_buffer.sample(32, actor=Actor.PRIMARY)

    reference, target = model.reference_policy.q_net, model.reference_policy.q_net_target
    next_value = target(reference_batch.next_observations).max(dim=1).values.detach()
    targets = reference_batch.rewards[:, 0] + (1 - reference_batch.dones[:, 0]) * gamma * next_value
    chosen = reference(reference_batch.observations)[th.arange(32), reference_batch.actions[:, 0]]
    gradients = th.autograd.grad(F.smooth_l1_loss(chosen, targets), list(reference.parameters()))
    expected_reference = [p.detach() - learning_rate * g for p, g in zip(reference.parameters(), gradients, strict=True)]

    updated = {name: value for (name, _), value in zip(reference.named_parameters(), expected_reference, strict=True)}
    reference_q = th.func.functional_call(reference, updated, primary_batch.observations).detach()
    q = model.q_net(primary_batch.observations)
    loss = imitation_loss(q, reference_q, "soft") + 2.5 * robustness_loss(q, reference_q, adaptive_eta(q))
    gradients = th.autograd.grad(loss, list(model.q_net.parameters()))
    expected_primary = [p.detach() - learning_rate * g for p, g in zip(model.q_net.parameters(), gradients, strict=True)]

    np.random.set_state(state)
    model.train(gradient_steps=1, batch_size=32)
    for parameter, expected in zip(model.reference_policy.q_net.parameters(), expected_reference, strict=True):
        assert th.allclose(parameter, expected, atol=1e-7)
    for parameter, expected in zip(model.q_net.parameters(), expected_primary, strict=True):
        assert th.allclose(parameter, expected, atol=1e-7)


class Extractor(BaseFeaturesExtractor):
    """Something that acts differently in training and in evaluation mode."""

    def __init__(self, observation_space: spaces.Box, layer: type[th.nn.Module]):
        super().__init__(observation_space, 4)
        self.layer = layer() if layer is th.nn.Dropout else layer(4)

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.layer(observations)


@pytest.mark.parametrize("layer", [th.nn.BatchNorm1d, th.nn.Dropout])
def test_the_primary_imitates_the_reference_as_it_acts(layer, monkeypatch):
    kwargs = dict(net_arch=[16], features_extractor_class=Extractor, features_extractor_kwargs=dict(layer=layer))
    model = small_model(policy_kwargs=kwargs, gradient_steps=0)
    model.learn(100)
    targets, states = [], []
    import sb3_camp.camp_dqn.update as module

    def spy(q_values, reference_q_values, imitation):
        targets.append(reference_q_values)
        states.append({name: value.clone() for name, value in model.reference_policy.state_dict().items()})
        return imitation_loss(q_values, reference_q_values, imitation)

    monkeypatch.setattr(module, "imitation_loss", spy)
    batches = [model.replay_buffer.sample(32, actor=actor) for actor in (Actor.REFERENCE, Actor.PRIMARY)]
    model.replay_buffer.sample_batches = lambda *args, **kwargs: iter(batches)
    model.train(gradient_steps=1, batch_size=32)
    model.reference_policy.set_training_mode(False)
    assert th.equal(targets[0], model.reference_policy.q_net(batches[1].observations))
    assert all(th.equal(value, model.reference_policy.state_dict()[name]) for name, value in states[0].items())


@pytest.mark.parametrize("imitation", ["soft", "hard"])
def test_no_gradient_of_the_primarys_losses_reaches_the_reference(imitation):
    model = small_model(imitation=imitation, gradient_steps=0, camp_lambda=4.0)
    model.learn(200)
    before = weights(model.reference_policy)
    primary = weights(model.q_net)
    for _ in range(5):
        model._begin_updates()(None, model.replay_buffer.sample(32, actor=Actor.PRIMARY))
    assert same(before, weights(model.reference_policy))
    assert all(parameter.grad is None for parameter in model.reference_policy.parameters())
    assert not same(primary, weights(model.q_net))


def test_the_primary_does_not_change_what_the_reference_learns():
    references = []
    for camp_lambda in (0.0, 16.0):
        model = small_model(camp_lambda=camp_lambda, exploration_initial_eps=1.0, exploration_final_eps=1.0)
        model.learn(400)  # all actions are random, so both runs see the same data
        references.append(weights(model.reference_policy))
    assert same(*references)


def test_fused_adam_learns_what_plain_adam_learns_within_float_error():
    learned = []
    for optimizer_kwargs, is_fused in (({}, True), ({"foreach": False}, None)):
        model = small_model(policy_kwargs=dict(net_arch=[16], optimizer_kwargs=optimizer_kwargs))
        model.learn(300)
        policies = (model.policy, model.reference_policy)
        assert [policy.optimizer.param_groups[0]["fused"] for policy in policies] == [is_fused, is_fused]
        learned.append([weight for policy in policies for weight in weights(policy)])
    for fused, plain in zip(*learned, strict=True):
        th.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("camp_lambda", "at_progress"),
    [
        (lambda progress_remaining: 8.0 * progress_remaining, lambda progress: 8.0 * (1 - progress)),
        ("lin_8", lambda progress: 8.0 * (1 - progress)),
        ("ramp_8", lambda progress: 8.0 * progress),
    ],
)
def test_lambda_can_follow_a_schedule(camp_lambda, at_progress):
    lambdas = []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            logged = self.logger.name_to_value.get("train/camp_lambda")
            if logged is not None:
                lambdas.append((self.num_timesteps / 400, logged))

    model = small_model(camp_lambda=camp_lambda)
    model.learn(400, callback=Watch())
    assert len({progress for progress, _ in lambdas}) > 10
    for progress, logged in lambdas:
        assert logged == pytest.approx(at_progress(progress))


@pytest.mark.slow
def test_larger_lambda_gives_wider_gaps_relative_to_the_range():
    ratios = []
    for camp_lambda in (0.0, 8.0):
        model = small_model(camp_lambda=camp_lambda)
        model.learn(3000)
        logged = model.logger.name_to_value
        assert {"train/td_loss", "train/imitation_loss", "train/robustness_loss"} <= logged.keys()
        ratios.append(logged["train/q_gap_mean"] / logged["train/eta"])
    assert ratios[1] > ratios[0]


def test_alternating_networks_learn_from_their_own_steps_and_shared_ones_from_all():
    for reference, actors in (("alternating", [Actor.REFERENCE, Actor.PRIMARY]), ("shared", [None, None])):
        model = small_model(reference=reference, gradient_steps=0)
        model.learn(100)
        assert sampled_actors(model) == actors


@pytest.mark.parametrize(("n_envs", "interval", "copies"), [(1, 100, 4), (4, 100, 4), (4, 1, 104)])
def test_target_copies_follow_the_interval_in_env_steps_and_survive_save_and_load(
    n_envs, interval, copies, tmp_path, monkeypatch
):
    model = small_model(noisy_cartpole(n_envs), target_update_interval=interval, gradient_steps=0)
    for _ in range(3):
        model.save(tmp_path / "model")
        model = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(n_envs), device="cpu")
    assert model.target_update_interval == interval
    counted = []
    import sb3_camp.camp_dqn.references as module

    monkeypatch.setattr(module, "polyak_update", lambda params, *_: counted.append(params))
    model.learn(416)
    assert len(counted) == 2 * copies  # parameters and batch-norm statistics


def test_target_network_is_the_references():
    model = small_model(tau=1.0, target_update_interval=1)
    model.learn(200)
    target = weights(model.reference_policy.q_net_target)
    model.learn(1, reset_num_timesteps=False)  # a copy before the next update
    assert not same(target, weights(model.reference_policy.q_net_target))


# Spaces and policies


class DictEnv(gym.Env):
    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (36, 36, 1), np.uint8), "vector": spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action == 1), False, self.steps == 20, {}


class ImageEnv(DictEnv):
    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)


@pytest.mark.parametrize(("policy", "env_class"), [("CnnPolicy", ImageEnv), ("MultiInputPolicy", DictEnv)])
def test_image_and_dict_policies_learn_save_and_load(policy, env_class, tmp_path):
    env = make_vec_env(env_class, n_envs=2, seed=0)
    model = small_model(env, policy=policy, policy_kwargs=None)
    before = weights(model.q_net), weights(model.reference_policy.q_net)
    model.learn(120)
    assert not same(before[0], weights(model.q_net)) and not same(before[1], weights(model.reference_policy.q_net))
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", device="cpu")
    obs = env.reset()
    assert np.array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    assert same(weights(model.reference_policy), weights(loaded.reference_policy))


@pytest.mark.slow
def test_it_learns_cartpole():
    env = noisy_cartpole()
    model = small_model(
        env,
        learning_starts=500,
        train_freq=64,
        gradient_steps=32,
        target_update_interval=500,
        n_steps=10,
        batch_size=64,
        policy_kwargs=dict(net_arch=[64, 64]),
        buffer_size=20_000,
        exploration_fraction=0.3,
    )
    model.learn(8_000)
    mean_return, _ = evaluate_policy(model, noisy_cartpole(5, seed=77), n_eval_episodes=20)
    assert mean_return > 60  # random actions: about 22


# What cannot be right is refused in one line


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(camp_eta="big"), "camp_eta"),
        (dict(camp_eta=-1.0), "camp_eta"),
        (dict(camp_eta=float("inf")), "camp_eta"),
        (dict(camp_lambda=-0.5), "camp_lambda"),
        (dict(camp_lambda=float("nan")), "camp_lambda"),
        (dict(camp_lambda="high"), "camp_lambda"),
        (dict(camp_lambda="lin_high"), "camp_lambda"),
        (dict(camp_lambda="ramp_-1"), "camp_lambda"),
        (dict(camp_lambda="lin_inf"), "camp_lambda"),
        (dict(camp_lambda=None), "camp_lambda"),
        (dict(reference=42), "reference"),
        (dict(imitation="firm"), "imitation"),
        *((dict(n_steps=n_steps), "n_steps must be a whole number") for n_steps in (0, -1, 2.5, True)),
        (dict(compile="yes"), "compile must be one of auto, True, False, not 'yes'"),
        (dict(replay_buffer_class=HerReplayBuffer), "HerReplayBuffer"),
        (dict(reference="/nowhere/model.zip"), "/nowhere/model.zip"),
        (
            dict(
                env=make_vec_env(DictEnv), policy="MultiInputPolicy", policy_kwargs=None, n_steps=1, optimize_memory_usage=True
            ),
            "optimize_memory_usage",
        ),
    ],
)
def test_options_that_cannot_be_right_are_refused(kwargs, message):
    with pytest.raises(InputError, match=message) as error:
        small_model(**kwargs)
    assert "\n" not in str(error.value)
