"""The files of a certificate: read back as written, documented key by key, and open to other tools."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.logs import write_evaluation, write_monitor

from sb3_camp.certification.bounds import certified_radius
from sb3_camp.certification.build import build_certificate
from sb3_camp.certification.certificate import Certificate, read_certificate
from sb3_camp.certification.certificate_files import write_certificate
from sb3_camp.certification.per_step import per_step_bound
from sb3_camp.certification.pooling import read_logs
from sb3_camp.certification.recorded_bounds import Wanted
from sb3_camp.certify import main as certify
from sb3_camp.errors import InputError
from sb3_camp.plot import main

DOCUMENTATION = Path(__file__).parents[1] / "docs" / "certificate_format.md"
Q_GAP = {
    "q_gap_min": 1e-9,
    "q_gap_mean": 0.1 + 0.2,
    "q_gap_steps": 7,
    "q_gap_levels": np.array([0.5, 0.95]),
    "q_gap_quantiles": np.array([0.3, 1 / 3]),
}
# Under which names the first version wrote files before they were whole
PARTIAL_NAMES = [".certificate.partial.csv", ".certificate.partial.png", ".certificate.partial.json"]
RADII = [0.0, 0.1, 1 / 3, np.pi]


def full_certificate(folder: Path) -> Certificate:
    """A certificate with every key that there is, from two sources."""
    first, second = (
        write_evaluation(
            folder / "logs" / name,
            returns,
            **changes,
            record='["crashed:last"]',
            recorded=np.eye(1, len(returns)),
            recorded_boolean=np.array([True]),
        )
        for name, returns, changes in (
            ("a.npz", [1.0, 2.0, 2.0], {**Q_GAP, "noisy_numbers": 4}),
            ("b.npz", [3.0] * 40, {"seed": 1}),
        )
    )
    options: dict[str, Any] = {"alpha": 0.01, "method": "clopper-pearson", "support": [1, 2, 3], "targets": [1, 2.5, 3]}
    options |= {"probability_of": [2.0, -0.5], "quantiles": [0.05, 0.1], "cvars": [0.05]}
    logs = read_logs([first, second])
    options["per_step"] = per_step_bound(logs, [0.01], "linf", steps=9)
    return build_certificate(logs, 0.4, RADII, **options, wanted=Wanted(at_most=["crashed"]))


def certificate_of_a_monitor_log(folder: Path) -> Certificate:
    """A certificate with as many unknown entries as there can be."""
    log = write_monitor(folder / "0.monitor.csv", [(-0.1, 3, 0.5), (0.7, 2, 0.75)], env_id="None")
    return build_certificate(read_logs([log]), 12.75, np.array(RADII), min_return=-1)


@pytest.mark.parametrize("make", [full_certificate, certificate_of_a_monitor_log])
def test_reading_gives_what_was_written(tmp_path, make):
    certificate = make(tmp_path)
    write_certificate(certificate, tmp_path / "new")
    read = read_certificate(tmp_path / "new" / "certificate.json")
    assert read == certificate
    assert json.dumps(read.as_json()) == json.dumps(certificate.as_json())  # the order, and whole numbers as such
    write_certificate(read, tmp_path / "again")
    for name in ("certificate.json", "certificate.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()


def test_every_key_is_documented_and_every_documented_key_is_there(tmp_path):
    certificate = full_certificate(tmp_path).as_json()
    documented = {}
    for heading, table in re.findall(r"^(.*)\n\n\| Key [^\n]*\n\|[-|]+\n((?:\|.*\n)+)", DOCUMENTATION.read_text(), re.M):
        documented[heading.split(",")[0].rstrip(":")] = re.findall(r"^\| `(\w+)` \|", table, re.M)
    everything, ceiling, quantity, per_step, recorded, source, q_gap = documented.values()
    assert everything == list(certificate)
    assert ceiling == list(certificate["ceiling"])
    assert quantity == list(certificate["quantities"][0])
    assert per_step == list(certificate["per_step"])
    assert recorded == list(certificate["recorded"][0])
    assert source == list(certificate["sources"][0])
    assert q_gap == list(certificate["sources"][0]["q_gap"])
    assert source[:-1] == list(certificate["sources"][1])
    assert f"`{certificate['format']}`" in DOCUMENTATION.read_text()


def test_the_example_of_the_documentation_can_be_read(tmp_path):
    (example,) = re.findall(r"```json\n(.*?)```", DOCUMENTATION.read_text(), re.S)
    assert list(json.loads(example)) == list(full_certificate(tmp_path).as_json())
    (tmp_path / "certificate.json").write_text(example)
    assert read_certificate(tmp_path / "certificate.json").as_json() == json.loads(example)


@pytest.mark.parametrize("make", [full_certificate, certificate_of_a_monitor_log])
def test_pandas_reads_the_curve_to_the_last_digit_and_what_it_is_of(tmp_path, make):
    certificate = make(tmp_path)
    write_certificate(certificate, tmp_path)
    table = pd.read_csv(tmp_path / "certificate.csv", float_precision="round_trip", keep_default_na=False)
    assert list(table.columns)[:2] == ["radius", "certified_return"]
    assert table["radius"].tolist() == certificate.radii
    assert table["certified_return"].tolist() == certificate.certified_return
    bounds = [*certificate.quantities, *certificate.recorded]
    for one in bounds:
        assert table[one.name].tolist() == one.certified
    for name in table.columns[2 + len(bounds) :]:
        assert set(table[name]) == {"" if getattr(certificate, name) is None else getattr(certificate, name)}
    assert {"sigma", "alpha", "method", "n_episodes", "min_return"} < set(table.columns)


def test_another_version_is_refused_and_another_key_is_left_out(tmp_path):
    path = tmp_path / "certificate.json"
    certificate = full_certificate(tmp_path)
    path.write_text(json.dumps({**certificate.as_json(), "format": "sb3_camp-certificate-2"}))
    with pytest.raises(InputError, match=r"certificate\.json: not a certificate of the format sb3_camp-certificate-1"):
        read_certificate(path)
    path.write_text(json.dumps({**certificate.as_json(), "new": [1]}))
    assert read_certificate(path) == certificate


def test_a_certificate_of_the_first_version_is_read(tmp_path):
    numbers = ("sigma", "alpha", "n_episodes", "min_return", "mean_return", "radii", "certified_return")
    needed = ("format", "method", *numbers, "sources")
    content = full_certificate(tmp_path).as_json()
    content["sources"] = [{key: one[key] for key in ("path", "sha256", "episodes")} for one in content["sources"]]
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps({key: content[key] for key in needed}))
    read = read_certificate(path)
    assert read.certified_return == content["certified_return"] and read.sources[0].path == content["sources"][0]["path"]
    assert read.env_id is read.ceiling is read.sources[0].n_envs is None and read.targets == {}
    for key in needed:
        path.write_text(json.dumps({name: content[name] for name in needed if name != key}))
        with pytest.raises(InputError, match=rf"certificate\.json: (not a certificate|{key} must be)"):
            read_certificate(path)


def test_the_value_between_two_radii_is_that_of_the_larger(tmp_path):
    certificate = replace(full_certificate(tmp_path), radii=[0.0, 0.5, 1.0], certified_return=[9.0, 5.0, 2.0])
    assert [certificate.value_at(radius) for radius in (0, 0.1, 0.5, 0.500001, 1.0)] == [9.0, 5.0, 5.0, 2.0, 2.0]
    assert certificate.value_at(1.0001) is None


def test_a_full_disk_leaves_the_three_files_as_they_were(tmp_path, monkeypatch):
    certificate = full_certificate(tmp_path)
    files = write_certificate(certificate, tmp_path / "new")
    before = {path: path.read_bytes() for path in files}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(InputError, match=r"cannot write .*certificate\.png: No space left on device"):
        write_certificate(replace(certificate, alpha=0.5), tmp_path / "new")
    assert {path: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before


@pytest.mark.parametrize(
    "planted", ["certificate.csv", "certificate.json", ".certificate.partial.png", ".certificate.partial.json"]
)
def test_no_link_in_the_folder_is_followed(tmp_path, planted):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / planted).symlink_to(victim)
    write_certificate(full_certificate(tmp_path), tmp_path / "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "new" / "certificate.json").is_symlink()


def test_targets_that_are_nearly_alike_stay_apart(tmp_path):
    logs = read_logs([write_evaluation(tmp_path / "a.npz", np.arange(1.0, 101))])
    targets = [20.0, 20.0000001, 0.1 + 0.2, 1e6 + 1, 30]
    certificate = build_certificate(logs, 0.4, RADII, targets=targets)
    assert list(certificate.targets) == ["20", "20.0000001", "0.30000000000000004", "1000001.0", "30"]
    for name, radius in certificate.targets.items():
        wanted = certified_radius(logs[0].returns, 0.4, float(name))
        assert radius == (None if np.isnan(wanted) else wanted)


FIRST_VERSION = Path(__file__).parent / "data" / "first_version"


def test_an_evaluation_of_the_first_version_is_certified_as_then(tmp_path):
    old = read_certificate(FIRST_VERSION / "certificate.json")
    options = ["--alpha", "0.01", "--targets", "20", "--radii", *map(str, old.radii)]
    assert certify([str(FIRST_VERSION / "evaluations.npz"), *options, "-o", str(tmp_path)]) == 0
    new = read_certificate(tmp_path / "certificate.json")
    np.testing.assert_allclose(new.certified_return, old.certified_return, rtol=1e-9)
    assert new.targets["20"] == pytest.approx(old.targets["20"], rel=1e-6)
    assert old.ceiling is not None and new.ceiling is not None and new.ceiling.ratio == pytest.approx(old.ceiling.ratio)
    same = (
        "env_id",
        "env_kwargs",
        "env_wrappers",
        "algo",
        "model",
        "model_sha256",
        "timesteps",
        "deterministic",
        "clean_keys",
    )
    same += ("sigma", "sigma_assumed", "method", "alpha", "min_return", "support", "n_episodes", "mean_return")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert old.sources[0].sha256 == new.sources[0].sha256
    assert main(["certificate", str(FIRST_VERSION / "certificate.json"), str(tmp_path), "-o", str(tmp_path / "a.svg")]) == 0
