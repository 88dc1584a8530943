from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnvWrapper, VecNormalize
from support.small_camp import noisy_cartpole, same, small_model, weights
from torch.nn import functional as F

from sb3_camp import CAMPDQN, NoisyObservationWrapper
from sb3_camp.camp_dqn.reference_registry import REFERENCES, register_reference
from sb3_camp.camp_dqn.references import CleanReference
from sb3_camp.camp_dqn.replay_buffers import AlternatingReplayBuffer, CleanReplayBuffer
from sb3_camp.errors import InputError
from sb3_camp.evaluation.checkpoint import load_checkpoint


class Counted(gym.ObservationWrapper):
    """Observations that tell which step of which episode of which env they belong to, all in one and the same array."""

    def __init__(self, env, number, dtype=np.float32):
        super().__init__(env)
        self.number, self.episode, self.step_number = number, 0, 0
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), dtype)
        self.array = np.zeros(3, dtype)

    def reset(self, **kwargs):
        self.episode += 1
        self.step_number = -1
        return super().reset(**kwargs)

    def observation(self, observation):
        self.step_number += 1
        self.array[:] = [self.number, self.episode, self.step_number]
        return self.array


def counted_envs(n_envs, above=lambda env: env, dtype=np.float32, **kwargs):
    numbers = iter(range(n_envs))
    return make_vec_env(
        lambda: above(
            NoisyObservationWrapper(Counted(gym.make("CartPole-v1", max_episode_steps=9), next(numbers), dtype), sigma=0.5)
        ),
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
    model = small_model(counted_envs(n_envs), reference="clean")
    model.learn(40 * n_envs)
    model.learn(20 * n_envs, reset_num_timesteps=False)
    assert_rows_hold_what_lies_under_the_noise(model)


def test_the_buffer_holds_what_lies_under_the_noise_of_envs_in_other_processes():
    env = counted_envs(1, vec_env_cls=SubprocVecEnv, vec_env_kwargs=dict(start_method="fork"))
    model = small_model(env, reference="clean")
    model.learn(60)
    env.close()
    assert_rows_hold_what_lies_under_the_noise(model)


@pytest.mark.parametrize(
    "env",
    [
        lambda: counted_envs(2, dtype=np.float64),
        lambda: counted_envs(2, above=lambda env: gym.wrappers.TimeLimit(env, 5)),
        lambda: VecNormalize(counted_envs(2)),
    ],
    ids=["float64", "TimeLimit above", "VecNormalize"],
)
def test_the_buffer_holds_what_lies_under_the_noise_and_other_wrappers(env):
    model = small_model(env(), reference="clean").learn(80)
    assert_rows_hold_what_lies_under_the_noise(model)


@pytest.mark.parametrize("sigmas", [(0.5, 0.0), (0.0, 0.5)])
def test_the_report_is_of_what_lies_under_all_noise(sigmas):
    env = NoisyObservationWrapper(NoisyObservationWrapper(Counted(gym.make("CartPole-v1"), 0), sigmas[0]), sigmas[1])
    assert env.report_clean_observations().shape == (3,)
    assert env.reset(seed=0)[1]["clean_observation"].tolist() == [0, 1, 0]
    assert env.step(0)[4]["clean_observation"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("optimize_memory_usage", [False, True])
@pytest.mark.parametrize("buffer_size", [9, 40, 2000])
def test_batches_pair_noisy_and_clean_observations_of_the_same_window(buffer_size, optimize_memory_usage):
    model = small_model(
        counted_envs(2),
        reference="clean",
        n_steps=4,
        buffer_size=buffer_size,
        optimize_memory_usage=optimize_memory_usage,
    )
    for _ in range(3):
        model.learn(66, reset_num_timesteps=False)
        batch = model.replay_buffer.sample(500)
        assert_pairs_of_one_window(batch)
    assert buffer_size == 9 or set(th.log(batch.discounts[:, 0]).div(np.log(0.99)).round().tolist()) == {1, 2, 3, 4}


def assert_pairs_of_one_window(batch):
    for clean, noisy in (
        (batch.clean_observations, batch.observations),
        (batch.clean_next_observations, batch.next_observations),
    ):
        assert (noisy - clean).abs().max() < 3
    steps = batch.clean_next_observations - batch.clean_observations
    assert (steps[:, :2] == 0).all()  # of the same env and episode
    assert th.allclose(0.99 ** steps[:, 2:], batch.discounts)


def test_the_primary_acts_at_every_step_and_sees_only_noisy_observations():
    model = small_model(
        counted_envs(1), reference="clean", learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0
    )
    seen = []
    predict = model.policy.predict
    model.policy.predict = lambda obs, **kwargs: seen.append(obs.copy()) or predict(obs, **kwargs)
    model.learn(50)
    assert len(seen) == model.num_timesteps
    assert np.array_equal(np.array(seen), model.replay_buffer.observations[: len(seen)])
    assert (np.array(seen) != model.replay_buffer.clean_observations[: len(seen)]).all()


def test_the_update_learns_the_values_of_the_primary_from_clean_observations():
    model = small_model(noisy_cartpole(), reference="clean", gamma=0.9, camp_lambda=0.7).learn(200)
    batch = model.replay_buffer.sample(32)
    reference = model.reference_policy

    with th.no_grad():
        greedy = model.q_net(batch.next_observations).argmax(dim=1)
        values = reference.q_net_target(batch.clean_next_observations)[th.arange(32), greedy]
    targets = batch.rewards[:, 0] + (1 - batch.dones[:, 0]) * batch.discounts[:, 0] * values
    q_values = reference.q_net(batch.clean_observations)[th.arange(32), batch.actions[:, 0]]
    update = model._begin_updates()
    assert th.allclose(update.reference.td_loss(batch, model.policy, 0.5), F.smooth_l1_loss(q_values, targets), rtol=1e-6)

    before = weights(reference.q_net)
    imitation = update(None, batch)[1][0]
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
    model = CAMPDQN("MlpPolicy", make_vec_env("camp/CartPole5-v0", seed=0), reference="clean", learning_starts=50, seed=0)
    model.learn(200)
    assert model.policy.observation_space.shape == (5, 4) or model.policy.observation_space.shape == (20,)
    assert model.reference_policy.observation_space.shape == (4,)
    newest = model.replay_buffer.observations[:200].reshape(200, 1, 5, 4)[:, :, -1]
    noise = newest - model.replay_buffer.clean_observations[:200]
    assert noise.std() == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize(("env_id", "n_seen"), [("camp/CartPole1-v0", 4), ("camp/CartPole5-v0", 4), ("camp/Highway-v0", 25)])
def test_the_tasks_that_observe_vectors_report_what_lies_under_their_noise(env_id, n_seen):
    env = make_vec_env(env_id, seed=0, env_kwargs={"sigma": 0.5})
    model = CAMPDQN("MlpPolicy", env, reference="clean", learning_starts=10, train_freq=4, buffer_size=60, seed=0)
    model.learn(60)
    noise = model.replay_buffer.observations[..., -n_seen:] - model.replay_buffer.clean_observations
    assert model.replay_buffer.clean_observations.shape == (60, 1, n_seen)
    assert noise.std() == pytest.approx(0.5, rel=0.15)


def test_saving_loading_and_continuing(tmp_path):
    model = small_model(noisy_cartpole(), reference="clean").learn(200)
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
    with pytest.raises(InputError, match="does not hold the observations without noise"):
        loaded.load_replay_buffer(tmp_path / "other")


def test_a_registered_reference_may_see_what_lies_under_the_noise(tmp_path, monkeypatch):
    class Twin(CleanReference):
        kind = "twin"

    class Pessimist(CleanReference):
        kind = "pessimist"

        def td_loss(self, batch, primary, gamma):
            values = self.policy.q_net(self.observations(batch)).gather(1, batch.actions.long())
            assert (self.next_actions(batch, primary) == primary.q_net(batch.next_observations).argmax(1, keepdim=True)).all()
            return values.square().mean()

    for reference in (Twin, Pessimist):
        monkeypatch.setitem(REFERENCES, reference.kind, reference)
    clean, twin, pessimist = (small_model(reference=kind).learn(300) for kind in ("clean", "twin", "pessimist"))
    assert same(weights(clean.reference_policy), weights(twin.reference_policy))
    assert same(weights(clean.policy), weights(twin.policy))
    assert not same(weights(clean.reference_policy), weights(pessimist.reference_policy))

    pessimist.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole())
    loaded.learn(100)
    assert type(loaded._reference) is Pessimist
    assert np.abs(loaded.replay_buffer.observations - loaded.replay_buffer.clean_observations)[:100].max() > 0.1

    monkeypatch.delitem(REFERENCES, "pessimist")
    with pytest.raises(InputError, match="import the package that registers it first") as error:
        load_checkpoint(tmp_path / "model.zip", CAMPDQN, "cpu")
    assert "--algo" not in str(error.value)


def test_another_env_is_reset_before_its_first_step():
    model = small_model(noisy_cartpole(), reference="clean").learn(100)
    model.set_env(noisy_cartpole(seed=1), force_reset=False)
    model.learn(50, reset_num_timesteps=False)
    noise = (model.replay_buffer.observations - model.replay_buffer.clean_observations)[:150]
    assert np.abs(noise).max() < 0.6


def test_what_was_trained_with_it_goes_on_with_it(tmp_path):
    clean = small_model(noisy_cartpole(), reference="clean").learn(60)
    clean.save(tmp_path / "clean")
    clean.save_replay_buffer(tmp_path / "buffer")
    plain = small_model(noisy_cartpole()).learn(60)
    plain.save(tmp_path / "plain")
    with pytest.raises(InputError, match="trained with reference='clean'"):
        CAMPDQN.load(tmp_path / "clean", reference="shared")
    with pytest.raises(InputError, match="trained with reference='alternating'"):
        CAMPDQN.load(tmp_path / "plain", env=noisy_cartpole(), reference="clean")
    with pytest.raises(InputError, match="filled for a reference that sees observations without noise"):
        plain.load_replay_buffer(tmp_path / "buffer")
    plain.learn(20, reset_num_timesteps=False)


def test_a_model_acts_in_envs_that_cannot_report_but_learns_only_in_those_that_can(tmp_path):
    small_model(noisy_cartpole(), reference="clean").learn(60).save(tmp_path / "model")

    def without_noise():
        unbounded = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        return gym.wrappers.TransformObservation(gym.make("CartPole-v1"), lambda observation: observation, unbounded)

    model = CAMPDQN.load(tmp_path / "model", env=without_noise())
    evaluate_policy(model, model.get_env(), n_eval_episodes=2)
    with pytest.raises(InputError, match="no NoisyObservationWrapper"):
        model.learn(20)

    env = noisy_cartpole()
    model = CAMPDQN.load(tmp_path / "model", env=env)
    evaluate_policy(model, env, n_eval_episodes=2)
    assert "clean_observation" not in env.reset_infos[0]  # evaluations get along without
    model.learn(20, reset_num_timesteps=False)
    assert "clean_observation" in env.reset_infos[0]


def test_the_noise_stays_where_it_was_when_the_model_was_trained():
    def stacked(env):
        return gym.wrappers.FlattenObservation(gym.wrappers.FrameStackObservation(env, 3))

    model = small_model(stacked(NoisyObservationWrapper(gym.make("CartPole-v1"), sigma=0.1)), reference="clean")
    model.set_env(NoisyObservationWrapper(stacked(gym.make("CartPole-v1")), sigma=0.1))
    with pytest.raises(InputError, match=r"shape \(12,\).* the reference sees \(4,\)"):
        model.learn(20)


class Forgetful(gym.Wrapper):
    def reset(self, **kwargs):
        return self.env.reset(**kwargs)[0], {}


class VecForgetful(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards, dones, [{} for _ in infos]


@pytest.mark.parametrize("env", [lambda: counted_envs(1, above=Forgetful), lambda: VecForgetful(counted_envs(1))])
def test_wrappers_that_lose_the_report_are_told_of(env):
    with pytest.raises(InputError, match="must pass on its infos"):
        small_model(env(), reference="clean").learn(20)


class DropoutExtractor(FlattenExtractor):
    def forward(self, observations):
        return F.dropout(super().forward(observations), 0.5, self.training)


def test_the_values_are_those_of_the_primary_as_it_acts_without_dropout():
    policy_kwargs = dict(net_arch=[16], features_extractor_class=DropoutExtractor)
    model = small_model(noisy_cartpole(), reference="clean", policy_kwargs=policy_kwargs).learn(100)
    batch = model.replay_buffer.sample(64)
    model.policy.set_training_mode(True)
    losses = {model._reference.td_loss(batch, model.policy, model.gamma).item() for _ in range(5)}
    assert len(losses) == 1


def test_the_reference_needs_no_class_of_the_env():
    class OwnBox(gym.spaces.Box):
        pass

    env = Counted(gym.make("CartPole-v1"), 0)
    env.observation_space = OwnBox(-np.inf, np.inf, (3,), np.float32)
    model = small_model(NoisyObservationWrapper(env, sigma=0.5), reference="clean")
    assert type(model.clean_observation_space) is type(model.reference_policy.observation_space) is gym.spaces.Box


def test_same_seed_same_weights():
    one, other = (small_model(noisy_cartpole(), reference="clean").learn(300) for _ in range(2))
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
        (lambda: small_model(make_vec_env("CartPole-v1"), reference="clean"), "no NoisyObservationWrapper"),
        *((partial(register_reference, what), "takes a subclass of LearningReference") for what in (5, object, CAMPDQN)),
        (lambda: small_model(replay_buffer_class=CleanReplayBuffer), "is for references without noise"),
        (lambda: small_model(reference="clean", replay_buffer_class=AlternatingReplayBuffer), "needs a CleanReplayBuffer"),
        (
            lambda: CAMPDQN("CnnPolicy", make_vec_env("camp/Freeway-v0"), reference="clean", buffer_size=10),
            "must be vectors",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
