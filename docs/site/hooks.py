"""What mkdocs calls while it builds the site: pages from outside docs/, generated pages, and links between them.

Pages stay where a reader of the repository finds them, with links that work there. On the site reports/ lies beside the
other pages; a link to a file of the repository that the site does not hold becomes text.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md")
_REPOSITORY = {"README.md": "index.md", "docs/adapters": "adapters/index.md", "docs/site": "index.md"}
"""Where a reader of the site finds these."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_ALERT = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n?)+)", re.MULTILINE)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n+(```\w+)$", re.MULTILINE)
_FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reports, the pages of the root, and the generated pages."""
    from mkdocs.structure.files import File

    outside = [*BESIDE, *(str(path.relative_to(ROOT)) for path in _shown_reports())]
    for name in outside:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, make in pages.PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the repository's links into the site's, alerts into admonitions, and names of files into titles."""
    source = page.file.src_uri
    if source.startswith("reports/"):
        page.meta["search"] = {"exclude": True}  # tables of thousands of rows would bury all other results
    if source in ("index.md", *pages.MANY_HEADINGS):
        page.meta["hide"] = ["toc", *["navigation"] * (source == "index.md")]
    held = {file.src_uri for file in files}
    return outside_fences(with_file_names(markdown), lambda text: with_site_links(with_admonitions(text), source, held))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The list of the home page becomes cards."""
    return html.replace("<ul>", '<ul class="cards">', 1) if page.file.src_uri == "index.md" else html


def _shown_reports() -> list[Path]:
    folder = ROOT / "reports"
    pictures = [path for path in (folder / "plots").iterdir() if path.suffix == ".svg"]
    return sorted([path for path in folder.glob("*.md") if not path.stem.endswith("-summary")] + pictures)


def outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The page with `change` made to all text that is not in a fenced block."""
    made, end = [], 0
    for fence in _FENCE.finditer(markdown):
        made += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join((*made, change(markdown[end:])))


def with_file_names(markdown: str) -> str:
    """The page with the name of each file above the block that shows a part of it."""
    return _FILE.sub(r'\2 title="\1"', markdown)


def with_admonitions(text: str) -> str:
    """Alerts as GitHub writes them, as mkdocs shows them."""

    def admonition(found: re.Match[str]) -> str:
        lines = [re.sub(r"^> ?", "    ", line).rstrip() for line in found[2].splitlines()]
        kind = {"caution": "danger", "important": "info"}.get(found[1].lower(), found[1].lower())
        return f"!!! {kind}\n\n" + "\n".join(lines) + "\n"

    return _ALERT.sub(admonition, text)


def with_site_links(text: str, source: str, held: set[str]) -> str:
    """A page's links, relative to where the page lies in the repository, as links of the site.

    source: the page's place on the site. held: all places of the site.
    """
    at = posixpath.dirname(source if source.startswith("reports/") or source in BESIDE else f"docs/{source}")

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        place = posixpath.normpath(posixpath.join(at, target))
        if place.startswith("docs/adapters/"):
            place, anchor = "docs/adapters", f"#{posixpath.basename(place).partition('.')[0].replace('_', '-')}"
        on_site = _REPOSITORY.get(place, place.removeprefix("docs/"))
        if on_site not in held:
            return words if (ROOT / place).exists() else found[0]
        return f"[{words}]({posixpath.relpath(on_site, posixpath.dirname(source) or '.')}{anchor})"

    return _LINK.sub(link, text)
