"""One partition on this node: its state in replication, and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kbroker.cores.replication.partition_state import PartitionState
from kbroker.cores.replication.replica_selector import ReplicaSelector, ReplicaView
from kbroker.errors import ApiError, ErrorCode
from kbroker.log.gathered_batches import SMALL_BATCH, GatheredBatches
from kbroker.log.log_config import LogConfig
from kbroker.log.producer_state import TV_UNKNOWN
from kbroker.log.validation import AppendOrigin
from kbroker.node.replicas.partition_events import ALL_BYTES, Progress
from kbroker.raft_metadata.image import DIR_LOST, NO_LEADER
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Placed
    from kbroker.log.durable_log import DurableLog
    from kbroker.log.partition_log import AppendInfo, PartitionLog
    from kbroker.log.producer_entry import VerificationGuard
    from kbroker.observe.metrics.traffic import TopicTraffic
    from kbroker.raft_metadata.image import PartitionImage
    from kbroker.runtime.round import Round

logger = logging.getLogger(__name__)

_NEVER = 2**63 - 1  # flush.messages by default

TRUSTED_SECONDS = 1.0
"""Between two times that a follower's doubts have a segment verified again."""


class LogStorage(Protocol):
    """The log dirs, as a partition uses them (``node.replicas.replica_log_dirs``)."""

    def open_log(self, partition: Partition) -> None:
        """Find or make the partition's log, and attach it. ``ApiError`` KAFKA_STORAGE_ERROR."""
        ...

    def storage_failed(self, partition: Partition, error: BaseException) -> None:
        """Take the log dir of the partition offline."""
        ...

    async def flush(self, partition: Partition) -> None:
        """Make the partition's log durable. ``ApiError`` KAFKA_STORAGE_ERROR."""
        ...

    on_log_damage: Callable[[DurableLog], None]
    """Called when damage was found in a log; it calls `Partition.note_damage`."""


class Partition:
    """One partition on this node: its state in replication, and its log.

    The log of a new partition touches the disk only when it is first written, so that a topic of a thousand
    partitions is led at once. A partition without files is an empty partition, as after a crash in Kafka.
    """

    __slots__ = (
        "_damage_epoch",
        "_gathered",
        "_is_offline",
        "_is_told",
        "_log",
        "_progress",
        "_storage",
        "_trusted_until",
        "bytes_in",
        "bytes_out",
        "config",
        "is_internal",
        "is_new",
        "on_write_failed",
        "read_only",
        "requests",
        "state",
        "topic_id",
        "topic_partition",
        "traffic",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        node_id: int,
        progress: Progress,
        storage: LogStorage,
        is_new: bool = True,
        leader_epoch: int = -1,
    ) -> None:
        """``leader_epoch`` is the latest that the metadata have: damage that the log has already is news in it."""
        self._progress = progress
        self._storage = storage
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.state = PartitionState(node_id)
        self.state.set_min_insync_replicas(config.min_insync_replicas)
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        traffic = progress.traffic
        self.traffic: TopicTraffic | None = None if traffic is None else traffic.of(topic_partition.topic)
        """Counts of the topic, on a node that has metrics."""
        self.bytes_in = self.bytes_out = self.requests = 0
        """The cost of the partition for this node (`kbroker balance`): bytes appended as leader and read, and the
        appends and reads that had records."""
        self.is_new = is_new
        """It came into being while this node ran, so no log dir that is offline holds its log."""
        self._is_offline = False
        self._trusted_until = 0.0
        self._damage_epoch = leader_epoch
        """The leader epoch in which the log's damage was news."""
        self._is_told = False
        """Whether the controller has taken note of it since."""
        self.read_only = False
        """Clients may write nothing: the log dir is full, or offline."""
        self._log: PartitionLog | None = None
        self._gathered: GatheredBatches | None = None
        self.on_write_failed: list[Callable[[ApiError], None]]
        """Called if the batches that `gather` has taken in this round cannot be written. Not there before it has."""

    @property
    def log(self) -> PartitionLog:
        """The log; ``ApiError(KAFKA_STORAGE_ERROR)`` when its directory has failed."""
        if self._log is None:
            self._storage.open_log(self)
            assert self._log is not None
        if self._is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.topic_partition} is offline")
        return self._log

    @property
    def offline(self) -> bool:
        """Whether the log cannot be used any more."""
        return self._is_offline

    @offline.setter
    def offline(self, offline: bool) -> None:
        self._is_offline = self.read_only = offline

    @property
    def has_log(self) -> bool:
        """Whether the log exists already."""
        return self._log is not None

    @property
    def is_damaged(self) -> bool:
        """Whether the log lacks what it once had."""
        return self._log is not None and self._log.is_damaged

    def must_give_way(self, assigned: PartitionImage) -> bool:
        """Whether the log is damaged, and another replica leads or is to lead: one that is known to have everything,
        or whichever is found to have most, if this one was elected before the damage was known, or is still to be.

        A controller that is not kbroker's leaves this one eligible; if it knows of no other, this one leads.
        """
        if not self.is_damaged:
            return False
        me, members = self.state.local_id, {*assigned.isr, *assigned.elr}
        if me not in members:
            return assigned.leader >= 0
        if members != {me}:
            return True
        if self._is_told or assigned.directory(me) == DIR_LOST or not self._may_be_elsewhere(assigned):
            return False
        return me in assigned.elr or (assigned.leader == me and assigned.leader_epoch <= self._damage_epoch)

    def _may_be_elsewhere(self, assigned: PartitionImage) -> bool:
        """Whether a broker that may come back has another replica, and the controller can be told of damage."""
        image, me = self._progress.image(), self.state.local_id
        others = any(broker != me and broker in image.brokers for broker in assigned.replicas)
        return others and image.features.metadata_version >= DIRECTORIES

    def leader_to_obey(self, assigned: PartitionImage) -> int:
        """The leader of an image; none while this node is to lead and first has to tell the controller of damage."""
        me = self.state.local_id
        if not self.is_damaged:
            return assigned.leader
        if assigned.directory(me) == DIR_LOST:
            self._is_told = True
        if assigned.leader == me and self.must_give_way(assigned) and self._may_be_elsewhere(assigned):
            return NO_LEADER
        return assigned.leader

    def awaits_election(self, assigned: PartitionImage) -> bool:
        """Whether the log is damaged, and no leader is elected although only this replica may lead.

        Apache Kafka's controller elects one whose directory was lost when it hears a second time that it is back.
        """
        members = {*assigned.isr, *assigned.elr}
        return self.is_damaged and assigned.leader == NO_LEADER and members == {self.state.local_id}

    def note_damage(self, log: DurableLog) -> bool:
        """Damage was found in a log: it is news in this leader epoch. Returns whether it is still the partition's."""
        self._damage_epoch, self._is_told = max(self._damage_epoch, self.state.leader_epoch), False
        return self._log is log

    def doubt(self, offset: int) -> None:
        """Have what is read from the offset's segment verified again, once in a while: a follower was sent a batch that
        cannot be right."""
        now = self._progress.env.now()
        if now >= self._trusted_until and self.has_log and not self.offline:
            self._trusted_until = now + TRUSTED_SECONDS
            self.log.doubt(offset)

    def attach_log(self, log: PartitionLog, high_watermark: int) -> None:
        """Give the partition its log; the high watermark is what the checkpoint says, within the log's bounds."""
        self._log = log
        log.on_damage = self._storage.on_log_damage
        state = self.state
        self._damage_epoch = max(self._damage_epoch, state.leader_epoch)
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
        log.on_damage = self._storage.on_log_damage
        log.on_high_watermark_updated(self.state.high_watermark)

    def on_leadership(self, log: PartitionLog) -> None:
        """The log begins the leader epoch at its end; alone in the ISR, all that it holds is committed.

        Otherwise the high watermark stays until the followers have fetched in this epoch.
        """
        state = self.state
        if log.leader_epochs.latest > state.leader_epoch:
            try:
                log.put_epochs_right(state.leader_epoch)
            except OSError as error:
                self._storage.storage_failed(self, error)
                return
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

    # --- the disk, and the followers --------------------------------------------------------------------------

    async def flush(self) -> None:
        """Make the log durable, off the event loop. ``ApiError`` KAFKA_STORAGE_ERROR."""
        await self._storage.flush(self)

    def storage_failed(self, error: BaseException) -> None:
        """A read, write or flush failed: the log dir goes offline."""
        self._storage.storage_failed(self, error)

    def low_watermark(self) -> int:
        """The least log start offset of the replicas whose brokers live."""
        return self._progress.low_watermark(self)

    def check_follower(self, replica: int, broker_epoch: int) -> None:
        """``ApiError`` NOT_LEADER_OR_FOLLOWER for a fetch by a stranger, or by an earlier life of a broker."""
        progress = self.state.progress.get(replica)
        if progress is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} is no replica of this partition")
        if -1 < broker_epoch < progress.broker_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} has been started anew since")

    def follower_fetched(self, replica: int, fetch_offset: int, log_start_offset: int, broker_epoch: int = -1) -> None:
        """Note a follower's progress; the high watermark may follow, and the ISR."""
        self._progress.follower_fetched(self, replica, fetch_offset, log_start_offset, broker_epoch)

    def preferred_read_replica(self, fetch_offset: int, select: ReplicaSelector, listener: str) -> int:
        """The follower that a consumer had better read from (KIP-392); -1 if that is this leader.

        It is one that the consumer can reach: its broker is not fenced, and has the consumer's ``listener``.
        """
        state, brokers = self.state, self._progress.image().brokers
        now_ms = int(self._progress.env.now() * 1000)

        followers = [
            ReplicaView(replica, broker.rack, progress.log_end_offset, now_ms - progress.last_caught_up_ms)
            for replica, progress in state.progress.items()
            if replica in state.isr
            and progress.log_start_offset <= fetch_offset <= progress.log_end_offset
            and (broker := brokers.get(replica)) is not None
            and not broker.fenced
            and listener in broker.endpoints
        ]
        own = brokers.get(state.local_id)
        rack = None if own is None or own.fenced else own.rack
        leader = ReplicaView(state.local_id, rack, self.log.log_end_offset)
        selected = select(self.topic_partition, leader, followers)
        return -1 if selected == state.local_id else selected

    # --- appends ----------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, required_acks: int, now_ms: int, verification_guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Append as leader, then tell the waiters.

        ``ApiError``: not the leader, too few in-sync replicas for acks=all, or the batch is refused.
        """
        if self._gathered is not None:
            self._write_gathered()  # before the log is asked for: the disk may fail at that
        log = self._log_of_leader(required_acks)
        try:
            info = log.append_as_leader(
                records, self.state.leader_epoch, now_ms=now_ms, verification_guard=verification_guard
            )
        except ApiError as error:
            if error.code is ErrorCode.INVALID_TIMESTAMP:
                self._progress.clock_warnings.on_refused(self.topic_partition, error)
            raise
        except OSError as error:
            self._storage.storage_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed") from error
        if not info.duplicate:
            self.bytes_in += len(records)
            self.requests += 1
            if self.traffic is not None:
                self.traffic.appended(len(records), info.last_offset - info.first_offset + 1)
                self.traffic.conversions += info.converted
            self._progress.appended(self, log, len(records))
        return info

    def _log_of_leader(self, required_acks: int) -> PartitionLog:
        """The log, for a client's append. ``ApiError`` if there must be none."""
        state = self.state
        if state.leader != state.local_id:
            raise self._not_leader()
        if required_acks == -1 and state.under_min_isr:
            raise self._not_enough_replicas()
        log = self._log
        if log is None or self.read_only:
            log = self.log
            if self.read_only:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.topic_partition} is full")
        return log

    def gather(self, records: memoryview, required_acks: int, now_ms: int, round: Round) -> Placed | None:
        """Judge a batch as `append` does and, if it is small, have it written with others of the round at its end.

        A copy is written. The caller adds its callback to ``on_write_failed``: what it puts off to the end of the round
        after that finds the batch in the log, or comes after this callback.

        Returns the first and last offset, the log append time (-1 without one) and the log start offset. None, or
        ``ApiError``: nothing has happened, and `append` has to see the batch.
        """
        if len(records) > SMALL_BATCH:
            return None
        log = self._log_of_leader(required_acks)
        gathered = self._gathered
        if gathered is None:
            gathered = GatheredBatches(log, self.state.leader_epoch)
        placed = gathered.add(bytearray(records), now_ms)
        if placed is None:
            return None
        if self._gathered is None:
            self._gathered, self.on_write_failed = gathered, []
            round.at_end(self._write_gathered)
        _, _, first_offset, last_offset, _, _, log_append_time_ms, _ = placed
        return first_offset, last_offset, log_append_time_ms, log.log_start_offset

    def _write_gathered(self) -> None:
        """Write the gathered batches, or tell their producers that it failed. Never raises."""
        gathered, self._gathered = self._gathered, None
        if gathered is None:
            return  # written already, before a batch that was not gathered
        callbacks = self.on_write_failed
        del self.on_write_failed  # the callbacks know connections, which may end
        try:
            log = self.log
            before = log.log_end_offset
            gathered.write(self._progress.env.wall_clock_ms())
            self.bytes_in += gathered.size
            self.requests += len(callbacks)
            if self.traffic is not None:
                self.traffic.appended(gathered.size, log.log_end_offset - before, batches=len(callbacks))
                self.traffic.conversions += gathered.converted
            self._progress.appended(self, log, gathered.size)
            return
        except ApiError as error:
            failure = error
        except OSError as error:
            self._storage.storage_failed(self, error)
            failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed")
        except Exception:
            logger.exception("Produce to %s failed", self.topic_partition)
            failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        for callback in callbacks:
            callback(failure)

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
        if self._gathered is not None:
            self._write_gathered()
        log = self.log
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
            self._storage.storage_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"writing {self.topic_partition} failed") from error
        self.bytes_in += len(records)
        self.requests += 1
        if self.traffic is not None:
            self.traffic.appended(len(records), info.last_offset - info.first_offset + 1)
        # A marker opens to read_committed what was written long before.
        self._progress.appended(self, log, len(records) if transaction_version == TV_UNKNOWN else ALL_BYTES)
        return info

    def _not_leader(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def _not_enough_replicas(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the ISR of {self.topic_partition} has {len(self.state.isr)} members, "
            f"min.insync.replicas is {self.config.min_insync_replicas}",
        )
