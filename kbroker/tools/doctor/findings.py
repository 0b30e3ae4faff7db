"""The checks, which make findings: each has a name, and is a function of facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from kbroker.tools.diagnosis.cluster import findings
from kbroker.tools.diagnosis.findings import Finding, by_severity
from kbroker.tools.doctor.facts import Facts

Run = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """``summary`` says what it looks for; ``see`` is a place in docs/operations.md."""

    name: str
    subject: str
    summary: str
    see: str
    run: Run


CHECKS: Final[dict[str, Check]] = {}
"""All checks by name, in the order of their modules (`kbroker.tools.doctor.checklist`)."""


def check(name: str, summary: str, *, see: str) -> Callable[[Run], Run]:
    """Register a function as a check; its subject is the name of its module."""

    def register(run: Run) -> Run:
        CHECKS[name] = Check(name, run.__module__.rpartition(".")[2], summary, f"operations.md#{see}", run)
        return run

    return register


def share(subject: str, summaries: Mapping[str, str], *, see: str) -> None:
    """Register the rules of `kbroker.tools.diagnosis.cluster` with these names as checks of a subject."""
    for name, summary in summaries.items():
        CHECKS[name] = Check(name, subject, summary, f"operations.md#{see}", partial(_of_kind, name))


def _of_kind(kind: str, facts: Facts) -> list[Finding]:
    return [finding for finding in findings(facts.view) if finding.kind == kind]


def examine(facts: Facts, names: Collection[str]) -> list[tuple[Check, Finding]]:
    """The findings of the checks with these names, the most severe first."""
    found = [(each, finding) for each in CHECKS.values() if each.name in names for finding in each.run(facts)]
    return sorted(found, key=lambda pair: by_severity(pair[1]))
