import gymnasium as gym
import numpy as np
import pytest
import torch as th
from small_camp import noisy_cartpole, same, small_model, weights
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv
from torch.nn import functional as F

from sb3_camp import CAMPDQN, NoisyObservationWrapper
from sb3_camp.errors import InputError


class Counted(gym.ObservationWrapper):
    """Observations that tell which step of which episode of which env they belong to."""

    def __init__(self, env, number):
        super().__init__(env)
        self.number, self.episode, self.step_number = number, 0, 0
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, **kwargs):
        self.episode += 1
        self.step_number = -1
        return super().reset(**kwargs)

    def observation(self, observation):
        self.step_number += 1
        return np.array([self.number, self.episode, self.step_number], np.float32)


def counted_envs(n_envs, **kwargs):
    numbers = iter(range(n_envs))
    return make_vec_env(
        lambda: NoisyObservationWrapper(Counted(gym.make("CartPole-v1", max_episode_steps=9), next(numbers)), sigma=0.5),
        n_envs=n_envs,
        seed=0,
        **kwargs,
    )


def assert_rows_hold_what_lies_under_the_noise(model):
    buffer = model.replay_buffer
    n_rows = buffer.size()
    assert n_rows > 30
    for clean, noisy in (
        (buffer.clean_observations, buffer.observations),
        (buffer.clean_next_observations, buffer.next_observations),
    ):
        noise = noisy[:n_rows] - clean[:n_rows]
        assert noise.std() == pytest.approx(0.5, rel=0.15) and np.abs(noise).max() < 3
    before, after = buffer.clean_observations[:n_rows], buffer.clean_next_observations[:n_rows]
    assert (after - before == [0, 0, 1]).all()  # one step of the same episode, over its end too
    for env in range(buffer.n_envs):
        assert (before[:, env, 0] == env).all()
        ended = buffer.dones[: n_rows - 1, env] == 1
        starts = before[1:, env]
        assert (starts[ended][:, 2] == 0).all() and (starts[~ended][:, 2] > 0).all()
        assert ended.sum() >= 3


@pytest.mark.parametrize("n_envs", [1, 3])
def test_the_buffer_holds_what_lies_under_the_noise_over_the_ends_of_episodes(n_envs):
    model = small_model(counted_envs(n_envs), clean_reference=True)
    model.learn(40 * n_envs)
    model.learn(20 * n_envs, reset_num_timesteps=False)
    assert_rows_hold_what_lies_under_the_noise(model)


def test_the_buffer_holds_what_lies_under_the_noise_of_envs_in_other_processes():
    env = counted_envs(1, vec_env_cls=SubprocVecEnv, vec_env_kwargs=dict(start_method="fork"))
    model = small_model(env, clean_reference=True)
    model.learn(60)
    env.close()
    assert_rows_hold_what_lies_under_the_noise(model)


def test_batches_pair_noisy_and_clean_observations_of_the_same_window():
    model = small_model(counted_envs(2), clean_reference=True, n_steps=4).learn(200)
    batch = model.replay_buffer.sample(500)
    for clean, noisy in (
        (batch.clean_observations, batch.observations),
        (batch.clean_next_observations, batch.next_observations),
    ):
        assert (noisy - clean).abs().max() < 3
    steps = (batch.clean_next_observations - batch.clean_observations)[:, 2:]
    assert th.allclose(0.99**steps, batch.discounts)
    assert set(steps.flatten().tolist()) == {1, 2, 3, 4}


def test_the_primary_acts_at_every_step_and_sees_only_noisy_observations():
    model = small_model(
        counted_envs(1), clean_reference=True, learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0
    )
    seen = []
    predict = model.policy.predict
    model.policy.predict = lambda obs, **kwargs: seen.append(obs.copy()) or predict(obs, **kwargs)
    model.learn(50)
    assert len(seen) == model.num_timesteps
    assert np.array_equal(np.array(seen), model.replay_buffer.observations[: len(seen)])
    assert (np.array(seen) != model.replay_buffer.clean_observations[: len(seen)]).all()


def test_the_update_learns_the_values_of_the_primary_from_clean_observations():
    model = small_model(noisy_cartpole(), clean_reference=True, gamma=0.9, camp_lambda=0.7).learn(200)
    batch = model.replay_buffer.sample(32)
    reference = model.reference_policy

    with th.no_grad():
        greedy = model.q_net(batch.next_observations).argmax(dim=1)
        values = reference.q_net_target(batch.clean_next_observations)[th.arange(32), greedy]
    targets = batch.rewards[:, 0] + (1 - batch.dones[:, 0]) * batch.discounts[:, 0] * values
    q_values = reference.q_net(batch.clean_observations)[th.arange(32), batch.actions[:, 0]]
    assert th.allclose(model._td_loss(batch), F.smooth_l1_loss(q_values, targets), rtol=1e-6)

    before = weights(reference.q_net)
    imitation = model._train_primary(batch, 0.7)[0]
    assert same(before, weights(reference.q_net))
    model.replay_buffer.sample_batches = lambda *args, **kwargs: iter([batch, batch])
    with th.no_grad():
        labels = reference.q_net(batch.clean_observations).softmax(dim=1)
    assert (
        imitation > -(labels * labels.log()).sum(dim=1).mean()
    )  # a cross-entropy with these labels is at least their entropy
    model.train(gradient_steps=1, batch_size=32)
    assert not same(before, weights(reference.q_net))


def test_behind_a_frame_stack_the_reference_sees_the_newest_frame():
    model = CAMPDQN("MlpPolicy", make_vec_env("camp/CartPole5-v0", seed=0), clean_reference=True, learning_starts=50, seed=0)
    model.learn(200)
    assert model.policy.observation_space.shape == (5, 4) or model.policy.observation_space.shape == (20,)
    assert model.reference_policy.observation_space.shape == (4,)
    newest = model.replay_buffer.observations[:200].reshape(200, 1, 5, 4)[:, :, -1]
    noise = newest - model.replay_buffer.clean_observations[:200]
    assert noise.std() == pytest.approx(0.2, rel=0.1)


def test_saving_loading_and_continuing(tmp_path):
    model = small_model(noisy_cartpole(), clean_reference=True).learn(200)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = CAMPDQN.load(tmp_path / "model")
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    assert np.array_equal(
        loaded.predict(observations, deterministic=True)[0], model.predict(observations, deterministic=True)[0]
    )
    assert same(weights(loaded.reference_policy), weights(model.reference_policy))

    loaded.set_env(noisy_cartpole(seed=1))
    loaded.load_replay_buffer(tmp_path / "buffer")
    stored = loaded.replay_buffer.size()
    loaded.learn(60, reset_num_timesteps=False)
    noise = (loaded.replay_buffer.observations - loaded.replay_buffer.clean_observations)[: stored + 60]
    assert noise.std() == pytest.approx(0.1, rel=0.1) and np.abs(noise).max() < 0.6

    small_model(noisy_cartpole()).learn(60).save_replay_buffer(tmp_path / "other")
    with pytest.raises(InputError, match="does not hold the clean observations"):
        loaded.load_replay_buffer(tmp_path / "other")


def test_another_env_is_reset_before_its_first_step():
    model = small_model(noisy_cartpole(), clean_reference=True).learn(100)
    model.set_env(noisy_cartpole(seed=1), force_reset=False)
    model.learn(50, reset_num_timesteps=False)
    noise = (model.replay_buffer.observations - model.replay_buffer.clean_observations)[:150]
    assert np.abs(noise).max() < 0.6


def test_same_seed_same_weights():
    one, other = (small_model(noisy_cartpole(), clean_reference=True).learn(300) for _ in range(2))
    assert same(weights(one.policy), weights(other.policy))


def test_the_envs_report_clean_observations_only_to_who_asks():
    env = NoisyObservationWrapper(gym.make("CartPole-v1"), sigma=0.3)
    assert "clean_observation" not in env.reset(seed=0)[1] and "clean_observation" not in env.step(0)[4]
    assert env.report_clean_observations() == env.unwrapped.observation_space
    observation, info = env.reset(seed=0)
    assert np.allclose(info["clean_observation"], env.unwrapped.state) and not np.allclose(observation, env.unwrapped.state)
    observation, *_, info = env.step(0)
    assert np.allclose(info["clean_observation"], env.unwrapped.state) and not np.allclose(observation, env.unwrapped.state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small_model(make_vec_env("CartPole-v1"), clean_reference=True), "no NoisyObservationWrapper"),
        (lambda: small_model(clean_reference=True, reference=small_model()), "set it to False"),
        (
            lambda: CAMPDQN("CnnPolicy", make_vec_env("camp/Freeway-v0"), clean_reference=True, buffer_size=10),
            "must be vectors",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
