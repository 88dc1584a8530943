"""The leaderboard of the zoo's agents, on a collection of two: its numbers, what an agent lacks, and going on."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from stable_baselines3 import PPO
from support.run_folders import make_run

from sb3_camp.certification import certified_probability, certified_quantile, certified_return
from sb3_camp.certification.certificate import read_certificate

SCRIPT = Path(__file__).parents[1] / "zoo_scripts" / "leaderboard.py"


@pytest.fixture
def leaderboard(monkeypatch):
    spec = importlib.util.spec_from_file_location("leaderboard", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TASKS", {"CartPole-v1": module.Task("CartPole-v1", 100, 0.0)})
    return module


def test_the_table_has_what_the_commands_certify_and_who_lacks_what(leaderboard, tmp_path, monkeypatch, capsys):
    run = make_run(tmp_path / "agents", algo="ppo")
    PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": []}, seed=0, device="cpu").save(run / "CartPole-v1.zip")
    make_run(tmp_path / "agents", algo="sac")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["leaderboard", str(tmp_path / "agents"), "-o", str(out), "--rounds", "2"])
    leaderboard.main()
    assert "1 of 2 agents certified, 1 refused" in capsys.readouterr().out
    table = pd.read_csv(out / "leaderboard.csv")
    assert set(table.algo) == {"ppo"} and set(table.sigma) == set(leaderboard.SHARES) and set(table.episodes) == {200}
    for share, rows in table.groupby("sigma"):
        logs = [np.load(out / "ppo" / "CartPole-v1" / f"sigma_{share:g}" / f"seed_{k}" / "evaluations.npz") for k in (0, 1)]
        returns = np.concatenate([log["results"][0] for log in logs])
        half = rows.clean_median.iloc[0] / 2
        ratios = np.array(leaderboard.RADII) / share
        for column, bound in (
            ("certified_mean", certified_return(returns, 1.0, ratios, alpha=leaderboard.ALPHA)),
            ("certified_half", certified_probability(returns, 1.0, half, ratios, alpha=leaderboard.ALPHA)),
            ("certified_median", certified_quantile(returns, 1.0, 0.5, ratios, alpha=leaderboard.ALPHA)),
        ):
            found = rows[column].to_numpy()
            assert np.all(found <= bound + 1e-9) and np.all(found >= bound - 2e-3)
    # sigmas are in proportion to each other, sensor by sensor
    sigmas = {
        share: np.array(read_certificate(out / "ppo" / "CartPole-v1" / f"sigma_{share:g}" / "certificate.json").sensor_sigma)
        for share in leaderboard.SHARES
    }
    np.testing.assert_allclose(sigmas[0.3], 3 * sigmas[0.1], rtol=1e-4)
    shown = (out / "leaderboard.md").read_text()
    assert "| CartPole-v1 | sac | its run folder holds no model |" in shown
    # The radius at which half of the episodes are certified to keep half: the one where the probability is one half
    best = float(shown.splitlines()[2].split(" | ")[3])
    at_zero = table[table.radius == 0].set_index("sigma").certified_half
    assert ndtr(ndtri(at_zero) - best / at_zero.index).max() == pytest.approx(0.5, abs=0.01)

    logs = sorted(out.rglob("evaluations.npz"))
    times = [log.stat().st_mtime_ns for log in logs]
    leaderboard.main()  # nothing is played again, and the table is the same
    assert [log.stat().st_mtime_ns for log in logs] == times
    pd.testing.assert_frame_equal(pd.read_csv(out / "leaderboard.csv"), table)


def test_half_of_a_negative_median_is_half_as_much_again(leaderboard, tmp_path):
    agent = leaderboard.Agent(tmp_path, "ppo", "CartPole-v1", tmp_path)
    file = agent.at(leaderboard.ALMOST_CLEAN, 0)
    file.parent.mkdir(parents=True)
    for median, half in ((200.0, 100.0), (-150.0, -225.0)):
        np.savez(file, results=np.array([[median - 9, median, median + 1]]))
        assert agent.half() == half
