"""What the site does beyond mkdocs: files of the repository that pages link to come along, and drawings are inlined.

On a code host a page's link to ``../src/...`` works by itself. The site has no such files, so each that is linked to
is copied to ``repository/`` as plain text; of a folder, the list of its files.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_OUTWARD = re.compile(r"\]\(((?:\.\./)+[^()\s#]*)(#[^()\s]*)?\)")
# A drawing that follows the site's light and dark scheme must be part of the page.
_DRAWING = re.compile(r"!\[[^]]*\]\((?:\.\./)*(assets/[\w-]+\.inline\.svg)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside of the documentation."""
    docs = Path(config.docs_dir)
    linked = set()
    for page in files.documentation_pages():
        source = docs / page.src_uri
        linked |= {path for target, _ in _OUTWARD.findall(source.read_text()) if (path := _outside(source, target))}
    for path in sorted(linked):
        uri, text = _uri(path), _listing(path) if path.is_dir() else path.read_text()
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point outward links at the copies, and put drawings into the page."""
    source = Path(config.docs_dir) / page.file.src_uri
    up = "../" * page.file.src_uri.count("/")

    def redirect(match: re.Match[str]) -> str:
        path = _outside(source, match[1])
        return f"]({up}{_uri(path)})" if path else match[0]

    markdown = _OUTWARD.sub(redirect, markdown)
    return _DRAWING.sub(lambda match: _figure(Path(config.docs_dir) / match[1]), markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the theme's search dialogue the name that screen readers ask for."""
    dialogue = 'data-md-component="search" role="dialog"'
    return output.replace(dialogue, f'{dialogue} aria-label="Search"')


def _figure(drawing: Path) -> str:
    return f'<figure class="drawing">{drawing.read_text().strip()}</figure>'


def _outside(page: Path, target: str) -> Path | None:
    """The repository's file or folder that a page's link leads to, if it is outside of the documentation."""
    path = (page.parent / target).resolve()
    inside = path == ROOT / "docs" or ROOT / "docs" in path.parents
    return path if path.exists() and ROOT in path.parents and not inside else None


def _uri(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return f"repository/{name}/index.txt" if path.is_dir() else f"repository/{name}.txt"


def _listing(folder: Path) -> str:
    names = [path.relative_to(ROOT).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [name for name in names if "/." not in name and "__pycache__" not in name]
    return "\n".join([f"Files below {folder.relative_to(ROOT).as_posix()}/ in the repository:", "", *kept, ""])
