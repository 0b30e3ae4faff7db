"""Closes the holes of logs that this node leads with what other replicas have there.

Two replicas may be damaged in different places, and no third one be whole. Whoever leads asks all others for what it
lacks; none of them cuts its own damaged log back before (`Partition.wants_records_of`), and no reader passes a hole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.damage import UNKNOWN_END, Damage
from kbroker.log.scrubbing import SegmentCheck
from kbroker.log.segments.batch_walk import Whole
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.node.peers.peer import Peer, UnsupportedByPeer
from kbroker.wire.batch_header import HEADER_SIZE, BatchHeader, check_crc, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.errors import WireError
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

if TYPE_CHECKING:
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_fetcher import FetcherOwner

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
"""Between two rounds of questions, and two attempts to change segments that are compacted or moved."""
PIECE = 64 << 20
"""Bytes that are put into a log at once: its segment is written anew each time."""
_NOTHING_THERE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR}
)
"""Answers of a replica that has no such records: its log is damaged there, or offline. Apache Kafka's have none."""


class _AskAgain(Exception):
    """The other replica cannot say yet what it has."""


class HoleFiller:
    """Asks for what is missing in damaged logs, one task for each log."""

    def __init__(self, owner: FetcherOwner) -> None:
        self._owner = owner
        self._under_way: set[Partition] = set()
        self._verified: set[Partition] = set()
        """The partitions whose logs are being verified."""

    async def fill(self, partition: Partition) -> None:
        """Ask all other replicas for what is missing, as long as one of them may still answer.

        Whoever gives nothing is waited for no longer than at an election (``unclean.recovery.timeout.ms``).
        """
        if partition in self._under_way or partition.offline:
            return
        self._under_way.add(partition)
        owner = self._owner
        until, known = 0.0, tuple[Any, ...]()
        try:
            while others := self._awaited(partition):
                state = partition.state.leader_epoch, sorted(partition.asked), partition.log.damage
                if state != known:  # it goes on
                    until, known = owner.env.now() + owner.config.unclean_recovery_timeout_ms / 1000, state
                elif owner.env.now() >= until:
                    brokers = owner.table.image.brokers
                    partition.asked.update(broker for broker in others if not brokers[broker].fenced)
                    break
                for broker in others:
                    await self._ask(partition, broker)
                if self._awaited(partition):
                    await trio.sleep(RETRY_SECONDS)
        finally:
            self._under_way.discard(partition)
            if partition.has_log and not partition.offline:
                self._opened(partition)

    def _opened(self, partition: Partition) -> None:
        log = partition.log
        if log.awaits_others and partition.state.is_leader:
            log.awaits_others = False
            for each in log.damage:
                logger.warning("%s: no other replica has what is missing: %s", partition.topic_partition, each)
            self._owner.progress.unavailable(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def verify(self, partition: Partition, offset: int) -> None:
        """Verify a log from an offset on, for a follower that drops what it has from there on: what was not read for
        long may be damaged here, too."""
        if partition in self._verified or partition.offline:
            return
        self._verified.add(partition)
        env, log = self._owner.env, partition.log
        generation = log.generation
        try:
            ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
            places = [
                (each, (each.path, each.size, each.base_offset, end))
                for each, end in zip(log.segments, ends, strict=True)
                if end > offset and each.size
            ]
            for segment, place in places:
                try:
                    check = await env.run_blocking(SegmentCheck, log.disk, *place, bytearray(1 << 20))
                    while not check.is_done:
                        await env.run_long(check.step)
                except FileNotFoundError:
                    continue  # the segment was deleted, or replaced by one that was written with checksums
                if log.generation != generation:
                    return  # the log was cut meanwhile
                if segment not in log.segments:
                    continue
                if check.problem is not None:
                    problem = log.damaged(CorruptSegment(segment.path, check.position, check.problem))
                    if problem.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        return  # else it is whole after all
            partition.verified_from = min(partition.verified_from, offset)
        except OSError as error:
            partition.storage_failed(error)
        finally:
            self._verified.discard(partition)

    def _awaited(self, partition: Partition) -> list[int]:
        """The brokers that may have what a log lacks."""
        state, brokers = partition.state, self._owner.table.image.brokers
        if not state.is_leader or partition.offline or not partition.is_damaged:
            return []
        return [
            broker
            for broker in state.replicas
            if broker != state.local_id
            and broker not in partition.asked
            and broker in brokers
        ]

    async def _ask(self, partition: Partition, broker: int) -> None:
        address = self._owner.address_of(broker)
        if address is None or partition.offline or partition.log.has_damaged_bytes:
            return
        asked = partition.asked
        peer = Peer(self._owner.network, *address, client_id=f"broker-{partition.state.local_id}-holes")
        try:
            with trio.fail_after(self._owner.config.replica_socket_timeout_ms / 1000):
                for damage in partition.log.damage:
                    await self._fill_one(partition, damage, peer)
        except (OSError, WireError, UnsupportedByPeer, trio.TooSlowError, CorruptRecord, _AskAgain) as error:
            logger.debug("broker %d does not say what it has of %s: %s", broker, partition.topic_partition, error)
        except ApiError as error:
            logger.debug("%s cannot be read: %s", partition.topic_partition, error)
        else:
            asked.add(broker)
        finally:
            peer.close()

    async def _fill_one(self, partition: Partition, damage: Damage, peer: Peer) -> None:
        """Take what a replica has of one place."""
        log, epoch = partition.log, partition.state.leader_epoch
        end = log.log_end_offset if damage.end_offset == UNKNOWN_END else damage.end_offset
        own = _header_at(log, end)
        is_proven = await self._has_the_same_before(partition, end, own, peer)
        if is_proven is False:
            return
        latest = log.leader_epochs.latest if own is None else own.partition_leader_epoch
        offset, found, size = max(damage.start_offset, log.log_start_offset), list[Whole](), 0
        start, is_whole = offset, is_proven is True
        while offset < end:
            batches, has_holes = await self._fetch(partition, offset, peer)
            is_whole = is_whole and not has_holes
            for each in batches:
                header = each.header
                offset = header.next_offset
                if has_holes and not header.records_count:
                    continue  # it stands there for what is missing
                if damage.start_offset <= header.base_offset < offset <= end and (
                    is_proven
                    or (log.leader_epochs.epoch_for(header.base_offset) or 0) <= header.partition_leader_epoch <= latest
                ):
                    found.append(each)
                    size += header.size
            if found and (size >= PIECE or offset >= end or not batches):
                await self._put(partition, epoch, found)
                found, size = [], 0
            if not batches:
                return
        if is_whole:
            log.found_complete(start, end)  # where compaction has taken something, too

    async def _has_the_same_before(
        self, partition: Partition, end: int, own: BatchHeader | None, peer: Peer
    ) -> bool | None:
        """Whether a replica had the same records as this one below an offset; None if that does not show. ``own`` is
        the batch here that comes next.

        Two logs that have the same epoch at an offset have the same records before it.
        """
        points = [
            (end - 1, partition.log.leader_epochs.epoch_for(end - 1))
        ]  # the batches there are lost, but the epochs may be known
        if own is not None:
            points.insert(0, (own.base_offset, own.partition_leader_epoch))
        for offset, epoch in points:
            batches, _ = await self._fetch(partition, offset, peer)
            theirs = batches[0].header if batches else None
            if theirs is not None and theirs.base_offset <= offset:
                if theirs.partition_leader_epoch == epoch:
                    return True
                if own is not None:
                    return False
        return None

    async def _fetch(self, partition: Partition, offset: int, peer: Peer) -> tuple[list[Whole], bool]:
        """The whole batches that a replica has from an offset on, no more than fit into one answer; and whether some
        may be missing before them."""
        config, (topic, index) = self._owner.config, partition.topic_partition
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=partition.state.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=config.replica_fetch_max_bytes,
        )
        request = FetchRequest(
            max_bytes=config.replica_fetch_response_max_bytes,
            topics=[FetchTopic(topic=topic, topic_id=partition.topic_id, partitions=[wanted])],
            replica_state=ReplicaState(replica_id=partition.state.local_id, replica_epoch=self._owner.broker_epoch()),
            fills_holes=True,
        )
        response = await peer.ask(request)
        data = response.responses[0].partitions[0] if response.responses else None
        if response.error_code or data is None:
            raise _AskAgain(f"error {response.error_code}")
        if data.error_code in _NOTHING_THERE:
            return [], True
        if data.error_code:
            raise _AskAgain(ErrorCode.of(data.error_code).name)
        records: Any = data.records
        found = [each for each in _batches(memoryview(records or b"")) if each.header.next_offset > offset]
        return found, data.has_holes

    async def _put(self, partition: Partition, leader_epoch: int, batches: list[Whole]) -> None:
        """Put batches into the log. ``OSError`` takes its log dir offline; `_AskAgain` if it cannot be written now."""
        env, log, state = self._owner.env, partition.log, partition.state
        try:
            task = None
            while task is None:
                if not state.is_leader or state.leader_epoch != leader_epoch or partition.log is not log:
                    raise _AskAgain("another replica led meanwhile, or the log was moved")
                task = log.begin_filling(batches, env.wall_clock_ms())
                if task is None:
                    await trio.sleep(RETRY_SECONDS)
            try:
                await env.run_blocking(task.run)
            finally:
                task.end()
        except OSError as error:
            partition.storage_failed(error)
            raise
        except CorruptSegment as error:
            raise _AskAgain(str(log.damaged(error))) from error
        except CorruptIndex as error:
            raise _AskAgain(str(error)) from error
        log.on_high_watermark_updated(partition.state.high_watermark)
        logger.warning(
            "%s has offsets %d to %d again, from another replica",
            partition.topic_partition,
            batches[0].header.base_offset,
            batches[-1].header.last_offset,
        )


def _header_at(log: PartitionLog, offset: int) -> BatchHeader | None:
    """The header of the first batch with records at an offset or behind it. Those without stand for what is missing."""
    for segment in log.segments:
        while (header := segment.headers_around(offset)[1]) is not None:
            if header.records_count:
                return header
            offset = header.next_offset
    return None


def _batches(data: memoryview) -> Iterator[Whole]:
    """The batches that are there as a whole. `CorruptRecord` for one whose checksum is wrong."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = parse_header(data, position)
        if position + header.size > len(data):
            return
        check_crc(data, position, header)
        yield Whole(position, header, data, position)
        position += header.size
