"""Logs of episodes: sound ones are read as they are, damaged or unfit ones are refused with the place of the fault."""

import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor
from test_run_folder import make_run, noise

from sb3_camp.certification.episode_logs import read_log, read_logs
from sb3_camp.errors import InputError

HEADER = '#{"t_start": 1700000000.25, "env_id": "CartPole-v1"}\n'


def play_monitored(path: Path, n_episodes: int, seed: int = 0, **kwargs: Any) -> tuple[list[float], list[int]]:
    """Play random actions under SB3's Monitor and return what it counted."""
    env = Monitor(gym.make("CartPole-v1"), str(path), **kwargs)
    env.action_space.seed(seed)
    env.reset(seed=seed)
    for _ in range(n_episodes):
        env.reset()
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
    env.reset()
    env.step(0)  # an unfinished episode
    env.close()
    return env.get_episode_rewards(), env.get_episode_lengths()


def write_monitor(
    path: Path, rows: list[tuple[float, int, float]], t_start: float = 1.7e9, env_id: str = "CartPole-v1"
) -> Path:
    header = json.dumps({"t_start": t_start, "env_id": env_id})
    path.write_text(f"#{header}\nr,l,t\n" + "".join(f"{r},{length},{t}\r\n" for r, length, t in rows))
    return path


def write_evaluation(path: Path, returns: Any, lengths: Any = None, **changes: Any) -> Path:
    """Write what ``sb3_camp.evaluate`` writes; a change to None leaves the entry out."""
    returns = np.asarray(returns, dtype=np.float64)
    entries: dict[str, Any] = {
        "format": "sb3_camp-evaluation-1",
        "timesteps": np.array([1000]),
        "results": returns[np.newaxis],
        "ep_lengths": (returns.astype(int) if lengths is None else np.asarray(lengths))[np.newaxis],
        "sigma": 0.4,
        "seed": 0,
        "deterministic": True,
        "env_id": "CartPole-v1",
        "algo": "dqn",
        "model": "logs/dqn/CartPole-v1_1/CartPole-v1.zip",
        "model_sha256": "a" * 64,
        "n_episodes": returns.size,
        "n_envs": 4,
        "versions": "{}",
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in entries.items() if value is not None})
    return path


def refused(*paths: Path) -> str:
    with pytest.raises(InputError) as error:
        read_logs(paths)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_reads_what_sb3s_monitor_writes(tmp_path):
    before = time.time()
    returns, lengths = play_monitored(tmp_path / "0", 7)
    log = read_log(tmp_path / "0.monitor.csv")
    assert log.returns.dtype == np.float64 and log.lengths.dtype == np.int64
    np.testing.assert_array_equal(log.returns, returns)
    np.testing.assert_array_equal(log.lengths, lengths)
    assert log.env_id == "CartPole-v1"
    assert log.t_start is not None and before <= log.t_start <= time.time()
    assert log.sigma is log.deterministic is log.seed is log.model_sha256 is None


def test_reads_monitor_logs_with_further_columns_and_either_line_end(tmp_path):
    path = tmp_path / "a.monitor.csv"
    path.write_bytes(HEADER.encode() + b'r,l,t,note\n-1.5,3,0.5,"a, ""b""\nc"\r\n2e1,20,1.25,d\n')
    log = read_log(path)
    assert log.returns.tolist() == [-1.5, 20.0] and log.lengths.tolist() == [3, 20]


def test_environment_without_a_registration_is_unknown(tmp_path):
    assert read_log(write_monitor(tmp_path / "a.monitor.csv", [(1, 1, 1)], env_id="None")).env_id is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty file"),
        ("r,l,t\n7,7,0.1\n", "line 1: not the header"),
        ("# t_start\nr,l,t\n7,7,0.1\n", "line 1: not the header"),
        (HEADER[:-1] + "r,l,t\n7,7,0.1\n", "line 1: not the header"),
        ("#[1]\nr,l,t\n7,7,0.1\n", "line 1: not the header"),
        ("#" + "[" * 100000 + "\n", "line 1: not the header"),
        ('#{"env_id": "CartPole-v1"}\nr,l,t\n7,7,0.1\n', "line 1: t_start"),
        ('#{"t_start": NaN, "env_id": "CartPole-v1"}\nr,l,t\n7,7,0.1\n', "line 1: t_start"),
        ('#{"t_start": 1.0}\nr,l,t\n7,7,0.1\n', "line 1: env_id"),
        (HEADER, "line 2: the column names"),
        (HEADER + "7,7,0.1\n", "line 2: the column names"),
        (HEADER + "l,r,t\n7,7,0.1\n", "line 2: the column names"),
        (HEADER + "r,l,t7,7,0.1\n9,9,0.3\n", "line 2: the column names"),
        (HEADER + "r,l,t,7,8,0.1\n9,9,0.3,1,1,1\n", "line 2: 'r,l,t,7,8,0.1' is not"),
        (HEADER + "r,l,t,a,a\n9,9,0.3,1,1\n", "line 2: 'r,l,t,a,a' is not"),
        (HEADER + "r,l,t\n", "no episodes"),
        (HEADER + "r,l,t\n7,7,0.1,8,8,0.2\n9,9,0.3\n", "line 3: 6 fields, but the header has 3"),
        (HEADER + "r,l,t\n9,9,0.3\n7,7,0.18,8,0.2\n", "line 4: 5 fields"),
        (HEADER + "r,l,t\n9,9,0.3\n45,4\n", "line 4: 2 fields"),
        (HEADER + "r,l,t\n9,9,0.3\n12", "line 4: cut off"),
        (HEADER + "r,l,t\n9,9,0.3\n127,127,1.5", "line 4: cut off"),
        (HEADER + "r,l,t\n9,9,0.3\n\n", "line 4: 0 fields"),
        (HEADER + "r,l,t\n\n9,9,0.3\n", "line 3: 0 fields"),
        (HEADER + "r,l,t\n9,9,0.3\nr,l,t\n8,8,0.2\n", "line 4: a second header"),
        (HEADER + "r,l,t\n9,9,0.3\n" + HEADER + "r,l,t\n8,8,0.2\n", "line 4: a second header"),
        (HEADER + "r,l,t\n9,9,0.3\n8,8,0.2\n", "line 4: t goes back from 0.3 to 0.2: an appended run"),
        (HEADER + "r,l,t\nnan,7,0.1\n", "line 3: r must be a finite number, not 'nan'"),
        (HEADER + "r,l,t\n7,7,0.1\ninf,7,0.2\n", "line 4: r must be"),
        (HEADER + "r,l,t\n1e999,7,0.1\n", "line 3: r must be"),
        (HEADER + "r,l,t\n1_0,7,0.1\n", "line 3: r must be"),
        (HEADER + "r,l,t\n٧,7,0.1\n", "line 3: r must be"),
        (HEADER + "r,l,t\n 7,7,0.1\n", "line 3: r must be"),
        (HEADER + "r,l,t\n,7,0.1\n", "line 3: r must be"),
        (HEADER + "r,l,t\n7,7,nan\n", "line 3: t must be"),
        (HEADER + "r,l,t\n7,7.0,0.1\n", "line 3: l must be"),
        (HEADER + "r,l,t\n0,0,0.1\n", "line 3: l must be"),
        (HEADER + "r,l,t\n7,-7,0.1\n", "line 3: l must be"),
        (HEADER + 'r,l,t,a\n7,7,0.1,"x"y\n', "line 3: "),
        (HEADER + 'r,l,t,a\n7,7,0.1,"x\n', "line 3: "),
        (HEADER + "r,l,t\n7,7,0.1\r8,8,0.2\n", "line 3: "),
    ],
)
def test_refuses_a_damaged_monitor_log(tmp_path, text, reason):
    path = tmp_path / "0.monitor.csv"
    path.write_bytes(text.encode())
    message = refused(path)
    assert message.startswith(f"{path}") and reason in message


def test_refuses_a_monitor_log_that_is_not_text(tmp_path):
    path = tmp_path / "0.monitor.csv"
    path.write_bytes(HEADER.encode() + b"r,l,t\n\xff\xfe,7,0.1\n")
    assert f"{path}, line 3: not UTF-8" in refused(path)


def test_refuses_a_run_that_sb3_appended(tmp_path):
    play_monitored(tmp_path / "0", 3)
    play_monitored(tmp_path / "0", 3, override_existing=False)
    assert "line 6: t goes back" in refused(tmp_path / "0.monitor.csv")


def test_refuses_the_headerless_log_that_appending_to_a_new_file_makes(tmp_path):
    play_monitored(tmp_path / "0", 3, override_existing=False)
    assert "line 1: not the header" in refused(tmp_path / "0.monitor.csv")


def test_reads_every_entry_of_our_evaluation(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", [9.0, 12.5], [9, 12], env_kwargs='{"sigma": 0.4}')
    (log,) = read_logs([path])
    assert log.returns.tolist() == [9.0, 12.5] and log.lengths.tolist() == [9, 12]
    assert log.returns.dtype == np.float64 and log.lengths.dtype == np.int64
    assert (log.sigma, log.seed, log.deterministic, log.env_id, log.algo) == (0.4, 0, True, "CartPole-v1", "dqn")
    assert log.env_kwargs == {"sigma": 0.4} and log.model_sha256 == "a" * 64


def test_reads_one_row_of_the_zoos_evaluation_callback(tmp_path):
    path = tmp_path / "evaluations.npz"
    np.savez(path, timesteps=[500], results=[[9.0, 8.0]], ep_lengths=[[9, 8]])
    (log,) = read_logs([path])
    assert log.returns.tolist() == [9.0, 8.0]
    assert log.sigma is log.deterministic is log.model_sha256 is None


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (
            {"results": [[1.0], [2.0]], "ep_lengths": [[1], [2]], "timesteps": [1, 2]},
            "2 rows of results, which are different pol",
        ),
        ({"results": np.zeros((0, 5)), "ep_lengths": np.zeros((0, 5), int), "timesteps": np.zeros(0, int)}, "no episodes"),
        ({"results": np.zeros((1, 0)), "ep_lengths": np.zeros((1, 0), int)}, "no episodes"),
        ({"results": [[1.0, np.nan]], "ep_lengths": [[1, 1]]}, "results[0, 1] is nan"),
        ({"results": [[np.inf]]}, "results[0, 0] is inf"),
        ({"ep_lengths": [[0]]}, "ep_lengths[0, 0] is 0"),
        ({"ep_lengths": [[1, 2]]}, "do not fit together"),
        ({"ep_lengths": [1]}, "do not fit together"),
        ({"results": [1.0], "ep_lengths": [1]}, "do not fit together"),
        ({"timesteps": [1, 2]}, "do not fit together"),
        ({"ep_lengths": [[1.0]]}, "ep_lengths must hold numbers"),
        ({"results": [["1.0"]]}, "results must hold numbers"),
        ({"results": [[True]]}, "results must hold numbers"),
        ({"results": None}, "no array results"),
        ({"timesteps": None}, "no array timesteps"),
        ({"ep_lengths": None}, "no array ep_lengths"),
        ({"results": np.array([[object()]])}, "damaged, or not an npz file of plain arrays"),
    ],
)
def test_refuses_an_unfit_evaluation(tmp_path, arrays, reason):
    path = tmp_path / "evaluations.npz"
    arrays = {"timesteps": [500], "results": [[9.0]], "ep_lengths": [[9]], **arrays}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    message = refused(path)
    assert message.startswith(f"{path}: ") and reason in message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_episodes": 3}, "incomplete: 2 of 3 episodes"),
        ({"n_episodes": 1}, "incomplete: 2 of 1"),
        ({"n_episodes": None}, "n_episodes must be one int"),
        ({"sigma": None}, "sigma must be one float"),
        ({"sigma": np.nan}, "sigma is nan"),
        ({"sigma": -0.4}, "sigma is -0.4"),
        ({"sigma": [0.4]}, "sigma must be one float"),
        ({"deterministic": 1}, "deterministic must be one bool"),
        ({"model_sha256": None}, "model_sha256 must be one str"),
        ({"format": "sb3_camp-evaluation-2"}, "its format is sb3_camp-evaluation-2"),
        ({"format": "sb3_camp-evaluation-partial-1"}, "an interrupted evaluation"),
        ({"env_kwargs": "{"}, "env_kwargs is not JSON"),
    ],
)
def test_refuses_our_evaluation_with_a_broken_record(tmp_path, changes, reason):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0], **changes)
    assert refused(path).startswith(f"{path}: {reason}")


def test_refuses_a_cut_or_corrupt_or_foreign_npz(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", np.arange(1.0, 500.0))
    content = path.read_bytes()
    for kept in (0, 1, 30, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:kept])
        assert str(path) in refused(path)
    position = content.index(np.array([77.0]).tobytes())
    path.write_bytes(content[:position] + b"\x01" + content[position + 1 :])
    assert "damaged" in refused(path)
    with open(path, "wb") as file:
        np.save(file, np.arange(3))
    assert "damaged, or not an npz file" in refused(path)


def test_a_pickled_array_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    trap = np.empty((1, 1), dtype=object)
    trap[0, 0] = Trap()
    np.savez(tmp_path / "evaluations.npz", timesteps=[1], results=[[1.0]], ep_lengths=[[1]], successes=trap)
    assert "plain arrays" in refused(tmp_path / "evaluations.npz")
    assert not (tmp_path / "marker").exists()


def test_refuses_what_is_no_log(tmp_path):
    (tmp_path / "log.txt").write_text("1")
    assert "not a log of episodes" in refused(tmp_path / "log.txt")
    assert "No such file" in refused(tmp_path / "missing.monitor.csv")
    assert "No such file" in refused(tmp_path / "missing.npz")
    (tmp_path / "empty").mkdir()
    assert "neither a zoo run folder nor" in refused(tmp_path / "empty")


def test_pools_the_monitor_logs_of_one_call(tmp_path):
    played = [play_monitored(tmp_path / str(rank), 3 + rank, seed=rank)[0] for rank in range(3)]
    logs = read_logs([tmp_path])
    assert [log.path.name for log in logs] == ["0.monitor.csv", "1.monitor.csv", "2.monitor.csv"]
    assert [log.returns.tolist() for log in logs] == played
    assert len(read_logs(sorted(tmp_path.iterdir()))) == 3


ROWS = [(9.0, 9, 0.25), (12.0, 12, 0.5), (10.0, 10, 0.75), (11.0, 11, 1.0)]


@pytest.mark.parametrize(
    ("rows", "header", "reason"),
    [
        (ROWS, {}, "the same episodes as in"),
        (ROWS, {"t_start": 1.7e9 + 1}, "holds episodes that"),
        (ROWS[:1], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        (ROWS[:3], {}, "holds episodes that"),
        ([*ROWS, (7.0, 7, 1.5)], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        ([*ROWS[2:], (7.0, 7, 1.5), (7.0, 7, 1.75)], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        ([(7.0, 7, 1.5)], {}, "holds episodes that"),
        ([(7.0, 7, 1.5)], {"env_id": "CartPole-v0", "t_start": 1.7e9 + 1}, "its env_id is CartPole-v0"),
        ([(7.0, 7, 1.5)], {"t_start": 1.7e9 + 61}, "started 61 seconds apart"),
        ([(7.0, 7, 1.5)], {"t_start": 1.7e9 - 3600}, "started 3600 seconds apart"),
    ],
)
def test_refuses_to_pool_monitor_logs_that_share_episodes_or_are_of_different_runs(tmp_path, rows, header, reason):
    first = write_monitor(tmp_path / "0.monitor.csv", ROWS)
    second = write_monitor(tmp_path / "1.monitor.csv", rows, **header)
    message = refused(tmp_path)
    assert str(first) in message and str(second) in message and reason in message
    assert refused(second, first).startswith(f"{first}: ")


def test_one_row_alike_by_chance_is_no_copy(tmp_path):
    write_monitor(tmp_path / "0.monitor.csv", ROWS)
    write_monitor(tmp_path / "1.monitor.csv", [ROWS[0], *((r, n, t + 0.001) for r, n, t in ROWS[1:])], t_start=1.7e9 + 1)
    assert len(read_logs([tmp_path])) == 2


def test_refuses_one_file_under_two_names(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0])
    assert "the same file twice" in refused(path, path)
    assert "the same file twice" in refused(path, tmp_path)
    (tmp_path / "link.npz").symlink_to(path)
    assert "the same file twice" in refused(path, tmp_path / "link.npz")
    (tmp_path / "copy.npz").write_bytes(path.read_bytes())
    assert "the same episodes" in refused(path, tmp_path / "copy.npz")


def test_pools_our_evaluations_of_one_model_with_different_seeds(tmp_path):
    first = write_evaluation(tmp_path / "a.npz", [1.0, 2.0])
    second = write_evaluation(tmp_path / "b.npz", [2.0, 2.0], seed=1)
    assert [log.seed for log in read_logs([first, second])] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "the same seed 0"),
        ({"seed": 1, "sigma": 0.2}, "its sigma is 0.2"),
        ({"seed": 1, "env_id": "CartPole-v0"}, "its env_id is CartPole-v0"),
        ({"seed": 1, "model_sha256": "b" * 64}, "its model_sha256 is bbb"),
        ({"seed": 1, "deterministic": False}, "its deterministic is False"),
        ({"seed": 1, "algo": "ppo"}, "its algo is ppo"),
        ({"seed": 1, "env_kwargs": '{"length": 2}'}, "its env_kwargs is {'length': 2}"),
    ],
)
def test_refuses_to_pool_evaluations_that_differ(tmp_path, changes, reason):
    first = write_evaluation(tmp_path / "a.npz", [1.0, 2.0])
    second = write_evaluation(tmp_path / "b.npz", [2.0, 2.0, 3.0], **changes)
    message = refused(first, second)
    assert message.startswith(f"{second}: {reason}")


def test_refuses_to_pool_the_zoos_evaluations_and_different_kinds(tmp_path):
    for name, value in (("a", 9.0), ("b", 8.0)):
        np.savez(tmp_path / f"{name}.npz", timesteps=[1], results=[[value]], ep_lengths=[[9]])
    assert "nothing shows that they are of one policy" in refused(tmp_path / "a.npz", tmp_path / "b.npz")
    monitor = write_monitor(tmp_path / "0.monitor.csv", ROWS)
    assert "one is a monitor log" in refused(tmp_path / "a.npz", monitor)
    write_evaluation(tmp_path / "evaluations.npz", [1.0])
    assert "holds both" in refused(tmp_path)


def test_a_run_folder_stands_for_its_evaluation(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    play_monitored(run / "0", 2)
    message = refused(run)
    assert f"run python -m sb3_camp.evaluate --algo dqn --env CartPole-v1 -f {tmp_path} --exp-id 1" in message
    path = write_evaluation(run / "certification" / "evaluations.npz", [1.0, 2.0])
    assert read_logs([run])[0].path == read_logs([path.parent])[0].path == path


def test_refuses_training_episodes_of_a_run(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    training = run / "0.monitor.csv"
    play_monitored(run / "0", 2)
    assert "training episodes" in refused(training)
    (tmp_path / "link.monitor.csv").symlink_to(training)
    assert "training episodes" in refused(tmp_path / "link.monitor.csv")
    copy = run / "certification" / "5.monitor.csv"
    copy.parent.mkdir()
    copy.write_text("\n".join(training.read_text().split("\n")[:3]) + "\n")
    assert f"{copy}: training episodes" in refused(copy)
    assert "sb3_camp.evaluate --algo dqn" in refused(copy)


def test_accepts_episodes_that_were_played_into_the_run_folder(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    play_monitored(run / "0", 2)
    returns, _ = play_monitored(run / "certification" / "0", 3, seed=1)
    assert read_logs([run / "certification"])[0].returns.tolist() == returns
