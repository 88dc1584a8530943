"""Certificates to report on, and pages as a browser takes them."""

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import numpy as np

from sb3_camp.certification.certificate import Certificate, Quantity, Source
from sb3_camp.certification.recorded_bound import RecordedBound

SIGMA = 0.4
RADII = [0.0, 0.1, 0.2, 0.4, 0.8]


def recorded_bound(key: str, certified: list[float], **changes: Any) -> RecordedBound:
    made = {"reduction": "last", "side": "at_most", "is_event": True, "worst": 1.0, "mean": 0.01, "n_missing": 0}
    return RecordedBound(key, certified=certified, **{**made, "alpha": 0.01, "method": "clopper-pearson", **changes})


RECORDED = [
    recorded_bound("arrived", [0.98765432, 0.9, 0.8, 0.7, 0.2], side="at_least", worst=0.0, mean=0.99),
    recorded_bound("crashed", [0.01234567, 0.1, 0.2, 0.3, 0.8], reduction="any", n_missing=3),
    recorded_bound("energy", [21.23456, 30.0, 40.0, 50.0, 80.0], reduction="sum", is_event=False, worst=90.0, mean=20.5),
]


def full_certificate(**changes: Any) -> Certificate:
    """All that a certificate can hold."""
    made: dict[str, Any] = {
        "env_id": "Thermostat-v1",
        "trained_env_id": "Thermostat-v0",
        "env_kwargs": {"rooms": 2},
        "env_wrappers": {"env_wrapper": [{"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": SIGMA}}]},
        "env_versions": {"thermostat": "1.2"},
        "algo": "ppo",
        "model": "models/ppo.zip",
        "model_sha256": "a" * 64,
        "timesteps": 1000,
        "deterministic": True,
        "sigma": SIGMA,
        "sigma_assumed": False,
        "pixels": False,
        "clean_keys": [],
        "method": "berk-jones",
        "alpha": 0.05,
        "min_return": -20.0,
        "min_return_basis": "given",
        "min_return_slope": [0.01, 0.02, 0.04, 0.1, 0.4],
        "n_episodes": 1000,
        "longest_episode": 96,
        "mean_return": 12.5,
        "radii": RADII,
        "certified_return": [11.98765, 10.5, 8.25, 3.00199, -7.5],
        "quantities": [
            Quantity("probability", 5.0, [0.9876543, 0.9, 0.8, 0.6, 0.1]),
            Quantity("quantile", 0.05, [6.0, 5.0, 4.0, -20.0, -20.0]),
            Quantity("cvar", 0.1, [5.5, 4.0, 2.0, -19.0, -20.0]),
        ],
        "targets": {"10": 0.123456789, "100": None},
        "sources": [Source("evaluations.npz", "b" * 64, 1000, 16, False)],
        "versions": {"sb3_camp": "0.1.0", "python": "3.11"},
    }
    return Certificate(**{**made, **changes})


def least_certificate(**changes: Any) -> Certificate:
    """No more than an old file holds."""
    made: dict[str, Any] = {
        "sigma": SIGMA,
        "method": "dkw",
        "alpha": 0.01,
        "n_episodes": 10,
        "min_return": 0.0,
        "mean_return": 9.0,
        "radii": [0.0],
        "certified_return": [4.0],
        "sources": [],
    }
    return Certificate(**{**made, **changes})


def written(certificate: Certificate, folder: Path) -> Path:
    """The file of a certificate."""
    file = folder / "certificate.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(certificate.as_json()))
    return file


def parsed(page: str) -> Element:
    """The page as a tree, without namespaces. Whatever is not valid HTML is an error."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root = parser.parse(page)
    for element in root.iter():
        if isinstance(element.tag, str):
            element.tag = element.tag.split("}")[-1]
    return root


def text_of(element: Element) -> str:
    """All text in an element, white space as a browser shows it."""
    return " ".join("".join(element.itertext()).split())


def cells(root: Element, section: str) -> list[list[str]]:
    """Cells of the first table of numbers in a section, its head first."""
    table = root.find(f".//section[@id='{section}']//table[@class='numbers']")
    assert table is not None
    return [[text_of(cell) for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]


def tips(root: Element) -> list[str]:
    """What a pointer is told on the picture."""
    return [title.text or "" for title in root.findall(".//svg//title")]


def attributes(root: Element) -> list[tuple[str, str, str]]:
    """Tag, name and value of each attribute of the page."""
    return [
        (element.tag, str(name).split("}")[-1], value)
        for element in root.iter()
        if isinstance(element.tag, str)
        for name, value in element.attrib.items()
    ]


def rounded_down(text: str, value: float, decimals: int) -> bool:
    """Whether a text shows a bound, and not more than it is."""
    return 0 <= value - float(text) < 10.0**-decimals * (1 + 1e-9) or bool(np.isclose(float(text), value, rtol=0, atol=1e-12))
