"""Every link between the pages of this repository leads somewhere: the file is there, and so is the heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.with_each import with_each

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "tests", "compat_tests", "spark_examples", "benchmarks")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md")))]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^(```|~~~).*?^\1$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[str]:
    """Where the page's links lead, but for those that leave the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
        if not re.match(r"[a-z]+:", target):
            yield target


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names by which code hosts and the site know the page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        name, count = slug, 0
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return frozenset(found)


def test_there_are_links_to_check() -> None:
    assert sum(len(list(links(page))) for page in PAGES) > 10


@with_each(PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and (found.suffix != ".md" or anchor not in anchors(found))):
            broken.append(target)
    assert broken == []
