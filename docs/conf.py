"""The configuration of Sphinx, which makes the site from the pages of the repository: ``make site``.

The source directory is the repository, so a link means the same in the site and in the tree.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "kbroker"
release = re.findall(r'__version__ = "(.+)"', (ROOT / "kbroker" / "version.py").read_text("utf-8"))[0]
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "tests/README.md",
    "benchmarks/README.md",
    "compat_tests/README.md",
    "compat_tests/*/README.md",
    "spark_examples/README.md",
]
exclude_patterns = ["**/node_modules", "**/.*"]
nitpicky = True
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a table of tests goes without a level of headings

html_theme = "furo"
html_title = f"kbroker {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

SECTIONS = {
    "Use": [
        "README",
        "docs/how_to/README",
        "docs/commands",
        "docs/configuration",
        "docs/testing",
        "docs/security/README",
        "docs/metrics",
        "docs/operations",
        "docs/doctor",
        "docs/apis",
        "docs/compatibility",
        "docs/works_with",
        "docs/benchmarks",
        "docs/capacity",
        "docs/comparison",
        "spark_examples/README",
        "docs/spark_examples",
        "CHANGELOG",
    ],
    "Read and change": [
        "docs/overview",
        "docs/architecture",
        "docs/glossary",
        "docs/simulation",
        "docs/debugging",
        "docs/decisions/README",
        "CONTRIBUTING",
        "tests/README",
        "compat_tests/README",
    ],
}
"""The site's menu. Other pages of docs/ follow those of the first section."""

BELOW = {
    "docs/architecture": "docs/architecture/*",
    "docs/decisions/README": "docs/decisions/0*",
    "docs/security/README": "docs/security/[a-z]*",
    "docs/how_to/README": "docs/how_to/[a-z]*",
    "compat_tests/README": "compat_tests/*/README",
}
"""A page of the menu -> the pages below it."""


def menu() -> dict[str, list[str]]:
    """The pages of each section: those above, and in the first one all others that lie in docs/ itself."""
    known = {page for pages in SECTIONS.values() for page in pages}
    others = sorted({f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md")} - known - {root_doc})
    return {caption: pages + (others if caption == "Use" else []) for caption, pages in SECTIONS.items()}


def toctree(caption: str, pages: list[str]) -> str:
    """A hidden table of contents, which only the menu shows."""
    title = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", ":hidden:", ":glob:", *title, "", *map(entry, pages), "```", ""])


def entry(page: str) -> str:
    """A line of a table of contents: README has the title of the front page, and gets another."""
    return "First steps </README>" if page == "README" else f"/{page}"


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the menu to pages as they are read: a code host would show it as a block of code."""
    del app
    if name == root_doc:
        source[0] = f"---\nhide-toc: true\n---\n{source[0]}"
        for caption, pages in menu().items():
            source[0] += toctree(caption, pages)
    elif name in BELOW and any(ROOT.glob(f"{BELOW[name]}.md")):
        source[0] += toctree("", [BELOW[name]])


def add_front_page(app: Sphinx, error: Exception | None) -> None:
    """Let the site's address lead to its first page."""
    if error is None and app.builder.name == "html":
        refresh = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
        (Path(app.outdir) / "index.html").write_text(f"<!DOCTYPE html><title>kbroker</title>{refresh}\n", "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the above."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
