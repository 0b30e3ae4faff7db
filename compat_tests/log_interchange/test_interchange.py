"""A broker writes a log directory; the other broker opens it, reads all, writes on, and gives it back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from compat_tests.apache_kafka import tool
from compat_tests.log_interchange.content import Reading, Site
from compat_tests.log_interchange.nodes import Apache, Kbroker, Node, Place, apache_complaints
from kbroker.wire.batch_header import walk_headers
from tests.patience import LONG, eventually

COMPACTED = ("compacted", "compacted-zstd")
WAYS = [(first, end) for first in ("kbroker-first", "apache-first") for end in ("stopped", "killed")]
"""The broker that begins, and how each of them ends."""
FEW_WAYS = [("kbroker-first", "killed"), ("apache-first", "stopped")]
"""Each broker opens what the other has left, after each end."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def nodes(request: pytest.FixtureRequest, place: Place) -> Iterator[tuple[Node, Node]]:
    pair: tuple[Node, Node] = (Kbroker(place), Apache(place))
    first, second = pair if request.param == "kbroker-first" else pair[::-1]
    yield first, second
    for node in pair:
        node.kill()


def sealed_below(place: Place, topic: str) -> int:
    """Base offset of the active segment, from the files' names."""
    return max(int(path.stem) for path in (place.data / f"{topic}-0").glob("*.log"))


def checkpoint(place: Place, name: str) -> dict[str, int]:
    """A checkpoint file of the log dir by topic, of partition 0."""
    path = place.data / name
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines if line.split()[1] == "0"}


def wait_for_compaction(place: Place) -> None:
    def done() -> bool:
        offsets = checkpoint(place, "cleaner-offset-checkpoint")
        return all(offsets.get(topic, -1) == sealed_below(place, topic) for topic in COMPACTED)

    eventually(done, "compaction", 2 * LONG)


def wait_for_trimming(place: Place, reading: Reading) -> None:
    """Wait until the log start that a client has set is on the disk, where a kill leaves it: in a checkpoint.

    That has no log whose start is that of its first segment.
    """
    start, _ = reading.bounds["trimmed", 0]

    def done() -> bool:
        first = min(int(path.stem) for path in (place.data / "trimmed-0").glob("*.log"))
        return max(first, checkpoint(place, "log-start-offset-checkpoint").get("trimmed", 0)) == start

    eventually(done, "the log start's checkpoint")


def check_compacted(reading: Reading, place: Place) -> None:
    for topic in COMPACTED:
        below = [content for content in reading.records[topic, 0] if content[0] < sealed_below(place, topic)]
        keys = [content[2] for content in below]
        assert len(keys) == len(set(keys)), f"{topic} has a key twice in its clean part"
        assert 50 < len(keys) <= 97


def assert_same(before: Reading, after: Reading) -> None:
    for partition, records in before.records.items():
        assert after.records[partition] == records, f"{partition} reads differently"
    assert after.bounds == before.bounds
    assert after.by_time == before.by_time
    assert after.committed == before.committed


def check_indexes(place: Place, how: str, *, aside: tuple[str, ...] = ()) -> None:
    """Every segment has its index files, and Kafka's tool finds nothing wrong in them."""
    aside = ("__cluster", *aside)
    logs = [path for path in sorted(place.data.glob("*/*.log")) if not path.parent.name.startswith(aside)]
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    assert len(indexes) > 20
    dumped = tool("kafka-dump-log", how, "--files", ",".join(map(str, indexes)), timeout=2 * LONG)
    told = dumped.stdout + dumped.stderr
    assert dumped.returncode == 0, told
    assert not [line for line in told.splitlines() if "Found" in line or "Exception" in line], told


def test_complaints_are_about_the_directory() -> None:
    """Not about the order in which the parts of a node come up, which is another one on a slow machine."""
    stack = "java.lang.Exception: why\n\tat org.apache.kafka.queue.KafkaEventQueue.run(KafkaEventQueue.java:155)"
    broken = f"[2026-11-26 05:43:35,431] WARN Found a corrupted index (org.apache.kafka.storage.LogLoader)\n{stack}"
    late = f"[2026-11-26 05:43:35,431] ERROR Unexpected error (kafka.server.ControllerApis)\n{stack}"
    recovered = "[2026-11-26 05:43:35,431] INFO Recovering unflushed segment 0. 0 recovered for {}-0. ({})"
    loader = "org.apache.kafka.storage.internals.log.LogLoader"
    always, never = (recovered.format(topic, loader) for topic in ("__cluster_metadata", "segments"))
    quiet = "[2026-11-26 05:43:35,431] INFO KafkaConfig values: \n\ta = b\n (org.apache.kafka.storage.Values)"
    machine = "[2026-11-26 05:43:35,431] ERROR OutOfMemory"
    log = "\n".join([quiet, broken, late, always, never, machine, quiet]) + "\n"
    assert apache_complaints(log) == [broken, never, machine]


@pytest.mark.parametrize(
    ("nodes", "end"), WAYS if os.environ.get("KBROKER_INTERCHANGE_ALL") else FEW_WAYS, indirect=["nodes"]
)
def test_there_and_back(nodes: tuple[Node, Node], place: Place, end: str) -> None:
    first, second = nodes
    before: Reading | None = None
    for part, node in enumerate((first, second, first)):
        node.start()
        site = Site(place.bootstrap)
        if before is None:
            site.create_topics()
        else:
            assert_same(before, site.read())
            if end == "stopped":
                assert node.complaints() == []
        site.write(part)
        wait_for_compaction(place)
        before = site.read()
        check_compacted(before, place)
        assert all(records for (topic, _), records in before.records.items() if topic != "empty")
        if isinstance(node, Kbroker):  # Apache Kafka's own, full of zeros while it runs, fail
            check_indexes(place, "--index-sanity-check")
        if end == "stopped":
            node.stop()
        else:
            wait_for_trimming(place, before)
            node.kill()
        if isinstance(node, Kbroker):
            # A batch without records, which compaction keeps for its producer, has a time that the tool does not find.
            check_indexes(place, "--verify-index-only", aside=COMPACTED)


def read_topic(place: Place, topic: str) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of a topic, up to its end."""
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []

    def to_end() -> bool:
        message = consumer.poll(1)
        if message is None:
            return False
        error, offset = message.error(), message.offset()
        if error is None and offset is not None:
            found.append((offset, message.value()))
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            return bool(offset == consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LONG)[1])
        return False

    eventually(to_end, f"the end of {topic}", 2 * LONG)
    consumer.close()
    return found


def test_a_log_with_holes(place: Place) -> None:
    """Apache Kafka reads, and goes on with, a log in whose middle, or at whose end, kbroker has left a hole."""
    nodes: tuple[Node, Node] = (Kbroker(place), Apache(place))
    kbroker, apache = nodes
    values = [b"%d" % number + b"v" * 200 for number in range(60)]

    def write(topic: str, more: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": place.bootstrap})
        for value in more:
            producer.produce(topic, value, partition=0)
            assert producer.flush(LONG) == 0  # a batch each

    try:
        kbroker.start()
        for topic in ("middle", "end"):
            write(topic, values)
        eventually(lambda: checkpoint(place, "replication-offset-checkpoint").get("end") == 60, "the high watermark")
        kbroker.kill()
        logs = {topic: place.data / f"{topic}-0" / f"{0:020}.log" for topic in ("middle", "end")}
        data = bytearray(logs["middle"].read_bytes())
        position, lost = next(
            (at, header.base_offset) for at, header in walk_headers(bytes(data)) if at > len(data) / 2
        )
        data[position + 100] ^= 4
        logs["middle"].write_bytes(data)
        logs["end"].write_bytes(logs["end"].read_bytes()[: len(data) // 2])
        kbroker.start()
        expected = {topic: read_topic(place, topic) for topic in logs}
        assert expected["middle"] == [each for each in enumerate(values) if each[0] != lost]
        assert expected["end"] == list(enumerate(values))[: len(expected["end"])]
        assert 20 < len(expected["end"]) < 40
        kbroker.stop()
        assert all((place.data / f"{topic}-0" / "damage.json").exists() for topic in logs)
        apache.start()
        for number, node in enumerate((apache, kbroker)):
            if node is kbroker:
                apache.stop()
                kbroker.start()
            for topic in logs:
                assert read_topic(place, topic) == expected[topic]
                write(topic, [b"more"])
                expected[topic].append((60 + number, b"more"))
        assert not apache.complaints()
    finally:
        for node in nodes:
            node.kill()
