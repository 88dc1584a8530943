"""Damaged and hostile logs: an error in one line, or the episodes that stand in the log. Never anything else."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_camp import certify
from sb3_camp.certification import certified_return
from sb3_camp.certification.build import build_certificate
from sb3_camp.certification.episode_logs import EpisodeLog, read_log
from sb3_camp.errors import InputError

# The same damage in every run, and no database of it. The one folder of a test is fine: each example writes its file anew.
FUZZ = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=600,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

RETURNS = [9.0, 12.0, 10.5, 11.0, 200.0, 127.0]
RADII = np.array([0.0, 0.2, 0.8])


def monitor_content(extra: str = "") -> bytes:
    header = json.dumps({"t_start": 1.7e9, "env_id": "CartPole-v1"})
    rows = "".join(f"{r},{int(r)},{0.25 * (i + 1)}{extra and f',{extra}'}\r\n" for i, r in enumerate(RETURNS))
    return f"#{header}\nr,l,t{extra and ',note'}\n{rows}".encode()


def evaluation_content(returns: np.ndarray, *, ours: bool = False, compressed: bool = False, **changes: Any) -> bytes:
    entries: dict[str, Any] = {
        "timesteps": np.array([1000]),
        "results": returns[np.newaxis],
        "ep_lengths": np.maximum(1, returns.astype(int))[np.newaxis],
    }
    if ours:
        entries |= {"format": "sb3_camp-evaluation-1", "sigma": 0.4, "seed": 0, "deterministic": True, "n_envs": 4}
        entries |= {"env_id": "CartPole-v1", "algo": "dqn", "model": "m.zip", "model_sha256": "a" * 64}
        entries |= {"n_episodes": returns.size, "versions": "{}"}
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **entries | changes)
    return file.getvalue()


@st.composite
def edits(draw):
    """A few changes of a file's bytes, as functions of its content."""
    places = st.floats(0, 1, exclude_max=True)
    texts = st.binary(max_size=3) | st.text("0123456789.,-+e\"\n\r#<>fi8'() {}", max_size=3).map(str.encode)
    kinds = st.sampled_from(["replace", "insert", "delete", "repeat", "cut"])
    return draw(st.lists(st.tuples(kinds, places, texts), max_size=3))


def damaged(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, place, text in changes:
        start = int(place * len(content))
        end = start + 4 * len(text)
        if kind == "replace":
            content = content[:start] + text + content[start + len(text) :]
        elif kind == "insert":
            content = content[:start] + text + content[start:]
        elif kind == "delete":
            content = content[:start] + content[end:]
        elif kind == "repeat":
            content = content[:end] + content[start:]
        else:
            content = content[:start]
    return content


def read_if_sound(path: Path, content: bytes) -> EpisodeLog | None:
    """The log, or None if it was refused in one line that names the file."""
    path.write_bytes(content)
    try:
        return read_log(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return None


def assert_certificate_of(log: EpisodeLog, returns: list[float]) -> None:
    np.testing.assert_array_equal(log.returns, returns)
    lowest = min(0.0, *returns)
    certificate = build_certificate([log], 0.4, RADII, min_return=lowest)
    np.testing.assert_array_equal(certificate.certified_return, certified_return(returns, 0.4, RADII, min_return=lowest))
    assert certificate.n_episodes == len(returns)


@FUZZ
@given(st.sampled_from(["", "a, b", '"x"']), edits())
def test_a_damaged_monitor_log_is_refused_or_certified_by_what_stands_in_it(tmp_path, extra, changes):
    content = damaged(monitor_content(extra and '"' + extra.replace('"', '""') + '"'), changes)
    log = read_if_sound(tmp_path / "0.monitor.csv", content)
    if log is not None and not (extra and len(log.returns) < content.count(b"\n") - 2):
        # One row a line, its return in front. (Only a quoted note may hold line ends.)
        rows = content.decode().split("\n")[2:-1]
        assert_certificate_of(log, [float(row.split(",")[0].strip('"')) for row in rows])


@FUZZ
@given(st.booleans(), st.booleans(), st.sampled_from([6, 700]), edits())
def test_a_damaged_evaluation_is_refused_or_certified_by_the_episodes_it_was_written_with(
    tmp_path, ours, compressed, n, changes
):
    returns = np.resize(RETURNS, n)
    content = damaged(evaluation_content(returns, ours=ours, compressed=compressed), changes)
    log = read_if_sound(tmp_path / "evaluations.npz", content)
    if log is not None:
        assert_certificate_of(log, returns.tolist())


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize(
    ("true", "false"),
    [(b"'<f8'", b"'<f4'"), (b"'<f8'", b"'<i8'"), (b"'<f8'", b"'>f8'"), (b"(1, 700)", b"(1, 100)"), (b"(1, 700)", b"(1, 900)")],
)
def test_numbers_under_a_damaged_array_header_are_refused(tmp_path, ours, true, false):
    content = evaluation_content(np.resize(RETURNS, 700), ours=ours)
    start = content.index(b"NUMPY", content.index(b"results.npy"))
    assert content.index(true, start) < start + 128
    content = content[:start] + content[start:].replace(true, false, 1)
    assert read_if_sound(tmp_path / "evaluations.npz", content) is None


@pytest.mark.parametrize("shape", [(1, 10**11), (1, 10**13), (1, 10**30), (1, -1), (10**9, 0), (0, 5), (5,), ()])
def test_headers_that_promise_impossible_arrays_are_refused(tmp_path, shape):
    path = tmp_path / "evaluations.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, descr in (("timesteps", "<i8"), ("results", "<f8"), ("ep_lengths", "<i8")):
            header = io.BytesIO()
            size = (1,) if key == "timesteps" else shape
            np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": size})
            archive.writestr(f"{key}.npy", header.getvalue() + bytes(8))
    assert read_if_sound(path, path.read_bytes()) is None


@pytest.mark.parametrize("kind", ["monitor", "evaluation"])
def test_a_log_cut_anywhere_is_refused_unless_it_ends_with_a_whole_episode(tmp_path, kind):
    if kind == "evaluation":
        content = evaluation_content(np.array(RETURNS), ours=True)
        lengths = [*range(0, len(content), 37), len(content) - 1]
        assert all(read_if_sound(tmp_path / "evaluations.npz", content[:length]) is None for length in lengths)
        return
    content = monitor_content()
    for length in range(len(content)):
        log = read_if_sound(tmp_path / "0.monitor.csv", content[:length])
        whole = content[:length].count(b"\r\n")
        if content[:length].endswith(b"\n") and whole:
            assert log is not None
            assert_certificate_of(log, RETURNS[:whole])
        else:
            assert log is None


class Payload:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


@pytest.mark.parametrize("key", ["results", "timesteps", "ep_lengths", "sigma", "env_kwargs", "unasked"])
def test_nothing_pickled_in_a_log_is_loaded(tmp_path, key):
    trap = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(trap))).close()
    assert trap.exists()  # the payload works
    trap.unlink()
    hostile = np.empty((1, 6), dtype=object)
    hostile[:] = Payload(trap)
    content = evaluation_content(np.array(RETURNS), ours=True, **{key: hostile})
    log = read_if_sound(tmp_path / "evaluations.npz", content)
    assert (log is None) == (key != "unasked")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Payload(trap)))
    assert read_if_sound(tmp_path / "pickle.npz", pickle.dumps(Payload(trap))) is None
    assert not trap.exists()


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"results": [RETURNS]},
        {"a": [1.0], "b": ["x"]},
        {"timesteps": [1], "results": [["9", "12"]], "ep_lengths": [[9, 12]]},
        {"timesteps": [1], "results": [[True, False]], "ep_lengths": [[1, 1]]},
        {"timesteps": [1], "results": [[1j, 2]], "ep_lengths": [[1, 1]]},
        {"timesteps": [1], "results": [[1.0, 2.0]], "ep_lengths": [[1.0, 2.0]]},
        {"timesteps": [1], "results": np.zeros((1, 2), dtype=[("r", "f8")]), "ep_lengths": [[1, 1]]},
        {"timesteps": [1], "results": np.array([["2020-01-01"]], dtype="datetime64[D]"), "ep_lengths": [[1]]},
        {"timesteps": [1], "results": [[np.nan, 2.0]], "ep_lengths": [[1, 1]]},
        {"timesteps": [1, 2], "results": [[1.0], [2.0]], "ep_lengths": [[1], [2]]},
    ],
    ids=lambda entries: ",".join(entries) or "empty",
)
def test_archives_of_something_else_end_the_command_with_status_2_and_one_line(tmp_path, capsys, entries):
    path = tmp_path / "evaluations.npz"
    np.savez(path, **entries)
    assert certify.main([str(path), "--sigma", "0.4"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and str(path) in message
    assert [file.name for file in tmp_path.iterdir()] == ["evaluations.npz"]


def test_a_million_rows_are_read_as_they_are(tmp_path):
    n = 1_000_000
    returns = np.random.default_rng(0).integers(1, 201, n)
    rows = "".join(f"{r},{r},{i}\r\n" for i, r in enumerate(returns.tolist()))
    path = tmp_path / "0.monitor.csv"
    path.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n' + rows)
    log = read_log(path)
    np.testing.assert_array_equal(log.returns, returns)
    path.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n' + rows + f"200,200,{n}")
    with pytest.raises(InputError, match=f"line {n + 3}: cut off"):
        read_log(path)
