"""What certify knows of the returns of the package's tasks: no certificate may assume that the worst one cannot happen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_certify_command import certify, error_line
from test_episode_logs import write_evaluation

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
        settings = {"camp/Highway-v0": "config"}.get(env_id, "game" if "game" in task["kwargs"] else None)
        assert settings is None or lowest_return(env_id, {settings: None}) is None
    assert lowest_return("CartPole-v1", {}) is None
