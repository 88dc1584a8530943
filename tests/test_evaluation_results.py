import os

import numpy as np
import pytest

from sb3_camp.errors import InputError
from sb3_camp.evaluation import Episodes
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.evaluation.evaluation_file import check_finished, read_more, read_partial, write_evaluation, write_partial

SETTINGS = {"sigma": 0.2, "seed": 3, "deterministic": True, "env_id": "CartPole-v1", "n_episodes": 3}
EPISODES = Episodes(np.array([1.5, 2.0, 2.5]), np.array([3, 4, 3]), np.array([0.5, -1.0, 0.0]))
CHUNKS = [Chunk(1, 0), Chunk(2, 8), Chunk(2, 16)]


def test_finished_evaluation_is_in_the_format_of_the_zoo(tmp_path):
    path = tmp_path / "new" / "evaluations.npz"
    write_evaluation(path, SETTINGS, EPISODES, timesteps=1000, model="m.zip")
    with np.load(path, allow_pickle=False) as content:
        np.testing.assert_array_equal(content["timesteps"], [1000])
        np.testing.assert_array_equal(content["results"], [[1.5, 2.0, 2.5]])
        np.testing.assert_array_equal(content["ep_lengths"], [[3, 4, 3]])
        assert content["min_reward"].item() == -1.0 and content["min_reward"].dtype == np.float64
        assert content["sigma"] == 0.2 and content["seed"] == 3 and content["deterministic"].dtype == bool
        assert str(content["format"]) == "sb3_camp-evaluation-1" and str(content["env_id"]) == "CartPole-v1"
    assert os.listdir(tmp_path / "new") == ["evaluations.npz"]
    assert check_finished(path, SETTINGS) == 3


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "evaluations.npz"
    write_evaluation(path, SETTINGS, EPISODES, timesteps=1)
    before = path.read_bytes()

    class Unwritable:
        def __array__(self, *args, **kwargs):
            raise OSError("disk full")

    with pytest.raises(InputError, match="disk full: choose another folder"):
        write_evaluation(path, SETTINGS, EPISODES, timesteps=2, model=Unwritable())
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["evaluations.npz"]


def test_partial_evaluation_goes_on_only_with_the_same_settings(tmp_path):
    path = tmp_path / "evaluations.partial.npz"
    write_partial(path, SETTINGS, EPISODES, 2)
    episodes, n_chunks = read_partial(path, SETTINGS, CHUNKS)
    np.testing.assert_array_equal(episodes, EPISODES)
    assert n_chunks == 2
    for name, value in {"sigma": 0.3, "seed": 4, "deterministic": False, "env_id": "CartPole-v0"}.items():
        with pytest.raises(InputError, match=f"made with {name} "):
            read_partial(path, {**SETTINGS, name: value}, CHUNKS)


def partial_entries():
    return {**SETTINGS, **EPISODES._asdict(), "n_chunks": 2, "q_gaps": np.zeros(10, np.float32)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"returns": None}, "holds no returns"),
        ({"lengths": None}, "holds no lengths"),
        ({"min_rewards": None}, "holds no min_rewards"),
        ({"n_chunks": None}, "holds no n_chunks"),
        ({"sigma": None}, "made with sigma None"),
        ({"sigma": np.array([0.2, 0.2])}, "made with sigma None"),
        ({"returns": EPISODES.returns[:2]}, "2 of 3 chunks have 3 episodes, it holds 2 or 3:"),
        ({"lengths": np.arange(4)}, "it holds 3 or 4:"),
        ({"n_chunks": 1}, "1 of 3 chunks have 1 episodes, it holds 3:"),
        ({"n_chunks": 0}, "0 of 3 chunks"),
        ({"n_chunks": -1}, "-1 of 3 chunks"),
        ({"n_chunks": 4}, "4 of 3 chunks"),
        ({"n_chunks": "2"}, "its n_chunks is damaged"),
        ({"n_chunks": np.array([2])}, "its n_chunks is damaged"),
        ({"returns": np.array(["1", "2", "3"])}, "its returns is damaged"),
        ({"returns": EPISODES.returns[np.newaxis]}, "its returns is damaged"),
        ({"lengths": EPISODES.returns}, "its lengths is damaged"),
        ({"returns": np.array([1, None, 2])}, "cannot be read"),
        ({"q_gaps": None}, "holds no q_gaps"),
        ({"q_gaps": np.zeros((2, 5))}, "its q_gaps is damaged"),
    ],
)
def test_partial_evaluation_that_lacks_something_is_one_line(tmp_path, changes, message):
    path = tmp_path / "evaluations.partial.npz"
    entries = {**partial_entries(), **changes}
    np.savez(path, **{name: value for name, value in entries.items() if value is not None})
    with pytest.raises(InputError, match=message) as error:
        read_partial(path, SETTINGS, CHUNKS)
        read_more(path, "q_gaps")
    assert "\n" not in str(error.value) and "--resume" in str(error.value)


def test_what_differs_is_told_by_what_people_give_not_by_the_seeds_that_follow_from_it(tmp_path):
    path = tmp_path / "evaluations.npz"
    was = {"first_env_seed": 1, "last_env_seed": 1, "n_envs": 1}
    np.savez(path, results=np.zeros((1, 1)), **was)
    with pytest.raises(InputError, match="made with n_envs 1, not 8"):
        check_finished(path, {**was, "last_env_seed": 8, "n_envs": 8})


@pytest.mark.parametrize("results", [None, np.array([[1.0, 2.0]]), np.zeros(3), np.array([["a"] * 3])])
def test_finished_evaluation_that_lacks_episodes_is_not_resumed(tmp_path, results):
    path = tmp_path / "evaluations.npz"
    np.savez(path, **SETTINGS, **({} if results is None else {"results": results}))
    with pytest.raises(InputError, match="cannot be resumed"):
        check_finished(path, SETTINGS)


@pytest.mark.parametrize("compressed", [True, False])
def test_damage_anywhere_in_a_partial_evaluation_is_one_line_or_none(tmp_path, compressed):
    path = tmp_path / "evaluations.partial.npz"
    (np.savez_compressed if compressed else np.savez)(path, **partial_entries())
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for i in range(400):
        damaged = bytearray(whole)
        for position in rng.integers(len(whole), size=3):
            damaged[position] = rng.integers(256)
        path.write_bytes(damaged if i % 4 else damaged[: rng.integers(len(whole))])
        try:
            episodes, n_chunks = read_partial(path, SETTINGS, CHUNKS)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
        else:  # the damage is where nothing depends on it, in the names of other entries or the times of the archive
            np.testing.assert_array_equal(episodes, EPISODES)
            assert n_chunks == 2
    assert refused > 100
    for content in (b"", b"\x93NUMPY", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(content)
        with pytest.raises(InputError, match="cannot be re"):
            read_partial(path, SETTINGS, CHUNKS)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="cannot be read"):
        read_partial(path, SETTINGS, CHUNKS)
