"""The figures of `benchmarks.console_scale` as docs/console.md tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "console.md"
BEGIN, END = "<!-- figures of benchmarks.console_scale -->\n", "<!-- end of the figures -->\n"


def told(run: dict[str, Any]) -> str:
    """The figures of a run as the page of the documentation has them."""
    figures: dict[str, float] = run["figures"]

    def seconds(name: str) -> str:
        return f"{figures[name]:.2g}" if figures[name] < 1 else f"{figures[name]:.0f}"

    def span(*names: str) -> str:
        values = sorted(figures[name] for name in names)
        return f"{values[0]:.2f} to {values[-1]:.2f} s"

    def console(*pages: str) -> str:
        return span(*[f"console, {page}: s, {which}" for page in pages for which in ("median", "longest")])

    def milliseconds(name: str) -> str:
        return f"{figures[name]:.0f} ms"

    waits = [f"{name} of all: ms that others waited at most" for name in ("Metadata", "DescribeLogDirs")]
    rows = [
        (f"{figures['topics made']:,.0f} topics of one partition, {figures['processors']:.0f} processors", ""),
        (
            "the node's memory; for each topic",
            f"{figures['node: MB of memory']:.0f} MB; {figures['node: KB of memory a topic']:.1f} KB",
        ),
        ("the console's memory", f"{figures['console: MB of memory']:.0f} MB"),
        ("its very first answer", f"{seconds('console: s of the very first answer')} s"),
        ("overview, a topic, its records, groups", console("overview", "topic", "its records", "groups")),
        (
            "a part of the list; sorted by size; a search; the tree",
            console("list, rows in the middle", "list, sorted by size", "search", "tree"),
        ),
        (
            "in the browser: overview, list, tree, a topic",
            span(*[f"browser, {page}: s" for page in ("overview", "list", "tree", "a topic")]),
        ),
        ("in the browser: a search as it is typed", f"{seconds('browser, search as it is typed: s')} s"),
        (
            "other clients of the node wait while it describes all topics; all logs, at most",
            "; ".join(map(milliseconds, waits)),
        ),
        (
            "they wait while the console asks for what its pages show, at most",
            milliseconds("console asks: ms that others waited at most"),
        ),
        (f"a live tail of {figures['tail: records/s that were written']:,.0f} records/s", ""),
        (
            "shown; told as not shown",
            f"{figures['tail: records shown']:,.0f}; {figures['tail: records told as not shown']:,.0f}",
        ),
        (
            "from a key or click to what it paints, median; longest",
            f"{milliseconds('tail: ms from a key or click to what it paints, median of those above 16')};"
            f" {milliseconds('tail: ms from a key or click to what it paints, longest')}",
        ),
    ]
    (first, _), *rest = rows
    lines = [f"| {first} | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in rest)]
    return "\n".join([*lines, "", f"Measured {run['date']}, commit {run['commit']}.", ""])


def write_docs(run: dict[str, Any]) -> None:
    """Put the figures of a run into the page of the documentation."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{PAGE.name} has no place for the figures")
    PAGE.write_text(f"{before}{BEGIN}{told(run)}{END}{after}")
