"""Dead letters: their records, the batches that they fit into, the topics that may be written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.share_partitions.dead_letters import (
    DeadLetterReason,
    DeadLetters,
    DeadLetterTopic,
    Originals,
    Source,
    make_round,
    pause_ms,
)
from kbroker.cores.share_partitions.originals import MOST_BYTES, OriginalsReader
from kbroker.wire.batch_header import BatchHeader, walk_headers
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch, iter_payload, iter_records

SOURCE = Source("workers", "jobs", 3)
REJECTED = DeadLetterReason.REJECTED
TOPIC = DeadLetterTopic("dlq.jobs", exists=True, is_enabled=True, may_be_created=False, prefix="dlq.")


class Log:
    """Stored batches, each with its records; `read_from` gives one at a time, or several."""

    def __init__(self, *batches: bytes, at_once: int = 1) -> None:
        self.batches = batches
        self.at_once = at_once
        self.reads = 0

    def read_from(self, offset: int) -> tuple[bytes, Sequence[tuple[int, BatchHeader]]]:
        self.reads += 1
        wanted = [each for each in self.batches if next(walk_headers(each))[1].last_offset >= offset]
        data = b"".join(wanted[: self.at_once])
        return data, list(walk_headers(data))


def batch(first: int, *values: bytes, codec: CompressionType = CompressionType.NONE) -> bytes:
    records = [Record(first + number, 1, b"k", value, (("h", b"v"),)) for number, value in enumerate(values)]
    return build_batch(records, base_offset=first, compression=codec)


def read(reader: OriginalsReader, wanted: list[DeadLetters], max_bytes: int) -> Originals:
    """The records that a round finds, without a pause."""
    steps = reader.read(wanted, max_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Originals = end.value
            return found


def letters(*ranges: tuple[int, int]) -> list[DeadLetters]:
    return [DeadLetters(first, last, 2, REJECTED) for first, last in ranges]


def test_a_letter_has_the_headers_of_kafka_and_nothing_of_the_record_unless_it_is_copied() -> None:
    nothing = Originals({}, 7)
    told = make_round(SOURCE, letters((7, 7)), nothing, max_bytes=1000, now_ms=99)
    (record,) = iter_records(told.batch)
    assert record == Record(
        0,
        99,
        None,
        None,
        (
            ("__dlq.errors.topic", b"jobs"),
            ("__dlq.errors.partition", b"3"),
            ("__dlq.errors.offset", b"7"),
            ("__dlq.errors.group", b"workers"),
            ("__dlq.errors.delivery.count", b"2"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        ),
    )
    original = Record(7, 1, b"key", b"value", (("h", b"v"),))
    copied = make_round(SOURCE, letters((7, 7)), Originals({7: original}, 7), max_bytes=1000, now_ms=99)
    assert list(iter_records(copied.batch)) == [record._replace(key=b"key", value=b"value")]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=6),
    st.integers(1, 2000),
    st.lists(st.integers(0, 400), min_size=60, max_size=60),
    st.sampled_from(CompressionType),
    st.integers(1, 3),
)
def test_each_offset_gets_one_letter_in_batches_that_fit(
    ranges: list[tuple[int, int]], max_bytes: int, sizes: list[int], codec: CompressionType, at_once: int
) -> None:
    """This holds for whatever is wanted, stored and allowed; a copy is missing only where it fits into no batch."""
    rest, position = [], 0
    for length, gap in ranges:
        rest += letters((position, position + length - 1))
        position += length + gap
    values = [bytes(size) for size in sizes]
    log = Log(*(batch(first, *values[first : first + 4], codec=codec) for first in range(0, 60, 4)), at_once=at_once)
    wanted = [offset for each in rest for offset in range(each.first_offset, each.last_offset + 1)]
    found: list[Record] = []
    reader = OriginalsReader(log.read_from)
    while rest:
        originals = read(reader, rest, max_bytes)
        told = make_round(SOURCE, rest, originals, max_bytes=max_bytes, now_ms=5)
        records = list(iter_records(told.batch))
        assert records and (len(told.batch) <= max_bytes or len(records) == 1)
        sent = [offset for each in told.done for offset in range(each.first_offset, each.last_offset + 1)]
        left = [offset for each in told.rest for offset in range(each.first_offset, each.last_offset + 1)]
        assert [int(dict(record.headers)["__dlq.errors.offset"] or b"") for record in records] == sent
        assert sent + left == wanted[len(found) :]
        found += records
        rest = told.rest
    for offset, record in zip(wanted, found, strict=True):
        assert (record.key, record.value) in ((b"k", values[offset]), (None, None))
        if codec is CompressionType.NONE and sizes[offset] + 350 <= max_bytes:
            assert record.value == values[offset]


def test_what_cannot_be_read_has_headers_alone() -> None:
    log = Log(batch(10, b"ten", b"eleven"))
    originals = read(OriginalsReader(log.read_from), letters((0, 3), (11, 20)), 10_000)
    assert {offset: record.value for offset, record in originals.records.items()} == {11: b"eleven"}
    assert originals.until == 20


def test_a_batch_that_grows_too_large_is_left_out() -> None:
    log = Log(batch(0, bytes(5000), codec=CompressionType.GZIP), batch(1, b"small"), at_once=2)
    originals = read(OriginalsReader(log.read_from), letters((0, 1)), 1000)
    assert sorted(originals.records) == [1] and originals.until == 1


def test_letters_of_one_batch_have_it_read_and_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def decode(data: bytes, header: BatchHeader) -> Iterator[Record]:
        decoded.append(header.base_offset)
        return iter_payload(data, header)

    monkeypatch.setattr("kbroker.cores.share_partitions.originals.iter_payload", decode)
    log = Log(batch(0, *[bytes(300)] * 100), batch(100, *[bytes(300)] * 100), at_once=2)
    reader, rest, rounds = OriginalsReader(log.read_from), letters(*((at, at) for at in range(0, 200, 2))), 0
    while rest:
        told = make_round(SOURCE, rest, read(reader, rest, 1500), max_bytes=1500, now_ms=5)
        assert all(record.value == bytes(300) for record in iter_records(told.batch))
        rest, rounds = told.rest, rounds + 1
    assert rounds > 20 and log.reads == 1 and decoded == [0, 100]


@pytest.mark.parametrize("step", [1, 2])
def test_originals_too_large_for_a_copy_are_looked_at_once(step: int) -> None:
    log = Log(*(batch(at, bytes(3000)) for at in range(100)))
    reader, rest = OriginalsReader(log.read_from), letters(*((at, at) for at in range(0, 100, step)))
    rounds = 0
    while rest:
        told = make_round(SOURCE, rest, read(reader, rest, 1500), max_bytes=1500, now_ms=5)
        rest, rounds = told.rest, rounds + 1
    assert log.reads <= 100 // step + rounds * 5, "what did not fit into a round may be looked at in the next one"


def test_a_round_reads_so_many_bytes_and_no_more() -> None:
    log = Log(*(batch(at, bytes(1 << 20)) for at in range(20)))
    rest, ends = letters((0, 19)), []
    while rest:
        reads, originals = log.reads, read(OriginalsReader(log.read_from), rest, 100_000)
        assert log.reads - reads <= MOST_BYTES >> 20
        told = make_round(SOURCE, rest, originals, max_bytes=100_000, now_ms=5)
        rest = told.rest
        ends.append(originals.until)
    assert ends[0] < 5 and ends[-1] == 19 and ends == sorted(set(ends))


@given(st.integers(0, 2**62), st.binary(max_size=300), st.text(max_size=60), st.integers(1, 130))
def test_what_a_letter_takes_is_known_without_building_it(offset: int, value: bytes, name: str, count: int) -> None:
    source = Source(name, name, 2**31 - 1)
    wanted = [DeadLetters(offset, offset + count - 1, 2**15 - 1, DeadLetterReason.DELIVERED_TOO_OFTEN)]
    copies = {at: Record(at, 1, value, value) for at in range(offset, offset + count)}
    told = make_round(source, wanted, Originals(copies, offset + count - 1), max_bytes=5000, now_ms=5)
    assert len(told.batch) <= 5000
    if told.rest:
        assert len(told.batch) + 900 + 120 * 4 > 5000, "as many as fit"


def test_a_batch_has_so_many_letters_and_no_more() -> None:
    log = Log(batch(0, *[b"v"] * 1200), at_once=1)
    rest, counts = letters((0, 1199)), []
    while rest:
        originals = read(OriginalsReader(log.read_from), rest, 1 << 20)
        told = make_round(SOURCE, rest, originals, max_bytes=1 << 20, now_ms=5)
        counts.append(len([record for record in iter_records(told.batch) if record.value == b"v"]))
        rest = told.rest
    assert counts == [500, 500, 200]


def test_topics_that_may_not_be_written() -> None:
    assert TOPIC.refusal() is None and TOPIC._replace(prefix="").refusal() is None
    assert TOPIC._replace(exists=False, is_enabled=False, may_be_created=True).refusal() is None
    for wrong, said in (
        (TOPIC._replace(name=""), "has no errors.deadletterqueue.topic.name"),
        (TOPIC._replace(name="__x", prefix=""), "internal"),
        (TOPIC._replace(is_enabled=False), "errors.deadletterqueue.group.enable=true"),
        (TOPIC._replace(exists=False), "auto.create"),
        (TOPIC._replace(prefix="dead."), "does not begin with"),
    ):
        assert said in str(wrong.refusal())


def test_attempts_come_ever_more_rarely() -> None:
    rng = random.Random(1)
    for failures, seconds in ((1, 2), (2, 4), (3, 8), (4, 16), (9, 30)):
        assert seconds * 800 <= pause_ms(failures, rng) <= min(seconds * 1200, 30_000)
