"""Rebuilds a coordinator's core from its log: the records are replayed, batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import trio

from kbroker.base import collector
from kbroker.cores.coordinator.result import CoordinatorCore, CoordinatorRecord
from kbroker.node.coordinators.coordinator_shard import C, Shard
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import COMPRESSION_MASK, HEADER_SIZE, BatchHeader, walk_headers
from kbroker.wire.control_batch import parse_end_txn_marker
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import iter_records
from kbroker.wire.record_runs import record_runs

if TYPE_CHECKING:
    from kbroker.node.replicas.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 18
"""Bytes between two turns of other tasks: some milliseconds, also where each batch holds one record."""

_MOST_RECORD = 64 << 20
"""Bytes of a record: no coordinator writes larger ones, but whoever may write to its topic can."""


async def replay_log(shard: Shard[C], manager: ReplicaManager, now_ms: Callable[[], int]) -> tuple[int, int]:
    """Replay a shard's whole log, in chunks between which other tasks run.

    Returns the number of records, and the end of the log that was replayed; both are 0 where there is no log yet.
    `ApiError`, `WireError` or `OSError` if the log cannot be read.
    """
    count = end = 0
    key = shard.partition.topic_partition
    if shard.partition.has_log or manager.log_manager.get_log(key) is not None:
        log = shard.partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            data = log.read_bytes(offset, _CHUNK_BYTES, max_offset=end)
            if not data:
                break
            offset, replayed = replay_chunk(shard.core, key, data, offset, now_ms())
            count += replayed
            await trio.lowlevel.checkpoint()
    return count, end


def replay_chunk(core: CoordinatorCore, key: TopicPartition, data: bytes, offset: int, now_ms: int) -> tuple[int, int]:
    """Replay whole batches. Returns the offset after them, and the number of their records.


    `WireError` for a broken batch. A single record that cannot be read is skipped: the others are worth more than a
    coordinator that does not start.
    """
    count = 0
    with collector.paused():  # what is loaded stays, and would be looked at again and again
        for position, header in walk_headers(data):
            offset = header.next_offset
            if header.is_control:
                marker = parse_end_txn_marker(data, position)
                if marker is not None:
                    core.replay_end_transaction(header.producer_id, marker.commit)
            else:
                count += _replay_batch(core, key, data, position, header, now_ms)
    return offset, count


def _replay_batch(
    core: CoordinatorCore, key: TopicPartition, data: bytes, position: int, header: BatchHeader, now_ms: int
) -> int:
    count, first, producer_id = header.records_count, header.base_offset, header.producer_id
    runs = None
    if not header.attributes & COMPRESSION_MASK:
        runs = record_runs(data, position + HEADER_SIZE, position + header.size, count)
    if runs is not None and producer_id < 0 and core.replay_alike is not None:
        for keys, values in runs:
            if not core.replay_alike(keys, values, first):
                break  # what was taken of it is replayed again, which changes nothing
        else:
            return count
    records: Iterator[tuple[int, bytes | None, bytes | None]]
    if runs is not None and count == header.last_offset_delta + 1:  # compaction has left no gap
        alike = (zip(keys, values, strict=True) for keys, values in runs)
        records = ((offset, *record) for offset, record in enumerate(chain.from_iterable(alike), first))
    else:
        in_windows = iter_records(data, position, max_record=_MOST_RECORD)
        records = ((offset, record_key, value) for offset, _, record_key, value, _ in in_windows)
    replayed = 0
    for offset, record_key, value in records:
        replayed += 1
        if record_key is None:
            continue
        try:
            core.replay(CoordinatorRecord(record_key, value), now_ms, offset=offset, producer_id=producer_id)
        except WireError as error:
            logger.warning("%s: record at offset %d is unreadable and skipped: %s", key, offset, error)
    return replayed
