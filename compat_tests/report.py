"""Write the table client x feature of docs/compatibility.md from the results of the last test runs.

    python -m compat_tests.report            write docs/compatibility.md
    python -m compat_tests.report --print    show it

Results are what ``pytest compat_tests`` (and ``--broker apache``) left in ``.cache/compat``: run both first, and whole.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from compat_tests.apache_kafka import SERVER_VERSION, cache_dir
from compat_tests.clients import NAMES, client_class, unavailable
from compat_tests.java_tools.differences import DIFFERENCES
from compat_tests.wire_differential.allowed import ALLOWED

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

Key = tuple[str, str, str]

_SYMBOLS = {"passed": "yes", "failed": "**no**"}


def load(broker: str) -> dict[Key, dict[str, str]]:
    """(client, group, title) -> result of the last run against `broker`; empty if there was none."""
    path = cache_dir() / "compat" / f"results-{broker}.json"
    if not path.exists():
        return {}
    return {(row["client"], row["group"], row["title"]): row for row in json.loads(path.read_text())}


def cell(ours: Mapping[str, str] | None, theirs: Mapping[str, str] | None) -> str:
    """The text of a cell: a dash where the client lacks the ability; the judge's result only where it is not a yes."""
    if ours is None:
        return ""
    if ours["outcome"] == "skipped":
        return "·" if theirs is not None and theirs["outcome"] == "passed" else "–"
    text = _SYMBOLS[ours["outcome"]]
    if theirs is not None and theirs["outcome"] == "failed":
        text += " (fails on Apache Kafka too)"
    return text


def table(groups: Sequence[str], ours: Mapping[Key, dict[str, str]], theirs: Mapping[Key, dict[str, str]]) -> list[str]:
    """Rows of all features in `groups`, in the order of the tests."""
    clients = [name for name in NAMES if any(key[0] == name for key in ours)]
    clients += sorted({key[0] for key in ours if key[1] in groups} - set(NAMES))
    clients = [name for name in clients if any(key[0] == name and key[1] in groups for key in ours)]
    lines = []
    for group in groups:
        titles = list(dict.fromkeys(key[2] for key in ours if key[1] == group))
        lines += [f"### {group}", "", "| | " + " | ".join(clients) + " |", "|---" * (len(clients) + 1) + "|"]
        for title in titles:
            cells = [cell(ours.get((c, group, title)), theirs.get((c, group, title))) for c in clients]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def tool_differences() -> list[str]:
    """Where Kafka's tools print something else about kbroker: each reason, and the tools where it shows."""
    where: dict[str, list[str]] = {}
    for test, differences in DIFFERENCES.items():
        module, function = test.split("::")
        marks = getattr(importlib.import_module(f"compat_tests.java_tools.{module}"), function).pytestmark
        title = next(mark.args[2] for mark in marks if mark.name == "feature")
        for difference in differences:
            titles = where.setdefault(difference.reason, [])
            if title not in titles:
                titles.append(title)
    lines = [
        "### Where Kafka's tools print something else",
        "",
        "What the tools print is compared line by line with what they print about Apache Kafka, ids, times and",
        "addresses aside. `compat_tests/java_tools/differences.py` lists the lines that differ:",
        "",
        "| because | in |",
        "|---|---|",
    ]
    lines += [f"| {reason} | {'; '.join(titles)} |" for reason, titles in where.items()]
    return [*lines, ""]


def answer_differences() -> list[str]:
    """Where answers on the wire differ, and why."""
    lines = [
        "### Where answers differ",
        "",
        "Answers are compared field by field; `compat_tests/wire_differential/allowed.py` lists what may differ:",
        "",
        "| of | because |",
        "|---|---|",
    ]
    lines += [f"| {each.api.replace('.*', '*').replace('|', ', ')} | {each.why} |" for each in ALLOWED]
    return [*lines, ""]


def _not_run(ours: Mapping[Key, object], theirs: Mapping[Key, object]) -> list[str]:
    """A line that says which rows Apache Kafka has not been asked for; none if it has been asked for all."""
    left = [key for key in ours if key not in theirs]
    if not left:
        return []
    if not theirs:
        return ["There was no whole run of `make compat-kafka` since Apache Kafka's version has changed."]
    whole = [group for group in dict.fromkeys(key[1] for key in ours) if not any(key[1] == group for key in left)]
    count = len(ours) - len(left)
    asked = f"On this version of Apache Kafka {count} of the {len(ours)} results of kbroker were judged, too:"
    return [asked, f"of the tables below {'; '.join(whole) or 'none'} as a whole."]


def document() -> str:
    """The whole page."""
    ours, theirs = load("kbroker"), load("apache")
    if not ours:
        raise SystemExit("no results: run `make compat` first")
    order = list(dict.fromkeys(key[1] for key in ours))
    with_clients = [group for group in order if any(key[1] == group and key[0] in NAMES for key in ours)]
    others = [group for group in order if group not in with_clients]
    lines = [
        "# Compatibility",
        "",
        "Generated by `python -m compat_tests.report` from the last runs of `make compat` (kbroker) and",
        f"`make compat-kafka` (Apache Kafka {SERVER_VERSION}); do not edit. Each row is a test in `compat_tests/` that",
        "runs the same through every client and against either broker, on one node, on three or on both:",
        "a yes is all of them.",
        *_not_run(ours, theirs),
        "",
        "- yes: passes on kbroker",
        "- **no**: fails on kbroker; passes on Apache Kafka unless said",
        "- – : the client cannot do it (its own limits, not the broker's)",
        "- · : the client can, but needs something that kbroker does not serve yet",
        "",
        "| client | version |",
        "|---|---|",
    ]
    for name in NAMES:
        version = client_class(name).version if unavailable(name) is None else "not installed"
        lines.append(f"| [{name}](../compat_tests/{name.replace('-', '_')}/README.md) | {version} |")
    lines += ["", "| broker | passed | failed | cannot |", "|---|---|---|---|"]
    for label, results in (("kbroker", ours), *([(f"Apache Kafka {SERVER_VERSION}", theirs)] if theirs else [])):
        counts = [sum(r["outcome"] == outcome for r in results.values()) for outcome in ("passed", "failed", "skipped")]
        lines.append(f"| {label} | " + " | ".join(map(str, counts)) + " |")
    lines.append("")
    lines += table(with_clients, ours, theirs)
    lines += table(others, ours, theirs)
    lines += tool_differences()
    lines += answer_differences()
    failed = [(key, result) for key, result in ours.items() if result["outcome"] == "failed"]
    if failed:
        lines += ["## What fails, and how", ""]
        lines += [f"- {key[0]}: {key[2]}: `{result['reason']}`" for key, result in failed]
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.report", description="Write docs/compatibility.md.")
    parser.add_argument("--print", action="store_true", help="print instead of writing")
    options = parser.parse_args(arguments)
    text = document()
    if options.print:
        print(text)
    else:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(text)
        print(f"wrote {DOCUMENT.relative_to(DOCUMENT.parent.parent)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
