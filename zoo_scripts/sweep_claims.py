"""Which worker has which cell of a sweep: an Optuna study with one trial for each attempt at a cell."""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sweep_cells import Cell
from sweep_steps import locked

from sb3_camp.tuning import workers
from sb3_camp.tuning.workers import HEARTBEAT, WORKER, Attendance

_CELL, _CLAIM, _STEPS, _ERROR, _LOCKED = "cell", "claim", "steps", "error", "locked"


class Claims:
    """
    The cells as the study of a sweep has them: being worked on, done, failed or free.

    A worker claims a cell with a trial that is running from the first. Of several for the same cell the one with the lowest
    number has it: numbers are given by the storage in the order of the claims, so a claim sees all that came before it.

    :param study: The study
    :param folder: Folder of the sweep
    """

    def __init__(self, study: optuna.Study, folder: Path) -> None:
        self._study = study
        self._folder = folder
        self._last_beats: dict[int, tuple[int, float]] = {}
        self._by_cell: dict[str, list[FrozenTrial]] = {}
        self._n_at_start = len(study.get_trials(deepcopy=False))

    def refresh(self) -> None:
        """See what the workers have done in the meantime."""
        self._by_cell = {}
        for trial in self._study.get_trials(deepcopy=False):
            self._by_cell.setdefault(trial.user_attrs.get(_CELL, ""), []).append(trial)

    def is_done(self, cell: Cell, steps: Iterable[str]) -> bool:
        """
        :param cell: A cell
        :param steps: Names of its steps
        :return: whether a worker has done all of them; not if its folder has been deleted since
        """
        done = (set(trial.user_attrs[_STEPS]) for trial in self._trials(cell, TrialState.COMPLETE))
        return any(set(steps) <= names for names in done) and (self._folder / cell.name).is_dir()

    def is_running(self, cell: Cell) -> bool:
        """
        :param cell: A cell
        :return: whether a worker has it
        """
        return bool(self._trials(cell, TrialState.RUNNING))

    def error(self, cell: Cell) -> str | None:
        """
        :param cell: A cell
        :return: with what it has failed since this worker began, None if it has not
        """
        failed = [trial for trial in self._trials(cell, TrialState.FAIL) if trial.number >= self._n_at_start]
        return next((trial.user_attrs[_ERROR] for trial in reversed(failed) if _ERROR in trial.user_attrs), None)

    def claim(self, cell: Cell) -> optuna.Trial | None:
        """
        :param cell: A free cell
        :return: a running trial, None if another worker was faster
        """
        claim = uuid.uuid4().hex
        worker = f"{socket.gethostname()}:{os.getpid()}"
        attributes: dict[str, Any] = {_CELL: cell.name, **cell.fields(), _CLAIM: claim, WORKER: worker, HEARTBEAT: 0}
        self._study.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attributes))
        self.refresh()
        running = self._trials(cell, TrialState.RUNNING)
        own = next(trial for trial in running if trial.user_attrs[_CLAIM] == claim)
        if own.number > min(trial.number for trial in running):
            self._tell(own.number, state=TrialState.FAIL)
            return None
        return optuna.trial.Trial(self._study, own._trial_id)

    def attended(self, trial: optuna.Trial) -> Attendance:
        """
        :param trial: The worker's trial
        :return: a context in which it has a heartbeat
        """
        return Attendance(self._study, trial, None, self._last_beats)

    def note_lock(self, trial: optuna.Trial) -> None:
        """Tell that the worker of the trial holds the lock of its cell, by which others on this machine see it die."""
        trial.set_user_attr(_LOCKED, True)

    def complete(self, trial: optuna.Trial, steps: Iterable[str], value: float) -> None:
        """
        :param trial: The worker's trial
        :param steps: Names of the steps that are done
        :param value: What the study shows as its value
        """
        trial.set_user_attr(_STEPS, list(steps))
        self._tell(trial.number, value)

    def fail(self, trial: optuna.Trial, error: str | None) -> None:
        """
        :param trial: The worker's trial
        :param error: With what a command failed, None if the worker was interrupted, so that the cell is free again
        """
        if error is not None:
            trial.set_user_attr(_ERROR, error)
        self._tell(trial.number, state=TrialState.FAIL)

    def fail_dead(self) -> None:
        """Free the cells of workers of this machine that have died: their locks are free."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            host = str(trial.user_attrs.get(WORKER, "")).rpartition(":")[0]
            if host == socket.gethostname() and trial.user_attrs.get(_LOCKED):
                with locked(lock_file(self._folder, trial.user_attrs[_CELL]), wait=False) as free:
                    if free:
                        self._tell(trial.number, state=TrialState.FAIL)

    def wait_for_others(self, cells: list[Cell]) -> bool:
        """
        Wait until the workers of some cells have given a sign of life.

        :param cells: The cells
        :return: whether a worker has left a cell in the meantime, finished or not
        """
        with Attendance(self._study, None, None, self._last_beats):
            first = self._beats(cells)
            while True:
                self.fail_dead()
                now = self._beats(cells)
                if not set(first) <= set(now):
                    return True
                if all(now[number] != beat for number, beat in first.items()):
                    return False
                time.sleep(min(1.0, workers.INTERVAL / 4))

    def _beats(self, cells: list[Cell]) -> dict[int, int]:
        self.refresh()
        running = (trial for cell in cells for trial in self._trials(cell, TrialState.RUNNING))
        return {trial.number: trial.user_attrs.get(HEARTBEAT, 0) for trial in running}

    def _trials(self, cell: Cell, state: TrialState) -> list[FrozenTrial]:
        return [trial for trial in self._by_cell.get(cell.name, ()) if trial.state == state]

    def _tell(self, number: int, value: float | None = None, state: TrialState | None = None) -> None:
        with contextlib.suppress(Exception):  # of several kinds, if another worker took this one for dead
            self._study.tell(number, value, state=state)


def lock_file(folder: Path, cell_name: str) -> Path:
    """
    :param folder: Folder of the sweep
    :param cell_name: Name of a cell
    :return: the file whose lock the worker of the cell holds
    """
    return folder / cell_name / "lock"
