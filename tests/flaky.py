"""The mark ``flaky(since="2026-12-01", why="...")`` of a test that the gate has seen fail and then pass.

Such a test runs and is reported, but does not refuse a change. The mark has an end: after two weeks the test fails
until somebody has mended it. The conftest of `tests/` and that of `compat_tests/` load this plugin.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import date, timedelta

import pytest

LIFE = timedelta(days=14)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "flaky(since, why): may fail until two weeks after `since`, a date like 2026-12-01"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("flaky")
    if mark is not None and (fault := fault_of(mark, date.today())):
        pytest.fail(fault, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mark = item.get_closest_marker("flaky")
    if mark is not None and report.failed and call.excinfo is not None and not fault_of(mark, date.today()):
        report.outcome = "skipped"
        seen = call.excinfo.exconly(tryshort=True).splitlines()[0]
        report.wasxfail = f"flaky since {mark.kwargs['since']}, {mark.kwargs['why']}: {seen}"
    return report


def fault_of(mark: pytest.Mark, today: date) -> str | None:
    """Returns why `mark` excuses nothing on the day `today`; None while it does."""
    since, why = mark.kwargs.get("since"), mark.kwargs.get("why")
    if mark.args or set(mark.kwargs) != {"since", "why"} or not isinstance(since, str) or not why:
        return 'a flaky mark is written flaky(since="2026-12-01", why="...")'
    try:
        begin = date.fromisoformat(since)
    except ValueError:
        return f"flaky: since={since!r} is no date like 2026-12-01"
    if begin > today + timedelta(days=1):  # a day, for who is in another zone
        return f"flaky: since={since!r} is a day to come"
    if today > begin + LIFE:
        return (
            f"flaky since {since}, which is over {LIFE.days} days: mend the test or what it tests, and remove the mark"
        )
    return None
