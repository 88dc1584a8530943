"""Which worker has which cell of a sweep: none has two, and none is lost."""

import threading

import pytest
import test_tuning_postgresql
from sweep_runs import TASK, sweep_cells, sweep_claims, sweep_steps

from sb3_camp.tuning import workers
from sb3_camp.tuning.workers import open_study

server = test_tuning_postgresql.database
Cell = sweep_cells.Cell
CELLS = [Cell(TASK, "ppo", None, "default", 0.2, seed) for seed in range(6)]


def claims_of(folder, storage=None):
    study = open_study(storage or str(folder / "study.log"), "sweep", create=True)
    return sweep_claims.Claims(study, folder)


def check_that_each_cell_has_one_worker(folder, storage):
    """Four workers that try to claim all cells at once."""
    claims_of(folder, storage)
    got, barrier = [], threading.Barrier(4)

    def work():
        claims = claims_of(folder, storage)
        barrier.wait()
        for cell in CELLS:
            if claims.claim(cell) is not None:
                got.append(cell)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(cell.seed for cell in got) == list(range(6))


@pytest.mark.parametrize("storage", ["study.log", "sqlite"])
def test_of_workers_that_claim_at_once_each_cell_has_one(storage, tmp_path):
    check_that_each_cell_has_one_worker(
        tmp_path, f"sqlite:///{tmp_path}/s.db" if storage == "sqlite" else str(tmp_path / storage)
    )


@pytest.mark.slow
def test_of_workers_that_claim_at_once_on_a_server_each_cell_has_one(server, tmp_path):
    check_that_each_cell_has_one_worker(tmp_path, server)


def test_a_cell_is_done_when_all_its_steps_are_and_its_folder_is_there(tmp_path):
    claims, cell = claims_of(tmp_path), CELLS[0]
    (tmp_path / cell.name).mkdir()
    trial = claims.claim(cell)
    assert claims.is_running(cell) and not claims.is_done(cell, ["train"])
    claims.complete(trial, ["train", "evaluate"], 1.0)
    claims.refresh()
    assert claims.is_done(cell, ["train"]) and not claims.is_done(cell, ["train", "attack"]) and not claims.is_running(cell)
    (tmp_path / cell.name).rmdir()
    assert not claims.is_done(cell, ["train"])


def test_an_error_is_remembered_by_those_who_were_there_and_an_interruption_is_none(tmp_path):
    claims = claims_of(tmp_path)
    claims.fail(claims.claim(CELLS[0]), "out of memory")
    claims.fail(claims.claim(CELLS[1]), None)
    claims.refresh()
    assert claims.error(CELLS[0]) == "out of memory" and claims.error(CELLS[1]) is None
    later = claims_of(tmp_path)
    later.refresh()
    assert later.error(CELLS[0]) is None, "the same command tries again"


def test_a_cell_of_a_worker_without_lock_or_heartbeat_comes_free(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "INTERVAL", 0.05)
    monkeypatch.setattr(workers, "GRACE_PERIOD", 0.6)
    dead, claims = claims_of(tmp_path), claims_of(tmp_path)
    killed, unlocked, alive = (dead.claim(cell) for cell in CELLS[:3])
    lock = sweep_claims.lock_file(tmp_path, CELLS[2].name)
    dead.note_lock(killed)
    dead.note_lock(alive)
    with sweep_steps.locked(lock), dead.attended(alive):
        claims.fail_dead()
        claims.refresh()
        assert [claims.is_running(cell) for cell in CELLS[:3]] == [False, True, True], "the lock of the first is free"
        assert claims.wait_for_others(CELLS), "the heartbeat of the second stands still"
        claims.refresh()
        assert [claims.is_running(cell) for cell in CELLS[:3]] == [False, False, True]
        assert not claims.wait_for_others(CELLS), "the third goes on elsewhere"
    assert unlocked is not None
