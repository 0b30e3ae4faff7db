"""The KIPs of Apache Kafka and what kbroker does of each: the rows of docs/kips/*.toml, and the page made from them.

A file holds the KIPs of the release that it is named after. Keys of a row:

- ``number``, ``title``: the title is in words of our own, not the KIP's.
- ``state``: ``whole``; ``in part`` or ``not``, of which ``note`` says what is missing; ``does not apply`` to a broker
  that is no JVM, or to a broker at all.
- ``theme``: the larger work that what is missing belongs to, where there is one.
- ``code``: where it is, files or packages from the root of the repository.
- ``tests``: what shows it, ``path::function``.

``elsewhere.toml`` has the numbers of those that are not even worth a row here, by whom they concern.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROWS = Path(__file__).parent / "kips"
WHOLE, IN_PART, NOT, ELSEWHERE = STATES = ("whole", "in part", "not", "does not apply")
UNSTABLE = "unstable"
"""Stands for a release in the name of the file of KIPs that Apache Kafka has and hides."""

THEMES = (
    "Kafka 4.4",
    "security and quotas",
    "metrics",
    "share groups",
    "streams groups",
    "clients' metrics",
    "tiered storage",
)


@dataclass(frozen=True, slots=True)
class Kip:
    """A row."""

    number: int
    title: str
    release: str
    state: str
    note: str = ""
    theme: str = ""
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def load() -> list[Kip]:
    """All rows, the latest release first, and by number within a release."""
    kips = []
    for path in ROWS.glob("*.toml"):
        if path.name != "elsewhere.toml":
            for row in tomllib.loads(path.read_text("utf-8"))["kip"]:
                row["code"], row["tests"] = tuple(row.get("code", ())), tuple(row.get("tests", ()))
                kips.append(Kip(release=path.stem, **row))
    return sorted(kips, key=lambda kip: ([-part for part in _parts(kip.release)], kip.number))


def load_elsewhere() -> dict[str, list[int]]:
    """The numbers of KIPs that concern no broker, by whom they concern."""
    return tomllib.loads((ROWS / "elsewhere.toml").read_text("utf-8"))


def _parts(release: str) -> list[int]:
    return [99] if release == UNSTABLE else [int(part) for part in release.split(".")]


def page() -> str:
    """docs/kips.md, without the note that it is generated."""
    kips = load()
    ours = [kip for kip in kips if kip.state != ELSEWHERE]
    tables = [kip for kip in kips if kip.state == ELSEWHERE]
    lines = [
        "The improvement proposals of Apache Kafka up to 4.4 that concern a broker, a controller, the files or the",
        "tools that talk to them, and what kbroker does of each. **Whole** has a test that shows it; **in part** and",
        "**not** say what is missing. A test is named as `path::function`; those in `compat_tests/` run stock clients,",
        "Kafka's own tools or raw requests against kbroker and against Apache Kafka. Metrics that a KIP brings beside",
        "something else are counted with the KIPs of metrics alone; [metrics.md](metrics.md) has those that there are.",
        "",
        *_summary(ours),
        "",
        "## What is missing",
        "",
        *_missing(ours),
        *_tables(ours),
        "## What does not concern a broker",
        "",
        "KIPs that one could look for here, and why there is nothing to do:",
        "",
        "| KIP | Release | What | Why | Seen by |",
        "| ---: | --- | --- | --- | --- |",
        *(f"| {k.number} | {_release(k)} | {k.title} | {k.note} | {_names(k.tests)} |" for k in tables),
        "",
        "And those of others altogether:",
        "",
        *(f"- {whose}: {', '.join(map(str, numbers))}." for whose, numbers in load_elsewhere().items()),
        "",
    ]
    return "\n".join(lines)


def _summary(kips: Iterable[Kip]) -> list[str]:
    counts = Counter((_line(kip), kip.state) for kip in kips)
    states = (WHOLE, IN_PART, NOT)
    rows = {line: [counts[line, state] for state in states] for line, _ in counts}
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    head = ["| Kafka | whole | in part | not |", "| --- | ---: | ---: | ---: |"]
    return [*head, *(f"| {line} | {' | '.join(map(str, row))} |" for line, row in rows.items())]


def _missing(kips: Iterable[Kip]) -> list[str]:
    lines = []
    for theme in (*THEMES, ""):
        found = [kip for kip in kips if kip.theme == theme and kip.state in (IN_PART, NOT)]
        numbers = {state: sorted(kip.number for kip in found if kip.state == state) for state in (NOT, IN_PART)}
        parts = [f"{state} {', '.join(map(str, some))}" for state, some in numbers.items() if some]
        if parts:
            lines.append(f"- **{theme or 'Each by itself'}**: {'; '.join(parts)}.")
    return [*lines, ""]


def _tables(kips: Iterable[Kip]) -> list[str]:
    lines: list[str] = []
    section = ""
    for kip in kips:
        if _line(kip) != section:
            section = _line(kip)
            lines += [*([""] if lines else []), f"## Kafka {section}", ""]
            lines += ["| KIP | Release | What | State | Where | Shown by |", "| ---: | --- | --- | --- | --- | --- |"]
        state = f"**{kip.state}**" + (f": {kip.note}" if kip.note else "")
        cells = (str(kip.number), _release(kip), kip.title, state, _names(kip.code), _names(kip.tests))
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _names(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _line(kip: Kip) -> str:
    """The major release, for which a section of the page stands."""
    return "4" if kip.release == UNSTABLE else kip.release.split(".")[0]


def _release(kip: Kip) -> str:
    return "none" if kip.release == UNSTABLE else kip.release
