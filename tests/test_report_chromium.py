"""The report in a real browser: no message on its console, nothing fetched, a picture and a PDF. Skipped without Chromium."""

import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from support.report_pages import full_certificate, written

from sb3_camp.report import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]


def chromium(folder: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"]
    command = [str(CHROMIUM), *flags, *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


@pytest.fixture
def page(tmp_path) -> Path:
    hostile = "<script>document.title = 'owned'</script><img src=https://example.org/x onerror=document.title='owned'>"
    certificate = full_certificate(algo=hostile, method=hostile, clean_keys=[hostile], env_versions={hostile: hostile})
    page = tmp_path / "report.html"
    assert main([str(written(certificate, tmp_path)), "-o", str(page)]) == 0
    return page


def test_it_opens_without_a_message_and_runs_nothing(tmp_path, page):
    done = chromium(tmp_path, page, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert "<title>Robustness report: &lt;script&gt;" in done.stdout and "<script" not in done.stdout
    # a page that does write to its console is noticed
    loud = tmp_path / "loud.html"
    loud.write_text("<script>console.error('loud')</script>")
    assert "CONSOLE" in chromium(tmp_path, loud, "--dump-dom").stderr


PROBE = """<script>
const found = [...document.querySelectorAll(".tip")].map((tip) => {
  tip.scrollIntoView({block: "center"});
  const box = tip.getBoundingClientRect();
  const under = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2).closest(".tip");
  return under && under.querySelector("title").textContent === tip.querySelector("title").textContent;
});
document.title = `${found.filter(Boolean).length} of ${found.length}`;
</script></body>"""


def test_a_pointer_meets_what_explains_itself(tmp_path, page):
    text = page.read_text()
    open_page = tmp_path / "open.html"
    open_page.write_text(text.replace("default-src 'none'", "script-src 'unsafe-inline'").replace("</body>", PROBE))
    done = chromium(tmp_path, open_page, "--window-size=1000,1600", "--dump-dom")
    # four strips on each panel, and the mean
    assert "<title>9 of 9</title>" in done.stdout


def test_it_can_be_seen_and_printed(tmp_path, page):
    picture, document = tmp_path / "screen.png", tmp_path / "report.pdf"
    chromium(tmp_path, page, "--window-size=1000,1600", "--hide-scrollbars", f"--screenshot={picture}")
    pixels = matplotlib.image.imread(picture)[..., :3]
    white = (pixels > 0.98).all(axis=-1)
    dark = (pixels < 0.3).all(axis=-1)
    assert pixels.shape[:2] == (1600, 1000) and white.mean() > 0.7 and dark.mean() > 0.005
    assert np.ptp(np.flatnonzero(dark.any(axis=1))) > 1400, "not a whole page of text"
    chromium(tmp_path, page, f"--print-to-pdf={document}", "--no-pdf-header-footer")
    content = document.read_bytes()
    assert content.startswith(b"%PDF") and 3 <= content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") <= 12
