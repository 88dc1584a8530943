import base64
import json
import os
import zipfile

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from sb3_contrib import ARS, QRDQN, RecurrentPPO
from scipy import stats
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.atari_wrappers import AtariWrapper, ClipRewardEnv, EpisodicLifeEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv, load_checkpoint, play_episodes
from sb3_camp.evaluation.checkpoint import check_spaces
from sb3_camp.evaluation.chunks import EPISODES_PER_ENV, plan_chunks
from sb3_camp.evaluation.results import check_finished, read_partial, write_evaluation, write_partial
from sb3_camp.wrappers import NoisyObservationWrapper

NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.2}}
STACK = {"gymnasium.wrappers.FrameStackObservation": {"stack_size": 4}}


class AlwaysZero:
    """A fixed policy with SB3's predict, that remembers the first observations of the episodes."""

    def __init__(self):
        self.first_observations = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.first_observations.extend(observation[episode_start])
        return np.zeros(len(observation), dtype=int), None


class TiltPolicy:
    """Pushes CartPole to where it leans."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (observation[:, 2] > 0).astype(int), None


class RandomLengthEnv(gym.Env):
    """Ends at each step with probability 0.2; every step earns 1, so the return is the length, 5 in the mean."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}


class RankEnv(RandomLengthEnv):
    """Earns its number at the end of an episode, the first episode of env 3: 3, the second: 13, ..."""

    def __init__(self, rank):
        self.next_return = rank

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        reward = self.next_return if terminated else 0
        self.next_return += 10 * terminated
        return observation, reward, terminated, truncated, info


def noisy_cartpoles(n_envs, vec_env_cls=DummyVecEnv):
    return make_vec_env(
        "CartPole-v1",
        n_envs,
        wrapper_class=NoisyObservationWrapper,
        wrapper_kwargs={"sigma": 0.2},
        vec_env_cls=vec_env_cls,
        vec_env_kwargs={"start_method": "fork"} if vec_env_cls is SubprocVecEnv else None,
    )


# Which episodes count


@pytest.mark.parametrize("monitored", [True, False])
def test_every_env_plays_its_fixed_share(monitored):
    wrap = Monitor if monitored else lambda env: env
    env = DummyVecEnv([lambda rank=rank: wrap(RankEnv(rank)) for rank in range(4)])
    n_calls = []
    returns, lengths = play_episodes(AlwaysZero(), env, 10, seed=0, on_episode=lambda: n_calls.append(1))
    # By turns: all first episodes, all second ones, and a third of the last two envs
    np.testing.assert_array_equal(returns, [0, 1, 2, 3, 10, 11, 12, 13, 22, 23])
    assert returns.dtype == np.float64 and lengths.dtype == np.int64 and lengths.min() >= 1
    assert len(n_calls) == 10


def test_short_episodes_are_not_over_represented():
    env = DummyVecEnv([lambda: Monitor(RandomLengthEnv())] * 16)
    returns = np.concatenate([play_episodes(AlwaysZero(), env, 16, seed=100 * i)[0] for i in range(250)])
    standard_error = np.sqrt(0.8) / 0.2 / np.sqrt(returns.size)
    assert abs(returns.mean() - 5) < 4 * standard_error
    # The first 16 episodes to finish, in the same setting, would be far off
    rng = np.random.default_rng(0)
    lengths = rng.geometric(0.2, (250, 16, 16))
    finish = lengths.cumsum(axis=2).reshape(250, -1)
    first = np.take_along_axis(lengths.reshape(250, -1), finish.argsort(axis=1)[:, :16], axis=1)
    assert first.mean() < 5 - 10 * standard_error


def test_time_limit_outside_of_monitor_ends_episodes():
    env = DummyVecEnv([lambda: TimeLimit(Monitor(gym.make("CartPole-v1")), 5)] * 2)
    returns, lengths = play_episodes(AlwaysZero(), env, 3, seed=0)
    np.testing.assert_array_equal(returns, [5, 5, 5])
    np.testing.assert_array_equal(lengths, [5, 5, 5])


def test_return_is_raw_where_rewards_are_changed_outside_of_monitor():
    def make():
        env = Monitor(TimeLimit(gym.make("Pendulum-v1").unwrapped, 7))
        return ClipRewardEnv(env)

    class NoTorque:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.zeros((len(observation), 1), np.float32), None

    returns, lengths = play_episodes(NoTorque(), DummyVecEnv([make] * 2), 4, seed=0)
    assert np.all(lengths == 7) and np.all(returns != -7) and len(set(returns)) == 4
    # and in a VecNormalize
    normalized = VecNormalize(DummyVecEnv([make] * 2), norm_obs=False)
    np.testing.assert_array_equal(play_episodes(NoTorque(), normalized, 4, seed=0)[0], returns)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DummyVecEnv([lambda: TimeLimit(ClipRewardEnv(Monitor(gym.make("CartPole-v1"))), 5)]),
        lambda: DummyVecEnv([lambda: TimeLimit(gym.wrappers.NormalizeReward(Monitor(gym.make("CartPole-v1"))), 5)]),
        lambda: VecNormalize(DummyVecEnv([lambda: TimeLimit(Monitor(gym.make("CartPole-v1")), 5)]), norm_obs=False),
    ],
)
def test_unknown_raw_return_is_an_error(make):
    with pytest.raises(InputError, match="outside of Monitor"):
        play_episodes(AlwaysZero(), make(), 1, seed=0)


def test_a_lost_life_does_not_end_an_episode():
    import ale_py

    gym.register_envs(ale_py)
    env = make_vec_env("BreakoutNoFrameskip-v4", 2, wrapper_class=AtariWrapper)
    model = PPO("CnnPolicy", env, n_steps=8, batch_size=8, seed=0)
    model.set_random_seed(3)
    env.seed(3)
    expected = evaluate_policy(model, env, 2, deterministic=False, return_episode_rewards=True)
    # It has left the env whose game was over first in the middle of the next one, which must not be continued
    returns, lengths = play_episodes(model, env, 2, seed=3, deterministic=False)
    assert sorted(returns) == sorted(expected[0])
    assert sorted(lengths) == sorted(expected[1])
    assert min(lengths) > 300  # of raw frames: five lives, not one


class TwoLivesEnv(gym.Env):
    """Loses a life at its second step; the game is over one step later, the idle step that EpisodicLifeEnv makes at reset."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.ale = self
        self.game = 0

    def lives(self):
        return 2 - (self.t >= 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.game += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), float(self.game), self.t == 3, False, {}


def test_a_game_that_ends_in_the_reset_after_a_lost_life_counts():
    env = DummyVecEnv([lambda: EpisodicLifeEnv(Monitor(TwoLivesEnv()))])
    returns, lengths = play_episodes(AlwaysZero(), env, 3, seed=0)
    np.testing.assert_array_equal(returns, [3, 6, 9])
    np.testing.assert_array_equal(lengths, [3, 3, 3])


class LosesALifeEnv(TwoLivesEnv):
    """Goes on for three more steps after the lost life."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.t == 6, truncated, info


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Monitor(EpisodicLifeEnv(LosesALifeEnv())), "lives of one game are not independent"),
        (lambda: EpisodicLifeEnv(LosesALifeEnv()), "put a Monitor inside"),
    ],
)
def test_lives_counted_as_episodes_are_an_error(make, message):
    with pytest.raises(InputError, match=message):
        play_episodes(AlwaysZero(), DummyVecEnv([make]), 3, seed=0)


class StepEcho(gym.Env):
    """Earns 1 for an action that equals the number of steps in the episode, modulo 3; episodes of 4 to 9 steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(4, 10))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = float(action == self.t % 3)
        self.t += 1
        return np.zeros(1, np.float32), reward, self.t == self.length, False, {}


class CountingPolicy:
    """A recurrent policy whose state is the number of steps in the episode."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        state = np.zeros(len(observation), dtype=int) if state is None else state
        state = np.where(episode_start, 0, state)
        return state % 3, state + 1


def test_recurrent_states_are_kept_and_reset_per_env():
    returns, lengths = play_episodes(CountingPolicy(), DummyVecEnv([StepEcho] * 3), 20, seed=0)
    np.testing.assert_array_equal(returns, lengths)
    assert len(set(lengths)) > 1


# Seeds


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_episodes_are_independent_and_reproducible(vec_env_cls):
    env = noisy_cartpoles(8, vec_env_cls)
    policies = [AlwaysZero() for _ in range(3)]
    first, again, other = (play_episodes(p, env, 40, seed=s) for p, s in zip(policies, (0, 0, 1000), strict=True))
    env.close()
    assert len(np.unique(policies[0].first_observations, axis=0)) == len(policies[0].first_observations) >= 40
    assert len({tuple(first[0][i::8]) for i in range(8)}) == 8
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(policies[0].first_observations, policies[1].first_observations)
    assert not np.array_equal(first[0], other[0])


def test_law_of_the_returns_does_not_depend_on_the_number_of_envs():
    one, _ = play_episodes(TiltPolicy(), noisy_cartpoles(1), 1000, seed=0)
    many, _ = play_episodes(TiltPolicy(), noisy_cartpoles(16), 1000, seed=10_000)
    assert stats.ks_2samp(one, many).pvalue > 0.01


def test_sampled_actions_are_reproducible():
    env = noisy_cartpoles(3)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8)
    first, again = (play_episodes(model, env, 12, seed=5, deterministic=False)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, play_episodes(model, env, 12, seed=5)[0])


@pytest.mark.parametrize(("n_episodes", "n_envs"), [(1, 1), (10_000, 64), (100, 8), (1601, 64), (7, 7)])
def test_chunks_share_no_seed(n_episodes, n_envs):
    seeds = []
    for seed in (0, 1, 2**40):
        chunks = plan_chunks(n_episodes, n_envs, seed)
        assert sum(chunk.n_episodes for chunk in chunks) == n_episodes
        assert all(1 <= chunk.n_episodes <= EPISODES_PER_ENV * n_envs for chunk in chunks)
        seeds += [chunk.seed + i for chunk in chunks for i in range(n_envs)]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 2**30 and max(seeds) < 2**31


# Checkpoints


def edit_member(path, name, payload):
    with zipfile.ZipFile(path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    data = json.loads(files["data"])
    assert name in data
    data[name] = {":type:": "x", ":serialized:": base64.b64encode(payload).decode()}
    files["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)


class LeavesMark:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def small_model(algorithm, **kwargs):
    if algorithm in (PPO, RecurrentPPO):
        kwargs.update(n_steps=8, batch_size=8)
    policy = {RecurrentPPO: "MlpLstmPolicy", ARS: "LinearPolicy"}.get(algorithm, "MlpPolicy")
    return algorithm(policy, noisy_cartpoles(2), seed=0, device="cpu", **kwargs)


@pytest.mark.parametrize("algorithm", [DQN, PPO, CAMPDQN, QRDQN, RecurrentPPO, ARS])
def test_training_only_members_are_never_unpickled(algorithm, tmp_path):
    model = small_model(algorithm, learning_rate=lambda progress: 1e-3 * progress)
    model.save(tmp_path / "model.zip")
    expected = play_episodes(model, noisy_cartpoles(3), 6, seed=0)
    mark = tmp_path / "mark"
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        members = json.loads(archive.read("data"))
    for name in ("learning_rate", "lr_schedule", "exploration_schedule", "clip_range", "camp_lambda", "ep_info_buffer"):
        if name in members:
            edit_member(tmp_path / "model.zip", name, cloudpickle.dumps(LeavesMark(mark)))
    loaded = load_checkpoint(tmp_path / "model.zip", algorithm, "cpu")
    assert not mark.exists()
    np.testing.assert_array_equal(play_episodes(loaded, noisy_cartpoles(3), 6, seed=0), expected)
    assert not loaded.policy.training


@pytest.mark.parametrize("optimize_memory_usage", [False, True])
def test_no_full_replay_buffer_is_allocated(optimize_memory_usage, tmp_path):
    options = {"optimize_memory_usage": optimize_memory_usage}
    if optimize_memory_usage:
        options["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    DQN("MlpPolicy", noisy_cartpoles(1), buffer_size=10_000, device="cpu", **options).save(tmp_path / "model.zip")
    assert load_checkpoint(tmp_path / "model.zip", DQN, "cpu").replay_buffer.observations.shape[0] == 1


def test_member_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "model.zip"
    small_model(DQN, policy_kwargs={"net_arch": [8], "activation_fn": __import__("torch").nn.ReLU}).save(path)
    for payload in (b"not a pickle", b"cno_such_module\nthing\n."):
        edit_member(path, "policy_kwargs", payload)
        with pytest.raises(InputError, match="'policy_kwargs'") as error:
            load_checkpoint(path, DQN)
        assert "\n" not in str(error.value)


def test_what_is_not_a_checkpoint_of_the_algorithm_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("text")
    small_model(PPO).save(tmp_path / "ppo.zip")
    for name in ("text.zip", "ppo.zip"):
        with pytest.raises(InputError, match=f"{name}: not a checkpoint of DQN") as error:
            load_checkpoint(tmp_path / name, DQN)
        assert "\n" not in str(error.value)


def test_deterministic_actions_ignore_the_exploration_rate(tmp_path):
    results = []
    for rate in (0.0, 0.3):
        model = small_model(DQN)
        model.exploration_rate = rate
        model.save(tmp_path / "model.zip")
        loaded = load_checkpoint(tmp_path / "model.zip", DQN, "cpu")
        assert loaded.exploration_rate == rate
        results.append([play_episodes(loaded, noisy_cartpoles(4), 20, seed=0, deterministic=d)[0] for d in (True, False)])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert not np.array_equal(results[0][1], results[1][1])


def test_spaces_must_fit_but_bounds_may_differ(tmp_path):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=8)
    check_spaces(model, noisy_cartpoles(1), tmp_path)
    with pytest.raises(InputError, match="observes"):
        check_spaces(model, VecFrameStack(noisy_cartpoles(1), 2), tmp_path)
    with pytest.raises(InputError, match="actions"):
        check_spaces(DQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=8), make_vec_env(ThreeActions), tmp_path)


class ThreeActions(StepEcho):
    observation_space = spaces.Box(0, 1, (4,), np.float32)


# The environment


def test_noise_is_found_in_the_live_environment():
    assert EvaluationEnv("CartPole-v1").smoothing_sigma() is None
    assert EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": NOISE}).smoothing_sigma() == 0.2
    assert EvaluationEnv("CartPole-v1").with_noise(0.3).smoothing_sigma() == 0.3


def test_added_noise_is_outside_of_the_wrappers_and_inside_of_the_frame_stack():
    plain = EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": "rl_zoo3.wrappers.TimeFeatureWrapper", "frame_stack": 3})
    env = plain.with_noise(0.3).build(2)
    assert isinstance(env, VecFrameStack) and env.observation_space.shape == (15,)
    assert isinstance(env.unwrapped.envs[0], NoisyObservationWrapper)
    # Each frame noised once: the older frames of a stack are those that were there before
    first = env.reset()
    second = env.step(np.zeros(2, dtype=int))[0]
    np.testing.assert_array_equal(second[:, 5:10], first[:, 10:])


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([NOISE, NOISE], "2 smoothing noises"),
        ([STACK, NOISE], "comes after FrameStackObservation"),
        (["rl_zoo3.wrappers.HistoryWrapper", NOISE], "comes after HistoryWrapper"),
        ([NOISE, "gymnasium.wrappers.NormalizeObservation"], "NormalizeObservation"),
        (["gymnasium.wrappers.NormalizeObservation", NOISE], "NormalizeObservation"),
        ([NOISE, "gymnasium.wrappers.AddRenderObservation"], "shows the clean state"),
    ],
)
def test_what_would_void_the_certificate_is_an_error(wrappers, message):
    env_id = "Pendulum-v1" if "rl_zoo3.wrappers.HistoryWrapper" in wrappers else "CartPole-v1"
    environment = EvaluationEnv(env_id, {"render_mode": "rgb_array"}, {"env_wrapper": wrappers})
    with pytest.raises(InputError, match=message):
        environment.smoothing_sigma()


def test_frame_stack_outside_of_the_noise_is_fine():
    assert EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": [NOISE, STACK]}).smoothing_sigma() == 0.2


@pytest.mark.parametrize(
    "environment",
    [
        EvaluationEnv("NoSuchEnv-v0"),
        EvaluationEnv("CartPole-v1", {"no_such_argument": 1}),
        EvaluationEnv("CartPole-v1", wrappers={"env_wrapper": "no_such_module.Wrapper"}),
        EvaluationEnv("CartPole-v1", wrappers={"vec_env_wrapper": "stable_baselines3.common.vec_env.VecNormalize"}),
    ],
)
def test_environment_that_cannot_be_used_is_an_error_of_one_line(environment):
    with pytest.raises(InputError) as error:
        environment.build(1)
    assert "\n" not in str(error.value)


# The files

SETTINGS = {"sigma": 0.2, "seed": 3, "deterministic": True, "env_id": "CartPole-v1"}
RETURNS, LENGTHS = np.array([1.5, 2.0]), np.array([3, 4])


def test_finished_evaluation_is_in_the_format_of_the_zoo(tmp_path):
    write_evaluation(tmp_path / "new" / "evaluations.npz", SETTINGS, RETURNS, LENGTHS, timesteps=1000, model="m.zip")
    with np.load(tmp_path / "new" / "evaluations.npz", allow_pickle=False) as content:
        np.testing.assert_array_equal(content["timesteps"], [1000])
        np.testing.assert_array_equal(content["results"], [[1.5, 2.0]])
        np.testing.assert_array_equal(content["ep_lengths"], [[3, 4]])
        assert content["sigma"] == 0.2 and content["seed"] == 3 and content["deterministic"].dtype == bool
        assert str(content["format"]) == "sb3_camp-evaluation-1" and str(content["env_id"]) == "CartPole-v1"
    assert os.listdir(tmp_path / "new") == ["evaluations.npz"]


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "evaluations.npz"
    write_evaluation(path, SETTINGS, RETURNS, LENGTHS, timesteps=1)
    before = path.read_bytes()

    class Unwritable:
        def __array__(self, *args, **kwargs):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_evaluation(path, SETTINGS, RETURNS, LENGTHS, timesteps=2, model=Unwritable())
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["evaluations.npz"]


def test_partial_evaluation_goes_on_only_with_the_same_settings(tmp_path):
    path = tmp_path / "evaluations.partial.npz"
    write_partial(path, SETTINGS, RETURNS, LENGTHS, 2)
    returns, lengths, n_chunks = read_partial(path, SETTINGS)
    np.testing.assert_array_equal(returns, RETURNS)
    np.testing.assert_array_equal(lengths, LENGTHS)
    assert n_chunks == 2
    for name, value in {"sigma": 0.3, "seed": 4, "deterministic": False, "env_id": "CartPole-v0"}.items():
        with pytest.raises(InputError, match=f"made with {name} "):
            read_partial(path, {**SETTINGS, name: value})
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="cannot be read"):
        check_finished(path, SETTINGS)
