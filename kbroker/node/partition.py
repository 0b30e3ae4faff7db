"""One partition on this node: its state in replication, and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.gathered_batches import GatheredBatches
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_state import TV_UNKNOWN
from kbroker.log.validation import AppendOrigin
from kbroker.raft_metadata.controller.topic_names import INTERNAL_TOPICS
from kbroker.replication.partition_state import PartitionState
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.log.partition_log import AppendInfo, PartitionLog
    from kbroker.log.producer_state import VerificationGuard
    from kbroker.node.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1  # flush.messages by default
ALL_BYTES = 2**63 - 1
"""As many as any waiting fetch may want."""
_NOBODY: list[Callable[[ApiError], None]] = []
"""Of a partition for which nothing is gathered: one for all, which stays empty."""


class Partition:
    """One partition on this node: its state in replication, and its log.

    The log of a new partition touches the disk only when it is first written, so that a topic of a thousand
    partitions is led at once. A partition without files is an empty partition, as after a crash in Kafka.
    """

    __slots__ = (
        "_gathered",
        "_log",
        "_manager",
        "config",
        "is_internal",
        "is_new",
        "offline",
        "state",
        "topic_id",
        "topic_partition",
        "when_unwritten",
    )

    def __init__(
        self,
        manager: ReplicaManager,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        is_new: bool = True,
    ) -> None:
        self._manager = manager
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.state = PartitionState(manager.node_id)
        self.state.set_min_insync_replicas(config.min_insync_replicas)
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.is_new = is_new
        """It came into being while this node ran, so no log dir that is offline holds its log."""
        self.offline = False
        self._log: PartitionLog | None = None
        self._gathered: GatheredBatches | None = None
        self.when_unwritten = _NOBODY
        """To be told, of those whose batches `gather` has taken in this turn, when they cannot be written."""

    @property
    def log(self) -> PartitionLog:
        """The log; ``ApiError(KAFKA_STORAGE_ERROR)`` when its directory has failed."""
        if self._log is None:
            self._manager.open_log(self)
            assert self._log is not None
        if self.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.topic_partition} is offline")
        return self._log

    @property
    def has_log(self) -> bool:
        """Whether the log exists already."""
        return self._log is not None

    def attach_log(self, log: PartitionLog, high_watermark: int) -> None:
        """Give the partition its log; the high watermark is what the checkpoint says, within the log's bounds."""
        self._log = log
        state = self.state
        state.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        if state.is_leader:
            self.on_leadership(log)
        log.on_high_watermark_updated(state.high_watermark)  # or transactions that ended before would seem to go on

    def set_config(self, config: LogConfig) -> None:
        """The topic's configuration has changed."""
        self.config = config
        self.state.set_min_insync_replicas(config.min_insync_replicas)
        if self._log is not None and not self.offline:
            self._log.update_config(config)

    def replace_log(self, log: PartitionLog) -> None:
        """The same log, in another directory."""
        self._log = log
        log.on_high_watermark_updated(self.state.high_watermark)

    def on_leadership(self, log: PartitionLog) -> None:
        """The log begins the leader epoch at its end; alone in the ISR, all that it holds is committed.

        Otherwise the high watermark stays until the followers have fetched in this epoch.
        """
        state = self.state
        log.leader_epochs.assign(state.leader_epoch, log.log_end_offset)
        state.leader_epoch_start_offset = log.log_end_offset
        if state.maybe_advance_high_watermark(log.log_end_offset):
            log.on_high_watermark_updated(state.high_watermark)

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` asks for a flush before what was appended may be acknowledged."""
        limit = self.config.flush_messages
        if limit == _NEVER:
            return False
        log = self.log
        return log.log_end_offset - log.recovery_point >= limit

    def acknowledges_at_once(self, required_acks: int) -> bool:
        """Whether an append with ``acks`` of 1 or -1 waits for nothing: neither for a flush nor for a follower."""
        return self.config.flush_messages == _NEVER and (required_acks == 1 or not self.state.progress)

    @property
    def high_watermark(self) -> int:
        """The exclusive end of what is committed."""
        if self._log is None:
            return self.log.log_end_offset
        return self.state.high_watermark

    @property
    def high_watermark_lags(self) -> bool:
        """Whether it is from before this leader's epoch: something may be committed that is not known to be so."""
        state = self.state
        return state.is_leader and state.leader_epoch_start_offset > self.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of what read_committed may see."""
        unstable = self.log.first_unstable_offset
        high_watermark = self.state.high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client by the leader epoch it believes in (-1: none), as ``Partition.checkCurrentLeaderEpoch``."""
        epoch = self.state.leader_epoch
        if current_leader_epoch < 0 or current_leader_epoch == epoch:
            return
        if current_leader_epoch < epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"the request's leader epoch {current_leader_epoch} is older than the current epoch {epoch}",
            )
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"the request's leader epoch {current_leader_epoch} is newer than the current epoch {epoch}",
        )

    def append(
        self,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        verification_guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append as leader, then tell the waiters.

        ``ApiError``: not the leader, too few in-sync replicas for acks=all, or the batch is refused.
        """
        log = self._log_of_leader(required_acks)
        if self._gathered is not None:
            self._write_gathered()
        try:
            info = log.append_as_leader(
                records, self.state.leader_epoch, now_ms=now_ms, verification_guard=verification_guard
            )
        except ApiError as error:
            if error.code is ErrorCode.INVALID_TIMESTAMP:
                self._manager.clock_warnings.on_refused(self.topic_partition, error)
            raise
        except OSError as error:
            self._manager.storage_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed") from error
        if not info.duplicate:
            self._manager.appended(self, log, len(records))
        return info

    def _log_of_leader(self, required_acks: int) -> PartitionLog:
        """The log, for a client's append. ``ApiError`` if there must be none."""
        state = self.state
        if state.leader != state.local_id:
            raise self._not_leader()
        if required_acks == -1 and state.under_min_isr:
            raise self._not_enough_replicas()
        log = self._log
        return self.log if log is None or self.offline else log

    def gather(
        self,
        records: bytearray,
        required_acks: int,
        now_ms: int,
        defer: Callable[[Callable[[], None]], None],
    ) -> tuple[int, int, int] | None:
        """Judge a small batch as `append` does, and have it written with others that come in the same turn.

        ``defer`` has something done at the end of this turn, before which nothing else may run that is not of it.
        What is deferred later finds the batch in the log, of a partition that ``acknowledges_at_once``; or
        ``when_unwritten``, to which the caller adds who is to know it, has been told why not. None, or ``ApiError``:
        nothing has happened, and `append` tells more.

        Returns what the client is told: base offset, log append time (-1 without one), log start offset.
        """
        log = self._log_of_leader(required_acks)
        gathered = self._gathered
        if gathered is None:
            gathered = GatheredBatches(log, self.state.leader_epoch)
        placed = gathered.add(records, now_ms)
        if placed is None:
            return None
        if self._gathered is None:
            self._gathered, self.when_unwritten = gathered, []
            defer(self._write_gathered)
        return placed.first_offset, placed.log_append_time_ms, log.log_start_offset

    def _write_gathered(self) -> None:
        """Write what has been gathered, or tell whose it is that it could not be written. Never raises."""
        gathered, self._gathered = self._gathered, None
        if gathered is None:
            return  # something that had to come after it has seen to it
        told, self.when_unwritten = self.when_unwritten, _NOBODY
        manager = self._manager
        try:
            log = self.log
            gathered.write(manager.env.wall_clock_ms())
            manager.appended(self, log, gathered.size)
            return
        except ApiError as error:
            failure = error
        except OSError as error:
            manager.storage_failed(self, error)
            failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed")
        except Exception:
            logger.exception("Produce to %s failed", self.topic_partition)
            failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        for tell in told:
            tell(failure)

    def append_as_coordinator(
        self,
        records: bytearray,
        now_ms: int,
        *,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = TV_UNKNOWN,
    ) -> AppendInfo:
        """Append what this node wrote itself, for all in-sync replicas: a coordinator's records, or a marker.

        ``transaction_version`` is that of a marker. `ApiError` as `append`.
        """
        state = self.state
        if state.leader != state.local_id:
            raise self._not_leader()
        if state.under_min_isr:
            raise self._not_enough_replicas()
        log = self.log
        if self._gathered is not None:
            self._write_gathered()
        try:
            info = log.append_as_leader(
                records,
                state.leader_epoch,
                now_ms=now_ms,
                origin=AppendOrigin.COORDINATOR,
                verification_guard=verification_guard,
                transaction_version=transaction_version,
            )
        except OSError as error:
            self._manager.storage_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed") from error
        # A marker opens to read_committed what was written long before.
        self._manager.appended(self, log, len(records) if transaction_version == TV_UNKNOWN else ALL_BYTES)
        return info

    def _not_leader(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def _not_enough_replicas(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the ISR of {self.topic_partition} has {len(self.state.isr)} members, "
            f"min.insync.replicas is {self.config.min_insync_replicas}",
        )
