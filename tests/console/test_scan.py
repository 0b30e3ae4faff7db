"""Pages of records over a broker: together they are all records, each once, however they are asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pytest
import trio

from kbroker.client import Client, ResponseError, reader
from kbroker.client.producer import Producer
from kbroker.client.records_io.record_filter import parse_filter
from kbroker.client.topics import NewTopic, create_topics, delete_records
from kbroker.testing import RunningBroker
from kbroker.tools.console.api.exports import _every_latest
from kbroker.tools.console.api.records import _shown_range
from kbroker.tools.console.record_range import Limits, RecordRange
from kbroker.tools.console.scan import Budget, Found, Page, RecordView, every, forward, ranges
from kbroker.tools.console.scan_back import backward, latest_per_key
from kbroker.tools.console.tail import STEP_RECORDS, Step, Tail
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, iter_windows

COUNT = 1000
LARGE = 12
KEYS = 17
"""Of the numbers."""

NOW = time.time_ns() // 1_000_000 - 60_000


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        names = ("numbers", "cut", "tail", "large", "burst")
        topics = [NewTopic(name, 3, 1, {"retention.ms": "-1"}) for name in names]
        create_topics(made, topics)
        fill(made, "numbers", range(COUNT))
        producer = Producer(made, "large", [0, 1, 2], batch_bytes=1000, on_refused=print)
        for number in range(LARGE):
            value = json.dumps({"n": number, "long": "x" * 100_000}).encode()
            producer.send(Record(0, NOW + number, None, value), number, number % 3)
        producer.flush()
        yield made


def fill(client: Client, topic: str, numbers: range) -> None:
    """Records with a number each, in batches of a few; keys repeat."""
    producer = Producer(client, topic, client.partitions_of(topic), batch_bytes=700, on_refused=print)
    for number in numbers:
        value = json.dumps({"n": number}).encode()
        producer.send(Record(0, NOW + number, b"key-%d" % (number % 17), value), number)
    producer.flush()


def numbers_of(page: Page) -> list[int]:
    return [json.loads(found.record.value or b"")["n"] for found in page.records]


def limits(client: Client, topic: str = "numbers") -> tuple[dict[int, int], dict[int, int]]:
    found = ranges(client, topic, [0, 1, 2], read_committed=True)
    return {p: start for p, (start, _) in found.items()}, {p: end for p, (_, end) in found.items()}


@pytest.mark.parametrize("limit", [1, 7, 100, 999, 1000])
@pytest.mark.parametrize(
    ("text", "expected"), [("", range(COUNT)), ("$.n >= 500", range(500, COUNT)), ("$.n = 3 or $.n = 998", [3, 998])]
)
def test_pages_forward_are_everything_once(client: Client, limit: int, text: str, expected: Sequence[int]) -> None:
    starts, ends = limits(client)
    look = RecordView("numbers", parse_filter(text))
    seen: list[int] = []
    positions = starts
    rounds = 0
    while rounds < (30 if limit < 7 else 1000):
        rounds += 1
        page = forward(client, look, positions, ends, limit, Budget())
        assert len(page.records) <= limit
        seen += numbers_of(page)
        if page.finished:
            break
        positions = page.positions
    if page.finished:
        assert seen == list(expected)
    assert len(set(seen)) == len(seen)
    # By time across partitions, although they are read one by one.
    assert seen == sorted(seen)


@pytest.mark.parametrize("limit", [7, 100, 1000])
@pytest.mark.parametrize("text", ["", "$.n < 500"])
def test_pages_backward_are_everything_once(client: Client, limit: int, text: str) -> None:
    starts, ends = limits(client)
    look = RecordView("numbers", parse_filter(text))
    seen: list[int] = []
    before = ends
    while True:
        page = backward(client, look, starts, before, limit, Budget())
        seen += numbers_of(page)
        if page.finished:
            break
        before = page.positions
    expected = [n for n in range(COUNT) if not text or n < 500]
    assert seen == expected[::-1]


@pytest.mark.parametrize("records", [1, 50, 400])
def test_a_look_that_runs_out_of_its_budget_goes_on_where_it_was(client: Client, records: int) -> None:
    starts, ends = limits(client)
    look = RecordView("numbers", parse_filter("$.n >= 0"))
    for step in (forward, backward):
        positions = starts if step is forward else ends
        seen: list[int] = []
        for _ in range(COUNT):
            if step is forward:
                page = forward(client, look, positions, ends, 100, Budget(records=records))
            else:
                page = backward(client, look, starts, positions, 100, Budget(records=records))
            seen += numbers_of(page)
            assert page.positions != positions
            positions = page.positions
            if page.finished:
                break
        assert page.finished and sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("text", ["", "$.n < 3"])
def test_records_larger_than_a_look_are_shown_all_the_same(client: Client, text: str) -> None:
    """Newest first, each look goes on, although not even one record is within its bytes."""
    starts, ends = limits(client, "large")
    look = RecordView("large", parse_filter(text))
    before, seen = ends, []
    while True:
        page = backward(client, look, starts, before, 100, Budget(size=50_000))
        seen += numbers_of(page)
        assert page.positions != before
        before = page.positions
        if page.finished:
            break
    assert sorted(seen) == [n for n in range(LARGE) if not text or n < 3]
    of_one = [n for n in seen if n % 3 == 0]
    assert of_one == sorted(of_one, reverse=True)


def test_a_budget_counts_bytes() -> None:
    budget = Budget(size=12)
    for spent in (False, True):
        budget.count([Record(0, 0, b"key", b"12345"), Record(1, 0, None, None)])
        assert budget.spent == spent
    assert budget.scanned == 4


@pytest.mark.parametrize(("text", "expected"), [("", range(983, 1000)), ("$.n >= 990", range(990, 1000))])
@pytest.mark.parametrize("limit", [5, 1000])
@pytest.mark.parametrize("records", [1, 40, 2000])
def test_the_latest_of_each_key_is_right_however_little_a_look_reads(
    client: Client, records: int, limit: int, text: str, expected: range
) -> None:
    starts, ends = limits(client)
    look = RecordView("numbers", parse_filter(text))
    before, known, found = ends, frozenset[bytes](), list[int]()
    # One that reads next to nothing is right in all that it shows, and gets on; that it comes to the start takes long.
    for _ in range(60):
        page, known = latest_per_key(client, look, starts, before, limit, Budget(records=records), known)
        assert page.finished or (page.positions != before and page.notes)
        found += numbers_of(page)
        before = page.positions
        if page.finished:
            break
    assert len(found) == len(set(found)) and set(found) <= set(expected)
    assert page.finished or records == 1
    if page.finished:
        assert set(found) == set(expected)
    if records == 2000 and limit == 1000:
        assert (found, page.notes) == (list(expected)[::-1], [])


def test_a_look_at_the_latest_says_where_it_stopped(client: Client) -> None:
    starts, ends = limits(client)
    page, _ = latest_per_key(client, RecordView("numbers"), starts, ends, 1000, Budget(records=40))
    [note] = page.notes
    assert note.startswith("read back to offset ") and note.endswith(": keys that are not here are older")


def test_an_export_of_as_many_keys_as_may_be_is_whole(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, ends = limits(client)
    wanted = RecordRange(RecordView("numbers"), None, "earliest")
    told = Limits(starts, starts, ends, firsts=starts)
    monkeypatch.setattr(trio.from_thread, "check_cancelled", lambda: None)
    found: list[Found] = []
    _every_latest(client, wanted, told, found.append, max_keys=KEYS)
    assert len(found) == KEYS
    with pytest.raises(ResponseError, match="more than 3 keys"):
        _every_latest(client, wanted, told, found.append, at_once=5, max_keys=3, window=5)


def test_the_code_for_spark_reads_what_the_page_shows(client: Client) -> None:
    """Also where the latest of each key are read back to a beginning, look after look."""
    starts, ends = limits(client)
    told = Limits(starts, starts, ends, firsts=starts)
    lower = {partition: end - 5 for partition, end in ends.items()}
    lowest = {partition: end - 9 for partition, end in ends.items()}
    for begin in ("earliest", "latest"):
        first = RecordRange(RecordView("numbers"), None, begin)
        page = Page([], lower, finished=False)
        assert _shown_range(page, first, told, newest_first=True) == (lower, ends)
        more = RecordRange(RecordView("numbers"), None, begin, positions=lower)
        page = Page([], lowest, finished=False)
        assert _shown_range(page, more, told, newest_first=True) == (lowest, lower)
    first = RecordRange(RecordView("numbers"), None, "earliest")
    assert _shown_range(Page([], lower, finished=False), first, told, newest_first=False) == (starts, lower)


def test_what_is_gone_from_the_log_is_told(client: Client) -> None:
    fill(client, "cut", range(60))
    _, ends = limits(client, "cut")
    partition = max(ends, key=lambda each: ends[each])
    delete_records(client, {TopicPartition("cut", partition): 5})
    page = forward(client, RecordView("cut"), {partition: 0}, {partition: ends[partition]}, 100, Budget())
    assert page.notes == [f"partition {partition}: offsets 0 to 4 are gone from the log"]
    assert len(page.records) == ends[partition] - 5


def test_a_tail_shows_or_counts_each_record(client: Client) -> None:
    _, ends = limits(client, "tail")
    tail = Tail(client, RecordView("tail"), ends)
    try:
        with Client(client.bootstrap) as other:
            fill(other, "tail", range(5 * STEP_RECORDS))
        steps: list[Step] = []
        while sum(step.seen for step in steps) < 5 * STEP_RECORDS:
            steps.append(tail.step())
        shown = [json.loads(found.record.value or b"")["n"] for step in steps for found in step.records]
        skipped = sum(each.count for step in steps for each in step.not_shown.values())
        assert len(shown) == len(set(shown)) >= STEP_RECORDS
        assert len(shown) + skipped == 5 * STEP_RECORDS
        # Where it ended is where another begins.
        again = Tail(client, RecordView("tail"), steps[-1].positions)
        assert again.step().seen == 0
        again.close()
    finally:
        tail.close()


def test_a_tail_counts_what_it_does_not_show_by_the_headers_of_batches(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst costs no more than what is shown of it; a filter has to see each record."""
    count = 40 * STEP_RECORDS
    cut = 0

    def counting(data: memoryview, position: int) -> Iterator[tuple[Iterator[Record], int]]:
        nonlocal cut
        for records, size in iter_windows(data, position):
            parts = list(records)
            cut += len(parts)
            yield iter(parts), size

    monkeypatch.setattr(reader, "iter_windows", counting)
    for look in (RecordView("burst"), RecordView("burst", parse_filter("$.n >= 0"))):
        _, ends = limits(client, "burst")
        tail = Tail(client, look, ends)
        try:
            fill(client, "burst", range(count))
            cut, seen, told, steps = 0, 0, 0, 0
            while seen < count:
                step = tail.step()
                seen += step.seen
                told += len(step.records) + sum(each.count for each in step.not_shown.values())
                steps += 1
            assert seen == told == count
            assert cut == count if look.fits else cut <= steps * 4 * STEP_RECORDS
        finally:
            tail.close()


def test_an_export_that_finds_nothing_ends_when_it_is_cancelled(client: Client) -> None:
    starts, ends = limits(client)
    never = dict.fromkeys(ends, 10**9)  # it would wait for these for ever
    read: list[int] = []
    scope = trio.CancelScope()

    def take(_: object) -> None:
        read.append(1)
        if len(read) == COUNT:
            trio.from_thread.run_sync(scope.cancel)

    def run() -> None:
        every(client, RecordView("numbers"), starts, never, take, trio.from_thread.check_cancelled)

    async def main() -> bool:
        with scope:
            await trio.to_thread.run_sync(run)
        return scope.cancelled_caught

    assert trio.run(main)
    assert len(read) == COUNT
