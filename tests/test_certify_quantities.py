"""Probabilities, quantiles and means of the worst episodes in a certificate: as the library has them, shown no higher."""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.certify_runs import RETURNS, certify, error_line
from support.logs import write_evaluation

from sb3_camp.certification import certified_cvar, certified_probability, certified_quantile
from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.quantities_figure import quantities_figure
from sb3_camp.certification.rounded_text import percent
from sb3_camp.errors import InputError

OPTIONS = ["--probability-of", 150, 30.5, "--quantile", 0.05, "--cvar", 0.05, 1]
KINDS = [("probability", 150), ("probability", 30.5), ("quantile", 0.05), ("cvar", 0.05), ("cvar", 1)]


def certificate_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "certificate.json").read_text())


@pytest.mark.parametrize("more", [[], ["--method", "dkw", "--alpha", "0.2"], ["--radii", "0", "0.35", "0.9"]])
def test_the_command_gives_the_bounds_of_the_library(tmp_path, capsys, more):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    assert certify(path, *more) == 0
    alone = certificate_in(tmp_path)
    assert alone["quantities"] == []
    assert certify(path, *OPTIONS, *more) == 0
    certificate = certificate_in(tmp_path)
    assert certificate["certified_return"] == alone["certified_return"]
    assert [(one["kind"], one["at"]) for one in certificate["quantities"]] == KINDS
    functions = {"probability": certified_probability, "quantile": certified_quantile, "cvar": certified_cvar}
    for one in certificate["quantities"]:
        keywords = {"alpha": certificate["alpha"], "method": certificate["method"]}
        expected = functions[one["kind"]](RETURNS, 0.4, one["at"], certificate["radii"], **keywords)
        np.testing.assert_allclose(one["certified"], expected, rtol=1e-12)
    np.testing.assert_allclose(certificate["quantities"][-1]["certified"], certificate["certified_return"], rtol=1e-12)

    out = capsys.readouterr().out
    for text in (
        "returns at least 30.5\n",
        "except with a probability of 5 %\n",
        "mean return of the worst 5 % of the episodes\n",
    ):
        assert text in out
    rows = re.findall(r"^ +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+)$", out, re.M)[1:]
    shown = range(0, len(certificate["radii"]), 1 if "--radii" in more else 10)
    for index, row in zip(shown, rows, strict=True):
        for text, one in zip(row[1:], certificate["quantities"], strict=True):
            assert 0 <= one["certified"][index] - float(text) <= 1.001e-3
            assert one["kind"] != "probability" or one["certified"][index] - float(text) <= 1.001e-5


def test_the_picture_shows_each_with_its_name_and_no_higher(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    assert certify(path, *OPTIONS) == 0
    certificate = read_certificate(tmp_path / "certificate.json")
    returns, probabilities = quantities_figure(certificate).axes
    texts = [text.get_text() for axes in (returns, probabilities) for text in axes.get_legend().get_texts()]
    assert texts == [
        "expected return",
        "reached by all except 5 % of the episodes",
        "mean of the worst 5 % of the episodes",
        "mean of the worst 100 % of the episodes",
        "return of at least 150",
        "return of at least 30.5",
    ]
    curves = [
        certificate.certified_return,
        *(one.certified for one in (*certificate.quantities[2:], *certificate.quantities[:2])),
    ]
    lines = [*returns.get_lines(), *probabilities.get_lines()]
    for line, values in zip(lines, curves, strict=True):
        assert line.get_drawstyle() == "steps-pre" and line.get_ydata().tolist() == values


@pytest.mark.parametrize("share", [1e-320, 1e-13, 2.5e-9, 0.05, 1 / 3])
def test_a_share_is_shown_exactly_and_short(share):
    text = percent(share)
    assert float(Fraction(text[:-2]) / 100 if text.endswith(" %") else text) == share and len(text) < 30


@pytest.mark.parametrize("options", [["--quantile", 0], ["--quantile", 1], ["--cvar", 1.5], ["--cvar", 0]])
def test_refuses_shares_that_are_none(tmp_path, capsys, options):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    assert "a share of the episodes must lie strictly between 0 and 1" in error_line(capsys, path, *options)
    assert not (tmp_path / "certificate.json").exists()


@pytest.mark.parametrize("text", ["nan", "inf", "1e308", "a"])
def test_refuses_what_is_no_number(tmp_path, capsys, text):
    with pytest.raises(SystemExit) as end:
        certify(tmp_path, "--probability-of", text)
    assert end.value.code == 2 and "--probability-of" in capsys.readouterr().err


def test_quantities_of_a_certificate_must_be_whole(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", RETURNS)
    assert certify(path, *OPTIONS, "--radii", 0, 1) == 0
    content = certificate_in(tmp_path)
    for broken in (
        [1],
        [{}],
        [{"kind": "other", "at": 1, "certified": [1, 1]}],
        [{"kind": "cvar", "at": 1, "certified": [1]}],
    ):
        (tmp_path / "certificate.json").write_text(json.dumps({**content, "quantities": broken}))
        with pytest.raises(InputError, match="quantities must"):
            read_certificate(tmp_path / "certificate.json")
