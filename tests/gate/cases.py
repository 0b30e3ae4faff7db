"""The test cases that a run of pytest reports in its JUnit file, and the verdict over two runs of them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MOST_FAILURES = 10
"""More failures than these are no accident, and are not run again."""


@dataclass(frozen=True)
class Case:
    """A test case: `text` is the traceback of one that failed, or why it was skipped."""

    name: str
    outcome: Literal["passed", "failed", "skipped", "excused"]
    text: str = ""


def read_cases(path: Path) -> list[Case]:
    """Returns the cases of the JUnit file at `path`; none if pytest came to no end and wrote no file."""
    if not path.exists():
        return []
    return [_case(element) for element in ElementTree.parse(path).iter("testcase")]


def _case(element: ElementTree.Element) -> Case:
    place = element.get("classname", "")
    name = f"{place}::{element.get('name')}" if place else element.get("name", "")
    failures = [*element.iter("failure"), *element.iter("error")]
    if failures:
        return Case(name, "failed", "\n".join(each.text or each.get("message") or "" for each in failures))
    skipped = element.find("skipped")
    if skipped is None:
        return Case(name, "passed")
    if skipped.get("type") == "pytest.xfail":
        return Case(name, "excused", skipped.get("message", ""))
    return Case(name, "skipped", skipped.get("message", ""))


def failed(cases: Sequence[Case]) -> list[Case]:
    """Returns those of `cases` that failed."""
    return [case for case in cases if case.outcome == "failed"]


def unsteady(first: Sequence[Case], again: Sequence[Case]) -> list[Case]:
    """Returns the failures of the `first` run that passed `again`, with their first traceback."""
    outcomes: dict[str, set[str]] = {}
    for case in again:
        outcomes.setdefault(case.name, set()).add(case.outcome)
    return [case for case in failed(first) if outcomes.get(case.name) == {"passed"}]


def skips(cases: Sequence[Case]) -> list[tuple[str, int]]:
    """Returns each reason for which cases were skipped, with the number of cases, the most frequent first."""
    return Counter(case.text for case in cases if case.outcome == "skipped").most_common()
