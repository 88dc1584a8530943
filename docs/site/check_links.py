"""
Check a built site: each link within it leads to a page and a place that are there, and it loads nothing from elsewhere.

Usage: python docs/site/check_links.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = {"", "top"}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADED and _LOADED[tag] in values:
            self.loaded.append(values[_LOADED[tag]])


def faults(site: Path) -> list[str]:
    """
    :param site: Folder of the HTML pages
    :return: what is wrong, one line each
    """
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if target in page.loaded:
                    found.append(f"{name}: loads {target}")
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                found.append(f"{name}: {target}: no such file")
            elif file in pages and unquote(parts.fragment) not in pages[file].places:
                found.append(f"{name}: {target}: no such place on that page")
    return found if pages else [f"{site}: no pages"]


def main() -> int:
    wrong = faults(Path(sys.argv[1]).resolve())
    print("\n".join(wrong) or "All links within the site hold.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
