"""
Pages of the site whose text stands elsewhere in the repository, where GitHub shows it, and the links to them.

The config value ``repository_pages`` has the file of each such page, ``repository_links`` the page to show for further files.
A link whose text is the name of a file has the title of its target there.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

# ](target) and ](target#anchor) of Markdown, without those to other hosts
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
_NAME_OF_FILE = re.compile(r"(?<=\[)[\w/]+\.md(?=\]\()")


def _read(app: Sphinx, docname: str, content: list[str]) -> None:
    root = Path(app.srcdir).parent
    pages = {root / file: page for page, file in app.config.repository_pages.items()}
    files = {page: file for file, page in pages.items()}
    shown = pages | {root / file: page for file, page in app.config.repository_links.items()}
    page = Path(app.env.doc2path(docname))
    source = files.get(docname, page)
    if docname in files:
        app.env.note_dependency(str(source))
        content[0] = source.read_text(encoding="utf-8")

    def on_the_site(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if target in shown:
            target = Path(app.srcdir) / f"{shown[target]}.md"
        elif source == page or not target.exists():
            return match[0]
        return f"]({Path(os.path.relpath(target, page.parent)).as_posix()}{match[2] or ''})"

    content[0] = _LINK.sub(on_the_site, _NAME_OF_FILE.sub("", content[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("repository_pages", {}, "env", dict)
    app.add_config_value("repository_links", {}, "env", dict)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
