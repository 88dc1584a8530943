import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from support.counting_env import CountingEnv

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn.replay_buffers import Actor, AlternatingDictReplayBuffer, AlternatingReplayBuffer

OBSERVATIONS = spaces.Box(0, np.inf, (1,), np.float32)
ACTIONS = spaces.Discrete(2)


class Recorder:
    """Plays random episodes into a buffer and keeps every transition in plain lists, newest last."""

    def __init__(self, buffer, n_rows: int, seed: int = 0, cut_probability: float = 0.0):
        rng = np.random.default_rng(seed)
        self.is_dict = isinstance(buffer, AlternatingDictReplayBuffer)
        self.handles_time_limits = buffer.handle_timeout_termination
        self.transitions: list[list[dict]] = [[] for _ in range(buffer.n_envs)]
        number = 1000.0 * np.arange(buffer.n_envs)
        for row in range(n_rows):
            if rng.random() < cut_probability and row > 0:
                buffer.cut_trajectory()
                for episode in self.transitions:
                    if episode[-1]["kind"] == "goes on":
                        episode[-1]["kind"] = "cut"
                number += 10
            obs = number[:, None].astype(np.float32)
            reward = rng.normal(size=buffer.n_envs).astype(np.float32)
            kind = rng.choice(["goes on", "terminal", "time limit"], p=[0.7, 0.15, 0.15], size=buffer.n_envs)
            action = rng.integers(2, size=buffer.n_envs)
            infos = [{"TimeLimit.truncated": k == "time limit"} for k in kind]
            ended = kind != "goes on"
            buffer.add(self.stored(obs), self.stored(obs + 1), action, reward, ended, infos)
            for env in range(buffer.n_envs):
                self.transitions[env].append(
                    dict(obs=obs[env, 0], row=row, action=action[env], reward=reward[env], kind=str(kind[env]))
                )
            number += np.where(ended, 10, 1)

    def stored(self, obs: np.ndarray) -> np.ndarray | dict[str, np.ndarray]:
        return {"number": obs} if self.is_dict else obs

    def seen(self, observations) -> list[float]:
        return (observations["number"] if self.is_dict else observations)[:, 0].tolist()

    def expected(self, obs: float, n_steps: int, gamma: float) -> tuple[int, float, float, float, float, int]:
        """Row, return, next observation, terminal, discount and action, by walking along the list."""
        terminal_kinds = ["terminal"] if self.handles_time_limits else ["terminal", "time limit"]
        for episode in self.transitions:
            for start, transition in enumerate(episode):
                if transition["obs"] != obs:
                    continue
                total, discount = 0.0, 1.0
                for step in episode[start : start + n_steps]:
                    total += discount * step["reward"]
                    discount *= gamma
                    last = step
                    if step["kind"] != "goes on":
                        break
                terminal = float(last["kind"] in terminal_kinds)
                return transition["row"], total, last["obs"] + 1, terminal, discount, transition["action"]
        raise AssertionError(f"observation {obs} was never stored")

    def check(self, buffer, actor: Actor | None, batch_size: int) -> set[int]:
        """Compare a batch with the walk; return the rows that it has reached."""
        batch = buffer.sample(batch_size, actor=actor)
        next_observations = self.seen(batch.next_observations)
        rows = set()
        for i, obs in enumerate(self.seen(batch.observations)):
            row, total, next_obs, terminal, discount, action = self.expected(obs, buffer.n_steps, buffer.gamma)
            rows.add(row)
            assert batch.rewards[i].item() == pytest.approx(total, abs=1e-5)
            assert next_observations[i] == next_obs
            assert batch.dones[i].item() == terminal
            assert batch.discounts[i].item() == pytest.approx(discount, rel=1e-6)
            assert batch.actions[i].item() == action
        return rows


@pytest.mark.parametrize("n_rows", [5, 11, 16, 41])  # before, at and after the ring wraps around
@pytest.mark.parametrize("kind", ["plain", "memory-optimized", "dict"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_samples_equal_a_walk_along_the_trajectory(n_rows, kind, n_envs, n_steps):
    settings = dict(device="cpu", n_envs=n_envs, n_steps=n_steps, gamma=0.9)
    if kind == "dict":
        buffer = AlternatingDictReplayBuffer(16 * n_envs, spaces.Dict({"number": OBSERVATIONS}), ACTIONS, **settings)
    else:
        optimized = kind == "memory-optimized"
        buffer = AlternatingReplayBuffer(16 * n_envs, OBSERVATIONS, ACTIONS, optimize_memory_usage=optimized, **settings)
    recorder = Recorder(buffer, n_rows)
    np.random.seed(0)
    oldest = max(n_rows - 16, 0) + (1 if kind == "memory-optimized" and n_rows >= 16 else 0)
    for actor in (Actor.PRIMARY, Actor.REFERENCE, None):
        # every row of the actor is reached, and no other
        rows = {row for row in range(oldest, n_rows) if actor is None or row % 2 == actor}
        assert recorder.check(buffer, actor, 600) == rows


@pytest.mark.parametrize("seed", range(40))
def test_samples_equal_the_walk_for_random_buffers_whose_trajectories_are_cut(seed):
    rng = np.random.default_rng(seed)
    n_envs = int(rng.integers(1, 4))
    buffer = AlternatingReplayBuffer(
        int(rng.integers(1, 14)) * n_envs,
        OBSERVATIONS,
        ACTIONS,
        "cpu",
        n_envs,
        optimize_memory_usage=bool(rng.integers(2)),
        handle_timeout_termination=bool(rng.integers(2)),
        n_steps=int(rng.choice([1, 2, 3, 7, 30])),
        gamma=0.9,
    )
    recorder = Recorder(buffer, int(rng.integers(4, 60)), seed, cut_probability=0.1)
    np.random.seed(seed)
    for actor in (Actor.PRIMARY, Actor.REFERENCE, None):
        recorder.check(buffer, actor, 60)


def test_without_handling_of_time_limits_they_count_as_terminal():
    buffer = AlternatingReplayBuffer(8, OBSERVATIONS, ACTIONS, "cpu", handle_timeout_termination=False)
    obs = np.zeros((1, 1), np.float32)
    for _ in range(4):
        buffer.add(obs, obs, np.zeros(1, int), np.zeros(1), np.ones(1, bool), [{"TimeLimit.truncated": True}])
    assert buffer.sample(10).dones.min() == 1


@pytest.mark.parametrize(("buffer_size", "n_envs", "n_rows"), [(1, 1, 2), (7, 1, 8), (8, 1, 8), (30, 4, 8), (1, 4, 2)])
def test_the_number_of_rows_is_rounded_up_to_even(buffer_size, n_envs, n_rows):
    assert AlternatingReplayBuffer(buffer_size, OBSERVATIONS, ACTIONS, "cpu", n_envs).buffer_size == n_rows
    small = AlternatingReplayBuffer(buffer_size, OBSERVATIONS, ACTIONS, "cpu", n_envs, optimize_memory_usage=True)
    assert small.buffer_size == max(n_rows, 4)
    dict_space = spaces.Dict({"a": OBSERVATIONS})
    assert AlternatingDictReplayBuffer(buffer_size, dict_space, ACTIONS, "cpu", n_envs).buffer_size == n_rows


def test_an_actor_without_transitions_is_a_clear_error():
    buffer = AlternatingReplayBuffer(8, OBSERVATIONS, ACTIONS, "cpu")
    obs = np.zeros((1, 1), np.float32)
    buffer.add(obs, obs, np.zeros(1, int), np.zeros(1), np.zeros(1, bool), [{}])
    with pytest.raises(ValueError, match="no transition of the reference"):
        buffer.sample(1, actor=Actor.REFERENCE)


@pytest.mark.parametrize("optimize_memory_usage", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("truncates", [False, True])
def test_next_observation_follows_the_observation_in_real_training(optimize_memory_usage, n_envs, truncates):
    env = make_vec_env(CountingEnv, n_envs=n_envs, env_kwargs=dict(length=7, truncates=truncates), seed=0)
    model = CAMPDQN(
        "MlpPolicy",
        env,
        buffer_size=40 * n_envs,
        learning_starts=10,
        optimize_memory_usage=optimize_memory_usage,
        seed=0,
        device="cpu",
    )
    model.learn(101 * n_envs)
    assert model.replay_buffer.full
    for actor in Actor:
        batch = model.replay_buffer.sample(500, actor=actor)
        assert (batch.next_observations - batch.observations).unique().tolist() == [1.0]
        # the seventh step of an episode is terminal, if it is no time limit
        assert batch.dones.max().item() == (0.0 if truncates else 1.0)


@pytest.mark.parametrize("optimize_memory_usage", [False, True])
@pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer will be truncated")
def test_no_window_crosses_the_reset_of_a_second_call_of_learn(optimize_memory_usage, tmp_path):
    env = make_vec_env(CountingEnv, n_envs=2, env_kwargs=dict(length=1000), seed=0)
    settings = dict(n_steps=4, gamma=1.0, learning_starts=1000, optimize_memory_usage=optimize_memory_usage, device="cpu")
    model = CAMPDQN("MlpPolicy", env, buffer_size=200, **settings)
    model.learn(18)
    model.learn(10)  # resets the envs
    model.learn(10, reset_num_timesteps=False)  # goes on
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    model = CAMPDQN.load(tmp_path / "model", env=env)
    model.load_replay_buffer(tmp_path / "buffer")
    model.learn(10, reset_num_timesteps=False)  # a loaded model resets the envs too
    batch = model.replay_buffer.sample(2000)
    # a reward of 1 for each step that the number rises by; a reset adds ten
    assert np.array_equal(batch.next_observations - batch.observations, batch.rewards)
    assert batch.rewards.unique().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert batch.dones.max() == 0


class StopAt(BaseCallback):
    def __init__(self, n_calls: int):
        super().__init__()
        self.last_call = n_calls

    def _on_step(self) -> bool:
        return self.n_calls < self.last_call


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("optimize_memory_usage", [False, True])
@pytest.mark.parametrize("stop_at", [5, 7, 14])  # within an episode of seven steps, and at its end
def test_a_training_that_a_callback_stopped_goes_on_without_a_false_transition(truncates, optimize_memory_usage, stop_at):
    env = make_vec_env(CountingEnv, env_kwargs=dict(length=7, truncates=truncates), seed=0)
    settings = dict(n_steps=4, gamma=1.0, learning_starts=1000, optimize_memory_usage=optimize_memory_usage, device="cpu")
    model = CAMPDQN("MlpPolicy", env, buffer_size=200, **settings)
    model.learn(100, callback=StopAt(stop_at))
    model.learn(20, reset_num_timesteps=False)
    batch = model.replay_buffer.sample(1000)
    assert np.array_equal(batch.next_observations - batch.observations, batch.rewards)


def test_settings_given_at_load_hold_for_a_loaded_buffer_too(tmp_path):
    env = make_vec_env(CountingEnv, env_kwargs=dict(length=1000))
    model = CAMPDQN("MlpPolicy", env, buffer_size=100, learning_starts=1000, device="cpu").learn(50)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = CAMPDQN.load(tmp_path / "model", env=env, gamma=0.5, n_steps=3)
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert loaded.replay_buffer.sample(500).discounts.unique().tolist() == [0.125, 0.25, 0.5]


def test_buffer_arguments_of_the_user_win_and_are_saved_as_given(tmp_path):
    env = make_vec_env(CountingEnv)
    kwargs = dict(handle_timeout_termination=False)
    model = CAMPDQN("MlpPolicy", env, n_steps=3, buffer_size=10, replay_buffer_kwargs=kwargs, device="cpu")
    assert (model.replay_buffer.n_steps, model.replay_buffer.handle_timeout_termination) == (3, False)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=env, n_steps=5)
    assert (loaded.replay_buffer.n_steps, loaded.replay_buffer.handle_timeout_termination) == (5, False)
    assert loaded.replay_buffer_kwargs == kwargs


@pytest.mark.parametrize("buffer_class", [AlternatingReplayBuffer, AlternatingDictReplayBuffer])
def test_batches_sampled_at_once_are_those_sampled_one_by_one(buffer_class):
    space = spaces.Dict({"number": OBSERVATIONS}) if buffer_class is AlternatingDictReplayBuffer else OBSERVATIONS
    buffer = buffer_class(40, space, ACTIONS, device="cpu", n_envs=2, n_steps=3)
    Recorder(buffer, n_rows=33)
    actors = [Actor.REFERENCE, Actor.PRIMARY, None, Actor.PRIMARY]
    np.random.seed(7)
    one_by_one = [buffer.sample(5, actor=actor) for actor in actors]
    np.random.seed(7)
    at_once = list(buffer.sample_batches(5, actors))
    assert len(at_once) == len(actors)
    for expected, batch in zip(one_by_one, at_once, strict=True):
        for own, other in zip(expected, batch, strict=True):
            th.testing.assert_close(own, other, rtol=0, atol=0)
