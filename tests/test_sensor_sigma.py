"""Each sensor has noise of its own standard deviation; the certificate counts perturbations in these units."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from scipy import stats
from scipy.special import ndtr
from stable_baselines3 import DQN

from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.evaluate import main as evaluate
from sb3_camp.runs.scenario import Scenario
from sb3_camp.wrappers import NoisyObservationWrapper, vector


class Plant(gym.Env):
    """A reading of three sensors, or two named groups of them, that never moves."""

    action_space = spaces.Discrete(2)

    def __init__(self, named=False):
        group = spaces.Box(-1e6, 1e6, (3,), np.float64)
        self.named = named
        single = spaces.Box(0, 1, (), np.float32)
        self.observation_space = spaces.Dict(a=group, b=single, c=group) if named else group

    def _observation(self):
        values = np.array([20.0, 50.0, 1e5])
        return {"a": values, "b": np.float32(0.5), "c": values} if self.named else values

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 0.0, False, False, {}


def sample(env, n=4000):
    env.reset(seed=0)
    return [env.step(0)[0] for _ in range(n)]


def test_each_entry_has_the_noise_of_its_own_sigma():
    env = NoisyObservationWrapper(Plant(), sigma=[0.5, 0.0, 100.0])
    shown = np.array(sample(env))
    assert shown.dtype == np.float32 and np.all(shown[:, 1] == 50.0)
    # The 99.99 % interval of a standard deviation of 4,000 normal numbers
    low, high = np.sqrt(stats.chi2(3999).ppf([5e-5, 1 - 5e-5]) / 3999)
    deviations = shown.astype(np.float64).std(axis=0, ddof=1)[[0, 2]] / [0.5, 100.0]
    assert np.all((low < deviations) & (deviations < high))
    assert abs(np.corrcoef(shown[:, 0], shown[:, 2])[0, 1]) < 0.07
    assert (env.sigma, env.clean_keys, env.sensor_sigma) == (1.0, ("[1]",), [0.5, 0.0, 100.0])


def test_entries_of_a_dict_have_a_sigma_each():
    env = NoisyObservationWrapper(Plant(named=True), sigma={"a": [0.5, 0.0, 100.0], "b": 0.1, "c": 0})
    shown = sample(env, 1000)
    assert np.std([one["b"] for one in shown]) == pytest.approx(0.1, rel=0.1)
    assert np.std([one["a"][2] for one in shown]) == pytest.approx(100, rel=0.1)
    assert all(np.all(one["c"] == [20.0, 50.0, 1e5]) for one in shown)
    assert (env.sigma, env.clean_keys) == (1.0, ("c", "a[1]"))


def test_one_number_for_all_is_what_it_was():
    for sigma in (0.3, [0.3, 0.3, 0.3]):
        env = NoisyObservationWrapper(Plant(), sigma=sigma)
        shown = np.array(sample(env, 10))
        if isinstance(sigma, float):
            expected = shown
    np.testing.assert_allclose(shown, expected, rtol=1e-6)


def test_the_twin_for_vector_environments_does_the_same():
    envs = vector.NoisyObservationWrapper(gym.vector.SyncVectorEnv([Plant] * 2), sigma=[0.5, 0.0, 100.0])
    envs.reset(seed=0)
    shown = np.concatenate([envs.step(np.zeros(2, dtype=int))[0] for _ in range(1000)])
    np.testing.assert_allclose(shown.astype(np.float64).std(axis=0), [0.5, 0.0, 100.0], rtol=0.1)
    assert envs.clean_keys == ("[1]",)


@pytest.mark.parametrize(
    ("named", "sigma", "message"),
    [
        (False, [1.0, 1.0], "has the shape"),
        (False, {"a": 1.0}, "must be a number or a list"),
        (False, [0.0, 0.0, 0.0], "every sigma is 0"),
        (False, [1.0, -1.0, 1.0], "finite and >= 0"),
        (False, [1.0, float("nan"), 1.0], "finite and >= 0"),
        (False, [1.0, "x", 1.0], "must hold numbers"),
        (False, [[1.0], [1.0, 2.0], 1.0], "lists of one shape"),
        (True, [1.0, 1.0, 1.0], "must be a number or a mapping"),
        (True, {"a": 1.0, "b": 1.0}, "must name each entry of the observation: 'c'"),
        (True, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, "must name each entry of the observation: 'd'"),
        (True, {"a": 0, "b": 0.0, "c": [0, 0, 0]}, "every sigma is 0"),
    ],
)
def test_a_sigma_that_does_not_fit_is_refused(named, sigma, message):
    with pytest.raises(InputError, match=message):
        NoisyObservationWrapper(Plant(named), sigma=sigma)


@pytest.mark.parametrize("sigma", [[0.5, 0.0, 100.0], {"a": [0.5, 0.0, 100.0], "b": 0.1, "c": 0.0}])
def test_settings_and_live_environments_tell_the_same(sigma):
    env = NoisyObservationWrapper(Plant(isinstance(sigma, dict)), sigma=sigma)
    entry = {"sb3_camp.wrappers.NoisyObservationWrapper": json.loads(json.dumps({"sigma": sigma}))}
    noise = Scenario("Plant-v0", wrappers={"env_wrapper": [entry]}).configured_noise()
    assert noise is not None
    assert (noise.sigma, noise.sensor_sigma) == (env.sigma, env.sensor_sigma) == (1.0, sigma)
    assert set(noise.clean_keys) == set(env.clean_keys)
    assert Scenario("Plant-v0").with_noise(sigma).configured_noise() == noise


@pytest.mark.parametrize("sigma", [[], [0, 0], ["1"], [True], [-1.0], {"a": None}, {"a": [1.0, float("inf")]}])
def test_settings_that_cannot_be_a_sigma_are_refused(sigma):
    entry = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": sigma}}
    with pytest.raises(InputError, match=r"config\.yml: the sigma of NoisyObservationWrapper in env_wrapper must be numbers"):
        Scenario("Plant-v0", wrappers={"env_wrapper": [entry]}).configured_noise("config.yml")


class TwoSensors(gym.Env):
    """One step: degrees and pascals are shown, and the action 1 is right."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = spaces.Discrete(2)
    shown = np.array([3.0, -100.0])

    def __init__(self, varies=False):
        self.varies = varies

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown + self.varies * np.array([2.0, 300.0]) * self.np_random.standard_normal(2), {}

    def step(self, action):
        return self.shown, float(action), True, False, {}


@pytest.fixture
def half_space(tmp_path):
    """Takes the action 1 where degrees + pascals / 200 is positive."""
    env = TwoSensors()
    model = DQN("MlpPolicy", env, buffer_size=1, policy_kwargs={"net_arch": []}, device="cpu")
    with th.no_grad():
        layer = model.q_net.q_net[0]
        layer.weight.copy_(th.tensor([[0.0, 0.0], [1.0, 1 / 200]]))
        layer.bias.zero_()
    model.save(tmp_path / "model.zip")
    for name, varies in (("tests/TwoSensors-v0", False), ("tests/VaryingSensors-v0", True)):
        if name not in gym.registry:
            gym.register(name, TwoSensors, kwargs={"varies": varies}, max_episode_steps=1, disable_env_checker=True)
    return tmp_path / "model.zip"


def certified(model, *sigma, env="tests/TwoSensors-v0"):
    options = ("--algo", "dqn", "--env", env, "--model", model, "-n", 4000, "--device", "cpu", "-o", model.parent / "out")
    assert evaluate([*map(str, options), "--sigma", *map(str, sigma)]) == 0
    log = model.parent / "out" / "evaluations.npz"
    assert certify([str(log), "--min-return", "0", "--radii", "0", "0.5", "1", "2"]) == 0
    return json.loads(log.with_name("certificate.json").read_text())


def test_the_certificate_is_the_truth_in_units_of_each_sigma(half_space, capsys):
    found = certified(half_space, 1.0, 200.0)
    # Of the noise of the score, and its lowest value under a perturbation of norm R in units of sigma: (3 - 0.5) - R sqrt(2)
    truth = ndtr(2.5 / np.sqrt(2) - np.array([0.0, 0.5, 1.0, 2.0]))
    curve = np.array(found["certified_return"])
    assert np.all(curve <= truth) and np.all(curve >= truth - 0.05)
    assert (found["sigma"], found["sensor_sigma"], found["longest_episode"]) == (1.0, [1.0, 200.0], 1)
    assert "[1]            200          200" in capsys.readouterr().out


def test_a_sensor_without_noise_is_named_as_not_covered(half_space, capsys):
    found = certified(half_space, 1.0, 0.0)
    assert found["clean_keys"] == ["[1]"]
    assert "Not covered: perturbations of the entries [1]" in capsys.readouterr().out
    truth = ndtr(2.5 - np.array([0.0, 0.5, 1.0, 2.0]))
    assert np.all(np.array(found["certified_return"]) <= truth)


def test_a_share_of_how_much_each_sensor_varies(half_space):
    found = certified(half_space, "auto:0.1", env="tests/VaryingSensors-v0")
    np.testing.assert_allclose(found["sensor_sigma"], [0.2, 30.0], rtol=0.25)


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (["0.1", "x"], "--sigma takes numbers"),
        (["auto:0"], "takes one positive number"),
        (["auto:0.1", "2"], "takes one positive number"),
        (["a:x"], "takes a number, or a list of numbers"),
        (["0"], "must be a positive number"),
        (["1e308"], "out of the range of single precision"),
        (["0.1", "1e-320"], "out of the range of single precision"),
        (["1", "2", "3"], "sigma has the shape"),
    ],
)
def test_what_the_option_cannot_use_is_one_line(sigma, message, half_space, capsys):
    options = ("--algo", "dqn", "--env", "tests/TwoSensors-v0", "--model", half_space, "-n", 10, "--sigma", *sigma)
    assert evaluate([*map(str, options)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_wrapper_is_built_again_from_its_specification():
    gym.register("tests/Plant-v0", Plant, disable_env_checker=True)
    env = NoisyObservationWrapper(gym.make("tests/Plant-v0"), sigma=[0.5, 0.0, 100.0])
    again = gym.make(env.spec)
    assert again.get_wrapper_attr("sensor_sigma") == [0.5, 0.0, 100.0]
    np.testing.assert_array_equal(env.reset(seed=3)[0], again.reset(seed=3)[0])
