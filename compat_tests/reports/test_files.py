"""Reports about the files of a log: directories that another broker, or many years, may have left."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator

import pytest

from compat_tests.log_interchange.nodes import Apache, Kbroker, Node, Place
from compat_tests.reports.asked import EARLIEST, LATEST, MAX_TIMESTAMP, Asked
from kbroker.wire.record_batch import Record, build_batch
from tests.patience import eventually

QUICK = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "300", "offsets.topic.num.partitions": "1"}
FAR = (1 << 32) - 6
"""The offsets of a log that begins here soon need more than 32 bits."""


class Directory:
    """A broker of one node whose partitions can be given other segments."""

    def __init__(self, place: Place, node: Node) -> None:
        self.place, self.node = place, node
        node.start()
        self.asked = Asked(place.bootstrap)

    def give(self, topic: str, segments: dict[int, bytes], properties: dict[str, str], crashed: bool = False) -> None:
        """Make a topic, and put segments in the place of its own, after a clean stop or as after a crash."""
        self.asked.made_topic(topic, 1, properties)
        self.asked.write(topic, 0)
        self.node.stop()
        log = self.place.data / f"{topic}-0"
        for each in log.iterdir():
            if each.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot") or "epoch" in each.name:
                each.unlink()
        for base, data in segments.items():
            (log / f"{base:020}.log").write_bytes(data)
        for each in self.place.data.iterdir():
            if crashed and (each.name == ".kafka_cleanshutdown" or each.name.endswith("-checkpoint")):
                each.unlink()
        self.start()
        eventually(lambda: self.asked.offset(topic, LATEST).error == 0)

    def start(self) -> None:
        """Start the node, and wait until it is ready."""
        self.node.start()
        self.asked.connection.close()


@pytest.fixture(scope="module")
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    """A broker of the kind under test, with a directory of its own."""
    if request.config.getoption("--bootstrap") or request.config.getoption("--shape"):
        pytest.skip("for a node that the tests start")
    place = Place(tmp_path_factory.mktemp("files"))
    kind = Apache if request.config.getoption("--broker") == "apache" else Kbroker
    made = Directory(place, kind(place, QUICK))
    yield made
    made.asked.close()
    made.node.stop()
    shutil.rmtree(place.directory, ignore_errors=True)


def batch(base: int, *timestamps: int, key: bytes = b"k") -> bytes:
    """A batch as it lies in a log."""
    records = [Record(0, each, key, b"%d" % each) for each in timestamps]
    return build_batch(records, base_offset=base, partition_leader_epoch=0)


def test_offsets_beyond_32_bits(directory: Directory) -> None:
    asked = directory.asked
    first = b"".join(batch(FAR + at, 1_000 + at) for at in range(4))
    second = b"".join(batch(FAR + at, 1_000 + at) for at in range(4, 12))
    directory.give("far", {FAR: first, FAR + 4: second}, {"index.interval.bytes": "1"})
    for _ in range(2):
        eventually(lambda: asked.offset("far", LATEST).error == 0)
        assert [asked.offset("far", each).offset for each in (EARLIEST, LATEST)] == [FAR, FAR + 12]
        assert [asked.offset("far", 1_000 + at)[1:3] for at in range(12)] == [
            (1_000 + at, FAR + at) for at in range(12)
        ]
        assert asked.offset("far", MAX_TIMESTAMP).offset == FAR + 11
        for at in range(12):
            assert asked.records("far", FAR + at)[0].offset == FAR + at
        directory.node.stop()
        directory.start()
    eventually(lambda: asked.send("far", batch(0, 5_000)).error_code == 0)
    assert asked.delete_records("far", FAR + 8) == FAR + 8
    assert [each.offset for each in asked.records("far", FAR + 8)] == list(range(FAR + 8, FAR + 13))


def test_compaction_of_segments_that_are_far_apart(directory: Directory) -> None:
    asked = directory.asked
    bases = (0, 3_000_000_000, 3_000_000_002, 6_000_000_000)
    segments = {base: batch(base, base, base + 1, key=b"k") + batch(base + 2, base, key=b"%d" % base) for base in bases}
    segments[bases[1]] = batch(bases[1], 5, 6, key=b"k")
    properties = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000"}
    directory.give("apart", segments, properties)
    expected = [
        (2, b"0"),
        (3_000_000_003, b"k"),
        (3_000_000_004, b"3000000002"),
        (6_000_000_000, b"k"),
        (6_000_000_001, b"k"),
        (6_000_000_002, b"6000000000"),
    ]
    eventually(lambda: [(each.offset, each.key) for each in asked.records("apart")] == expected)
    assert asked.offset("apart", LATEST).offset == 6_000_000_003
    directory.node.stop()
    directory.start()
    eventually(lambda: asked.offset("apart", LATEST).error == 0)
    assert [(each.offset, each.key) for each in asked.records("apart")] == expected
    assert asked.records("apart", 1_000_000_000)[0].offset == 3_000_000_003


def legacy(offset: int, magic: int, key: bytes | None, value: bytes | None, timestamp: int = 0) -> bytes:
    """A message of the formats before 0.11."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def magics(data: bytes) -> list[tuple[int, int]]:
    """Offset and format of each message or batch."""
    found, at = [], 0
    while at + 17 <= len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        found.append((offset, data[at + 16]))
        at += 12 + length
    return found


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
def test_messages_of_the_old_formats(directory: Directory, crashed: bool) -> None:
    asked, topic = directory.asked, f"old-{crashed}".lower()
    old = b"".join(
        [
            legacy(0, 0, b"k", b"zero"),
            legacy(1, 1, b"k", b"one", 1_000),
            legacy(2, 1, b"other", b"two", 2_000),
            legacy(3, 1, b"k", b"three", 3_000),
        ]
    )
    properties = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "1000"}
    directory.give(topic, {0: old, 4: batch(4, 5_000)}, properties, crashed)
    assert [asked.offset(topic, each).offset for each in (EARLIEST, LATEST)] == [0, 5]
    assert asked.offset(topic, 2_500)[1:3] == (3_000, 3)
    eventually(lambda: asked.send(topic, batch(0, 9_000, key=b"next")).error_code == 0)
    expected = [(2, b"other", 2_000), (4, b"k", 5_000), (5, b"next", 9_000)]

    def compacted() -> bool:
        if {magic for _, magic in magics(bytes(asked.fetch(topic).records or b""))} != {2}:
            return False
        return [(each.offset, each.key, each.timestamp) for each in asked.records(topic)] == expected

    eventually(compacted)
    assert asked.offset(topic, 2_500)[1:3] == (5_000, 4)
