"""Several workers on one study: dead ones are found, and no trial is counted twice or too often."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from sb3_camp.errors import InputError
from sb3_camp.tuning import workers
from sb3_camp.tuning.workers import check_objective, open_study


@pytest.fixture(autouse=True)
def short_beats(monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    monkeypatch.setattr(workers, "INTERVAL", 0.05)
    monkeypatch.setattr(workers, "GRACE_PERIOD", 0.6)


@pytest.fixture(params=["memory", "journal", "sqlite"])
def study(request, tmp_path) -> optuna.Study:
    storage = {"memory": None, "journal": str(tmp_path / "s.log"), "sqlite": f"sqlite:///{tmp_path}/s.db"}[request.param]
    if storage is None:
        return optuna.create_study(direction="maximize")
    study = open_study(storage, "study", create=True)
    assert study is not None
    return study


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


def watch(study: optuna.Study, trial: optuna.Trial, max_total_trials: int | None, last_beats=None) -> workers.Attendance:
    return workers.Attendance(study, trial, max_total_trials, {} if last_beats is None else last_beats)


def eventually(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_trial_without_a_heartbeat_fails_and_one_with_it_goes_on(study):
    dead = study.ask()
    with watch(study, study.ask(), None) as live, watch(study, study.ask(), None):
        eventually(lambda: states(study)[dead.number] == "FAIL")
        time.sleep(0.7)
        assert states(study) == ["FAIL", "RUNNING", "RUNNING"]
        assert not live.is_surplus()


def test_a_trial_whose_worker_was_killed_after_some_beats_fails(study):
    trial = study.ask()
    with watch(study, trial, None):
        eventually(lambda: study.trials[0].user_attrs.get("heartbeat", 0) >= 2)
    with watch(study, study.ask(), None):
        eventually(lambda: states(study)[0] == "FAIL")


def test_a_dead_trial_is_found_by_a_worker_whose_own_trials_are_short(study):
    dead, last_beats = study.ask(), {}

    def short_trial():
        trial = study.ask()
        with watch(study, trial, None, last_beats):
            time.sleep(0.1)
        study.tell(trial, 0.0)
        return states(study)[dead.number] == "FAIL"

    eventually(short_trial)


def test_the_last_worker_waits_until_a_dead_trial_counts_no_more(study):
    study.ask()  # of a worker that was killed
    own = study.ask()
    with watch(study, own, 2):
        pass
    assert states(study) == ["FAIL", "RUNNING"], "one of two trials is left to do"


def test_the_last_worker_waits_for_a_live_one_only_until_its_next_beat(study):
    with watch(study, study.ask(), 2):
        own = watch(study, study.ask(), 2)
        thread = threading.Thread(target=lambda: own.__enter__().__exit__(None, None, None))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        assert states(study) == ["RUNNING", "RUNNING"]
        study.tell(1, 0.0)
        study.tell(0, 0.0)  # so that the outer one does not wait


def test_nobody_waits_while_there_is_something_to_do(study):
    study.ask()
    start = time.monotonic()
    with watch(study, study.ask(), 3):
        pass
    assert states(study) == ["RUNNING", "RUNNING"] and time.monotonic() - start < 30


def test_of_two_workers_that_begin_the_last_trial_one_is_surplus(study):
    study.tell(study.ask(), 1.0)
    study.tell(study.ask(), state=TrialState.FAIL)
    last, surplus = study.ask(), study.ask()
    assert not watch(study, last, 2).is_surplus()
    assert watch(study, surplus, 2).is_surplus()
    assert not watch(study, surplus, None).is_surplus()


def test_the_objective_of_a_study_cannot_change(study):
    check_objective(study, None)
    check_objective(study, {"objective": "value"})
    check_objective(study, {"objective": "value"})
    for other in (None, {"objective": "area"}):
        with pytest.raises(InputError, match="--study-name"):
            check_objective(study, other)


def test_another_objective_is_named_by_what_differs_and_may_follow_where_all_trials_failed(study):
    check_objective(study, {"objective": "value", "n_timesteps": 100})
    study.tell(study.ask(), state=TrialState.FAIL)
    check_objective(study, {"objective": "value", "n_timesteps": 200})
    study.tell(study.ask(), 1.0)
    with pytest.raises(InputError, match="with n_timesteps 200, this worker with 300: give the same"):
        check_objective(study, {"objective": "value", "n_timesteps": 300})


def test_a_study_that_is_not_there_is_not_made_by_looking(tmp_path):
    assert open_study(str(tmp_path / "a/b.log"), "study", create=False) is None
    assert list(tmp_path.iterdir()) == []
    assert open_study(f"sqlite:///{tmp_path}/s.db", "study", create=False) is None


def test_workers_that_begin_a_new_database_at_once_all_find_it_ready(tmp_path):
    for attempt in range(3):
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        together = threading.Barrier(4)

        def work(url=url, together=together):
            together.wait()
            study = open_study(url, "study", create=True)
            study.tell(study.ask(), 1.0)

        with ThreadPoolExecutor(4) as pool:
            for worker in [pool.submit(work) for _ in range(4)]:
                worker.result()
        assert states(optuna.load_study(study_name="study", storage=url)) == ["COMPLETE"] * 4


def test_a_database_that_is_not_there_is_the_error_of_the_database(tmp_path, monkeypatch):
    monkeypatch.setattr(workers.time, "sleep", lambda seconds: pytest.fail("waits for what will not come"))
    with pytest.raises(OperationalError, match="unable to open database file"):
        open_study(f"sqlite:///{tmp_path}/no/such/folder/s.db", "study", create=False)
