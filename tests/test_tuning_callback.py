"""Certified evaluations during a training: their numbers, what they leave behind, and that the training goes on as before."""

import json
import random
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, StopTrainingOnNoModelImprovement
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize
from support.small_camp import same, small_model, weights

import sb3_camp
from sb3_camp import CAMPDQN, CertifiedReturnCallback
from sb3_camp.certification import (
    certified_cvar,
    certified_probability,
    certified_quantile,
    certified_radius,
    certified_return,
)
from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.evaluation.native import opened_native
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.runs.normalization import normalization_of, read_normalization, statistics_beside
from sb3_camp.tuning.selection import SELECTION_MEMBER, selection_seed

TASK = "camp/CartPole1-v0"
NOISY = EvaluationEnv(TASK)


def certified(eval_env=NOISY, **kwargs) -> CertifiedReturnCallback:
    settings = dict(n_eval_episodes=12, eval_freq=100, n_eval_envs=5, radii=[0.0, 0.1, 0.3], verbose=0)
    return CertifiedReturnCallback(eval_env, **{**settings, **kwargs})


def trained(folder, steps=320, n_envs=1, **kwargs):
    """A short training with the callback; the callback, and the columns of its file."""
    callback = certified(log_path=folder, best_model_save_path=folder, **kwargs)
    model = small_model(make_vec_env(TASK, n_envs, seed=0))
    model.learn(steps, callback=callback)
    with np.load(folder / "certified_evaluations.npz", allow_pickle=False) as file:
        return callback, dict(file)


def make(kind):
    env = make_vec_env(TASK, 2, seed=0)
    if kind is CAMPDQN:
        return small_model(env)
    if kind is PPO:
        return PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, seed=0, device="cpu")
    return kind("MlpPolicy", env, learning_starts=50, train_freq=8, buffer_size=1000, seed=0, device="cpu")


@pytest.mark.parametrize("kind", [CAMPDQN, DQN, NoisyNetDQN, PPO])
@pytest.mark.parametrize("deterministic", [True, False])
def test_the_training_takes_no_notice_of_the_evaluations(kind, deterministic):
    plain = make(kind).learn(256)
    callback = certified(eval_freq=60, deterministic=deterministic)
    watched = make(kind).learn(256, callback=callback)
    assert callback.last_mean_reward > 0, "no evaluation was made"
    assert same(weights(plain.policy), weights(watched.policy))
    assert not same(weights(plain.policy), weights(make(kind).policy)), "nothing was learned"


def test_the_global_generators_go_on_where_they_were():
    model = make(DQN)
    callback = certified()
    callback.init_callback(model)
    model.set_logger(configure(None, []))
    draws = []
    for evaluations in (0, 2):
        random.seed(1)
        np.random.seed(1)
        th.manual_seed(1)
        for _ in range(evaluations):
            callback.evaluate()
        draws.append((random.random(), np.random.random(), float(th.rand(1))))
    assert draws[0] == draws[1]


def test_every_number_of_the_file_follows_from_its_episodes(tmp_path):
    _, data = trained(tmp_path, targets=[2.0, 500.0], objective="area", objective_radius=0.2, alpha=0.1)
    assert data["timesteps"].tolist() == [100, 200, 300]
    assert data["results"].shape == data["ep_lengths"].shape == (3, 12)
    assert np.array_equal(data["results"], data["ep_lengths"]), "each step of CartPole earns 1"
    assert data["sigma"] == 0.2
    for returns, curve, radii in zip(data["results"], data["certified_returns"], data["certified_radii"], strict=True):
        assert np.array_equal(curve, certified_return(returns, 0.2, [0.0, 0.1, 0.3], alpha=0.1))
        assert radii[0] == certified_radius(returns, 0.2, 2.0, alpha=0.1)
        assert np.isnan(radii[1]), "no episode is that long"
    area = certified_return(data["results"][0], 0.2, np.linspace(0, 0.2, 2001), alpha=0.1).mean()
    assert data["values"][0] == pytest.approx(area, rel=1e-3)


def test_evaluations_have_episodes_of_their_own(tmp_path):
    _, data = trained(tmp_path)
    seeds = [set(range(first, last + 1)) for first, last in zip(data["first_env_seeds"], data["last_env_seeds"], strict=True)]
    assert len(set.union(*seeds)) == 3 * 15, "the three rounds of five envs in each of three evaluations"
    assert len({tuple(row) for row in data["results"]}) == 3


def test_environments_that_step_one_by_one_are_played_exactly_too(tmp_path):
    environment = EvaluationEnv("CartPole-v1", wrappers={"frame_stack": 1}).with_noise(0.1)
    model = small_model(learning_starts=1000)
    model.learn(120, callback=certified(environment, log_path=tmp_path))
    with np.load(tmp_path / "certified_evaluations.npz") as data, environment.opened(5) as env:
        assert data["sigma"] == 0.1
        again = play_episodes(model, env, 12, seed=int(data["first_env_seeds"][0]))
        assert np.array_equal(again.returns, data["results"][0])


def test_the_best_checkpoint_is_the_one_that_was_evaluated_best_and_says_so(tmp_path):
    callback, data = trained(tmp_path)
    best = int(np.argmax(data["values"]))
    assert callback.best_mean_reward == data["values"][best] == data["certified_returns"][best, 2]
    path = tmp_path / "best_certified_model.zip"
    model = CAMPDQN.load(path, device="cpu")
    assert model.num_timesteps == data["timesteps"][best]
    with opened_native(NOISY, 5) as env:
        again = play_vector_episodes(model, env, 12, seed=int(data["first_env_seeds"][best]))
    assert np.array_equal(again.returns, data["results"][best])
    note = json.loads(zipfile.ZipFile(path).read(SELECTION_MEMBER))
    assert note["value"] == data["values"][best] and note["first_env_seed"] == data["first_env_seeds"][best]


@pytest.mark.parametrize("steps", [120, 320])
def test_certify_refuses_the_episodes_of_the_selection(tmp_path, capsys, steps):
    trained(tmp_path, steps)
    assert certify([str(tmp_path / "certified_evaluations.npz")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "selected the checkpoint" in error and "evaluate" in error


def test_no_selection_shares_a_seed_with_an_evaluation_or_an_everyday_training():
    evaluations = [chunk.seed for seed in range(200) for chunk in plan_chunks(1_000_000, 64, seed)]
    selections = [selection_seed(seed, 0) for seed in range(200)]
    assert min(evaluations) >= 2**30 and max(evaluations) + 64 < min(selections)
    assert max(selections) + 2**29 < 2**32, "NumPy's generator takes no higher seed"
    assert len(set(selections)) == 200


def test_the_logger_gets_the_curve_and_the_radii(tmp_path):
    model = small_model(make_vec_env(TASK, 1, seed=0))
    model.set_logger(configure(str(tmp_path), ["csv"]))
    asked = {"probability_of": [9.0], "quantiles": [0.25], "cvars": [0.5]}
    callback = certified(targets=[2.0], log_path=tmp_path, **asked)
    model.learn(120, callback=callback, log_interval=None)
    names, values = (line.split(",") for line in (tmp_path / "progress.csv").read_text().splitlines())
    logged = dict(zip(names, values, strict=True))
    with np.load(tmp_path / "certified_evaluations.npz") as data:
        for i, radius in enumerate(("0", "0.1", "0.3")):
            assert float(logged[f"eval/certified_return_{radius}"]) == data["certified_returns"][0, i]
            for name, at, function in (
                ("probability_of_9", 9.0, certified_probability),
                ("quantile_0.25", 0.25, certified_quantile),
                ("cvar_0.5", 0.5, certified_cvar),
            ):
                assert float(logged[f"eval/{name}_{radius}"]) == function(
                    data["results"][0], callback.sigma, at, float(radius)
                )
        assert float(logged["eval/certified_radius_2"]) == data["certified_radii"][0, 0]
        assert float(logged["eval/smoothed_mean_reward"]) == data["results"].mean()


def test_numbers_that_are_nearly_equal_have_entries_of_their_own(tmp_path, capsys):
    model = small_model(make_vec_env(TASK, 1, seed=0))
    model.set_logger(configure(str(tmp_path), ["csv", "stdout"]))  # the table cuts off long names
    radii, targets = [0.1234561, 0.1234564, 1234567, 1234568], [-1.234567892e-05, -1.234567891e-05, 3.0]
    model.learn(120, callback=certified(radii=radii, targets=targets), log_interval=None)
    names = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    found = {
        kind: {n.removeprefix(f"eval/{kind}_") for n in names if kind in n}
        for kind in ("certified_return", "certified_radius")
    }
    assert found["certified_return"] == {"0.1234561", "0.1234564", "1234567", "1234568"}
    assert len(found["certified_radius"]) == 3
    assert "certified_return_0.1234561" in capsys.readouterr().out


@pytest.mark.parametrize("n_envs", [3, 8])
def test_eval_freq_counts_the_steps_of_all_envs(tmp_path, n_envs):
    _, data = trained(tmp_path, n_envs=n_envs)
    assert data["timesteps"].tolist() == [-(-steps // n_envs) * n_envs for steps in (100, 200, 300)]


def test_a_training_ends_at_the_target():
    model = small_model(make_vec_env(TASK, 1, seed=0))
    model.learn(1000, callback=certified(stop_at=0.1))
    assert model.num_timesteps == 100


def test_callbacks_of_sb3_go_by_the_certified_return():
    class Count(BaseCallback):
        n = 0

        def _on_step(self):
            self.n += 1
            return True

    new_best, stop = Count(), StopTrainingOnNoModelImprovement(max_no_improvement_evals=0, verbose=0)
    model = small_model(make_vec_env(TASK, 1, seed=0), learning_starts=10_000)  # that learns nothing
    callback = certified(callback_on_new_best=new_best, callback_after_eval=stop, eval_freq=50, radii=[0.2])
    model.learn(5000, callback=callback)
    assert new_best.n == model.num_timesteps // 50 - 1, "one more evaluation than improvements: the last one"
    assert model.num_timesteps < 5000


def test_an_environment_that_cannot_be_certified_is_refused_at_the_start():
    model = small_model(make_vec_env(TASK, 1, seed=0))
    with pytest.raises(InputError, match="no smoothing noise"):
        model.learn(10, callback=certified(EvaluationEnv("CartPole-v1")))
    with pytest.raises(InputError, match="no smoothing noise"):
        model.learn(10, callback=certified(EvaluationEnv(TASK, {"sigma": 0.0})))
    with pytest.raises(InputError, match="needs eval_env"):
        model.learn(10, callback=certified(None))
    normalized = DQN("MlpPolicy", VecNormalize(make_vec_env(TASK, 1)), buffer_size=10, device="cpu")
    twice = NOISY.with_normalization({"mean": [0.0] * 4, "var": [1.0] * 4})
    with pytest.raises(InputError, match="leave out its normaliser"):
        normalized.learn(10, callback=certified(twice))


@pytest.mark.parametrize("settings", [{}, {"training": False}, {"norm_obs": False}])
def test_a_training_that_normalises_is_evaluated_with_its_statistics_of_then(settings, tmp_path):
    """A policy that was saved with them plays the same episodes again, by the statistics that were saved beside it."""
    env = VecNormalize(make_vec_env(TASK, 2, seed=0), **settings)
    model = DQN("MlpPolicy", env, learning_starts=50, buffer_size=1000, seed=0, device="cpu")
    callback = certified(log_path=tmp_path, best_model_save_path=tmp_path)
    model.learn(320, callback=callback)
    with np.load(tmp_path / "certified_evaluations.npz", allow_pickle=False) as file:
        log = dict(file)
    best = int(np.argmax(log["values"]))
    saved = tmp_path / "best_certified_model_vecnormalize.pkl"
    assert saved.is_file() is settings.get("norm_obs", True)
    environment = NOISY
    if saved.is_file():
        assert statistics_beside(tmp_path / "best_certified_model.zip") == saved
        arguments = read_normalization(saved)
        # The statistics moved since, unless they are frozen
        assert (arguments == normalization_of(env)) is (not settings.get("training", True) or best == len(log["values"]) - 1)
        environment = NOISY.with_normalization(arguments)
    policy = DQN.load(tmp_path / "best_certified_model.zip", device="cpu")
    seed = int(log["first_env_seeds"][best])
    if saved.is_file():
        with environment.opened(5) as envs:
            again = play_episodes(policy, envs, 12, seed=seed)
    else:
        with opened_native(environment, 5) as envs:
            again = play_vector_episodes(policy, envs, 12, seed=seed, step_limit=200)
    np.testing.assert_array_equal(again.returns, log["results"][best])


@pytest.mark.parametrize(
    "wrong",
    [
        {"radii": []},
        {"radii": [-0.1]},
        {"radii": [float("nan")]},
        {"radii": [0.2, 0.1, 0.2]},
        {"radii": [0.2, 0.200000000001]},
        {"targets": [5, 5.0]},
        {"quantiles": [1.0]},
        {"cvars": [0.0]},
        {"n_eval_episodes": 0},
        {"eval_freq": 0},
        {"n_eval_envs": 0},
        {"objective": "mean"},
        {"targets": [float("nan")]},
        {"alpha": 0},
        {"method": "bayes"},
        {"method": "clopper-pearson"},
        {"sigma_range": [0.5, 0.1]},
        {"sigma_range": [0.0, 0.1]},
        {"eval_env": "CartPole-v1"},
    ],
)
def test_arguments_that_cannot_be_used_are_refused_when_the_yml_is_read(wrong):
    with pytest.raises(InputError):
        certified(**{"eval_env": NOISY, **wrong})


@pytest.mark.parametrize(("env_id", "known"), [("MountainCar-v0", -200), ("Acrobot-v1", -500), ("Pendulum-v1", -3254.722)])
def test_a_lowest_return_above_the_known_one_is_refused_before_anything_is_evaluated(env_id, known):
    env = EvaluationEnv(env_id).with_noise(0.1)
    model = PPO("MlpPolicy", env_id, n_steps=8, batch_size=8, device="cpu")
    with pytest.raises(InputError, match=f"pass min_return={known}"):
        model.learn(1, callback=certified(env))
    model.learn(1, callback=certified(env, min_return=known))


def test_returns_below_the_lowest_possible_one_are_an_error():
    class Debt(gym.RewardWrapper):
        def reward(self, reward):
            return -1.0

    gym.register("tests/Debt-v0", lambda: Debt(gym.make("CartPole-v1", max_episode_steps=20)))
    model = small_model(make_vec_env(TASK, 1, seed=0))
    with pytest.raises(InputError, match="min_return"):
        model.learn(120, callback=certified(EvaluationEnv("tests/Debt-v0").with_noise(0.1)))


def test_the_name_is_public():
    assert sb3_camp.CertifiedReturnCallback is CertifiedReturnCallback and "CertifiedReturnCallback" in sb3_camp.__all__
