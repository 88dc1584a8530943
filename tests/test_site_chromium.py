"""The documentation site in a real browser: no page writes to its console, is wider than its window or cuts off a formula."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documented import ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name in ("sphinx", "furo", "myst_nb", "latex2mathml") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"),
    pytest.mark.skipif(bool(MISSING), reason=f"the extra docs is not installed: {MISSING}"),
]
PROBE = """<script>addEventListener("load", () => {
  const root = document.documentElement;
  const beyond = [...document.querySelectorAll("article math")].filter((formula) =>
    !formula.closest(".math-block, .table-wrapper") && formula.getBoundingClientRect().right > root.clientWidth);
  document.title = `wider than the window by ${root.scrollWidth - root.clientWidth}, formulas beyond it: ${beyond.length}`;
});</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """All pages, notebooks without their results, each of which says by how much it is too wide."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", "nb_execution_mode=off", ROOT / "docs", folder]
    subprocess.run([*map(str, build)], check=True, timeout=600)
    for page in folder.rglob("*.html"):
        page.write_text(page.read_text().replace("</body>", PROBE))
    return folder


@pytest.mark.parametrize("width", [400, 1300])
def test_no_page_is_wider_than_the_window_or_writes_to_the_console(site, tmp_path, width):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={tmp_path}"]
        command = [str(CHROMIUM), *flags, f"--window-size={width},1000", "--dump-dom", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert "CONSOLE" not in done.stderr, f"{page.name}: {done.stderr}"
        assert "<title>wider than the window by 0, formulas beyond it: 0</title>" in done.stdout, page.relative_to(site)
