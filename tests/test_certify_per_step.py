"""``certify --epsilon``: a bound on each step as the norm over an episode, in closed forms and against perturbations drawn."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from support.certify_runs import RETURNS, certify, error_line
from support.logs import write_evaluation

from sb3_camp.certification import certified_cost, certified_probability, certified_return
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.quantities_figure import quantities_figure
from sb3_camp.certification.sensor_table import most_steps, sensors
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.perturbed_numbers import perturbed_numbers


def certified(folder, *options, **log):
    path = write_evaluation(folder / "evaluations.npz", RETURNS, **{"step_limit": 200, "noisy_numbers": 4, **log})
    assert certify(path, *options) == 0
    return read_certificate(folder / "certificate.json")


@pytest.mark.parametrize(
    ("options", "radius", "numbers"),
    [
        (["0.01"], 0.01 * math.sqrt(200), None),
        (["0.01", "--epsilon-norm", "linf"], 0.01 * math.sqrt(200 * 4), 4),
        (["0.01", "0", "0.02", "0.02", "--epsilon-norm", "linf"], 0.03 * math.sqrt(200), 4),
        (["0"], 0.0, None),
    ],
)
def test_the_radius_and_what_is_certified_at_it(options, radius, numbers, tmp_path, capsys):
    certificate = certified(tmp_path, "--epsilon", *options, "--probability-of", 100)
    found = certificate.per_step
    assert found.radius >= radius and found.radius == pytest.approx(radius, rel=1e-14)
    assert (found.steps, found.steps_assumed, found.numbers) == (200, False, numbers)
    assert found.certified_return == certified_return(RETURNS, 0.4, [found.radius])[0]
    assert found.certified == [certified_probability(RETURNS, 0.4, 100, [found.radius])[0]]
    out = capsys.readouterr().out
    assert found.formula in out and "--steps" not in out
    assert len(certificate.radii) == 121  # the curve is the same as without it


@pytest.mark.parametrize(("epsilon", "vacuous"), [(0.02, False), (0.2, True)])
def test_a_bound_that_says_nothing_is_called_vacuous(epsilon, vacuous, tmp_path, capsys):
    certificate = certified(tmp_path, "--epsilon", epsilon)
    out = capsys.readouterr().out
    assert ("vacuous" in out) is vacuous
    share = (certificate.per_step.certified_return - certificate.min_return) / certificate.mean_return
    assert (share < 0.01) is vacuous
    if vacuous:  # and how much smaller a bound must be
        times = float(out.split("certified up to ")[1].split()[0])
        kept = certified_return(RETURNS, 0.4, [times * certificate.per_step.radius])[0]
        assert certificate.mean_return / 2 <= kept <= 0.6 * certificate.mean_return


SENSORS = {"sigma": 1.0, "sensor_sigma": "[0.5, 2.0, 300.0]", "noisy_numbers": 3, "step_limit": 202}


@pytest.mark.parametrize(
    ("epsilon", "norm", "scale"),
    [
        ([0.05, 0.3, 20.0], "linf", [0.05, 0.3, 20.0]),
        ([0.03], "linf", [0.03 * 0.5, 0.03 * 2.0, 0.03 * 300.0]),
        ([0.03], "l2", None),
    ],
)
def test_with_a_sigma_for_each_sensor_no_perturbation_within_the_bound_has_a_larger_norm(epsilon, norm, scale, tmp_path):
    found = certified(tmp_path, "--epsilon", *epsilon, "--epsilon-norm", norm, **SENSORS).per_step
    sigma = np.array([0.5, 2.0, 300.0])
    rng = np.random.default_rng(0)
    norms = []
    for extreme in (False, True) * 50:
        if scale is not None:  # each number within its own bound
            unit = rng.uniform(-1, 1, (202, 3))
            steps = np.array(scale) * (np.sign(unit) if extreme else unit)
        else:  # each step, divided by sigma, within the ball
            unit = rng.standard_normal((202, 3))
            unit *= epsilon[0] / np.linalg.norm(unit, axis=1, keepdims=True)
            steps = sigma * unit * (1 if extreme else rng.uniform(0, 1, (202, 1)))
        norms.append(np.linalg.norm(steps / sigma))
    assert max(norms) == pytest.approx(found.radius, rel=1e-12) and found.radius >= max(norms) * (1 - 1e-14)


def test_a_number_without_noise_is_not_counted(tmp_path, capsys):
    half = {**SENSORS, "sensor_sigma": "[0.5, 0.0, 300.0]", "noisy_numbers": 2, "clean_keys": '["[1]"]'}
    one = certified(tmp_path, "--epsilon", 0.03, "--epsilon-norm", "linf", **half).per_step
    assert one.radius == pytest.approx(0.03 * math.sqrt(202 * 2))
    each = certified(tmp_path, "--epsilon", 0.05, 0, 30, "--epsilon-norm", "linf", **half).per_step
    assert each.radius == pytest.approx(math.sqrt(202 * (0.1**2 + 0.1**2)))
    capsys.readouterr()
    log = tmp_path / "evaluations.npz"
    assert "sensor [1] has no noise" in error_line(capsys, log, "--epsilon", 0.05, 1, 30, "--epsilon-norm", "linf")


def test_the_number_of_steps_may_be_an_assumption_that_is_named(tmp_path, capsys):
    unknown = {"step_limit": None, "noisy_numbers": None}
    found = certified(tmp_path, "--epsilon", 0.01, "--steps", 250, **unknown).per_step
    assert (found.steps, found.steps_assumed) == (250, True)
    printed = capsys.readouterr().out
    assert "Assumed: no episode has more than 250 steps (--steps)" in printed
    assert "through all of the 250 steps that an episode can have (assumed: --steps)" in printed
    assert sensors(read_certificate(tmp_path / "certificate.json"))[0].offset == pytest.approx(0.4 / math.sqrt(250))
    of_an_older_version = json.loads((tmp_path / "certificate.json").read_text())
    of_an_older_version["per_step"]["steps_assumed"] = False
    (tmp_path / "older.json").write_text(json.dumps(of_an_older_version))
    assert most_steps(read_certificate(tmp_path / "older.json")) == (250, "250 steps that an episode can have")
    log = tmp_path / "evaluations.npz"
    assert "the longest seen had 200" in error_line(capsys, log, "--epsilon", 0.01)
    assert "holds an episode of 200 steps" in error_line(capsys, log, "--epsilon", 0.01, "--steps", 199)
    assert "how many numbers" in error_line(capsys, log, "--epsilon", 0.01, "--steps", 200, "--epsilon-norm", "linf")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "nan"], "finite numbers"),
        (["--epsilon", "-1"], "at least 0"),
        (["--epsilon", 1e100], "beyond 1e+100"),
        (["--epsilon", 1, "--steps", 10**30], "--steps must be from 1 to"),
        (["--epsilon", 1, "--steps", 0], "--steps must be from 1 to"),
        (["--epsilon", 1, "--steps", 300], "can have 200 steps: leave it out"),
        (["--epsilon", 1, 2, 3, 4], "give --epsilon-norm linf"),
        (["--epsilon", 1, 2, "--epsilon-norm", "linf"], "2 numbers, but the observation has 4"),
        (["--steps", 200], "are for --epsilon"),
        (["--epsilon-norm", "linf"], "are for --epsilon"),
        (["--epsilon", 1, "--frontier"], "cannot be used with --frontier"),
        (["--epsilon", 1, "--plan", "--target", 1, "--radius", 0], "cannot be used with --plan"),
    ],
)
def test_what_does_not_fit_is_one_line(options, message, tmp_path, capsys):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS, step_limit=200, noisy_numbers=4)
    assert message in error_line(capsys, path, *options)


def test_a_dict_observation_takes_one_number(tmp_path, capsys):
    air_and_sun = {"sensor_sigma": '{"air": [0.5, 0.5], "sun": 300.0}', "sigma": 1.0, "noisy_numbers": 3}
    found = certified(tmp_path, "--epsilon", 0.1, "--epsilon-norm", "linf", **air_and_sun).per_step
    assert found.radius == pytest.approx(0.1 * math.sqrt(200 * 3))
    capsys.readouterr()
    log = tmp_path / "evaluations.npz"
    assert "Dict observation" in error_line(capsys, log, "--epsilon", 1, 2, 3, "--epsilon-norm", "linf")


@pytest.mark.parametrize("damage", [{"steps": -1}, {"radius": "1"}, {"epsilon": [None]}, {"certified": None}])
def test_a_damaged_entry_is_refused(damage, tmp_path):
    certified(tmp_path, "--epsilon", 0.1)
    file = tmp_path / "certificate.json"
    content = json.loads(file.read_text())
    content["per_step"] |= damage
    file.write_text(json.dumps(content))
    with pytest.raises(Exception, match="per_step must be"):
        read_certificate(file)


class Joined(gym.Wrapper):
    """Two episodes as one: nothing is known of a wrapper like it."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info


class Room(gym.Env):
    observation_space = spaces.Dict({"air": spaces.Box(-1, 1, (2,)), "sun": spaces.Box(0, 9, (3, 1)), "day": spaces.Box(0, 1)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"


@pytest.mark.parametrize(
    ("env_id", "wrappers", "expected"),
    [
        ("CartPole-v1", [{NOISE: {"sigma": 0.1}}], {"step_limit": 500, "noisy_numbers": 4}),
        ("CartPole-v1", [{NOISE: {"sigma": [0.1, 0, 0.1, 0]}}], {"step_limit": 500, "noisy_numbers": 2}),
        ("camp/CartPole5-v0", [], {"step_limit": 200, "noisy_numbers": 4}),
        ("tests/Room-v0", [{NOISE: {"sigma": 0.1, "clean_keys": ["day"]}}], {"noisy_numbers": 5}),
        ("tests/Room-v0", [{NOISE: {"sigma": {"air": [0.1, 0.0], "sun": 1.0, "day": 0.0}}}], {"noisy_numbers": 4}),
        # What shows several noisy observations at once, from outside of the noise
        (
            "Pendulum-v1",
            [{NOISE: {"sigma": [0.1, 0.0, 0.5]}}, {"rl_zoo3.wrappers.HistoryWrapper": {"horizon": 2}}],
            {"step_limit": 200, "noisy_numbers": 2},
        ),
        # What may join episodes outside of a limit voids it, inside of it nothing does
        ("CartPole-v1", [{NOISE: {"sigma": 0.1}}, f"{__name__}.Joined"], {"noisy_numbers": 4}),
        (
            "CartPole-v1",
            [f"{__name__}.Joined", {"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 30}}, {NOISE: {"sigma": 0.1}}],
            {"step_limit": 30, "noisy_numbers": 4},
        ),
        # Each of the 50 steps takes four noisy observations
        (
            "CartPole-v1",
            [
                {NOISE: {"sigma": 0.1}},
                {"gymnasium.wrappers.MaxAndSkipObservation": {"skip": 4}},
                {"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 50}},
            ],
            {"step_limit": 500, "noisy_numbers": 4},
        ),
    ],
)
def test_an_evaluation_knows_its_step_limit_and_its_noisy_numbers(env_id, wrappers, expected):
    if "tests/Room-v0" not in gym.registry:
        gym.register("tests/Room-v0", Room, disable_env_checker=True)
    env_kwargs = {"sigma": 0.4} if env_id.startswith("camp/") else {}
    assert perturbed_numbers(EvaluationEnv(env_id, env_kwargs, {"env_wrapper": wrappers})) == expected


def test_what_was_recorded_is_certified_at_the_radius_of_the_bound_too(tmp_path, capsys):
    rng = np.random.default_rng(1)
    crashed, cost = rng.random(RETURNS.size) < 0.01, rng.uniform(0, 9, RETURNS.size)
    records = {
        "record": '["crashed:any", "cost:sum"]',
        "recorded": np.array([crashed, cost], dtype=float),
        "recorded_boolean": np.array([True, False]),
    }
    options = ["--at-most", "crashed", "cost", "--worst", "cost:10", "--quantile", 0.1, "--epsilon", 0.02]
    certificate = certified(tmp_path, *options, **records)
    bound, radius = certificate.per_step, 0.02 * math.sqrt(200)
    upper = stats.beta.ppf(1 - 0.05 / 3, crashed.sum() + 1, RETURNS.size - crashed.sum())
    crash = stats.norm.cdf(stats.norm.ppf(upper) + radius / 0.4)
    expected_cost = certified_cost(cost, 0.4, radius, alpha=0.05 / 3, max_cost=10)
    np.testing.assert_allclose(bound.recorded, [crash, float(expected_cost)], rtol=1e-9)
    # between what is certified at the radii around it
    for one, value in zip(certificate.recorded, bound.recorded, strict=True):
        index = certificate.index_at(radius)
        assert one.certified[index - 1] <= value <= one.certified[index]
    out = capsys.readouterr().out.split("Against an adversary")[1]
    assert f"probability of: crashed at any time of an episode, at most: {math.ceil(crash * 1e5) / 1e5:.5f}\n" in out
    assert "return that an episode reaches, except with a probability of 10 %: " in out

    figure = quantities_figure(certificate)
    crosses = [line.get_xydata()[0] for axes in figure.axes for line in axes.get_lines() if line.get_marker() == "X"]
    np.testing.assert_allclose(
        crosses, [(bound.radius, value) for value in (bound.certified_return, *bound.certified, *bound.recorded)]
    )
    content = json.loads((tmp_path / "certificate.json").read_text())
    del content["per_step"]["recorded"]  # as older versions wrote it
    (tmp_path / "certificate.json").write_text(json.dumps(content))
    older = read_certificate(tmp_path / "certificate.json")
    assert older.per_step.recorded == [] and quantities_figure(older)
    for entry, numbers in (("recorded", [0.5]), ("recorded", [0.5] * 3), ("certified", []), ("recorded", ["a", "b"])):
        changed = {**content, "per_step": {**content["per_step"], entry: numbers}}
        (tmp_path / "certificate.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match="per_step must"):
            read_certificate(tmp_path / "certificate.json")


def test_a_radius_beyond_the_curves_does_not_squeeze_them(tmp_path):
    certificate = certified(tmp_path, "--epsilon", 1)
    (axes,) = quantities_figure(certificate).axes
    assert axes.get_xlim()[1] < 2 and not any(line.get_marker() == "X" for line in axes.get_lines())
