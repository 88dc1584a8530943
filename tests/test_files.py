"""Files are written whole or not at all and never through a link; what is read is a regular file of a sound size."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sb3_camp import files
from sb3_camp.errors import InputError


def _writes(content: bytes):
    return lambda file: file.write(content)


def _fails(file):
    file.write(b"half")
    raise OSError(28, "No space left on device")


def test_files_of_a_unit_replace_the_old_ones_with_the_usual_permissions(tmp_path):
    one, two = tmp_path / "new" / "one.csv", tmp_path / "new" / "two.json"
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    for content in (b"old", b"new"):
        files.write_files({one: _writes(content), two: _writes(content)})
    assert one.read_bytes() == two.read_bytes() == b"new"
    assert one.stat().st_mode == usual.stat().st_mode
    assert sorted(path.name for path in one.parent.iterdir()) == ["one.csv", "two.json"]


def test_a_full_disk_leaves_all_files_of_a_unit_as_they_were(tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.json"
    files.write_files({one: _writes(b"old"), two: _writes(b"old")})
    with pytest.raises(InputError, match=r"cannot write .*two.json: No space left on device"):
        files.write_files({one: _writes(b"new"), two: _fails})
    assert one.read_bytes() == two.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["result.json", ".result.json.partial", ".result.partial.json", ".result.json.{process}.tmp"])
def test_no_link_that_somebody_planted_is_followed(name, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name.format(process=os.getpid())).symlink_to(victim)
    files.write_file(folder / "result.json", _writes(b"result"))
    assert victim.read_bytes() == b"precious"
    assert (folder / "result.json").read_bytes() == b"result"
    assert not (folder / "result.json").is_symlink()


def test_only_one_command_at_a_time_writes_into_a_folder(tmp_path):
    with files.only_writer(tmp_path / "one"):
        with (
            pytest.raises(InputError, match="another command writes its results there now"),
            files.only_writer(tmp_path / "one"),
        ):
            pass
        with files.only_writer(tmp_path / "two"):
            pass
    with files.only_writer(tmp_path / "one"):
        assert list((tmp_path / "one").iterdir()) == []


def test_devices_pipes_folders_and_too_large_files_are_not_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"12345")
    for path, message in (
        (pipe, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "Is a directory|not a regular"),
    ):
        with pytest.raises(InputError, match=message):
            files.read_bytes(path)
    with pytest.raises(InputError, match="5 bytes, more than the 4"):
        files.read_bytes(large, most=4)
    assert files.read_bytes(large, most=5) == b"12345"


@pytest.mark.parametrize("text", ["{", "NaN", "[1, -Infinity]", "[" * 100_000, '"\xff'])
def test_what_is_not_json_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"file.json: not JSON: [^\n]*$"):
        files.read_json(path)


def _npz(**entries) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **entries)
    return content.getvalue()


def test_arrays_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "file.npz"
    entries = {"whole": np.arange(3), "text": "a text", "real": np.array([[0.5]])}
    files.write_file(path, files.npz_writer(entries))
    read = files.read_npz(path, files.read_bytes(path))
    assert read.keys() == entries.keys() and read["text"].item() == "a text"
    np.testing.assert_array_equal(read["whole"], [0, 1, 2])
    assert files.read_npz(path, files.read_bytes(path), wanted=["real", "missing"]).keys() == {"real"}


def test_an_object_is_neither_pickled_nor_unpickled(tmp_path):
    path = tmp_path / "file.npz"
    with pytest.raises(TypeError, match="one would be pickled"):
        files.write_file(path, files.npz_writer({"one": {"a": 1}}))
    hostile = _npz(one=np.array([{"a": 1}], dtype=object), two=np.zeros(1))
    with pytest.raises(InputError, match="not an npz file of plain arrays"):
        files.read_npz(path, hostile)
    assert files.read_npz(path, hostile, wanted=["two"]).keys() == {"two"}


def test_members_that_nobody_wants_are_not_unpacked_and_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_UNPACKED", 1_000_000)
    bomb = _npz(bomb=np.zeros(1_000_000), small=np.ones(1))
    with pytest.raises(InputError, match="more than 1000000 bytes of memory"):
        files.read_npz(tmp_path / "bomb.npz", bomb)
    assert files.read_npz(tmp_path / "bomb.npz", bomb, wanted={"small"})["small"] == 1


def test_damaged_and_doubled_members_are_refused(tmp_path):
    content = bytearray(_npz(values=np.arange(1000.0)))
    content[200] ^= 1  # inside of the compressed member
    with pytest.raises(InputError, match="damaged"):
        files.read_npz(tmp_path / "file.npz", bytes(content))
    doubled = io.BytesIO()
    with zipfile.ZipFile(doubled, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for value in (1.0, 2.0):
            array = io.BytesIO()
            np.save(array, np.array(value))
            archive.writestr("values.npy", array.getvalue())
    with pytest.raises(InputError, match="more than once"):
        files.read_npz(tmp_path / "file.npz", doubled.getvalue())
