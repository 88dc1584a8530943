"""Frozen statistics show exactly what VecNormalize shows outside of training; nothing in its pickle is executed."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.errors import InputError
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.wrappers.frozen_normalization import FrozenNormalizeObservation


class Sensors(gym.Env):
    """Two sensors with different units and a code that is left alone."""

    observation_space = spaces.Dict(
        {
            "pressure": spaces.Box(0, 2e5, (2,), np.float64),
            "share": spaces.Box(0, 1, (), np.float32),
            "code": spaces.Box(0, 9, (1,), np.float32),
        }
    )
    action_space = spaces.Discrete(2)

    def _observation(self):
        return {
            "pressure": 1e5 + 300 * self.np_random.standard_normal(2),
            "share": np.float32(self.np_random.random()),
            "code": np.array([3.0], np.float32),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 0.0, False, False, {}


def trained_statistics(env_id, path, **settings):
    env = VecNormalize(make_vec_env(env_id, n_envs=2, seed=0), **settings)
    env.reset()
    for _ in range(200):
        env.step(np.array([env.action_space.sample() for _ in range(2)]))
    env.save(str(path))
    return env


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("Pendulum-v1", {}),
        ("CartPole-v1", {"clip_obs": 0.5, "epsilon": 1e-2}),
        (Sensors, {"norm_obs_keys": ["pressure", "share"]}),
    ],
)
def test_shows_what_vec_normalize_shows_outside_of_training(env, settings, tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    trained_statistics(env, path, **settings)
    theirs = VecNormalize.load(str(path), make_vec_env(env, n_envs=1, seed=7))
    theirs.training = False
    ours = FrozenNormalizeObservation(make_vec_env(env, n_envs=1).envs[0], **read_normalization(path))
    expected, (shown, _) = theirs.reset(), ours.reset(seed=7)
    for _ in range(50):
        for key in expected if isinstance(expected, dict) else [None]:
            one, other = (expected, shown) if key is None else (expected[key], shown[key])
            assert other.dtype == np.float32
            np.testing.assert_array_equal(one[0], other)
        action = ours.action_space.sample()
        shown, _, terminated, truncated, _ = ours.step(action)
        if terminated or truncated:
            break
        expected = theirs.step(np.array([action]))[0]
    assert ours.observation_space.contains(shown)


def test_statistics_of_rewards_alone_change_no_observation(tmp_path):
    trained_statistics("CartPole-v1", tmp_path / "vecnormalize.pkl", norm_obs=False)
    assert read_normalization(tmp_path / "vecnormalize.pkl") is None


class Hostile:
    def __reduce__(self):
        return eval, ("open('marker', 'w')",)


def test_nothing_in_the_pickle_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = trained_statistics("CartPole-v1", tmp_path / "sound.pkl")
    env.obs_spaces = Hostile()
    (tmp_path / "hostile.pkl").write_bytes(pickle.dumps(env))
    assert read_normalization(tmp_path / "hostile.pkl") == read_normalization(tmp_path / "sound.pkl")
    assert not (tmp_path / "marker").exists()


def test_pickles_of_the_old_gym_and_the_new_numpy_are_read(tmp_path):
    env = trained_statistics("CartPole-v1", tmp_path / "new.pkl")
    # The names that gym 0.21 and NumPy 1 wrote, protocol 2 has them as texts
    old = pickle.dumps(env, protocol=2).replace(b"cgymnasium.", b"cgym.")
    for core in (b"numpy.core.multiarray\n", b"numpy._core.multiarray\n"):
        other = b"numpy._core.multiarray\n" if core == b"numpy.core.multiarray\n" else b"numpy.core.multiarray\n"
        (tmp_path / "old.pkl").write_bytes(old.replace(b"c" + other, b"c" + core))
        assert b"gym.spaces" in old and b"gymnasium" not in old
        assert read_normalization(tmp_path / "old.pkl") == read_normalization(tmp_path / "new.pkl")


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps({"obs_rms": 1}), pickle.dumps(3)])
def test_anything_else_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"vecnormalize.pkl: not the statistics of a VecNormalize[^\n]*$"):
        read_normalization(path)


@pytest.mark.parametrize(
    ("mean", "var", "message"),
    [
        ([0.0] * 3, [1.0] * 3, "does not fit the observation"),
        ([0.0] * 4, [1.0] * 3, "does not fit the observation"),
        ([0.0] * 4, [-1.0] * 4, "at least 0"),
        ([float("nan")] * 4, [1.0] * 4, "finite"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(mean, var, message):
    with pytest.raises(InputError, match=message):
        FrozenNormalizeObservation(gym.make("CartPole-v1"), mean, var)


@pytest.mark.parametrize(
    ("model", "files", "found"),
    [
        ("model.zip", ["vecnormalize.pkl"], "vecnormalize.pkl"),
        ("model.zip", ["model_vecnormalize.pkl"], "model_vecnormalize.pkl"),
        ("best_model.zip", ["Pendulum-v1/args.yml", "Pendulum-v1/vecnormalize.pkl"], "Pendulum-v1/vecnormalize.pkl"),
        (
            "rl_model_500_steps.zip",
            ["rl_model_vecnormalize_500_steps.pkl", "vecnormalize.pkl"],
            "rl_model_vecnormalize_500_steps.pkl",
        ),
        ("rl_model_500_steps.zip", ["rl_model_vecnormalize_400_steps.pkl"], None),
        ("model.zip", ["other/vecnormalize.pkl"], None),
        ("model.zip", ["vec_normalize.pkl"], "vec_normalize.pkl"),
    ],
)
def test_finds_the_statistics_where_sb3_and_the_zoo_leave_them(model, files, found, tmp_path):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    assert statistics_beside(tmp_path / model) == (None if found is None else tmp_path / found)
