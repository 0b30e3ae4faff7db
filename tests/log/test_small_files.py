"""Checkpoints, properties, leader epochs and indexes: their bytes, and what is made of wrong ones."""

from __future__ import annotations

import random

import pytest

from kbroker.log import checkpoint_files as checkpoints
from kbroker.log.checkpoint_files import CorruptCheckpoint, MetaProperties
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.log.log_config import LogConfig
from kbroker.log.segments.open_files import OpenFiles
from kbroker.log.segments.sparse_index import BLOCK, PAGE, CorruptIndex, OffsetIndex, SparseIndex, TimeIndex
from kbroker.types import TopicPartition, Uuid


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_dirs("/d")
    return disk


def test_offset_checkpoints(disk: FakeDisk) -> None:
    offsets = {TopicPartition("b", 2): 5, TopicPartition("a", 10): 1 << 40}
    checkpoints.write_offsets(disk, "/d/f", offsets)
    assert disk.read_bytes("/d/f") == b"0\n2\na 10 1099511627776\nb 2 5\n"
    assert checkpoints.read_offsets(disk, "/d/f") == offsets
    assert checkpoints.read_offsets(disk, "/d/none") is None
    for nothing in (b"", b"0", b"0\n"):
        disk.write_bytes("/d/f", nothing)
        assert checkpoints.read_offsets(disk, "/d/f") is None
    checkpoints.write_offsets(disk, "/d/f", {})
    assert checkpoints.read_offsets(disk, "/d/f") == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1\n0\n", "version '1'"),
        (b"7", "it ends before"),
        (b"0\n2\na 1 1\n", "2 entries announced, 1 found"),
        (b"0\n-1\n", "malformed number of entries"),
        (b"0\n1\na 1\n", "malformed line 'a 1'"),
        (b"0\n1\na 1 x\n", "malformed line"),
        (b"0\n1\na 1 1", "its last line is cut off"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_wrong_checkpoints_are_told(disk: FakeDisk, content: bytes, reason: str) -> None:
    disk.write_bytes("/d/f", content)
    with pytest.raises(CorruptCheckpoint, match=f"/d/f: {reason}"):
        checkpoints.read_offsets(disk, "/d/f")


def test_partition_metadata(disk: FakeDisk) -> None:
    assert checkpoints.read_partition_metadata(disk, "/d") is None
    topic_id = Uuid(bytes(range(16)))
    for sync in (False, True):
        checkpoints.write_partition_metadata(disk, "/d", topic_id, sync=sync)
        assert disk.read_bytes("/d/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
        assert checkpoints.read_partition_metadata(disk, "/d") == topic_id
    for content in (b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\n", b"\xff"):
        disk.write_bytes("/d/partition.metadata", content)
        with pytest.raises(CorruptCheckpoint, match=r"/d/partition\.metadata: "):
            checkpoints.read_partition_metadata(disk, "/d")


def test_meta_properties(disk: FakeDisk) -> None:
    assert checkpoints.read_meta_properties(disk, "/d") is None
    properties = MetaProperties("AbCdEf==", 7, Uuid(bytes(range(16))))
    checkpoints.write_meta_properties(disk, "/d", properties)
    assert checkpoints.read_meta_properties(disk, "/d") == properties
    # As java.util.Properties writes it.
    disk.write_bytes("/d/meta.properties", b"#\n#Sat Nov 21\nnode.id=7\nversion=1\ncluster.id=AbCdEf\\=\\=\n")
    assert checkpoints.read_meta_properties(disk, "/d") == MetaProperties("AbCdEf==", 7, None)
    for content in (b"version=0\nbroker.id=1\n", b"version=1\nnode.id=1\n", b"version=1\nnode.id=x\ncluster.id=a\n"):
        disk.write_bytes("/d/meta.properties", content)
        with pytest.raises(CorruptCheckpoint, match=r"/d/meta\.properties: "):
            checkpoints.read_meta_properties(disk, "/d")


def test_the_marker_of_a_clean_stop(disk: FakeDisk) -> None:
    assert checkpoints.read_clean_shutdown(disk, "/d") is None
    checkpoints.write_clean_shutdown(disk, "/d", broker_epoch=12)
    assert checkpoints.read_clean_shutdown(disk, "/d") == 12
    disk.write_bytes("/d/.kafka_cleanshutdown", b"")
    assert checkpoints.read_clean_shutdown(disk, "/d") == -1
    checkpoints.remove_clean_shutdown(disk, "/d")
    assert checkpoints.read_clean_shutdown(disk, "/d") is None


# -- leader epochs: the cases of KIP-101 and KIP-279


def test_epochs_and_their_ends() -> None:
    epochs = LeaderEpochs([(2, 0), (3, 10), (7, 30)])
    assert epochs.end_offset_for(-1, 50) == (-1, -1)
    assert epochs.end_offset_for(1, 50) == (0, 1)
    assert epochs.end_offset_for(2, 50) == (10, 2)
    assert epochs.end_offset_for(3, 50) == (30, 3)
    assert epochs.end_offset_for(5, 50) == (30, 3)
    assert epochs.end_offset_for(7, 50) == (50, 7)
    assert epochs.end_offset_for(8, 50) == (-1, -1)
    assert [epochs.epoch_for(offset) for offset in (0, 9, 10, 29, 30, 99)] == [2, 2, 3, 3, 7, 7]
    assert LeaderEpochs([(4, 5)]).epoch_for(4) is None
    assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)


def test_an_epoch_that_contradicts_replaces() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    assert not epochs.assign(3, 25)
    assert epochs.assign(4, 20)
    assert epochs.entries == [(1, 0), (2, 10), (4, 20)]
    assert epochs.assign(3, 15)
    assert epochs.entries == [(1, 0), (2, 10), (3, 15)]
    assert not epochs.maybe_assign(3, 17)
    assert not epochs.maybe_assign(1, 17)
    assert epochs.maybe_assign(9, 17)
    assert epochs.latest == 9


def test_epochs_are_cut_at_both_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    epochs.truncate_from_end(20)
    assert epochs.entries == [(1, 0), (2, 10)]
    assert (epochs.latest, epochs.dirty) == (2, True)
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15)]
    epochs.truncate_from_start(5)
    assert epochs.earliest == (2, 15)
    epochs.truncate_from_end(0)
    assert (epochs.latest, epochs.entries) == (-1, [])


def test_the_epoch_file(disk: FakeDisk) -> None:
    assert LeaderEpochs.read(disk, "/d") is None
    epochs = LeaderEpochs([(0, 0), (5, 100)])
    epochs.write(disk, "/d", sync=True)
    assert disk.read_bytes("/d/leader-epoch-checkpoint") == b"0\n2\n0 0\n5 100\n"
    again = LeaderEpochs.read(disk, "/d")
    assert again is not None
    assert (again.entries, again.latest, again.dirty) == (epochs.entries, 5, False)
    LeaderEpochs().write(disk, "/d", sync=True)
    again = LeaderEpochs.read(disk, "/d")
    assert again is not None, "it says that there are none"
    assert again.entries == []
    disk.write_bytes("/d/leader-epoch-checkpoint", b"0\n1\n-3 0\n")
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.read(disk, "/d")


# -- indexes


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@pytest.mark.parametrize("count", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_entries_are_found_in_memory_and_in_the_file(disk: FakeDisk, kind: type[SparseIndex], count: int) -> None:
    rng = random.Random(count)
    keys = sorted(rng.sample(range(1, 100_000), count))
    entries = [(key, key * 3) for key in keys]
    index = kind(disk, "/d/i", exists=False)
    for entry in entries:
        index.append(*entry)
    for written in (False, True, True):
        if written:
            index.write_out(sync=True)
            assert disk.read_bytes("/d/i") == b"".join(kind.ENTRY.pack(*entry) for entry in entries)
            index = kind(disk, "/d/i", exists=True)
        assert len(index) == count
        assert index.last() == (entries[-1] if entries else None)
        targets = rng.sample(range(100_100), 300) + keys[:50] + keys[-50:]
        for target in targets:
            expected = max((entry for entry in entries if entry[0] <= target), default=None)
            assert index.floor(target) == expected
            assert index.floor_by_value(target * 3 + 1) == expected


@pytest.mark.parametrize("column", [0, 1])
def test_indexes_are_truncated_anywhere(disk: FakeDisk, column: int) -> None:
    rng = random.Random(7)
    for _ in range(60):
        disk.remove("/d/i")
        count = rng.randrange(2 * BLOCK)
        index = OffsetIndex(disk, "/d/i", exists=False)
        entries = [(key * 2, key * 2 + 1) for key in range(1, count + 1)]
        for entry in entries:
            index.append(*entry)
        if rng.random() < 0.5:
            index.write_out()
        bound = rng.randrange(2 * count + 10)
        (index.truncate_from_value if column else index.truncate_from_key)(bound)
        kept = [entry for entry in entries if entry[column] < bound]
        assert len(index) == len(kept)
        assert index.last() == (kept[-1] if kept else None)
        index.append(1_000_000, 1_000_000)
        index.write_out()
        assert disk.read_bytes("/d/i") == b"".join(OffsetIndex.ENTRY.pack(*e) for e in [*kept, (1_000_000, 1_000_000)])


def test_what_is_searched_meanwhile_grows_and_is_cut(disk: FakeDisk) -> None:
    """Pages and first entries that searches keep are never those of entries that are not there any more."""
    rng = random.Random(3)
    index = OffsetIndex(disk, "/d/i", exists=False)
    entries: list[tuple[int, int]] = []
    for _ in range(300):
        key, value = entries[-1] if entries else (0, 0)
        for _ in range(rng.randrange(2 * PAGE)):
            key, value = key + rng.randrange(1, 9), value + rng.randrange(1, 9)
            entries.append((key, value))
            index.append(key, value)
        change = rng.random()
        if change < 0.2:
            index.write_out()
        elif change < 0.5:
            bound = rng.randrange(key + 2)
            index.truncate_from_key(bound)
            entries = [entry for entry in entries if entry[0] < bound]
        elif change < 0.55:
            index.reset()
            entries = []
        for _ in range(20):
            target = rng.randrange(key + 10)
            assert index.floor(target) == max((entry for entry in entries if entry[0] <= target), default=None)
            by_value = max((entry for entry in entries if entry[1] <= target), default=None)
            assert index.floor_by_value(target) == by_value


@pytest.mark.parametrize("count", [50, 5_000, 300_000])
def test_a_search_takes_one_read_however_many_entries_there_are(disk: FakeDisk, count: int) -> None:
    index = OffsetIndex(disk, "/d/i", exists=False)
    for number in range(1, count + 1):
        index.append(number * 10, number * 4096)
    index.write_out()
    index = OffsetIndex(disk, "/d/i", exists=True, files=OpenFiles(disk))
    reads = 0

    def count_reads(operation: str, path: str) -> None:
        nonlocal reads
        reads += operation == "read"

    disk.on_operation = count_reads
    assert index.floor(5) is None
    assert reads <= 4 + (count // PAGE).bit_length()  # the check of the file, and a first binary search
    rng = random.Random(1)
    for _ in range(30_000 if count > 5_000 else 2_000):
        index.floor(rng.randrange(count * 10))  # until the first entries of all pages are known
    reads = 0
    for _ in range(1_000):
        number = rng.randrange(1, count + 1)
        assert index.floor(number * 10 + 9) == (number * 10, number * 4096)
    assert reads <= 1_000


def test_index_files_that_are_kept_open_are_bounded(disk: FakeDisk) -> None:
    files = OpenFiles(disk, 9)
    indexes = []
    for number in range(8):
        index = OffsetIndex(disk, f"/d/{number}", exists=False, files=files)
        index.append(number, number + 1)
        index.drop_memory()
        indexes.append(index)
    for _ in range(2):
        for number, index in enumerate(indexes):
            assert index.floor(100) == (number, number + 1)
    assert len(files.open_indexes) == 3
    for index in indexes:
        index.close()
    assert not files.open_indexes


def test_wrong_indexes_are_told(disk: FakeDisk) -> None:
    pack = OffsetIndex.ENTRY.pack
    with pytest.raises(CorruptIndex, match="/d/i: the file is missing"):
        len(OffsetIndex(disk, "/d/i", exists=True))
    for content, reason in [
        (b"x" * 9, "no multiple of 8"),
        (pack(0, 0) * 3, "impossible"),
        (pack(5, 10) + pack(4, 20), "does not follow"),
        (pack(-5, 10), "impossible"),
    ]:
        disk.write_bytes("/d/i", content)
        with pytest.raises(CorruptIndex, match=f"/d/i: .*{reason}"):
            len(OffsetIndex(disk, "/d/i", exists=True))
    disk.write_bytes("/d/i", pack(1, 10) + pack(9, 20) + pack(5, 30) + pack(10, 40))
    with pytest.raises(CorruptIndex, match="not in order"):
        OffsetIndex(disk, "/d/i", exists=True).floor(6)


def test_the_time_index_takes_only_growing_times(disk: FakeDisk) -> None:
    index = TimeIndex(disk, "/d/t", exists=False)
    for timestamp, offset in [(-1, 0), (5, 1), (5, 2), (3, 3), (6, 4)]:
        index.maybe_append(timestamp, offset)
    assert len(index) == 2
    assert index.floor(5) == (5, 1)
    assert index.floor(100) == (6, 4)
    assert index.floor(4) is None


# -- configuration


def test_log_config_from_kafkas_names() -> None:
    config = LogConfig.from_values(
        {
            "segment.bytes": "1048576",
            "cleanup.policy": "compact, delete",
            "min.cleanable.dirty.ratio": 0.25,
            "retention.ms": -1,
            "follower.replication.throttled.replicas": "*",
            "flush.ms": None,
        }
    )
    assert config.segment_bytes == 1048576
    assert config.compact
    assert config.delete
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.retention_ms == -1
    assert config.flush_ms == LogConfig().flush_ms == 2**63 - 1
    assert LogConfig.from_values({"segment.bytes": 5 << 20, "internal.segment.bytes": 100}).segment_bytes == 100
