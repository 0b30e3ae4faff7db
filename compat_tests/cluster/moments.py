"""When each test of another pytest began and ended, and how: ``-p compat_tests.cluster.moments`` with MOMENTS=FILE."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Moment:
    """One phase (setup, call, teardown) of a test; `start` and `stop` are seconds since 1970."""

    test: str
    phase: str
    outcome: str
    start: float
    stop: float
    message: str
    """The first line of what it failed with, or the reason for which it was skipped."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append a phase of a test to the file that MOMENTS names, as a line of JSON."""
    path = os.environ.get("MOMENTS")
    if path is None:
        return
    message = ""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = report.longreprtext if crash is None else str(crash.message)
        message = (text.strip().splitlines() or [""])[0][:300]
    elif isinstance(report.longrepr, tuple):
        message = str(report.longrepr[2])
    phase = str(report.when)
    moment = Moment(report.nodeid, phase, report.outcome, report.start, report.stop, message)
    with open(path, "a") as file:
        file.write(json.dumps(asdict(moment)) + "\n")


def read_moments(path: Path) -> list[Moment]:
    """All lines of the file; none if no test ran."""
    return [Moment(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
