"""A log directory is read as its topic is: in small parts, and whatever retention takes first is told."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from kbroker.client.reader import Chunk, Skipped
from kbroker.log import opening
from kbroker.log.checkpoint_files import HIGH_WATERMARKS, write_offsets, write_partition_metadata
from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.tables.sources import DirectorySource
from kbroker.types import TopicPartition, Uuid
from tests.log.log_helpers import NOW, append

TP = TopicPartition("orders", 0)


def log_directory(path: Path, batches: list[list[bytes]], segment_bytes: int) -> DirectorySource:
    """A directory whose one partition has a segment for each batch."""
    log = opening.open_log(path / "orders-0", TP, None, LogConfig(segment_bytes=segment_bytes), OsDisk(), now_ms=NOW)
    for values in batches:
        append(log, values)
    assert len(log.segments) == len(batches)
    write_partition_metadata(OsDisk(), str(path / "orders-0"), Uuid(bytes(15) + b"\1"))
    write_offsets(OsDisk(), str(path / HIGH_WATERMARKS), {TP: log.log_end_offset})
    source = DirectorySource(str(path), "orders")
    source.begin({0: 0})
    return source


def test_parts_of_large_records_are_small(tmp_path: Path) -> None:
    source = log_directory(tmp_path, [[b"x" * 600_000]] * 40, 1 << 20)
    sizes: list[int] = []
    while came := source.poll(0):
        sizes += [sum(len(record.value or b"") for record in each.records) for each in came if isinstance(each, Chunk)]
    assert sum(sizes) == 24_000_000 and max(sizes) < 10_000_000


def test_retention_that_comes_first(tmp_path: Path) -> None:
    """While a part is read, the next ones go: each record is given, or told to be gone."""
    source = log_directory(tmp_path, [[b"%d" % number for number in range(1000)]] * 20, 12_000)
    found: list[int] = []
    gone: list[Skipped] = []
    while came := source.poll(0):
        for each in came:
            if isinstance(each, Skipped):
                gone.append(each)
                continue
            found += [record.offset for record in each.records]
            for segment in sorted((tmp_path / "orders-0").glob("*.log"))[:-1]:
                segment.unlink()
    assert gone == [Skipped(0, 17_000, 19_000)]
    assert found == [*range(17_000), *range(19_000, 20_000)]
