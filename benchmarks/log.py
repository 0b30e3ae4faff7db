"""The log alone, without a node: appends, look-ups in small and large logs, compaction, recovery, many partitions.

    python -m benchmarks.log [append] [lookup] [compaction] [recovery] [partitions] [--size MIB] [--dir DIR]

Prints a line for each figure. The machine should do nothing else meanwhile; its load is printed first.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kbroker.log import opening
from kbroker.log.compaction.cleanable import log_to_clean, make_job
from kbroker.log.compaction.compactor import compact
from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validation import AppendOrigin
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import crc32c
from kbroker.wire.compression import CompressionType
from kbroker.wire.record_batch import Record, build_batch

TP = TopicPartition("bench", 0)
MIB = 1 << 20


def batch(count: int, size: int, rng: random.Random | None = None, *, timestamp: int = 1, **options: Any) -> bytes:
    """``count`` records of ``size`` bytes each, with keys of 13 bytes if ``rng`` is given."""
    value = b"v" * (size - (13 if rng is not None else 0))
    records = [
        Record(0, timestamp + i, b"key-%09d" % rng.randrange(200_000) if rng is not None else None, value)
        for i in range(count)
    ]
    return build_batch(records, **options)


def open_log(path: Path, config: LogConfig) -> PartitionLog:
    """An empty log."""
    return opening.open_log(path / str(TP), TP, None, config, OsDisk(), now_ms=0)


def fill(log: PartitionLog, size: int, data: list[bytes]) -> None:
    """Append batches until the log has ``size`` bytes."""
    number = 0
    while log.size < size:
        log.append_as_leader(bytearray(data[number % len(data)]), 0, now_ms=number, origin=AppendOrigin.COORDINATOR)
        number += 1


def best(repeat: int, function: Callable[[], object]) -> float:
    """Seconds of the quickest of several runs."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def append(path: Path, size: int) -> None:
    """Measure an append and a read at the tail."""
    log = open_log(path, LogConfig())
    data = batch(10, 100)

    def appends() -> None:
        for _ in range(2000):
            log.append_as_leader(bytearray(data), 0, now_ms=0)

    def reads() -> None:
        end = log.log_end_offset
        for offset in range(end - 2000, end):
            log.read(offset, MIB)

    print(f"append of a batch of 10 x 100 B: {best(7, appends) / 2000 * 1e6:.1f} us")
    print(f"read at the tail: {best(7, reads) / 2000 * 1e6:.1f} us")


LOOKUPS = 2_000
BATCH_RECORDS = 40
"""Of 100 B in each batch of the logs that are searched, so that a batch is about ``index.interval.bytes``."""


def lookup(path: Path, size: int) -> None:
    """Finding an offset or a timestamp in logs of 1 MiB to 10 GiB, in segments of 1 GiB, the default."""
    first: tuple[float, float] | None = None
    for mib in sorted({1, 64, min(size, 1024), size}):
        where = path / f"{mib}"
        log = open_log(where, LogConfig())
        _fill_with_times(log, mib * MIB)
        log.roll(0)
        rng = random.Random(1)
        end, latest = log.log_end_offset, log.largest_timestamp
        offsets = [rng.randrange(end) for _ in range(LOOKUPS)]
        timestamps = [rng.randrange(1, latest) for _ in range(LOOKUPS)]
        by_offset = _processor_us(log.read, [(offset, 1000) for offset in offsets])
        by_time = _processor_us(log.offset_for_timestamp, [(timestamp,) for timestamp in timestamps])
        if first is None:
            first = by_offset[1], by_time[1]
        print(
            f"{mib:,} MiB in {len(log.segments) - 1} segments: an offset is found in {by_offset[1]:.1f} us of processor"
            f" time ({by_offset[1] / first[0]:.2f} of what it is at 1 MiB; {by_offset[0]:.1f} us the first {LOOKUPS:,}"
            f" times), a timestamp in {by_time[1]:.1f} us ({by_time[1] / first[1]:.2f}; {by_time[0]:.1f} us)"
        )
        log.release()
        shutil.rmtree(where)


def _fill_with_times(log: PartitionLog, size: int) -> None:
    """Fill a log like :func:`fill`, with each batch later than the one before it.

    All are made from the same batch, with new timestamps and a new checksum.
    """
    stamps = struct.Struct(">qq")
    data = bytearray(batch(BATCH_RECORDS, 100))
    stamp = 1
    while log.size < size:
        stamps.pack_into(data, 27, stamp, stamp + BATCH_RECORDS - 1)
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        log.append_as_leader(data, 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
        stamp += BATCH_RECORDS


def _processor_us(find: Callable[..., object], targets: Sequence[tuple[int, ...]]) -> tuple[float, float]:
    """Microseconds of processor time that one takes: the first time round, and the least of some more rounds."""
    rounds = []
    for _ in range(8):
        began = time.process_time()
        for target in targets:
            find(*target)
        rounds.append((time.process_time() - began) / len(targets) * 1e6)
    return rounds[0], min(rounds[1:])


def compaction(path: Path, size: int) -> None:
    """Rounds over 100 B records, by codec."""
    for codec in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD):
        rng = random.Random(1)
        log = open_log(path / codec.name, LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=64 * MIB))
        data = [batch(150, 100, rng, compression=codec) for _ in range(1000)]
        plain = len(batch(150, 100, random.Random(1)))
        count = size * MIB // plain
        for number in range(count):
            log.append_as_leader(bytearray(data[number % len(data)]), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
        log.roll(0)
        log.flush()
        found = log_to_clean(log, None, last_stable_offset=log.log_end_offset, now_ms=0)
        assert found is not None
        job = make_job(found, now_ms=0, map_bytes=1 << 30, read_bytes=MIB)
        began, cpu = time.perf_counter(), time.process_time()
        result = compact(job, log.disk)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        raw = count * plain / 1e6
        print(
            f"compaction, {codec.name.lower()}: {raw:.0f} MB of records ({result.bytes_read / 1e6:.0f} MB in the log)"
            f" in {seconds:.2f} s: {raw / seconds:.0f} MB/s, {raw / cpu_seconds:.0f} MB/s of processor time;"
            f" {result.bytes_written / 1e6:.1f} MB are left"
        )


def _open(path: Path) -> tuple[LogManager, float]:
    began = time.perf_counter()
    manager = LogManager.open([path], OsDisk(), now_ms=0)
    return manager, time.perf_counter() - began


def recovery(path: Path, size: int) -> None:
    """Opening a log after a kill: one unflushed segment of 1 GiB, with and without an idempotent producer."""
    cases: dict[str, dict[str, Any]] = {
        "no producer id": {},
        "one idempotent producer": {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
    }
    for name, options in cases.items():
        where = path / name.replace(" ", "-")
        manager, _ = _open(where)
        log = manager.create_log(TP, None, LogConfig(segment_bytes=MIB * 1024))
        fill(log, (min(size, 1024) - 1) * MIB, [batch(16, 1000, **options)])
        manager.release()
        manager, seconds = _open(where)
        print(f"{min(size, 1024)} MiB unflushed, {name}: open after {seconds:.2f} s")
        manager.release()
        shutil.rmtree(where)


def partitions(path: Path, size: int) -> None:
    """10,000 partitions of some records: opened after a clean stop and after a kill."""
    manager, _ = _open(path)
    data = batch(5, 100)
    for partition in range(10_000):
        log = manager.create_log(TopicPartition("many", partition), None, LogConfig())
        for _ in range(3):
            log.append_as_leader(bytearray(data), 0, now_ms=0)
    manager.close()
    manager, seconds = _open(path)
    print(f"10,000 partitions after a clean stop: open after {seconds:.2f} s")
    manager.release()
    manager, seconds = _open(path)
    print(f"10,000 partitions after a kill: open after {seconds:.2f} s")
    manager.release()


BENCHMARKS: dict[str, Callable[[Path, int], None]] = {
    "append": append,
    "lookup": lookup,
    "compaction": compaction,
    "recovery": recovery,
    "partitions": partitions,
}


def main() -> int:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--size", type=int, help="MiB of the largest log (default 1024, and 10240 for look-ups)")
    parser.add_argument("--dir", help="where the logs are written (default: a temporary directory)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    for name in options.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix="kbroker-log-", dir=options.dir) as directory:
            default = 10 * 1024 if name == "lookup" else 1024
            BENCHMARKS[name](Path(directory), options.size or default)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
