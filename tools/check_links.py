"""Checks links without a network: in the sources of the documentation, and in the site that is built of them.

python tools/check_links.py            # the sources
python tools/check_links.py build/site # a built site
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)(?:\s*\{.*#([\w-]+).*\})?\s*$", flags=re.MULTILINE)


def sources() -> list[Path]:
    """README, all pages, and the examples' own page."""
    return [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Where a page's links lead, code blocks left out."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make."""
    made: set[str] = set()
    for title, given in _HEADING.findall(_FENCE.sub("", page.read_text())):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)).strip().lower()
        slug = given or re.sub(r"[\s-]+", "-", words)
        made.add(slug)
    return made


def broken_in_sources(pages: list[Path]) -> list[str]:
    """What is wrong with the links of some pages, a line each."""
    found = []
    for page in pages:
        for target in links(page):
            parts = urlsplit(target)
            if parts.scheme:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            name = page.relative_to(ROOT)
            if not file.exists():
                found.append(f"{name}: {target} is not there")
            elif ROOT not in file.parents and file != ROOT:
                found.append(f"{name}: {target} leads out of the project")
            elif parts.fragment and file.suffix == ".md" and parts.fragment not in anchors(file):
                found.append(f"{name}: {target} names no heading of {file.relative_to(ROOT)}")
    return found


@dataclass
class _Page(HTMLParser):
    """Links, anchors and what is loaded, of one page of the site."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        elif values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded += [str(values[key]) for key in ("src", "href", "data") if values.get(key) and tag != "a"]


def broken_in_site(site: Path) -> list[str]:
    """What is wrong with the links of a built site, and what it would load from elsewhere, a line each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"there is no page in {site}"]
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loaded:
            parts = urlsplit(target)
            if parts.scheme not in ("", "data") or parts.netloc:
                found.append(f"{name}: loads {target} from elsewhere")
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or (name == Path("404.html") and target.startswith("/")):
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                found.append(f"{name}: {target} is not there")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                found.append(f"{name}: {target} names no anchor")
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def main() -> int:
    """Print what is broken; the exit code says whether anything is."""
    found = broken_in_site(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else broken_in_sources(sources())
    print("\n".join(found) or "all links lead somewhere")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
