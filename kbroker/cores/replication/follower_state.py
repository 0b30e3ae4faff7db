"""A follower's decisions on its leader's answers: append, truncate its log, restart it elsewhere, or fetch again later.

Pure: it decides from the follower's offsets and epochs; ``node.replicas.replica_fetcher`` acts. The rules are those of
KIP-101 (truncate where the epochs diverge, not at the high watermark), KIP-279 (epochs that only one side knows) and
KIP-320 (the Fetch response reports that the logs diverge), as in Kafka's ``AbstractFetcherThread``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs
from kbroker.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kbroker.wire.messages.fetch import PartitionData


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
    """Ask for the bounds of the leader's log (ListOffsets): the fetch offset is outside of it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Fetch again later. ``error`` is the leader's."""

    error: ErrorCode


Action = Append | TruncateTo | StartAt | AskForBounds | Retry


class OffsetOutOfRange(Exception):
    """A fetch that the leader cannot place in its log."""


def find_divergence(
    epochs: LeaderEpochs, log_start_offset: int, log_end_offset: int, *, fetch_offset: int, last_fetched_epoch: int
) -> OffsetAndEpoch | None:
    """The epoch and end offset where a leader's log diverges from a follower's; None if it continues that log.

    The leader asks this. The follower has everything below ``fetch_offset``, the last of it from
    ``last_fetched_epoch`` (``Partition.readRecords``). :class:`OffsetOutOfRange` if it fetches below the log's start,
    or from an epoch that the leader does not know.
    """
    if last_fetched_epoch == epochs.latest != UNDEFINED_EPOCH and log_start_offset <= fetch_offset <= log_end_offset:
        return None  # mostly
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.epoch == UNDEFINED_EPOCH or end.offset == UNDEFINED_OFFSET or fetch_offset < log_start_offset:
        raise OffsetOutOfRange
    if end.epoch < last_fetched_epoch or end.offset < fetch_offset:
        return end
    return None


def begin(log: FollowerLog) -> TruncateTo | None:
    """The truncation before the first fetch from a leader: a log without epochs keeps its committed records only."""
    if log.epochs.latest == UNDEFINED_EPOCH and log.log_end_offset > log.high_watermark:
        return TruncateTo(max(log.high_watermark, log.log_start_offset))
    return None


def on_fetched(log: FollowerLog, data: PartitionData) -> Action:
    """The action for a partition's part of a response, the answer to a fetch from the follower's log end offset."""
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
    """The offset to truncate to (``AbstractFetcherThread.getOffsetTruncationState``).

    ``leader_epoch`` is the leader's largest epoch that is not above the follower's last one. It ends at
    ``leader_end_offset`` in the leader's log.
    """
    end = log.log_end_offset
    if leader_end_offset == UNDEFINED_OFFSET:
        return min(log.high_watermark, end)
    own = log.epochs.end_offset_for(leader_epoch, end)
    if own.offset == UNDEFINED_OFFSET:
        # The follower has no epochs, or only older ones.
        return min(leader_end_offset, end)
    if own.epoch != leader_epoch:
        # Only the leader knows that epoch (KIP-279): truncate to the end of the follower's epochs before it. The next
        # fetch compares those.
        return min(own.offset, end)
    return min(own.offset, leader_end_offset, end)


def on_bounds(log: FollowerLog, leader_log_start_offset: int, leader_log_end_offset: int) -> Action | None:
    """The action after :class:`AskForBounds` (``AbstractFetcherThread.fetchOffsetAndTruncate``); None: fetch again."""
    if leader_log_end_offset < log.log_end_offset:
        # The follower was ahead of a leader that was elected uncleanly.
        return TruncateTo(leader_log_end_offset)
    if leader_log_start_offset > log.log_end_offset:
        return StartAt(leader_log_start_offset)
    return None


def follower_high_watermark(own: int, leaders: int, log_end_offset: int) -> int:
    """A follower's high watermark: the larger of its own and the leader's, within its log.

    Its own one never goes back: offsets committed under an earlier leader stay committed, though a new leader learns
    of them only from its followers' fetches.
    """
    return min(max(own, leaders), log_end_offset)
