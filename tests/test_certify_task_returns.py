"""The lowest return: no certificate may assume that what was not seen cannot happen."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from support.certify_runs import certify, error_line
from support.logs import write_evaluation

from sb3_camp.certification.bounds import certified_return
from sb3_camp.tasks import TASKS
from sb3_camp.tasks.returns import lowest_return


def evaluated(tmp_path: Path, returns: np.ndarray, env_id: str, env_kwargs: dict[str, Any], min_reward: float = 0.0) -> Path:
    path = tmp_path / "evaluations.npz"
    changes = dict(env_id=env_id, env_kwargs=json.dumps(env_kwargs), min_reward=min_reward, sigma=12.75)
    write_evaluation(path, returns, np.full(returns.size, 30), **changes)
    return path


def test_pong_can_be_lost_although_no_episode_was(tmp_path):
    path = evaluated(tmp_path, np.ones(1000), "camp/Pong1r-v0", {})
    assert certify(path, "--radii", 0, 6.375, "-o", tmp_path / "out") == 0
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["min_return"] == -1
    expected = certified_return(np.ones(1000), 12.75, [0, 6.375], min_return=-1)
    assert certificate["certified_return"] == pytest.approx(expected.tolist())


def test_images_have_their_radii_in_255ths_too(tmp_path, capsys):
    path = evaluated(tmp_path, np.ones(100), "camp/Pong1r-v0", {})
    assert certify(path, "--radii", 0, 6.375, 12.75, "-o", tmp_path / "out") == 0
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert (certificate["pixels"], certificate["radii_over_255"]) == (True, [0, 0.025, 0.05])
    out = capsys.readouterr().out
    assert "Noise sigma 12.75 of 255 (0.05); method" in out
    assert re.findall(r"^ +(12.75) +(0.05) +(1.000) +\S+$", out, re.M)
    write_evaluation(path, np.ones(100))
    assert certify(path, "-o", tmp_path / "out") == 0
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert (certificate["pixels"], certificate["radii_over_255"]) == (None, None)
    assert "255" not in capsys.readouterr().out
    write_evaluation(path, np.ones(100), pixels=True)  # of any other environment, where evaluate has noted it
    assert certify(path, "-o", tmp_path / "out") == 0 and "radius/255" in capsys.readouterr().out


def test_a_lowest_return_above_that_of_the_task_is_refused(tmp_path, capsys):
    path = evaluated(tmp_path, np.ones(100), "camp/Pong1r-v0", {"sigma": 12.75})
    assert "camp/Pong1r-v0 can return -1" in error_line(capsys, path, "--min-return", 0)
    assert certify(path, "--min-return", -2, "-o", tmp_path / "out") == 0


def test_a_support_below_zero_needs_no_further_word(tmp_path):
    path = evaluated(tmp_path, np.array([1.0] * 50 + [-1.0] * 50), "camp/Pong1r-v0", {}, min_reward=-1.0)
    assert certify(path, "--method", "clopper-pearson", "--support", -1, 0, 1, "-o", tmp_path / "out") == 0


@pytest.mark.parametrize(
    ("env_id", "changed"),
    [("camp/Freeway-v0", {"game": "pong"}), ("camp/Highway-v0", {"config": {"normalize_reward": False}})],
)
def test_a_task_with_changed_rewards_asks_for_its_lowest_return(env_id, changed, tmp_path, capsys):
    path = evaluated(tmp_path, np.ones(100), env_id, changed)
    assert "pass --min-return" in error_line(capsys, path)
    assert certify(path, "--min-return", -21, "-o", tmp_path / "out") == 0


def test_every_task_has_a_lowest_return_and_settings_that_may_change_it_are_its_own():
    for env_id, task in TASKS.items():
        assert lowest_return(env_id, {"sigma": 1.0}) is not None
        game = ("game",) if "game" in task.registration["kwargs"] else ()
        for setting in ("config",) if "Highway" in env_id else game:
            assert lowest_return(env_id, {setting: None}) is None
    assert lowest_return("Made-v0", {}) is None


@pytest.mark.parametrize("worth", [0, 0.4, 50.0])
def test_no_reward_of_highway_is_negative_whatever_speed_is_worth(worth):
    pytest.importorskip("highway_env")
    assert lowest_return("camp/HighwaySpeed-v0", {"high_speed_reward": worth}) == 0
    options: Any = dict(vectorization_mode="vector_entry_point", high_speed_reward=worth)
    envs = gym.make_vec("camp/HighwaySpeed-v0", 128, **options)
    envs.reset(seed=0)
    envs.action_space.seed(0)
    crashes = 0
    for _ in range(30):
        _, rewards, terminations, _, _ = envs.step(envs.action_space.sample())
        crashes += int(terminations.sum())
        assert rewards.min() >= 0 and rewards.max() <= 1
    assert crashes > 50


def test_settings_of_the_environment_are_shown_and_what_it_can_return_is_no_lowest_return(tmp_path, capsys):
    path = evaluated(tmp_path, np.full(100, 5.0), "camp/HighwaySpeed-v0", {"high_speed_reward": 0.4, "sigma": 12.75})
    assert "an episode of camp/HighwaySpeed-v0 can return 0: leave it out" in error_line(capsys, path, "--min-return", 0.5)
    assert certify(path, "-o", tmp_path / "out") == 0
    assert 'Environment made with {"high_speed_reward": 0.4}\n' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env_id", "lowest"),
    [
        ("CartPole-v0", 0),
        ("CartPole-v1", 0),
        ("Pendulum-v1", -3254.72),
        ("MountainCar-v0", -200),
        ("Acrobot-v1", -500),
        ("MountainCarContinuous-v0", -99.9),
    ],
)
def test_what_is_known_of_gymnasiums_environments_holds_in_them(env_id, lowest):
    known = lowest_return(env_id, {})
    assert known == pytest.approx(lowest, rel=1e-5)
    env = gym.make(env_id)
    assert env.spec is not None and env.spec.max_episode_steps is not None
    for action in (env.action_space.sample(), getattr(env.action_space, "high", 0), getattr(env.action_space, "low", 1)):
        env.reset(seed=0)
        if env_id.startswith("Pendulum"):
            env.unwrapped.state = np.array([np.pi, 8.0])
            assert env.step(action)[1] >= known / env.spec.max_episode_steps
        total, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        assert total >= known
        assert env_id in ("CartPole-v0", "CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0") or total == known
    assert lowest_return(env_id, {"render_mode": "rgb_array"}) == known
    for changed in ("max_episode_steps", "sutton_barto_reward", "new"):
        assert lowest_return(env_id, {changed: 1}) is None


def test_pendulum_reaches_what_is_known_as_its_lowest_reward_nearly():
    env = gym.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    env.state = np.array([np.pi * (1 - 1e-12), 8.0])
    reward = env.step(np.array([2.0], np.float32))[1]
    assert 0 <= reward - lowest_return("Pendulum-v1", {}) / 200 < 1e-5


def test_a_car_that_pushes_with_full_force_and_stays_below_reaches_what_is_known_as_its_lowest_return_nearly():
    env = gym.make("MountainCarContinuous-v0")
    env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        _, reward, terminated, truncated, _ = env.step(np.array([-1.0], np.float32))
        total, done = total + float(reward), terminated or truncated
    assert 0 <= total - lowest_return("MountainCarContinuous-v0", {}) < 0.01


def test_where_the_lowest_return_is_not_known_it_is_asked_for(tmp_path, capsys):
    path = tmp_path / "evaluations.npz"
    for changes, texts in (
        ({"env_id": "Made-v0"}, ["the lowest return of Made-v0 is not known, and the episodes seen need not show it"]),
        (
            {"env_id": "Made-v0", "min_reward": -1.5},
            ["lowest reward of a step (seen: -1.5) times the most steps of an episode"],
        ),
        ({"env_id": "BipedalWalker-v3"}, ["the most steps of an episode (1600 unless changed)"]),
        ({"env_kwargs": '{"sutton_barto_reward": true}'}, ["settings of CartPole-v1 were changed (sutton_barto_reward)"]),
    ):
        write_evaluation(path, np.arange(1.0, 30), **changes)
        line = error_line(capsys, path)
        assert all(
            text in line for text in [f"{path}: ", "pass --min-return, a return that no episode can fall below", *texts]
        )
        assert certify(path, "--min-return", -3) == 0
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        assert (certificate["min_return"], certificate["min_return_basis"]) == (-3, "given")
        assert "Assumed: no episode can return less than -3\n" in capsys.readouterr().out
    write_evaluation(path, np.arange(1.0, 30))
    assert certify(path) == 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert (certificate["min_return"], certificate["min_return_basis"]) == (0, "known")
    assert "Known of CartPole-v1: no episode can return less than 0\n" in capsys.readouterr().out


METHODS = [["berk-jones"], ["dkw"], *(["clopper-pearson", "--support", *points] for points in (("3", "7", "20"), ("20",)))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("highest", [0, 3])
def test_says_how_the_bound_depends_on_the_lowest_return(tmp_path, capsys, method, highest):
    returns = np.random.default_rng(0).permutation([3.0] * 5 + [7.0] * 30 + [20.0] * 100)
    path = write_evaluation(tmp_path / "evaluations.npz", returns, env_id="Made-v0")
    options = ["--radii", 0, 0.1, 0.4, 1.1, "--method", *method, "--min-return"]
    curves, slopes = {}, {}
    if "3" in method and highest == 3:
        return  # a threshold too, which shares alpha as soon as the lowest return is below it
    for lowest in (highest, -1, -50):
        assert certify(path, *options, lowest) == 0
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        curves[lowest], slopes[lowest] = map(np.array, (certificate["certified_return"], certificate["min_return_slope"]))
    for lowest in (-1, -50):
        np.testing.assert_allclose(
            curves[lowest], curves[highest] + (lowest - highest) * slopes[highest], rtol=1e-9, atol=1e-9
        )
        np.testing.assert_array_equal(slopes[lowest], slopes[highest])
    text = capsys.readouterr().out
    assert "For each 1 that an episode could return less than -50, the bound would be lower by\n" in text
    numbers = re.findall(r"^(\S+) at radius 0, (\S+) at radius 0.4, (\S+) at radius 1.1$", text, re.M)[-1]
    for number, slope in zip(map(float, numbers), slopes[highest][[0, 2, 3]], strict=True):
        assert 0 <= number - slope <= 1.0001e-4


NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 12.75}}


@pytest.mark.parametrize(
    ("wrappers", "versions", "reason"),
    [
        (["my.SeveralEpisodesAreOne"], {"gymnasium": "1", "my": "sha256:0"}, "my.SeveralEpisodesAreOne"),
        ([], {"gymnasium": "1", "my_envs": "2"}, "also of my_envs"),  # which registered an env of its own as Pendulum-v1
        ([], {"gymnasium": "1", "registration of Pendulum-v1": "{}"}, "the registration of Pendulum-v1 is another"),
        (["rl_zoo3.wrappers.HistoryWrapper"], {"gymnasium": "1", "rl_zoo3": "2"}, None),
        ([], None, None),  # of an older version
    ],
)
def test_a_lowest_return_is_known_only_of_gymnasiums_own_episodes(wrappers, versions, reason, tmp_path, capsys):
    path = tmp_path / "evaluations.npz"
    changes: dict[str, Any] = {} if versions is None else {"env_versions": json.dumps(versions)}
    changes |= dict(env_id="Pendulum-v1", env_kwargs="{}", min_reward=-16.0, sigma=12.75)
    changes |= dict(env_wrappers=json.dumps({"env_wrapper": [NOISE, *wrappers]}))
    write_evaluation(path, np.full(1000, -300.0), np.full(1000, 200), **changes)
    if reason is None:
        assert certify(path, "-o", tmp_path / "out") == 0
    else:
        assert reason in error_line(capsys, path)
        assert certify(path, "--min-return", -10_000, "-o", tmp_path / "out") == 0
