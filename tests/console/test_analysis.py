"""A topic's analysis: its numbers are those of a model, over a range, and it can be stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client import Client
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import RunningBroker
from kbroker.tools.console.analysis import Analysis
from kbroker.tools.console.state import EXPORTS
from kbroker.wire.record_batch import Record
from tests.console.console_process import ConsoleProcess
from tests.patience import eventually

PARTS = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=70)
RECORDS = st.lists(st.tuples(st.integers(0, 2), PARTS, PARTS, st.integers(0, 50)), max_size=40)


def model(records: list[tuple[int, bytes | None, bytes | None, int]]) -> dict[str, Any]:
    """The same numbers, each by itself out of all records."""
    keys = [key for _, key, _, _ in records if key is not None]
    values = [value for _, _, value, _ in records if value is not None]

    def sizes(parts: list[bytes]) -> dict[str, Any]:
        lengths = sorted(map(len, parts))
        bounds = sorted({next(2**bits for bits in range(20) if each < 2**bits) for each in lengths})
        return {
            "count": len(parts),
            "sum": sum(lengths),
            "smallest": lengths[0] if lengths else None,
            "largest": lengths[-1] if lengths else 0,
            "buckets": [[each, sum(each // 2 <= size < each for size in lengths)] for each in bounds],
        }

    partitions = []
    for number in sorted({each[0] for each in records}):
        own = [each for each in records if each[0] == number]
        partitions.append(
            {
                "partition": number,
                "records": len(own),
                "bytes": sum(len(key or b"") + len(value or b"") for _, key, value, _ in own),
                "null_keys": [key for _, key, _, _ in own].count(None),
                "null_values": [value for _, _, value, _ in own].count(None),
                "back_in_time": sum(
                    at < max([each[3] for each in own[:place]] or [0]) for place, (*_, at) in enumerate(own)
                ),
            }
        )
    times = [at for *_, at in records]
    return {
        "partitions": partitions,
        "keys": sizes(keys),
        "values": sizes(values),
        "headers": sizes([]),
        "empty_keys": keys.count(b""),
        "different": len(set(keys)),
        "repeated": len(keys) - len(set(keys)),
        "unknown": 0,
        "times": [min(times), max(times)] if times else None,
    }


@given(RECORDS)
def test_the_numbers_are_those_of_a_model(records: list[tuple[int, bytes | None, bytes | None, int]]) -> None:
    analysis = Analysis()
    for partition, key, value, at in records:
        analysis.add(partition, Record(0, at, key, value))
    assert analysis.told() == model(records)


def test_keys_beyond_a_limit_are_not_judged() -> None:
    analysis = Analysis(most_keys=2)
    for key in (b"a", b"b", b"c", b"a", b"c"):
        analysis.add(0, Record(0, 0, key, None, (("h", b"12"),)))
    told = analysis.told()
    assert (told["different"], told["repeated"], told["unknown"]) == (2, 1, 2)
    assert told["headers"] == {"count": 5, "sum": 15, "smallest": 3, "largest": 3, "buckets": [[4, 5]]}


SENT: list[tuple[int, bytes | None, bytes | None, int]] = [
    (number % 2, b"k%d" % (number % 7), b"v" * (number % 5) if number % 3 else None, 1000 + number)
    for number in range(400)
]


@pytest.fixture(scope="module", autouse=True)
def topic(broker: RunningBroker) -> Iterator[None]:
    now = time.time_ns() // 1_000_000
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("measured", 2, 1)])
        producer = Producer(client, "measured", [0, 1], on_refused=print)
        for partition, key, value, at in SENT:
            producer.send(Record(0, now + at, key, value), 0, partition)
        producer.flush()
    yield


def analysed(console: ConsoleProcess, **asked: object) -> Any:
    with console.events(f"topic/analysis?{urlencode({'topic': 'measured', 'from': 'earliest', **asked})}") as events:
        return next(document for name, document in events if name == "done")


def test_a_whole_topic_and_ranges_of_it(console: ConsoleProcess) -> None:
    told = analysed(console)
    expected = model(SENT)
    for name in expected.keys() - {"times"}:
        assert told[name] == expected[name], name
    assert (told["offsets"], told["of_offsets"], told["notes"]) == (400, 400, [])
    assert told["times"][1] - told["times"][0] == 399
    told = analysed(console, **{"partitions": "1", "from": "offset", "at": 150})
    assert [(each["partition"], each["records"]) for each in told["partitions"]] == [(1, 50)]
    until = f"@{(told['times'][0] + 20) / 1000:.3f}"
    assert analysed(console, partitions="1", until=until)["partitions"][0]["records"] == 160


def test_one_that_is_stopped_gives_its_place_back(console: ConsoleProcess) -> None:
    for _ in range(EXPORTS + 2):
        with console.events("topic/analysis?topic=measured") as events:
            next(events)
    eventually(lambda: analysed(console)["offsets"] == 400, "there is a place")
    assert console.get("topic/analysis", topic="nothing").status == 404
