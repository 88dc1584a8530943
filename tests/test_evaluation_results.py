import os

import numpy as np
import pytest

from sb3_camp.errors import InputError
from sb3_camp.evaluation.results import check_finished, read_partial, write_evaluation, write_partial

SETTINGS = {"sigma": 0.2, "seed": 3, "deterministic": True, "env_id": "CartPole-v1"}
RETURNS, LENGTHS = np.array([1.5, 2.0]), np.array([3, 4])


def test_finished_evaluation_is_in_the_format_of_the_zoo(tmp_path):
    write_evaluation(tmp_path / "new" / "evaluations.npz", SETTINGS, RETURNS, LENGTHS, timesteps=1000, model="m.zip")
    with np.load(tmp_path / "new" / "evaluations.npz", allow_pickle=False) as content:
        np.testing.assert_array_equal(content["timesteps"], [1000])
        np.testing.assert_array_equal(content["results"], [[1.5, 2.0]])
        np.testing.assert_array_equal(content["ep_lengths"], [[3, 4]])
        assert content["sigma"] == 0.2 and content["seed"] == 3 and content["deterministic"].dtype == bool
        assert str(content["format"]) == "sb3_camp-evaluation-1" and str(content["env_id"]) == "CartPole-v1"
    assert os.listdir(tmp_path / "new") == ["evaluations.npz"]


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "evaluations.npz"
    write_evaluation(path, SETTINGS, RETURNS, LENGTHS, timesteps=1)
    before = path.read_bytes()

    class Unwritable:
        def __array__(self, *args, **kwargs):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_evaluation(path, SETTINGS, RETURNS, LENGTHS, timesteps=2, model=Unwritable())
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["evaluations.npz"]


def test_partial_evaluation_goes_on_only_with_the_same_settings(tmp_path):
    path = tmp_path / "evaluations.partial.npz"
    write_partial(path, SETTINGS, RETURNS, LENGTHS, 2)
    returns, lengths, n_chunks = read_partial(path, SETTINGS)
    np.testing.assert_array_equal(returns, RETURNS)
    np.testing.assert_array_equal(lengths, LENGTHS)
    assert n_chunks == 2
    for name, value in {"sigma": 0.3, "seed": 4, "deterministic": False, "env_id": "CartPole-v0"}.items():
        with pytest.raises(InputError, match=f"made with {name} "):
            read_partial(path, {**SETTINGS, name: value})
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="cannot be read"):
        check_finished(path, SETTINGS)
