"""The Q-gap of an evaluation: over the steps of the episodes that count, resumed or not, and with the returns as without."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from support.evaluation_envs import noisy_cartpoles
from support.logs import write_evaluation

import sb3_camp.evaluate
import sb3_camp.evaluation.run_evaluation
from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.certification.episode_logs import read_log
from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.evaluation import play_episodes
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.evaluation.episode_seeds import seed_episodes
from sb3_camp.evaluation.evaluation_file import write_partial
from sb3_camp.evaluation.q_gaps import LEVELS, QGaps, q_gap_statistics

STATISTICS = {"q_gap_min", "q_gap_mean", "q_gap_steps", "q_gap_levels", "q_gap_quantiles"}


@pytest.fixture
def dqn_file(tmp_path):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu", seed=0)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def evaluate(model: Path, output: Path, *arguments: Any, algo: str = "dqn", env: str = "CartPole-v1") -> int:
    options = ["--model", model, "--algo", algo, "--env", env, "--sigma", 0.2, "--device", "cpu", "-o", output]
    return sb3_camp.evaluate.main(list(map(str, [*options, *arguments])))


def read(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "evaluations.npz", allow_pickle=False) as content:
        return dict(content)


def gaps_by_hand(model: Any, n_episodes: int, n_envs: int, seed: int) -> tuple[np.ndarray, list[float]]:
    """Play as the command does, env by env, and keep the gap of every step before its env has played its share."""
    gaps, returns = [], []
    for chunk in plan_chunks(n_episodes, n_envs, seed):
        env = noisy_cartpoles(n_envs)
        seed_episodes(env, chunk.seed)
        observations = env.reset()
        missing = [(chunk.n_episodes + i) // n_envs for i in range(n_envs)]
        while any(missing):
            scores = model.policy.q_net(th.as_tensor(observations)).detach().numpy()
            low, high = np.sort(scores, axis=1)[:, -2:].T
            gaps += [high[i] - low[i] for i in range(n_envs) if missing[i]]
            observations, _, dones, infos = env.step(scores.argmax(axis=1))
            for i in np.flatnonzero(dones):
                if missing[i]:
                    returns.append(infos[i]["episode"]["r"])
                    missing[i] -= 1
    return np.array(gaps), returns


def test_statistics_are_those_of_every_counted_step_and_the_returns_stay(dqn_file, tmp_path, capsys):
    arguments = ("-n", 7, "--n-envs", 3, "--seed", 5, "--vec-env", "dummy")
    assert evaluate(dqn_file, tmp_path / "plain", *arguments) == 0
    plain_output = capsys.readouterr().out
    assert evaluate(dqn_file, tmp_path / "gaps", *arguments, "--q-gap") == 0
    output = capsys.readouterr().out
    plain, content = read(tmp_path / "plain"), read(tmp_path / "gaps")
    assert content.keys() - plain.keys() == STATISTICS | {"q_gap"} and plain.keys() <= content.keys()
    for name in plain:
        np.testing.assert_array_equal(content[name], plain[name])

    gaps, returns = gaps_by_hand(DQN.load(dqn_file, device="cpu"), 7, 3, seed=5)
    assert sorted(returns) == sorted(content["results"][0])
    assert content["q_gap_steps"] == len(gaps) == content["ep_lengths"].sum()
    np.testing.assert_allclose(content["q_gap_min"], gaps.min(), rtol=1e-3, atol=1e-8)
    np.testing.assert_allclose(content["q_gap_mean"], gaps.mean(), rtol=1e-5)
    np.testing.assert_array_equal(content["q_gap_levels"], [0.01, 0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(content["q_gap_quantiles"], np.quantile(gaps, LEVELS), rtol=1e-4)
    assert all(content[name].dtype.kind in "if" for name in STATISTICS)

    line = next(line for line in output.splitlines() if line.startswith("Q-gap over "))
    assert f"{len(gaps)} steps: minimum {content['q_gap_min']:.3g}, mean {content['q_gap_mean']:.3g}" in line
    assert line.endswith(f"0.95: {content['q_gap_quantiles'][-1]:.3g}") and "Q-gap" not in plain_output


def test_statistics_are_computed_in_double_precision():
    gaps = np.array([0.1, 0.2, 0.7], dtype=np.float32)
    low, middle, high = gaps.tolist()
    statistics = q_gap_statistics(gaps)
    assert statistics["q_gap_mean"] == pytest.approx((low + middle + high) / 3, rel=1e-15)
    assert (statistics["q_gap_min"], statistics["q_gap_steps"]) == (low, 3)
    quantiles = dict(zip(LEVELS, statistics["q_gap_quantiles"], strict=True))
    assert quantiles[0.5] == middle
    assert quantiles[0.25] == pytest.approx((low + middle) / 2, rel=1e-15)
    assert quantiles[0.01] == pytest.approx(low + 0.02 * (middle - low), rel=1e-15)


def test_sampled_actions_are_the_same_with_the_flag(tmp_path):
    env = gym.make("CartPole-v1")
    for algo, model in (("ppo", PPO("MlpPolicy", env, seed=0, device="cpu")), ("a2c", A2C("MlpPolicy", env, seed=0))):
        model.save(tmp_path / f"{algo}.zip")
        for name, flags in (("plain", []), ("gaps", ["--q-gap"])):
            folder = tmp_path / algo / name
            assert evaluate(tmp_path / f"{algo}.zip", folder, "-n", 9, "--n-envs", 4, "--stochastic", *flags, algo=algo) == 0
        plain, gaps = read(tmp_path / algo / "plain"), read(tmp_path / algo / "gaps")
        np.testing.assert_array_equal(plain["results"], gaps["results"])
        # The gap of the logits of two actions, and so of their log-probabilities
        assert gaps["q_gap_min"] >= 0 and gaps["q_gap_mean"] > 0


def test_camp_dqn_reports_the_network_that_acts(tmp_path):
    model = CAMPDQN("MlpPolicy", gym.make("CartPole-v1"), buffer_size=8, device="cpu", seed=0)
    with th.no_grad():
        bias = model.policy.q_net.q_net[-1].bias
        model.policy.q_net.q_net[-1].weight.zero_()
        bias.copy_(th.tensor([0.25, 1.0]))
    model.save(tmp_path / "model.zip")
    assert evaluate(tmp_path / "model.zip", tmp_path, "-n", 3, "--q-gap", algo="camp_dqn") == 0
    content = read(tmp_path)
    assert content["q_gap_min"] == content["q_gap_mean"] == 0.75
    np.testing.assert_array_equal(content["q_gap_quantiles"], 0.75)


def test_interrupted_and_resumed_gives_the_statistics_of_uninterrupted(dqn_file, tmp_path, monkeypatch, capsys):
    arguments = ("-n", 120, "--n-envs", 2, "--vec-env", "dummy", "--q-gap")
    assert evaluate(dqn_file, tmp_path / "whole", *arguments) == 0

    def write_and_interrupt(path, settings, episodes, n_chunks, **more):
        write_partial(path, settings, episodes, n_chunks, **more)
        if n_chunks == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sb3_camp.evaluation.run_evaluation, "write_partial", write_and_interrupt)
        assert evaluate(dqn_file, tmp_path / "resumed", *arguments) == 130
    partial = tmp_path / "resumed" / "evaluations.partial.npz"
    before = partial.read_bytes()
    capsys.readouterr()
    assert evaluate(dqn_file, tmp_path / "resumed", *arguments[:-1], "--resume") == 2
    line = capsys.readouterr().err
    assert "cannot be resumed, it was made with q_gap True, not None" in line and line.count("\n") == 1
    assert partial.read_bytes() == before
    assert evaluate(dqn_file, tmp_path / "resumed", *arguments, "--resume") == 0
    assert "Resuming after 80 of 120 episodes" in capsys.readouterr().out
    whole, resumed = read(tmp_path / "whole"), read(tmp_path / "resumed")
    assert whole.keys() == resumed.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], resumed[name])


def test_an_evaluation_without_gaps_is_not_continued_with_them(dqn_file, tmp_path, capsys):
    assert evaluate(dqn_file, tmp_path, "-n", 3) == 0
    capsys.readouterr()
    assert evaluate(dqn_file, tmp_path, "-n", 3, "--q-gap", "--resume") == 2
    assert "made with q_gap None, not True" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "algo", "policy", "env", "reason"),
    [
        (PPO, "ppo", "MlpPolicy", "Pendulum-v1", "action scores need Discrete actions"),
        (RecurrentPPO, "ppo_lstm", "MlpLstmPolicy", "CartPole-v1", "not recurrent"),
    ],
)
def test_continuous_and_recurrent_policies_are_one_line(tmp_path, capsys, algorithm, algo, policy, env, reason):
    algorithm(policy, env, device="cpu").save(tmp_path / "model.zip")
    assert evaluate(tmp_path / "model.zip", tmp_path / "out", "-n", 2, "--q-gap", algo=algo, env=env) == 2
    line = capsys.readouterr().err
    assert line.startswith("evaluate: error: --q-gap: ") and reason in line and line.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_scores_without_a_gap_are_refused():
    env = gym.make("CartPole-v1")
    model = DQN("MlpPolicy", env, buffer_size=8, device="cpu")
    with th.no_grad():
        model.policy.q_net.q_net[-1].bias.fill_(float("inf"))
    with pytest.raises(InputError, match="not finite"):
        play_episodes(model, noisy_cartpoles(2), 2, seed=0, on_step=QGaps(model.policy).add)

    class OneAction(gym.Env):
        observation_space = env.observation_space
        action_space = gym.spaces.Discrete(1)

    with pytest.raises(InputError, match="one action only"):
        QGaps(DQN("MlpPolicy", OneAction(), buffer_size=8, device="cpu").policy)


# From the evaluation to the certificate


def test_certify_copies_the_statistics_of_each_source(dqn_file, tmp_path):
    for seed, flags in ((0, ["--q-gap"]), (1, [])):
        assert evaluate(dqn_file, tmp_path / str(seed), "-n", 4, "--seed", seed, *flags) == 0
    assert certify([str(tmp_path / "0"), str(tmp_path / "1"), "-o", str(tmp_path)]) == 0
    first, second = json.loads((tmp_path / "certificate.json").read_text())["sources"]
    content = read(tmp_path / "0")
    assert first["q_gap"] == {name: content[f"q_gap_{name}"].tolist() for name in first["q_gap"]}
    assert first["q_gap"].keys() == {"min", "mean", "steps", "levels", "quantiles"}
    assert "q_gap" not in second


@pytest.mark.parametrize(
    "changes",
    [
        {"q_gap_min": float("nan")},
        {"q_gap_mean": "1"},
        {"q_gap_steps": np.array([3])},
        {"q_gap_quantiles": np.array(0.5)},
        {"q_gap_levels": np.array([0.5])},
        {"q_gap_mean": None},
    ],
)
def test_damaged_statistics_are_refused(tmp_path, changes):
    entries = {
        "q_gap_min": 0.1,
        "q_gap_mean": 0.5,
        "q_gap_steps": 9,
        "q_gap_levels": np.array([0.5, 0.9]),
        "q_gap_quantiles": np.array([0.4, 0.6]),
    }
    path = write_evaluation(tmp_path / "evaluations.npz", [9.0], **entries)
    assert read_log(path).q_gap == {
        "min": 0.1,
        "mean": 0.5,
        "steps": 9,
        "levels": [0.5, 0.9],
        "quantiles": [0.4, 0.6],
    }
    write_evaluation(path, [9.0], **{**entries, **changes})
    with pytest.raises(InputError, match=f"{next(iter(changes))}.* must"):
        read_log(path)
