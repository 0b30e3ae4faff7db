"""What a follower does with what its leader answers: append, cut its log back, begin anew, or ask again later.

Pure: it decides from the follower's offsets and epochs; ``node.replica_fetcher`` acts. The rules are those of KIP-101
(cut where the epochs part, not at the high watermark), KIP-279 (epochs that only one side knows) and KIP-320 (the
leader tells with the fetch that the logs have parted), as in Kafka's ``AbstractFetcherThread``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs
from kbroker.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class FollowerLog:
    """The follower's side of a partition."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: LeaderEpochs


@dataclass(frozen=True, slots=True)
class Append:
    """Write the records, if any, and take over the leader's high watermark and log start offset."""

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Drop everything from ``offset`` on, and fetch again from there."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop everything: the leader has nothing below ``offset`` any more."""

    offset: int


@dataclass(frozen=True, slots=True)
class AskForBounds:
    """What was fetched is outside of the leader's log: ask where that begins and ends."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Nothing came of it now. ``error`` is the leader's."""

    error: ErrorCode


Action = Append | TruncateTo | StartAt | AskForBounds | Retry


class OffsetOutOfRange(Exception):
    """A fetch that the leader cannot place in its log."""


def find_divergence(
    epochs: LeaderEpochs,
    log_start_offset: int,
    log_end_offset: int,
    *,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> OffsetAndEpoch | None:
    """The leader's part: where its log parts from that of one who has everything below ``fetch_offset``, the last of it
    from ``last_fetched_epoch``; None if the one continues the other (``Partition.readRecords``)."""
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.epoch == UNDEFINED_EPOCH or end.offset == UNDEFINED_OFFSET or fetch_offset < log_start_offset:
        raise OffsetOutOfRange
    if end.epoch < last_fetched_epoch or end.offset < fetch_offset:
        return end
    return None


def begin(log: FollowerLog) -> TruncateTo | None:
    """What comes before the first fetch from a leader: records without epochs count only as far as committed."""
    if log.epochs.latest == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
        return TruncateTo(max(log.high_watermark, log.log_start_offset))
    return None


def on_fetched(log: FollowerLog, data: Any) -> Action:
    """Decide by a response's ``PartitionData``, which answers a fetch from the follower's log end offset."""
    error = data.error_code
    if error:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return AskForBounds()
        return Retry(ErrorCode.of(error))
    diverging = data.diverging_epoch
    if diverging is not None and diverging.epoch >= 0:
        return TruncateTo(truncation_offset(log, diverging.epoch, diverging.end_offset))
    return Append(data.high_watermark, data.log_start_offset)


def truncation_offset(log: FollowerLog, leader_epoch: int, leader_end_offset: int) -> int:
    """Where to cut, the leader's largest epoch not above the follower's last being ``leader_epoch``, which ends at
    ``leader_end_offset`` (``AbstractFetcherThread.getOffsetTruncationState``)."""
    end = log.log_end_offset
    if leader_end_offset == UNDEFINED_OFFSET:
        return min(log.high_watermark, end)
    own = log.epochs.end_offset_for(leader_epoch, end)
    if own.offset == UNDEFINED_OFFSET:
        # No epochs, or none so new: all that the follower has is of older epochs.
        return min(leader_end_offset, end)
    if own.epoch != leader_epoch:
        # Only the leader knows that epoch (KIP-279): what follows the epochs before it goes, and the next fetch
        # tells about those.
        return min(own.offset, end)
    return min(own.offset, leader_end_offset, end)


def on_bounds(log: FollowerLog, leader_log_start_offset: int, leader_log_end_offset: int) -> Action | None:
    """After :class:`AskForBounds` (``AbstractFetcherThread.fetchOffsetAndTruncate``); None: just fetch again."""
    if leader_log_end_offset < log.log_end_offset:
        # The follower was ahead of a leader that was elected uncleanly.
        return TruncateTo(leader_log_end_offset)
    if leader_log_start_offset > log.log_end_offset:
        return StartAt(leader_log_start_offset)
    return None


def follower_high_watermark(own: int, leaders: int, log_end_offset: int) -> int:
    """What is committed as far as a follower can know. What it knew to be so under an earlier leader still is, though
    a new leader hears of it only from its followers."""
    return min(max(own, leaders), log_end_offset)
