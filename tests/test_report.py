"""The report for whoever signs: its numbers, what it says of what is not certain, and that nothing in it comes alive."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_agents import write_certificate
from support.attacked_results import POLICY, attacked
from support.report_pages import (
    RADII,
    RECORDED,
    attributes,
    cells,
    full_certificate,
    least_certificate,
    parsed,
    recorded_bound,
    rounded_down,
    text_of,
    tips,
    written,
)

from sb3_camp.attack_runs.agent_results import AgentResults, find_results
from sb3_camp.certification.certificate import Certificate, PerStepBound, Quantity, Source, read_certificate
from sb3_camp.certification.curve_style import curve_styles
from sb3_camp.certification.sensor_table import sensors
from sb3_camp.report import main
from sb3_camp.reporting.page import report_page

EVALUATED = np.random.default_rng(0).uniform(10, 100, 1000)
DRAWING = {"svg", "g", "defs", "path", "use", "text", "tspan", "title", "clipPath", "rect"}
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg></style><script>alert(1)</script>",
    "'-->]]>{{ 7 * 7 }}{% raw %}&lt;b&gt;",
    "$\\frac{$ ${x}$ \ud800 \x00 \x1b[31m \u202e",
)


def page(certificate: Certificate, folder: Path) -> str:
    return report_page(AgentResults(written(certificate, folder), certificate, [], []))


def write(folder: Path, means=(90.0, 60.0, 30.0), budgets=(0.0, 0.5, 1.0), **changes: Any) -> Path:
    """An attack whose returns are spread evenly by 10 around each mean."""
    attacked(budgets, [mean + np.linspace(-10, 10, 40) for mean in means], folder, **changes)
    return folder / "attack.json"


@pytest.fixture
def run(tmp_path) -> Path:
    """A folder with a certificate and two attacks, of which one is of another model."""
    write_certificate(tmp_path / "certification/certificate.json", POLICY, [50.0, 30.0, 20.0], EVALUATED)
    write(tmp_path / "attacks/pgd")
    write(tmp_path / "attacks/other", model_sha256="1" * 64)
    return tmp_path


def error_line(capsys: pytest.CaptureFixture, *arguments: Any) -> str:
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("report: error: ") and printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("assumed", [False, True])
def test_what_is_certified_against_a_bound_on_each_step_has_a_table(tmp_path, assumed):
    bound = PerStepBound(0.02, "linf", 96, assumed, 4, 0.392, "R = 0.02 * 19.6", 9.87659, [0.987659, 5.5, 4.4], [0.012341])
    certificate = full_certificate(per_step=bound, recorded=RECORDED[1:2])
    document = parsed(page(certificate, tmp_path))
    text = text_of(document)
    assert "perturbs each of 4 numbers of each observation by at most 0.02 in an episode, at most 96 steps long" in text
    assert "R = 0.02 * 19.6 = 0.392 (" in text
    assert ("No episode has more than 96 steps" in text) is assumed
    _, table = document.findall(".//section[@id='statement']//table[@class='numbers']")
    values = ["certified", "9.876", "0.98765", "5.500", "4.400", "0.01235"]
    assert [text_of(row[1]) for row in table.iter("tr")] == values
    assert "If what can happen at each step is bounded" not in text_of(parsed(page(full_certificate(), tmp_path)))


def test_all_that_is_certified_stands_in_the_table_rounded_down(tmp_path):
    certificate = full_certificate()
    head, *rows = cells(parsed(page(certificate, tmp_path)), "statement")
    assert head == [
        *("radius R", "R / sigma", "expected return", "probability that an episode returns at least 5"),
        "return that an episode reaches, except with a probability of 5 %",
        "mean return of the worst 10 % of the episodes",
    ]
    assert [float(row[0]) for row in rows] == RADII
    curves = [certificate.certified_return, *(one.certified for one in certificate.quantities)]
    for index, row in enumerate(rows):
        for cell, curve, decimals in zip(row[2:], curves, (3, 5, 3, 3), strict=True):
            assert rounded_down(cell, curve[index], decimals), (cell, curve[index])
    assert rows[3][2] == "3.001", "not 3.002"


def test_what_was_recorded_stands_in_table_picture_and_assumptions(tmp_path):
    certificate = full_certificate(recorded=RECORDED, band_alpha=0.01, looks=[500, 1000])
    root = parsed(page(certificate, tmp_path))
    head, *rows = cells(root, "statement")
    assert head[6:] == [
        "probability of: arrived at the end of an episode, at least",
        "probability of: crashed at any time of an episode, at most",
        "expected value of: energy, summed over an episode, at most",
    ]
    assert rows[0][6:] == ["0.98765", "0.01235", "21.235"], "upper bounds are rounded up"
    sections = ("statement", "tested", "assumptions")
    statement, facts, rests = (text_of(root.find(f".//section[@id='{name}']")) for name in sections)
    assert "or an upper one where it says" in statement and "All are rounded to the safe side." in statement
    assert "0.01 for each band" in facts and "after 500, 1000 episodes" in facts
    assert "0.01 (an estimate, not a bound); missing in 3 episodes, which count as 1" in facts
    assert "No episode can have more energy than 90. This was assumed" in rests and "more crashed" not in rests
    assert "the looks at which the evaluation might end were chosen before these episodes" in rests
    told = tips(root)
    assert any("certified: probability of: crashed at any time of an episode, at most 0.10000" in tip for tip in told)
    assert any("energy, summed over an episode, at most 30.000" in tip for tip in told)
    assert "energy" in [text_of(label) for label in root.find(".//svg").iter("text")]
    plain = text_of(parsed(page(full_certificate(), tmp_path)))
    assert "All are rounded down." in plain and "an upper one" not in plain and "looks at which" not in plain


def test_the_first_box_quotes_the_bound_at_sigma_and_the_confidence(tmp_path):
    root = parsed(page(full_certificate(), tmp_path))
    first = text_of(root.find(".//header"))
    assert (
        "95 %" in first
        and "radius 0.4 (1 sigma" in first
        and "at least 3.001." in first
        and "1000 episodes was 12.50" in first
    )
    nothing = full_certificate(certified_return=[-1.0, -2.0, -3.0, -19.9999, -20.0], quantities=[], min_return=-19.9999)
    first = text_of(parsed(page(nothing, tmp_path)).find(".//header"))
    assert "nothing is certified beyond the lowest return" in first and "at least" not in first


def test_what_identifies_agent_environment_noise_and_episodes_is_named(tmp_path):
    certificate = full_certificate()
    text = text_of(parsed(page(certificate, tmp_path)))
    for known in (
        *("ppo", "models/ppo.zip", "a" * 64, "1000 steps", "greedy", "Thermostat-v1", "Thermostat-v0", '{"rooms": 2}'),
        *("thermostat 1.2", "0.4 on each entry", "96 steps", "berk-jones", "b" * 64, "python 3.11"),
        *("An expected return of 10 is certified up to radius 0.123456", "An expected return of 100 is not certified"),
        "assumed by whoever made the certificate",
        "0.0100 at radius 0, 0.1000 at radius 0.4, 0.4000 at radius 0.8",
    ):
        assert known in text, known
    known_lowest = text_of(parsed(page(replace(certificate, min_return_basis="known"), tmp_path)))
    assert "This is known of the environment." in known_lowest and "assumed by" not in known_lowest
    assumed = text_of(parsed(page(full_certificate(sigma_assumed=True, clean_keys=["clock"]), tmp_path)))
    assert "noise of this sigma was assumed" in assumed and "except clock, which nobody may change" in assumed
    unchecked = text_of(parsed(page(full_certificate(independence_assumed=True), tmp_path)))
    for checked in (text, assumed):
        assert "from 1000 independent episodes" in checked and "That they were independent was assumed" not in checked
    assert "from 1000 episodes" in unchecked and "That they were independent was assumed" in unchecked


def test_what_the_logs_do_not_tell_is_called_unknown(tmp_path):
    root = parsed(page(least_certificate(), tmp_path))
    unknown = [text_of(row) for row in root.iter("tr") if "not known" in text_of(row)]
    for name in ("Algorithm", "File of the agent", "SHA-256", "Trained for", "Choice of actions", "Settings", "Versions"):
        assert any(text.startswith(name) for text in unknown), name


def test_a_radius_is_translated_to_each_sensor(tmp_path):
    certificate = full_certificate(sigma=1.0, sensor_sigma={"air": [1.166, 0.0], "sun": 250.0})
    head, *rows = cells(parsed(page(certificate, tmp_path)), "sensors")
    assert "96 steps" in head[2]
    assert [row[0] for row in rows] == ["air[0]", "air[1]", "sun"] and rows[1][1] == "changes are not covered"
    for row, sigma in ((rows[0], 1.166), (rows[2], 250.0)):
        assert rounded_down(row[1], sigma, 2)
        # as a constant offset over all steps it has the norm of one sigma
        assert float(row[2]) * math.sqrt(96) == pytest.approx(sigma, rel=1e-2)
    (one,) = sensors(full_certificate())
    assert (one.name, one.deviation, one.offset * math.sqrt(96)) == ("", 0.4, pytest.approx(0.4))
    # an attack may make episodes longer than those seen, but not longer than the limit
    certificate = full_certificate(sigma=2.0, step_limit=400)
    (limited,) = sensors(certificate)
    assert limited.offset == pytest.approx(2.0 / 20)
    head, row = cells(parsed(page(certificate, tmp_path)), "sensors")
    assert "400 steps that an episode can have" in head[2] and row[2] == "0.1"
    for silent in (full_certificate(longest_episode=None), full_certificate(longest_episode=0), full_certificate(pixels=True)):
        assert sensors(silent) == [] and "sensors" not in {e.get("id") for e in parsed(page(silent, tmp_path)).iter()}


def test_the_unit_is_named(tmp_path):
    def section(entries: list[Any]) -> str:
        certificate = full_certificate(env_wrappers={"env_wrapper": entries})
        return text_of(parsed(page(certificate, tmp_path)).find(".//section[@id='sensors']"))

    noise = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.4}}
    normaliser = {"sb3_camp.wrappers.FrozenNormalizeObservation": {"mean": [0.0], "var": [1.0]}}
    assert "in the units of the observation." in section([noise, normaliser])
    assert "in standard deviations of each entry" in section([normaliser, noise])


def test_images_have_their_radii_in_255ths_too(tmp_path):
    certificate = full_certificate(pixels=True, sigma=25.5, radii=[0.0, 25.5], certified_return=[5.0, 1.0], quantities=[])
    head, *rows = cells(parsed(page(replace(certificate, min_return_slope=None), tmp_path)), "statement")
    assert head[1] == "radius / 255" and rows[1][:3] == ["25.5", "0.1", "1.000"]


@pytest.mark.parametrize(
    "certificate",
    [
        full_certificate(),
        least_certificate(),
        least_certificate(radii=[0.5, 2.0], certified_return=[4.0, 4.0]),
        full_certificate(pixels=True, clean_keys=["a", "b"], support=[1.0, 2.0], sigma_assumed=True, trained_env_id=None),
        full_certificate(sensor_sigma=[0.1] * 100, sigma=1.0),
        full_certificate(radii=list(np.linspace(0, 3, 1001)), certified_return=list(np.linspace(9, 0, 1001)), quantities=[]),
    ],
    ids=["full", "least", "flat", "pixels", "many sensors", "many radii"],
)
def test_each_page_is_valid_html_on_its_own(tmp_path, certificate):
    text = page(certificate, tmp_path)
    assert text.startswith("<!DOCTYPE html>")
    root = parsed(text)
    ids = [value for _, name, value in attributes(root) if name == "id"]
    assert len(ids) == len(set(ids))
    for tag, name, value in attributes(root):
        assert not name.startswith("on") and name != "src", (tag, name, value)
        if name == "href" or "url(" in value:
            target = re.fullmatch(r"(?:url\()?#([^)]+)\)?", value)
            assert target and target[1] in ids, (tag, name, value)
    loading = {"script", "img", "image", "link", "iframe", "object", "embed", "base", "foreignObject"}
    assert not loading & {element.tag for element in root.iter()}
    policy = next(value for tag, name, value in attributes(root) if tag == "meta" and value.startswith("default-src"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "@import" not in text and "http:" not in text and "https:" not in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_from_a_file_becomes_part_of_the_page(tmp_path, hostile):
    def certificate(text: str) -> Certificate:
        return full_certificate(
            **dict.fromkeys(("env_id", "trained_env_id", "algo", "model", "model_sha256", "method", "min_return_basis"), text),
            env_kwargs={text: text},
            env_wrappers={"env_wrapper": [{text: {text: text}}]},
            env_versions={text: text},
            clean_keys=[text],
            recorded=[recorded_bound(text, [0.0, 0.1, 0.2, 0.3, 0.4], is_event=is_event) for is_event in (True, False)],
            sensor_sigma={text: [0.1, 0.2]},
            targets={text: 0.1},
            sources=[Source(text, text, 10)],
            versions={text: text},
        )

    def elements(text: str) -> Counter:
        one = certificate(text)
        attack = write(tmp_path / "attack", attack=text, objective=text, key=text)
        file = write_certificate(tmp_path / "beside/certificate.json", POLICY, [50.0, 30.0, 20.0], EVALUATED)
        attacks = find_results([file, attack]).attacks
        results = AgentResults(tmp_path / "certificate.json", one, attacks, [text])
        written(full_certificate(), tmp_path)
        root = parsed(report_page(results))
        assert {element.tag for element in root.find(".//svg").iter()} <= DRAWING
        root.find(".//figure").clear()  # how many ticks the axes have depends on the legend
        return Counter(element.tag for element in root.iter() if isinstance(element.tag, str))

    # a harmless text that is as unfit for a command line, so that the same commands are left out
    assert elements(hostile) == elements("a:b")


def test_a_pointer_is_told_what_holds_where_it_rests(tmp_path):
    certificate = full_certificate()
    told = [
        re.fullmatch(r"radius up to (\S+) \((\S+) sigma\): (.*)", tip) for tip in tips(parsed(page(certificate, tmp_path)))
    ]
    strips = [match for match in told if match]
    # a strip for each step, on each of the two panels
    assert [float(match[1]) for match in strips] == 2 * RADII[1:]
    for match in strips[:4]:
        shown = re.search(r"certified expected return at least (\S+?),", match[3])
        assert shown and rounded_down(shown[1], certificate.value_at(float(match[1])), 3)
    assert all("return of at least 5 at least" in match[3] for match in strips[4:])
    thinned = full_certificate(radii=list(np.linspace(0, 3, 1001)), certified_return=list(np.linspace(9, 0, 1001)))
    thinned = replace(thinned, quantities=[], min_return_slope=None)
    strips = [tip for tip in tips(parsed(page(thinned, tmp_path))) if tip.startswith("radius up to")]
    assert 50 < len(strips) <= 120
    for tip in strips:
        radius, bound = re.findall(r"up to (\S+) .* at least (\S+)", tip)[0]
        assert float(bound) <= thinned.certified_return[-1] + 3 * (3 - float(radius)) + 1e-4, "more than holds at its end"


def test_curves_differ_without_their_colours():
    labels = [str(number) for number in range(28)]
    styles = [(style["linestyle"], style["marker"]) for style in curve_styles(labels).values()]
    assert len(set(styles)) == 28
    assert all(first[0] != second[0] and first[1] != second[1] for first, second in pairwise(styles))


def test_attacks_of_a_run_stand_beside_the_certificate(run, tmp_path, capsys):
    assert main([str(run), "-o", str(tmp_path / "new/report.html")]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "No attack contradicts the certificate" in printed.out
    assert "Left out: " in printed.out and "another model file" in printed.out
    root = parsed((tmp_path / "new/report.html").read_text())
    head, *rows = cells(root, "attacks")
    assert head == ["budget", "certified", "attacked: pgd"]
    assert [row[:2] for row in rows] == [["0", "50.000"], ["0.5", "30.000"], ["1", "20.000"]]
    assert [row[2].split(" ")[0] for row in rows] == ["90.00", "60.00", "30.00"]
    text = text_of(root.find(".//section[@id='attacks']"))
    assert "No attack contradicts the certificate." in text and "another model file" in text
    assert any("attacked: pgd, budget 0.5: mean return 60.00" in tip for tip in tips(root))
    assert "Do not sign" not in text_of(root)


def test_a_contradicted_certificate_must_not_be_signed(run, tmp_path, capsys):
    write(tmp_path / "attacks/strong", means=(90.0, 11.0, 11.0), attack="apgd")
    out = tmp_path / "report.html"
    assert main([str(run), "-o", str(out)]) == 3
    assert capsys.readouterr().err.startswith("report: error: violation of the certificate")
    root = parsed(out.read_text())
    assert "Do not sign" in text_of(root.find(".//header")) and "attacked: apgd, budget 0.5" in text_of(root.find(".//header"))
    assert "VIOLATION" in text_of(root.find(".//svg")) and "No attack contradicts" not in text_of(root)


def test_a_log_that_has_changed_since_is_shouted_about(run, tmp_path, capsys):
    log = run / "certification/evaluations.npz"
    log.write_bytes(log.read_bytes() + b"x")
    assert main([str(run), "-o", str(tmp_path / "report.html")]) == 0
    assert "has changed since: certify again" in capsys.readouterr().err
    assert "older than its episodes" in text_of(parsed((tmp_path / "report.html").read_text()).find(".//header"))


def test_an_attack_that_was_named_must_be_comparable(run, tmp_path, capsys):
    certificate = run / "certification/certificate.json"
    out = tmp_path / "report.html"
    assert main([str(certificate), "-o", str(out)]) == 0
    assert "No attack on this agent was given" in text_of(parsed(out.read_text()))
    assert main([str(certificate), str(run / "attacks/pgd/attack.json"), "-o", str(out)]) == 0
    assert "attacked: pgd" in text_of(parsed(out.read_text()))
    assert "not comparable" in error_line(capsys, certificate, run / "attacks/other/attack.json", "-o", out)


def test_the_same_files_give_the_same_bytes(run, tmp_path):
    for name in ("1.html", "2.htm"):
        assert main([str(run), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.htm").read_bytes()


def test_errors_are_one_line(run, tmp_path, capsys):
    file = run / "certification/certificate.json"
    out = tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "a_file").write_text("")
    assert "one certificate.json is needed, none found" in error_line(capsys, tmp_path / "empty", "-o", out)
    assert "not JSON" in error_line(capsys, tmp_path / "broken.json", "-o", out)
    assert "No such file" in error_line(capsys, tmp_path / "missing.json", "-o", out)
    assert "must be a .html or .htm file" in error_line(capsys, file, "-o", tmp_path / "report.pdf")
    assert "cannot write" in error_line(capsys, file, "-o", tmp_path / "a_file/report.html")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "certified_return": [1.0, 2.0, 3.0]}))
    assert "must not rise" in error_line(capsys, file, "-o", out)
    assert not out.exists()


def test_each_kind_of_quantity_and_panel_can_be_alone(tmp_path):
    for kinds in product((0, 1), repeat=3):
        every = full_certificate().quantities
        chosen: list[Quantity] = [one for one, kept in zip(every, kinds, strict=True) if kept]
        certificate = read_certificate(written(full_certificate(quantities=chosen), tmp_path))
        root = parsed(page(certificate, tmp_path))
        assert len(cells(root, "statement")[0]) == 3 + len(chosen)
        axes = [text_of(label) for label in root.find(".//svg").iter("text") if text_of(label) == "probability"]
        assert len(axes) == kinds[0]
