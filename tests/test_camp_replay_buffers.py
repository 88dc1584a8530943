import numpy as np
import pytest
from counting_env import CountingEnv
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn.replay_buffers import Actor, AlternatingDictReplayBuffer, AlternatingReplayBuffer

OBSERVATIONS = spaces.Box(0, np.inf, (1,), np.float32)
ACTIONS = spaces.Discrete(2)


class Recorder:
    """Plays random episodes into a buffer and keeps every transition in plain lists, newest last."""

    def __init__(self, buffer: AlternatingReplayBuffer, n_rows: int, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.transitions: list[list[dict]] = [[] for _ in range(buffer.n_envs)]
        number = 1000.0 * np.arange(buffer.n_envs)
        for row in range(n_rows):
            obs = number[:, None].astype(np.float32)
            next_obs = obs + 1
            reward = rng.normal(size=buffer.n_envs).astype(np.float32)
            kind = rng.choice(["goes on", "terminal", "time limit"], p=[0.7, 0.15, 0.15], size=buffer.n_envs)
            action = rng.integers(2, size=buffer.n_envs)
            infos = [{"TimeLimit.truncated": k == "time limit"} for k in kind]
            buffer.add(obs, next_obs, action, reward, kind != "goes on", infos)
            for env in range(buffer.n_envs):
                self.transitions[env].append(
                    dict(obs=obs[env, 0], row=row, action=action[env], reward=reward[env], kind=kind[env])
                )
            number += np.where(kind == "goes on", 1, 10)

    def expected(self, obs: float, n_steps: int, gamma: float) -> tuple[int, float, float, float, float, int]:
        """Row, return, next observation, terminal, discount and action, by walking along the list."""
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
                return (
                    transition["row"],
                    total,
                    last["obs"] + 1,
                    float(last["kind"] == "terminal"),
                    discount,
                    transition["action"],
                )
        raise AssertionError(f"observation {obs} was never stored")


@pytest.mark.parametrize("n_rows", [5, 11, 16, 41])  # before, at and after the ring wraps around
@pytest.mark.parametrize("optimize_memory_usage", [False, True])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_samples_equal_a_walk_along_the_trajectory(n_rows, optimize_memory_usage, n_envs, n_steps):
    gamma = 0.9
    buffer = AlternatingReplayBuffer(
        16 * n_envs,
        OBSERVATIONS,
        ACTIONS,
        "cpu",
        n_envs,
        optimize_memory_usage=optimize_memory_usage,
        n_steps=n_steps,
        gamma=gamma,
    )
    recorder = Recorder(buffer, n_rows)
    np.random.seed(0)
    oldest = max(n_rows - 16, 0) + (1 if optimize_memory_usage and n_rows >= 16 else 0)
    for actor in (Actor.PRIMARY, Actor.REFERENCE, None):
        batch = buffer.sample(600, actor=actor)
        rows = set()
        for i, obs in enumerate(batch.observations[:, 0].tolist()):
            row, total, next_obs, terminal, discount, action = recorder.expected(obs, n_steps, gamma)
            rows.add(row)
            assert batch.rewards[i].item() == pytest.approx(total, abs=1e-5)
            assert batch.next_observations[i].item() == next_obs
            assert batch.dones[i].item() == terminal
            assert batch.discounts[i].item() == pytest.approx(discount, rel=1e-6)
            assert batch.actions[i].item() == action
        # every row of the actor is reached, and no other
        assert rows == {row for row in range(oldest, n_rows) if actor is None or row % 2 == actor}


def test_without_handling_of_time_limits_they_count_as_terminal():
    buffer = AlternatingReplayBuffer(8, OBSERVATIONS, ACTIONS, "cpu", handle_timeout_termination=False)
    obs = np.zeros((1, 1), np.float32)
    for _ in range(4):
        buffer.add(obs, obs, np.zeros(1, int), np.zeros(1), np.ones(1, bool), [{"TimeLimit.truncated": True}])
    assert buffer.sample(10).dones.min() == 1


@pytest.mark.parametrize(("buffer_size", "n_envs", "n_rows"), [(1, 1, 2), (7, 1, 8), (8, 1, 8), (30, 4, 8), (1, 4, 2)])
def test_the_number_of_rows_is_rounded_up_to_even(buffer_size, n_envs, n_rows):
    assert AlternatingReplayBuffer(buffer_size, OBSERVATIONS, ACTIONS, "cpu", n_envs).buffer_size == n_rows
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


def test_buffer_arguments_of_the_user_win_and_are_saved_as_given(tmp_path):
    env = make_vec_env(CountingEnv)
    kwargs = dict(handle_timeout_termination=False)
    model = CAMPDQN("MlpPolicy", env, n_steps=3, buffer_size=10, replay_buffer_kwargs=kwargs, device="cpu")
    assert (model.replay_buffer.n_steps, model.replay_buffer.handle_timeout_termination) == (3, False)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=env, n_steps=5)
    assert (loaded.replay_buffer.n_steps, loaded.replay_buffer.handle_timeout_termination) == (5, False)
    assert loaded.replay_buffer_kwargs == kwargs


def test_dict_observations_are_sampled_by_actor_too():
    space = spaces.Dict({"number": OBSERVATIONS})
    buffer = AlternatingDictReplayBuffer(10, space, ACTIONS, "cpu")
    for number in range(25):
        obs = {"number": np.full((1, 1), number, np.float32)}
        next_obs = {"number": obs["number"] + 1}
        buffer.add(obs, next_obs, np.zeros(1, int), np.zeros(1), np.zeros(1, bool), [{}])
    for actor in Actor:
        batch = buffer.sample(200, actor=actor)
        assert set(batch.observations["number"].flatten().tolist()) == {n for n in range(15, 25) if n % 2 == actor}
        assert (batch.next_observations["number"] - batch.observations["number"]).unique().tolist() == [1.0]
