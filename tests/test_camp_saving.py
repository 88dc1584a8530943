import warnings

import pytest
import torch as th
from stable_baselines3 import DQN
from support.small_camp import Trace, noisy_cartpole, same, small_model, weights

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn.replay_buffers import Actor
from sb3_camp.errors import InputError

# Reproducibility, saving, continuing


def test_the_same_seed_gives_the_same_training_bit_for_bit():
    runs = []
    for seed in (3, 3, 4):
        model = small_model(noisy_cartpole(2, seed=seed), seed=seed)
        model.learn(400)
        runs.append([*weights(model.policy), *weights(model.reference_policy)])
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])


def test_save_and_load_keep_both_networks_both_optimizers_and_the_target(tmp_path):
    model = small_model()
    model.learn(400)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    assert same(weights(model.policy), weights(loaded.policy))
    assert same(weights(model.reference_policy), weights(loaded.reference_policy))
    for one, other in ((model.policy, loaded.policy), (model.reference_policy, loaded.reference_policy)):
        moments, loaded_moments = one.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"]
        assert moments and moments.keys() == loaded_moments.keys()
        assert all(th.equal(moments[key]["exp_avg"], loaded_moments[key]["exp_avg"]) for key in moments)
    for name in ("num_timesteps", "_n_updates", "_n_calls", "_episode_num"):
        assert getattr(model, name) == getattr(loaded, name)
    parameters = model.get_parameters()
    other = small_model(seed=9)
    other.set_parameters(parameters)
    assert same(weights(model.policy), weights(other.policy))
    assert same(weights(model.reference_policy), weights(other.reference_policy))


def test_a_lambda_that_rises_is_saved_and_the_loader_may_give_another(tmp_path):
    model = small_model(camp_lambda="ramp_8")
    model.learn(400)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    assert [loaded.camp_lambda_schedule(remaining) for remaining in (1.0, 0.25, 0.0)] == [0.0, 6.0, 8.0]
    constant = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu", camp_lambda=8.0)
    assert [constant.camp_lambda_schedule(remaining) for remaining in (1.0, 0.25, 0.0)] == [8.0, 8.0, 8.0]


def test_training_goes_on_where_a_saved_model_and_buffer_left_off(tmp_path):
    whole = Trace()
    small_model(train_freq=7).learn(2002, callback=whole)

    first, second = Trace(), Trace()
    model = small_model(train_freq=7)
    model.learn(1001, callback=first)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    model = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    model.load_replay_buffer(tmp_path / "buffer")
    assert model._next_actor() is Actor.REFERENCE  # 1001 is odd
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(1001, callback=second, reset_num_timesteps=False)
    assert model.num_timesteps == 2002
    n_first = len(first.rows)
    # the step after loading explores as much as that step of the uninterrupted run
    assert second.epsilons[1:] == pytest.approx(whole.epsilons[n_first + 1 : n_first + len(second.epsilons)], abs=1e-9)
    assert second.epsilons[0] == pytest.approx(whole.epsilons[n_first], abs=1e-9)
    assert second.rows == whole.rows[n_first : n_first + len(second.rows)]


def test_going_on_without_the_buffer_warns(tmp_path):
    model = small_model()
    model.learn(100)
    model.save(tmp_path / "model")
    model = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    with pytest.warns(UserWarning, match="empty replay buffer"):
        model.learn(16, reset_num_timesteps=False)


def test_a_buffer_of_another_kind_or_number_of_envs_is_refused(tmp_path):
    dqn = DQN("MlpPolicy", noisy_cartpole(), buffer_size=100, device="cpu")
    dqn.save_replay_buffer(tmp_path / "dqn")
    small_model(noisy_cartpole(2)).save_replay_buffer(tmp_path / "two_envs")
    model = small_model()
    for name, message in (("dqn", "not a buffer of CAMPDQN"), ("two_envs", "2 envs")):
        with pytest.raises(InputError, match=message):
            model.load_replay_buffer(tmp_path / name)
    model.learn(60)  # the model's own buffer is still in place


def test_a_buffer_can_be_loaded_into_a_model_that_has_none(tmp_path):
    model = small_model(n_steps=5).learn(100)
    model.save_replay_buffer(tmp_path / "buffer")
    model.replay_buffer = None
    model.load_replay_buffer(tmp_path / "buffer")
    assert model.replay_buffer.size() == 104 and model.replay_buffer.n_steps == 5
    model.learn(20, reset_num_timesteps=False)


def test_what_the_model_says_about_windows_counts_not_what_the_buffer_was_saved_with(tmp_path):
    model = small_model(n_steps=5).learn(100)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu", n_steps=2, gamma=0.5)
    loaded.load_replay_buffer(tmp_path / "buffer")
    discounts = set(loaded.replay_buffer.sample(200).discounts.flatten().tolist())
    assert discounts == {0.5, 0.25}
