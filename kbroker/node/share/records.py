"""Reads the log for a share group's member: what it gets, and the batches that it is sent for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.cores.share_partitions.partition import Acquired, OffsetRange, SharePartition, without
from kbroker.cores.share_partitions.requests import ShareFetched, ShareFetchParams
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import FileRegion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.log.log_reader import ReadInfo
    from kbroker.log.segments.transaction_index import AbortedTxn
    from kbroker.node.share.led_partition import LedSharePartition
    from kbroker.wire.batch_header import BatchHeader

_NOTHING = ShareFetched()


class _Placed(NamedTuple):
    """A stored batch of a read: its place there, and its header."""

    start: int
    header: BatchHeader

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.header.base_offset, self.header.last_offset)


def readable_bytes(led: LedSharePartition, max_bytes: int, *, committed: bool) -> int:
    """Bytes that a member could be sent now, about: some of the records may be another's."""
    core = led.core
    assert core is not None
    info = _read(led, core, max_bytes, committed=committed, whole=True)
    return 0 if info is None else info.readable


def take(
    led: LedSharePartition, params: ShareFetchParams, max_records: int, max_bytes: int, *, committed: bool, whole: bool
) -> ShareFetched | None:
    """Hand out records to a member. ``whole``: a first batch may be larger than ``max_bytes``.

    With ``committed``, records of aborted transactions are archived. None: nobody gets what was read, but there may be
    more behind it. ``ApiError`` if the log is unreadable.
    """
    core = led.core
    assert core is not None
    info = _read(led, core, max_bytes, committed=committed, whole=whole)
    if info is None or not len(info.records):
        return _NOTHING
    placed = _batches(led, core, info, max_records)
    if not placed:
        return _NOTHING
    acquired = core.acquire(
        params.member_id,
        [each.offsets for each in placed],
        fetch_offset=info.start_offset,
        max_records=max_records,
        batch_size=params.batch_size,
        exact=params.exact,
        now_ms=led.now_ms(),
    )
    if not acquired:
        return _NOTHING if core.next_fetch_offset() == info.start_offset else None
    if committed:
        aborted = _aborted(placed, led.partition.log.aborted_transactions(info.start_offset, info))
        if aborted:
            led.keep(core.archive(aborted, params.member_id))
            acquired = without(acquired, aborted)
            if not acquired:
                return None
    return ShareFetched(_slice(info, placed, acquired), tuple(acquired))


def _read(
    led: LedSharePartition, core: SharePartition, max_bytes: int, *, committed: bool, whole: bool
) -> ReadInfo | None:
    """Batches from the next offset to be handed out on; None if there can be none."""
    partition = led.partition
    log = partition.log
    if core.next_fetch_offset() < log.log_start_offset:
        core.on_log_start(log.log_start_offset)
    if not core.can_acquire():
        return None
    bound = partition.last_stable_offset if committed else partition.high_watermark
    offset = core.next_fetch_offset()
    if offset >= bound:
        return None
    try:
        info = log.read(offset, max_bytes, max_offset=bound, min_one_message=whole)
    except OSError as error:
        partition.storage_failed(error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
    partition.bytes_out += len(info.records)
    partition.requests += 1
    return info


def _batches(led: LedSharePartition, core: SharePartition, info: ReadInfo, max_records: int) -> list[_Placed]:
    """The batches of a read that can matter: as far as the member may get new records."""
    enough = max(info.start_offset, core.end_offset) + max_records
    placed = []
    for start, header in led.partition.log.batches(info):
        placed.append(_Placed(start, header))
        if header.last_offset >= enough:
            break
    return placed


def _aborted(placed: Sequence[_Placed], transactions: Sequence[AbortedTxn]) -> list[OffsetRange]:
    """The batches of aborted transactions."""
    ranges = []
    for each in placed if transactions else ():
        header = each.header
        if header.is_transactional and not header.is_control:
            if any(
                txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in transactions
            ):
                ranges.append(each.offsets)
    return ranges


def _slice(info: ReadInfo, placed: Sequence[_Placed], acquired: Sequence[Acquired]) -> FileRegion | bytes:
    """The batches from the one with the first acquired offset to the one with the last."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    sent = [each for each in placed if each.header.last_offset >= first and each.header.base_offset <= last]
    start, end = sent[0].start, sent[-1].start + sent[-1].header.size
    records = info.records
    if isinstance(records, FileRegion):
        return FileRegion(records.fd, records.position + start, end - start, records.owner)
    return records[start:end]
