"""A frontier in the report: its curves, what is best where, how sure all of it is together, and whose it is."""

import json
import shlex
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from support.certify_runs import certify
from support.logs import write_evaluation
from support.report_pages import attributes, parsed, text_of, tips

from sb3_camp.certification.certificate import read_certificate
from sb3_camp.certification.frontier_files import read_frontier
from sb3_camp.report import main

SIGMAS = (0.2, 0.4, 0.8)
HOSTILE = "</td><script>alert(1)</script>$x_$"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Evaluations of one agent at three sigmas, a certificate of the second, and a frontier of all."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for seed, (sigma, low) in enumerate(zip(SIGMAS, (150, 120, 60), strict=True)):
        path = Path(f"{sigma}/evaluations.npz")
        write_evaluation(path, rng.integers(low, 201, 300), sigma=sigma, seed=seed, model=f"{HOSTILE}.zip")
    assert certify("0.4/evaluations.npz", "-o", ".") == 0
    assert certify("--frontier", *map(str, SIGMAS), "-o", "frontier", "--alpha", 0.1) == 0
    return tmp_path


def report(*paths) -> int:
    return main([*map(str, paths), "-o", "report.html"])


def error_line(capsys, *paths) -> str:
    capsys.readouterr()
    assert report(*paths) == 2
    return capsys.readouterr().err


def test_the_report_shows_the_frontier_of_its_folder(folder):
    assert report(".") == 0
    document = parsed(Path("report.html").read_text())
    section = document.find(".//section[@id='frontier']")
    text, frontier = text_of(section), read_frontier("frontier/frontier.json")
    assert "each at alpha 0.0333333, so that with a confidence of 90 % all of their curves hold at once" in text
    assert "the certificate above together have a confidence of 85 %" in text
    assert "the agent and noise of this report" in text and text.count("the agent of this report") == 2
    assert "They differ in" not in text
    head, *rows = [[text_of(cell) for cell in row] for row in section.find(".//table[@class='numbers']").iter("tr")]
    assert head == ["radius R", "best", "its expected return", "[1]", "[2]", "[3]"] and len(rows) == 13
    for radius, best, value, *curves in rows:
        index = frontier.certificates[0].index_at(float(radius))
        exact = [one.certified_return[index] for one in frontier.certificates]
        assert best == f"[{frontier.best[index] + 1}]" and value == curves[frontier.best[index]]
        assert all(0 <= bound - float(shown) <= 1.001e-3 for bound, shown in zip(exact, curves, strict=True))
    assert len({row[1] for row in rows}) > 1  # which one is the best depends on the radius
    # Every strip tells all three curves; ids and what refers to them are those of one picture only
    strips = [tip for tip in tips(document) if tip.startswith("radius up to") and "[3]" in tip]
    assert len(strips) > 100 and all(tip.count("at least") == 3 for tip in strips)
    ids = [value for _, name, value in attributes(document) if name == "id"]
    assert len(ids) == len(set(ids)) and any(one.startswith("frontier-") for one in ids)
    referred = [value[1:] for _, name, value in attributes(document) if name == "href"]
    assert set(referred) <= set(ids)


def test_curves_can_be_told_apart_without_colours(folder):
    assert report(".") == 0
    section = parsed(Path("report.html").read_text()).find(".//section[@id='frontier']")
    dashes = [
        (element.get("style") or "").partition("stroke-dasharray: ")[2].partition(";")[0]
        for element in section.iter("path")
        if "stroke-linejoin: round" in (element.get("style") or "") or "stroke-dasharray" in (element.get("style") or "")
    ]
    assert len({dash for dash in dashes if dash}) >= 2
    assert "<script" not in Path("report.html").read_text()


def test_the_printed_command_makes_the_frontier_again(folder):
    assert report(".") == 0
    blocks = parsed(Path("report.html").read_text()).findall(".//pre/code")
    (words,) = [
        words for block in blocks if "--frontier" in (words := shlex.split("".join(block.itertext()).replace("\\\n", "")))
    ]
    assert words[:3] == ["python", "-m", "sb3_camp.certify"] and certify(*words[3:]) == 0
    first, again = (json.loads(Path(one, "frontier.json").read_text()) for one in ("frontier", "again/frontier"))
    for part in chain(first["certificates"], again["certificates"]):
        del part["sources"]
    assert first == again


def test_a_frontier_without_the_agent_is_left_out_or_refused(folder, capsys):
    certificate = Path("certificate.json")
    content = json.loads(certificate.read_text())
    assert read_certificate(certificate).model_sha256 == "a" * 64
    certificate.write_text(json.dumps({**content, "model_sha256": "b" * 64}))
    assert report(".") == 0
    assert "Left out: frontier/frontier.json: a frontier without the agent of the certificate\n" in capsys.readouterr().out
    assert 'id="frontier"' not in Path("report.html").read_text()
    assert "without the agent" in error_line(capsys, certificate, "frontier/frontier.json")
    certificate.write_text(json.dumps({**content, "env_id": "CartPole-v0"}))
    assert "a frontier in CartPole-v1" in error_line(capsys, certificate, "frontier/frontier.json")
    certificate.write_text(json.dumps(content))
    assert report(certificate, "frontier/frontier.json") == 0
    assert 'id="frontier"' in Path("report.html").read_text()
    assert "a second frontier" in error_line(capsys, ".", "frontier/frontier.json")
    Path("frontier/frontier.json").write_text('{"format": "sb3_camp-frontier-1"}')
    assert "frontier.json: a frontier has an alpha" in error_line(capsys, ".")


def test_a_frontier_that_is_older_than_its_episodes_says_so(folder):
    write_evaluation(Path("0.8/evaluations.npz"), [9.0, 8.0], sigma=0.8)
    assert report(".") == 0
    assert "The frontier is older than its episodes." in text_of(parsed(Path("report.html").read_text()))
