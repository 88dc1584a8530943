"""
Several workers on one Optuna study: who is dead, and what belongs to the study.

The zoo hands Optuna a storage without a heartbeat, and journal files have none at all, so the trial of a worker that was
killed would run for ever, and count as one of ``--max-total-trials``. Here every trial has a heartbeat of its own, in any kind
of storage. It is a number that grows, not a time: the clocks of the machines need not agree.
"""

import contextlib
import json
import os
import random
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import optuna
from optuna.trial import TrialState

from sb3_camp.errors import InputError

INTERVAL = 20.0
"""Seconds between two beats of a trial."""
GRACE_PERIOD = 90.0
"""A trial that has not beaten for so many seconds fails. It is not repeated, for it may be what killed its worker."""

_TRIES, _FIRST_WAIT = 8, 0.1
HEARTBEAT, WORKER, OBJECTIVE = "heartbeat", "worker", "certified_objective"
# As the zoo counts for --max-total-trials
_COUNTED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.PRUNED)


class Attendance:
    """
    A worker's watch over the running trials of a study, its own among them, as a context.

    :param study: The study
    :param trial: The worker's own trial, None if it has none
    :param max_total_trials: How many trials the study is to have, None if that is open
    :param last_beats: What the worker has seen of the running trials in earlier watches, by their numbers: the last beat and
        when it was first seen. It is kept up to date, so that a dead trial is found though each watch is short
    """

    def __init__(
        self,
        study: optuna.Study,
        trial: optuna.Trial | None,
        max_total_trials: int | None,
        last_beats: dict[int, tuple[int, float]],
    ) -> None:
        self._study = study
        self._trial = trial
        self._max_total_trials = max_total_trials
        self._last_beats = last_beats
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._attend, daemon=True)

    def __enter__(self) -> "Attendance":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None or issubclass(kind, optuna.TrialPruned):
            self.wait_for_others()
        self._over.set()
        self._thread.join()

    def is_surplus(self) -> bool:
        """
        :return: whether the study has enough trials without the worker's own: two workers may both have begun the last one
        """
        assert self._trial is not None
        return self._max_total_trials is not None and self._n_counted(before=self._trial.number) >= self._max_total_trials

    def wait_for_others(self) -> None:
        """Where no further trial would be begun: wait until each running one has beaten once more, ended or failed."""
        first = self._running()
        while self._max_total_trials is not None and self._n_counted() >= self._max_total_trials:
            now = self._running()
            if not any(first.get(number) == beat for number, beat in now.items()):
                return
            time.sleep(min(1.0, INTERVAL / 4))
            self._fail_dead()

    def _attend(self) -> None:
        beats = 0
        with contextlib.suppress(Exception):
            if self._trial is not None:
                self._trial.set_user_attr(WORKER, f"{socket.gethostname()}:{os.getpid()}")
        while True:
            beats += 1
            # While the storage is out of reach, or if the trial was taken for dead, the training goes on: its end will tell
            with contextlib.suppress(Exception):
                if self._trial is not None:
                    self._trial.set_user_attr(HEARTBEAT, beats)
                self._fail_dead()
            if self._over.wait(INTERVAL):
                return

    def _fail_dead(self) -> None:
        beats, now = self._running(), time.monotonic()
        for number, beat in beats.items():
            if self._last_beats.get(number, (None, now))[0] != beat:
                self._last_beats[number] = (beat, now)
        dead = [number for number in beats if now - self._last_beats[number][1] > GRACE_PERIOD]
        for number in dead:
            print(f"Trial {number} fails: its worker has not been heard of for {GRACE_PERIOD:g} seconds")
            with contextlib.suppress(Exception):  # of several kinds, if another worker was faster
                self._study.tell(number, state=TrialState.FAIL)

    def _running(self) -> dict[int, int]:
        """Last beat of each running trial but the own."""
        own = None if self._trial is None else self._trial.number
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number: trial.user_attrs.get(HEARTBEAT, 0) for trial in trials if trial.number != own}

    def _n_counted(self, before: float = float("inf")) -> int:
        trials = self._study.get_trials(deepcopy=False, states=_COUNTED)
        return sum(trial.number < before for trial in trials)


def opened_database(url: str) -> Any:
    """
    Of workers that begin on a new database at once, one makes its tables, and the others fail meanwhile. So they try again.

    :param url: URL of a database
    :return: Optuna's storage in it, with all its tables
    """
    from sqlalchemy.exc import DatabaseError

    for attempt in range(1, _TRIES):
        try:
            return optuna.storages.get_storage(url)
        except DatabaseError:
            if not _answers(url):
                raise
            time.sleep(_FIRST_WAIT * 2**attempt * random.uniform(0.5, 1))
    return optuna.storages.get_storage(url)


def _answers(url: str) -> bool:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DatabaseError

    engine = create_engine(url)
    try:
        with engine.connect():
            return True
    except DatabaseError:
        return False
    finally:
        engine.dispose()


def open_study(storage: str, study_name: str, *, create: bool) -> optuna.Study | None:
    """
    :param storage: The zoo's ``--storage``: a journal file ``*.log``, or the URL of a database
    :param study_name: Name of the study
    :param create: Whether to create it if it is not there
    :return: the study, None if it is not there
    """
    if not storage.endswith(".log"):
        opened = opened_database(storage)
    else:
        if create:
            Path(storage).parent.mkdir(parents=True, exist_ok=True)
        elif not Path(storage).exists():
            return None
        opened = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))  # type: ignore[attr-defined]
    if create:
        return optuna.create_study(storage=opened, study_name=study_name, load_if_exists=True, direction="maximize")
    try:
        return optuna.load_study(storage=opened, study_name=study_name)
    except KeyError:
        return None


def check_objective(study: optuna.Study, objective: dict[str, Any] | None) -> None:
    """
    Keep values that cannot be compared out of one study.

    :param study: The study; the first worker with a certified objective notes it there
    :param objective: What its trials are to maximise, as JSON, None for the zoo's own objective
    :raises InputError: if its trials maximise something else
    """
    noted = study.user_attrs.get(OBJECTIVE)
    wanted = None if objective is None else json.dumps(objective, sort_keys=True, default=str)
    if noted == wanted:
        return
    finished = (TrialState.COMPLETE, TrialState.PRUNED)
    n_trials = len(study.get_trials(deepcopy=False))
    only_failed = n_trials > 0 and not study.get_trials(deepcopy=False, states=(*finished, TrialState.RUNNING))
    if only_failed or (noted is None and not study.get_trials(deepcopy=False, states=finished)):
        study.set_user_attr(OBJECTIVE, wanted)
        return
    raise InputError(
        f"the trials of the study {study.study_name} maximise {_difference(noted, wanted)}: give the same arguments, the same "
        "CertifiedReturnCallback in callback among them, or another --study-name"
    )


def objective_of(study: optuna.Study) -> dict[str, Any] | None:
    """
    :param study: A study
    :return: what its trials maximise, as :func:`check_objective` has noted it, None for the zoo's own objective
    """
    noted = study.user_attrs.get(OBJECTIVE)
    return None if noted is None else json.loads(noted)


def _difference(noted: str | None, wanted: str | None) -> str:
    if noted is None or wanted is None:
        one, other = (text or "the mean return of the zoo" for text in (noted, wanted))
        return f"{one}, this worker {other}"
    one, other = json.loads(noted), json.loads(wanted)
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    return " and ".join(f"with {key} {one.get(key)!r}, this worker with {other.get(key)!r}" for key in keys)
