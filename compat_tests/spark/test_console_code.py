"""The program that the console shows for Spark, run as it stands: what it reads is what the page shows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.spark.records import BASE_MS, create, produce
from tests.console.console_process import ConsoleProcess, console_process

SECONDS = 300
"""Record n is n seconds younger than ``BASE_MS``, and in partition n modulo 3."""


@pytest.fixture(scope="module")
def topic(bootstrap: str, new_module_name: Callable[[], str]) -> str:
    name = create(bootstrap, new_module_name(), 3)
    produce(bootstrap, name, 3, SECONDS)
    return name


@pytest.fixture(scope="module")
def console(bootstrap: str) -> Iterator[ConsoleProcess]:
    with console_process("-b", bootstrap) as running:
        yield running


def moment(second: int) -> str:
    """A time as the page sends it."""
    return datetime.datetime.fromtimestamp(BASE_MS / 1000 + second, datetime.UTC).isoformat()


RANGES: dict[str, dict[str, object]] = {
    "offsets": {"from": "offset", "at": 60, "partitions": "0,2"},
    "times": {"from": "earliest", "since": moment(100), "until": moment(130)},
    "the newest": {"from": "latest", "limit": 30},
}


@pytest.mark.parametrize("shown", RANGES)
def test_spark_reads_what_the_page_shows(
    spark: Any,
    console: ConsoleProcess,
    topic: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pyspark.sql.streaming.query import StreamingQuery

    page = console.get("records", topic=topic, **RANGES[shown]).json
    rows = {(row["partition"], row["offset"]) for row in page["rows"]}
    streamed: list[int] = []

    def to_the_end(query: StreamingQuery) -> None:
        """A stream has no end: it is over when it has what is there."""
        try:
            query.processAllAvailable()
            streamed.append(sum(progress.numInputRows for progress in query.recentProgress))
        finally:
            query.stop()

    monkeypatch.setattr(StreamingQuery, "awaitTermination", to_the_end)
    names: dict[str, Any] = {}
    exec(page["spark"], names)
    assert names["spark"] is spark, "the session of the tests"
    found = names["records"].collect()
    assert rows and {(row["partition"], row["offset"]) for row in found} == rows and len(found) == len(rows)
    assert all(row["value"] == f"v{row['offset'] * 3 + row['partition']}" for row in found)
    assert found[0]["value"] in capsys.readouterr().out
    begins = {number: min(offset for each, offset in rows if each == number) for number, _ in rows}
    assert streamed == [sum(SECONDS // 3 - begin for begin in begins.values())]
