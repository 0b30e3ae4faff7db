"""Brings the state of producers to the end of a log by the headers of its batches, and its markers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kbroker.log.file_names import ABORTED_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kbroker.log.full_disk import unless_full
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment import Segment
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.log.segments.transaction_index import AbortedTxn, TransactionIndex
from kbroker.wire.batch_header import BatchHeader
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import parse_end_txn_marker

if TYPE_CHECKING:
    from kbroker.log.durable_log import DurableLog

logger = logging.getLogger(__name__)

_RECALLED = 4 << 20
"""Bytes at a log's end in which batches are looked for that may be sent again, about."""


def replay_producers(
    producers: ProducerStateManager,
    segments: list[Segment],
    log_end_offset: int,
    before_read: Callable[[], None] = lambda: None,
) -> None:
    """Bring the producers from ``map_end_offset`` to the log's end by the batch headers (and the markers).

    ``before_read`` is called before each piece of a file is read.
    """
    start = producers.map_end_offset
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        if next_base <= start or not segment.size:
            continue
        if index >= len(segments) - 2:
            snapshot_at(producers, segment.base_offset)
        try:
            located = segment.locate(max(start, segment.base_offset))
            if located is None:
                continue
            for position, header in segment.scan(located.position, before_read=before_read):
                # The log start may lie within a batch, which counts as a whole.
                if header.producer_id >= 0 and header.next_offset > start:
                    replay_batch(producers, segment, position, header)
        except CorruptSegment as error:
            logger.warning("%s; producer state after it in this segment is not known", error)
    producers.update_map_end_offset(log_end_offset)


def recall_batches(log: DurableLog) -> None:
    """Read the batches at a log's end that producers may send again: they were read from a snapshot, which has one."""
    seen = ProducerStateManager(log.topic_partition, log.directory, log.disk, names=())
    left, tail = _RECALLED, list[Segment]()
    for segment in reversed(log.segments):
        tail.insert(0, segment)
        left -= segment.size
        if left <= 0:
            break
    for segment in tail:
        try:
            for _, header in segment.scan(segment.cut_position(0, -left) if segment is tail[0] else 0):
                if not header.is_control:
                    seen.update(header)
        except CorruptSegment:
            return  # whoever reads there is told; the snapshot's batches stay known
    log.producers.recall_batches(seen)


def snapshot_at(producers: ProducerStateManager, offset: int) -> None:
    """Write a snapshot there: the next recovery, of the last segments, need not begin where this one did."""
    if producers.map_end_offset < offset:
        producers.update_map_end_offset(offset)
        with unless_full():
            producers.take_snapshot(sync=False)


def replay_batch(producers: ProducerStateManager, segment: Segment, position: int, header: BatchHeader) -> None:
    """Take in one batch that the log holds already."""
    marker = None
    if header.is_control and header.is_transactional:
        try:
            marker = parse_end_txn_marker(segment.batch_bytes(position, header))
        except CorruptRecord:
            return
    completed = producers.update(header, marker)
    if completed is not None:
        last_stable_offset = producers.last_stable_offset(completed)
        index = segment.txn_index
        if completed.is_aborted and (index.last_offset is None or index.last_offset < completed.last_offset):
            index.append(AbortedTxn.of(completed, last_stable_offset))
        producers.complete_txn(completed)


def damaged_txn_indexes(
    segments: list[Segment], names: Collection[str], first_recovered: int | None, check: Callable[[], None]
) -> list[TransactionIndex]:
    """Returns the transaction indexes that have to be made anew, by replaying the log from the first one's segment.

    So has one whose file is empty, or not among the ``names`` in the directory, unless it is to be made anew with its
    segment, as from ``first_recovered`` on. ``check`` is called before each.
    """
    damaged = []
    for segment in segments:
        stem = file_name(segment.base_offset)
        is_there, is_marked = stem + TXN_INDEX_SUFFIX in names, stem + ABORTED_SUFFIX in names
        if is_there or is_marked:
            index = segment.txn_index
            check()
            try:
                index.sanity_check()
                is_known = first_recovered is None or segment.base_offset < first_recovered
                if is_known and not len(index):
                    raise CorruptIndex(f"{index.path}: it is {'empty' if is_there else 'missing'}")
                if len(index) and not is_marked:
                    with unless_full():
                        index.mark()  # Apache Kafka has made it
            except CorruptIndex as error:
                logger.warning("%s; rebuilding it", error)
                damaged.append(index)
    return damaged
