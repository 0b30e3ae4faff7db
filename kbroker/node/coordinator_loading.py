"""A coordinator's core is rebuilt from its log: what is read is replayed, batch by batch."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kbroker.coordinator.core import CoordinatorCore
from kbroker.coordinator.result import CoordinatorRecord
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.control_batch import parse_end_txn_marker
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import iter_records

logger = logging.getLogger(__name__)


def replay_chunk(core: CoordinatorCore, key: TopicPartition, data: bytes, offset: int, now_ms: int) -> tuple[int, int]:
    """Replay whole batches; the offset after them, and the number of their records. `WireError` for a broken batch.

    A record that cannot be read is skipped: the others are worth more than a coordinator that does not start.
    """
    count = 0
    with _without_gc():
        for position, header in walk_headers(data):
            offset = header.next_offset
            if header.is_control:
                marker = parse_end_txn_marker(data, position)
                if marker is not None:
                    core.replay_end_transaction(header.producer_id, marker.commit)
            else:
                count += _replay_batch(core, key, data, position, header.producer_id, now_ms)
    return offset, count


def _replay_batch(
    core: CoordinatorCore, key: TopicPartition, data: bytes, position: int, producer_id: int, now_ms: int
) -> int:
    replay = core.replay
    count = 0
    for offset, _, record_key, value, _ in iter_records(data, position):
        count += 1
        if record_key is None:
            continue
        try:
            replay(CoordinatorRecord(record_key, value), now_ms, offset=offset, producer_id=producer_id)
        except WireError as error:
            logger.warning("%s: record at offset %d is unreadable and skipped: %s", key, offset, error)
    return count


@contextmanager
def _without_gc() -> Iterator[None]:
    """What is loaded stays, so looking through it for garbage again and again is lost time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
