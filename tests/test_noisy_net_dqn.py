"""NoisyNetDQN: training, saving, loading, and its use as a checkpoint and as a reference."""

import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.dqn.policies import MlpPolicy
from support.evaluation_envs import noisy_cartpoles
from support.small_camp import noisy_cartpole

from sb3_camp import CAMPDQN
from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError
from sb3_camp.evaluation import load_checkpoint, play_episodes
from sb3_camp.frozen_policy import load_frozen_policy
from sb3_camp.noisy_net import NoisyCnnPolicy, NoisyMlpPolicy, NoisyMultiInputPolicy, NoisyNetDQN

OBSERVATIONS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


def small_model(env: VecEnv | None = None, seed: int = 0, policy="NoisyMlpPolicy", **kwargs) -> NoisyNetDQN:
    settings = dict(learning_rate=1e-3, buffer_size=2000, learning_starts=50, train_freq=8, gradient_steps=2, device="cpu")
    settings.update(kwargs)
    return NoisyNetDQN(
        policy, env or noisy_cartpole(), seed=seed, policy_kwargs=dict(net_arch=[16], sigma_init=0.4), **settings
    )


def same(one: th.nn.Module, other: th.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(th.equal(first[name], second[name]) for name in first)


def scores(policy) -> th.Tensor:
    with th.no_grad():
        return action_scores(policy)(th.as_tensor(OBSERVATIONS))


@pytest.mark.parametrize("prefix", ["", "Noisy"])
def test_policies_are_known_by_name_and_have_noisy_layers(prefix):
    aliases = NoisyNetDQN.policy_aliases
    expected = {"MlpPolicy": NoisyMlpPolicy, "CnnPolicy": NoisyCnnPolicy, "MultiInputPolicy": NoisyMultiInputPolicy}
    assert {name: aliases[prefix + name] for name in expected} == expected


def test_a_policy_without_noise_is_refused_as_it_would_not_explore():
    with pytest.raises(InputError, match="noisy layers") as error:
        small_model(policy=MlpPolicy)
    assert "\n" not in str(error.value)


def test_no_random_actions_after_the_warm_up_unless_asked_for():
    assert small_model().learn(200).exploration_rate == 0
    assert small_model(exploration_initial_eps=0.5, exploration_final_eps=0.5).learn(200).exploration_rate == 0.5


def test_training_is_reproducible_and_changes_means_and_sigmas():
    first, again, other = small_model().learn(300), small_model().learn(300), small_model(seed=1).learn(300)
    assert same(first.policy, again.policy)
    assert not same(first.policy, other.policy)
    start = dict(small_model().q_net.named_parameters())
    assert all(not th.equal(parameter, start[name]) for name, parameter in first.q_net.named_parameters())


def test_saving_loading_and_continuing(tmp_path):
    model = small_model().learn(300)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = NoisyNetDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert same(loaded.policy, model.policy)
    assert loaded.exploration_initial_eps == loaded.exploration_rate == 0
    assert loaded.policy.sigma_init == 0.4
    moments = [state["exp_avg"] for state in loaded.policy.optimizer.state_dict()["state"].values()]
    assert len(moments) == len(list(model.q_net.parameters())) and all(moment.any() for moment in moments)
    loaded.learn(200, reset_num_timesteps=False)
    assert loaded.num_timesteps >= 500 and loaded._n_updates > model._n_updates
    assert not same(loaded.policy, model.policy)


def test_one_file_for_noisynet_dqn_and_sb3s_dqn(tmp_path):
    model = small_model().learn(100)
    model.save(tmp_path / "noisynet")
    assert same(DQN.load(tmp_path / "noisynet", device="cpu").policy, model.policy)
    DQN(NoisyMlpPolicy, "CartPole-v1", buffer_size=8, device="cpu").save(tmp_path / "dqn")
    assert type(NoisyNetDQN.load(tmp_path / "dqn", device="cpu").policy) is NoisyMlpPolicy


def test_checkpoint_is_loaded_for_evaluation_and_as_a_frozen_policy(tmp_path):
    model = small_model().learn(100)
    model.save(tmp_path / "model.zip")
    loaded = load_checkpoint(tmp_path / "model.zip", NoisyNetDQN, "cpu")
    assert same(loaded.policy, model.policy)
    for source in (model, tmp_path / "model.zip"):
        frozen = load_frozen_policy(source, th.device("cpu"))
        assert th.equal(scores(frozen), scores(model.policy))
        assert frozen.sigma_init == 0.4
        assert not any(parameter.requires_grad for parameter in frozen.parameters())
    np.testing.assert_array_equal(
        model.predict(OBSERVATIONS, deterministic=True)[0], scores(model.policy).argmax(dim=1).numpy()
    )


def test_checkpoint_of_another_algorithm_is_refused_in_one_line(tmp_path):
    DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu").save(tmp_path / "dqn.zip")
    with pytest.raises(InputError, match=r"dqn\.zip: NoisyNetDQN cannot load it: .* use NoisyMlpPolicy") as error:
        load_checkpoint(tmp_path / "dqn.zip", NoisyNetDQN, "cpu")
    assert "\n" not in str(error.value)


def test_evaluation_without_noise_on_the_weights_unless_stochastic():
    model = small_model().learn(100)

    def returns(seed: int, deterministic: bool, torch_seed: int) -> np.ndarray:
        th.manual_seed(torch_seed)
        return play_episodes(model, noisy_cartpoles(4), 40, seed=seed, deterministic=deterministic).returns

    for deterministic in (True, False):
        np.testing.assert_array_equal(returns(0, deterministic, 1), returns(0, deterministic, 2))
    assert not np.array_equal(returns(0, True, 1), returns(0, False, 1))


def test_camp_imitates_the_mean_weights_of_a_noisynet_reference(tmp_path):
    reference = small_model().learn(100)
    reference.save(tmp_path / "reference")
    settings = dict(buffer_size=200, learning_starts=20, policy_kwargs=dict(net_arch=[16]), seed=0, device="cpu")
    model = CAMPDQN("MlpPolicy", noisy_cartpole(), reference=tmp_path / "reference", **settings).learn(100)
    assert same(model.reference_policy, reference.policy)
    assert th.equal(scores(model.reference_policy), scores(reference.policy))
    model.save(tmp_path / "camp")
    assert same(CAMPDQN.load(tmp_path / "camp", device="cpu").reference_policy, reference.policy)


@pytest.mark.slow
def test_it_learns_cartpole_and_its_noise_shrinks():
    model = NoisyNetDQN(
        "NoisyMlpPolicy", make_vec_env("CartPole-v1", 8, seed=0), learning_rate=2.5e-3, batch_size=128, buffer_size=20_000,
        learning_starts=500, gamma=0.98, train_freq=8, gradient_steps=16, target_update_interval=500, n_steps=5, seed=0,
        device="cpu",
    )  # fmt: skip
    before = model.q_net.q_net[0].weight_sigma.abs().mean().item()
    model.learn(9000)
    mean_return, _ = evaluate_policy(model, make_vec_env("CartPole-v1", 20, seed=1), 20)
    assert mean_return > 100, "random actions reach about 22"
    assert model.q_net.q_net[0].weight_sigma.abs().mean() < 0.5 * before


@pytest.mark.skipif(not th.cuda.is_available(), reason="needs a GPU")
def test_training_on_a_gpu_and_playing_without(tmp_path):
    model = small_model(device="cuda").learn(200)
    model.save(tmp_path / "model")
    loaded = NoisyNetDQN.load(tmp_path / "model", device="cpu")
    assert {parameter.device.type for parameter in loaded.policy.parameters()} == {"cpu"}
    np.testing.assert_array_equal(
        loaded.predict(OBSERVATIONS, deterministic=True)[0], model.predict(OBSERVATIONS, deterministic=True)[0]
    )
