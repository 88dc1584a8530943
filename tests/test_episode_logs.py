"""Logs of episodes: sound ones are read as they are, damaged or unfit ones are refused with the place of the fault."""

import json
import math
import os
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from support.logs import play_monitored, refused, write_evaluation, write_monitor
from support.run_folders import NOISE, noise

from sb3_camp.certification.episode_logs import read_log
from sb3_camp.certification.pooling import read_logs

HEADER = '#{"t_start": 1700000000.25, "env_id": "CartPole-v1"}\n'


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
        ('#{"t_start": 1' + "0" * 400 + ', "env_id": "CartPole-v1"}\nr,l,t\n7,7,0.1\n', "line 1: t_start"),
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
        (HEADER + "r,l,t\n9,9,0.3\n9,9,0.3\n", "line 4: t is 0.3 as in the line before: one episode twice"),
        (HEADER + "r,l,t\n9,9,0.3\n8,8,0.5\n7,7,0.50\n", "line 5: t is 0.50 as in the line before"),
        (HEADER + "r,l,t\n9,9,-0.1\n", "line 3: t goes back from 0 to -0.1"),
        (HEADER + "r,l,t\n1e308,7,0.1\n-1e308,7,0.2\n", "line 3: r must be a finite number of at most 1e+100, not '1e308'"),
        (HEADER + "r,l,t\nnan,7,0.1\n", "line 3: r must be a finite number of at most 1e+100, not 'nan'"),
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
    play_monitored(tmp_path / "0", 100)  # so long that the next one's first episode ends sooner after its start
    play_monitored(tmp_path / "0", 3, override_existing=False)
    assert "line 103: t goes back" in refused(tmp_path / "0.monitor.csv")


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
    assert log.env_wrappers == {"env_wrapper": [noise(0.4)]} and log.clean_keys == []
    assert (log.n_envs, log.native_vec_env, log.env_versions) == (4, False, {"gymnasium": "1.0.0"})
    assert (log.timesteps, log.min_reward, log.first_env_seed, log.last_env_seed) == (1000, 0.0, 2**30, 2**30 + 3)


def test_reads_an_evaluation_without_the_newer_entries(tmp_path):
    newer = (
        "env_wrappers",
        "clean_keys",
        "min_reward",
        "first_env_seed",
        "last_env_seed",
        "env_versions",
        "native_vec_env",
        "n_envs",
    )
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0], **dict.fromkeys(newer))
    log = read_log(path)
    assert [getattr(log, name) for name in newer] == [None] * 8
    wrappers = json.dumps({"env_wrapper": {NOISE: {"sigma": 0.4, "clean_keys": ["b", "a"]}}})
    assert read_log(write_evaluation(path, [1.0], clean_keys=None, env_wrappers=wrappers)).clean_keys == ["a", "b"]


def test_infinity_in_the_keyword_arguments_of_the_environment_is_a_text(tmp_path):
    path = write_evaluation(
        tmp_path / "evaluations.npz", [1.0], env_kwargs=json.dumps({"a": [math.inf, math.nan], "b": -math.inf})
    )
    assert read_log(path).env_kwargs == {"a": ["Infinity", "NaN"], "b": "-Infinity"}


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
        ({"results": [[1.0, -1e308]], "ep_lengths": [[1, 1]]}, "results[0, 1] is -1e+308"),
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
        ({"step_limit": -5}, "step_limit is -5, below 1"),
        ({"n_envs": 0}, "n_envs is 0, below 1"),
        ({"noisy_numbers": -1}, "noisy_numbers is -1, below 0"),
        ({"n_episodes": 1}, "incomplete: 2 of 1"),
        ({"n_episodes": None}, "n_episodes must be one int"),
        ({"sigma": None}, "sigma must be one float"),
        ({"sigma": np.nan}, "sigma is nan"),
        ({"sigma": -0.4}, "sigma is -0.4"),
        ({"sigma": 1e308}, "sigma is 1e+308"),
        ({"sigma": [0.4]}, "sigma must be one float"),
        ({"deterministic": 1}, "deterministic must be one bool"),
        ({"model_sha256": None}, "model_sha256 must be one str"),
        ({"format": "sb3_camp-evaluation-2"}, "its format is sb3_camp-evaluation-2"),
        ({"format": "sb3_camp-evaluation-partial-1"}, "an interrupted evaluation"),
        ({"env_kwargs": "{"}, "env_kwargs is not JSON"),
        ({"env_kwargs": "[" * 100_000}, "env_kwargs is not JSON"),
        ({"env_kwargs": '{"a": 1e999}'}, "env_kwargs is not JSON"),
        ({"env_kwargs": "[1, 2]"}, "env_kwargs must be a JSON object, not [1, 2]"),
        ({"env_wrappers": "3"}, "env_wrappers must be a JSON object, not 3"),
        ({"env_wrappers": '{"env_wrapper": 3}', "clean_keys": None}, "env_wrapper: 3 is neither a wrapper's name"),
        ({"clean_keys": '"a"'}, "clean_keys must be a JSON list of texts, not 'a'"),
        ({"clean_keys": "[1]"}, "clean_keys must be a JSON list of texts, not [1]"),
        ({"clean_keys": ["a"]}, "clean_keys must be one str, not None"),
        ({"env_versions": '"1.0"'}, "env_versions must be a JSON object of texts, not '1.0'"),
        ({"env_versions": '{"a": 1}'}, "env_versions must be a JSON object of texts, not {'a': 1}"),
        ({"native_vec_env": 1}, "native_vec_env must be one bool"),
        ({"min_reward": np.nan}, "min_reward is nan"),
        ({"min_reward": [0.0, 1.0]}, "min_reward must be one float"),
        ({"first_env_seed": 1.5}, "first_env_seed must be one int"),
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


@pytest.mark.parametrize("member", ["results", "format"])
def test_refuses_raw_members(tmp_path, member):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0])
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != f"{member}.npy"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, member: b"abc"}.items():
            archive.writestr(name, content)
    assert f"{path}: damaged, or not an npz file of plain arrays: '{member}' is none" in refused(path)


def test_a_pickled_array_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "marker"), "w"))

    trap = np.empty((1, 1), dtype=object)
    trap[0, 0] = Trap()
    np.savez(tmp_path / "evaluations.npz", timesteps=[1], results=[[1.0]], ep_lengths=[[1]], successes=trap)
    assert read_log(tmp_path / "evaluations.npz").returns.tolist() == [1.0]
    np.savez(tmp_path / "evaluations.npz", timesteps=[1], results=trap, ep_lengths=[[1]])
    assert "plain arrays" in refused(tmp_path / "evaluations.npz")
    assert not (tmp_path / "marker").exists()


def test_devices_and_pipes_are_refused_at_once(tmp_path):
    for name in ("a.monitor.csv", "a.npz"):
        os.mkfifo(tmp_path / name)
        assert "not a regular file" in refused(tmp_path / name)
        (tmp_path / f"endless_{name}").symlink_to("/dev/zero")
        assert "not a regular file" in refused(tmp_path / f"endless_{name}")


@pytest.mark.parametrize("name", ["bomb.npy", "bomb", "results2.npy"])
def test_what_nobody_needs_is_not_unpacked(tmp_path, name):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(2**28))
    tracemalloc.start()
    try:
        assert read_log(path).returns.tolist() == [1.0, 2.0]
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_refuses_what_is_no_log(tmp_path):
    (tmp_path / "log.txt").write_text("1")
    assert "not a log of episodes" in refused(tmp_path / "log.txt")
    assert "No such file" in refused(tmp_path / "missing.monitor.csv")
    assert "No such file" in refused(tmp_path / "missing.npz")
    (tmp_path / "empty").mkdir()
    assert "neither a zoo run folder nor" in refused(tmp_path / "empty")
