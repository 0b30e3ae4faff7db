"""A member's word for records that it holds, as a request brings it: offsets, and what is to happen to them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from kbroker.cores.share_partitions.settings import SharePartitionSettings
from kbroker.errors import ApiError, ErrorCode


class AcknowledgeType(Enum):
    """The ways in which a member ends, or goes on with, its hold of a record. The values are those of the wire."""

    GAP = 0
    """There is no record at the offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcknowledgementBatch(NamedTuple):
    """Offsets, both inclusive, and the wire's types: one for all, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


def decisions(
    batch: AcknowledgementBatch,
    start_offset: int,
    first_known: int | None,
    end_offset: int,
    settings: Callable[[], SharePartitionSettings],
) -> list[tuple[int, int, AcknowledgeType]]:
    """Ranges of a batch from the start offset on, with what is to happen to them.

    ``first_known``: the first offset of which anything is known, None if there is none; ``end_offset``: that after the
    last one that was ever in delivery. `ApiError` INVALID_REQUEST for offsets or types that make no sense,
    INVALID_RECORD_STATE where nothing is in delivery at the batch or before it, or the group lets nobody renew.
    """
    try:
        kinds = [AcknowledgeType(each) for each in batch.types]
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(batch.types)}") from None
    first, last = batch.first_offset, batch.last_offset
    if last < first or len(kinds) not in (1, last - first + 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The types do not fit the offsets.")
    if last < start_offset:
        return []  # the log does not have them any more, or another member has ended them: a word too late
    if AcknowledgeType.RENEW in kinds and not settings().renew_enabled:
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")
    if first_known is None or first_known > max(first, start_offset):
        raise ApiError(
            ErrorCode.INVALID_RECORD_STATE,
            "Batch record not found. The request batch offsets are not found in the cache.",
        )
    if last >= end_offset:
        which = "first" if first >= end_offset else "last"
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Batch record not found. The {which} offset in request is past acquired records.",
        )
    if len(kinds) == 1:
        return [(max(first, start_offset), last, kinds[0])]
    ranges: list[tuple[int, int, AcknowledgeType]] = []
    for offset, kind in enumerate(kinds, first):
        if offset < start_offset:
            continue
        if ranges and ranges[-1][2] is kind:
            ranges[-1] = (ranges[-1][0], offset, kind)
        else:
            ranges.append((offset, offset, kind))
    return ranges
