"""Findings, and the checks that make them: each has a name, and is a function of facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kbroker.tools.doctor.facts import Facts


class Severity(StrEnum):
    """An error keeps somebody from working, a warning will; a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: ``text`` says what, ``evidence`` how it is known, ``remedy`` what to do."""

    severity: Severity
    about: str
    text: str
    evidence: str
    remedy: str


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


def examine(facts: Facts, names: Collection[str]) -> list[tuple[Check, Finding]]:
    """The findings of the checks with these names, the most severe first."""
    order = list(Severity)
    found = [(each, finding) for each in CHECKS.values() if each.name in names for finding in each.run(facts)]
    return sorted(found, key=lambda pair: order.index(pair[1].severity))
