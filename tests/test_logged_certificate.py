"""A certificate in SB3's logs."""

import json
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.logger import KVWriter, Logger, configure
from support.report_pages import RECORDED, full_certificate, least_certificate, recorded_bound, written

from sb3_camp.certification import log_certificate, read_certificate
from sb3_camp.certification.logged import logged_numbers

EXPECTED = {
    "certificate/mean_return": 12.5,
    "certificate/sigma": 0.4,
    "certificate/alpha": 0.05,
    "certificate/n_episodes": 1000,
    "certificate/certified_return_0": 11.98765,
    "certificate/certified_return_0.2": 8.25,
    "certificate/certified_return_0.4": 3.00199,
    "certificate/certified_return_0.8": -7.5,
    "certificate/probability_of_5_0.4": 0.6,
    "certificate/quantile_0.05_0.2": 4.0,
    "certificate/cvar_0.1_0.8": -20.0,
    "certificate/arrived_last_at_least_0": 0.98765432,
    "certificate/crashed_any_at_most_0.8": 0.8,
    "certificate/energy_sum_at_most_0.4": 50.0,
    "certificate/certified_radius_10": 0.123456789,
}


def certificate(folder):
    return read_certificate(written(full_certificate(recorded=RECORDED, band_alpha=0.01), folder))


class Dictionary(KVWriter):
    """As an output format for MLflow would be."""

    def __init__(self):
        self.written = []

    def write(self, key_values, key_excluded, step=0):
        self.written.append((dict(key_values), step))


def test_all_main_numbers_are_logged_at_the_steps_of_the_training(tmp_path):
    output = Dictionary()
    log_certificate(certificate(tmp_path), Logger(str(tmp_path), [output]))
    ((numbers, step),) = output.written
    assert step == 1000 and {name: numbers[name] for name in EXPECTED} == EXPECTED
    assert math.isnan(numbers["certificate/certified_radius_100"])
    log_certificate(certificate(tmp_path), Logger(str(tmp_path), [output]), radii=[0.3, 5.0], step=7)
    numbers, step = output.written[1]
    # The value at the next radius of the certificate, which holds for this one; nothing beyond the last
    assert step == 7 and numbers["certificate/certified_return_0.3"] == 3.00199
    assert not [name for name in numbers if name.endswith(("_5", "_0.4"))]
    assert "certificate/certified_return_0" in logged_numbers(least_certificate())


def test_the_table_of_sb3_is_not_broken_by_long_names(tmp_path, capsys):
    long = [recorded_bound("goal_reached_within_tolerance", [0.1, 0.2, 0.3, 0.4, 0.5])]
    logger = configure(str(tmp_path), ["stdout", "log", "json"])
    log_certificate(replace(full_certificate(), recorded=[*RECORDED, *long]), logger)
    logger.close()
    out = capsys.readouterr().out
    assert "certified_return_0.4" in out and "arrived_last_at_least_0.8" in out and "tolerance" not in out
    read = json.loads((tmp_path / "progress.json").read_text())
    assert read["certificate/goal_reached_within_tolerance_last_at_most_0.4"] == 0.4


def test_csv_and_json_of_sb3_have_them(tmp_path):
    logger = configure(str(tmp_path), ["csv", "json"])
    log_certificate(certificate(tmp_path / "c"), logger)
    logger.close()
    table = pd.read_csv(tmp_path / "progress.csv")
    read = json.loads((tmp_path / "progress.json").read_text())
    for name, value in EXPECTED.items():
        assert table[name][0] == value == read[name]


def test_the_logger_of_a_model_takes_it_beside_its_training(tmp_path):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=100, learning_starts=600, seed=0, device="cpu")
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(501, log_interval=1)  # no episode is longer than 500 steps
    log_certificate(certificate(tmp_path / "c"), model.logger, step=model.num_timesteps)
    model.logger.close()
    table = pd.read_csv(tmp_path / "progress.csv")
    assert table["certificate/certified_return_0.4"].iloc[-1] == 3.00199
    assert table["time/total_timesteps"].notna().any()


def test_tensorboard_shows_it(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = configure(str(tmp_path), ["tensorboard"])
    log_certificate(certificate(tmp_path / "c"), logger)
    logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name, value in EXPECTED.items():
        (event,) = events.Scalars(name)
        assert event.step == 1000 and event.value == pytest.approx(value, rel=1e-6)


def test_no_name_has_a_character_that_mlflow_refuses_and_none_is_lost(tmp_path):
    keys = ["dist[0]", "dist(0)", "dist_0_", "größe %", "a/b:c d-e.f"]
    bounds = [recorded_bound(key, [0.1 * place] * 5) for place, key in enumerate(keys, start=1)]
    odd = replace(certificate(tmp_path), recorded=bounds, targets={"1e+06": 0.5})
    numbers = logged_numbers(odd, radii=[0.4])
    assert all(re.fullmatch(r"[A-Za-z0-9_\-. :/]+", name) for name in numbers)
    assert [numbers[f"certificate/{name}"] for name in ("dist_0__last_at_most_0.4", "dist_0__last_at_most_0.4_no_2")] == [
        0.1,
        0.2,
    ]
    assert numbers["certificate/dist_0__last_at_most_0.4_no_3"] == pytest.approx(0.3)
    assert (
        numbers["certificate/gr__e __last_at_most_0.4"] == 0.4 and numbers["certificate/a/b:c d-e.f_last_at_most_0.4"] == 0.5
    )
    assert numbers["certificate/certified_radius_1e_06"] == 0.5
    assert len(numbers) == 4 + 1 + len(odd.quantities) + len(keys) + 1 + (odd.ceiling is not None)
