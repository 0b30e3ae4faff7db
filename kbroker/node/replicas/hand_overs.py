"""A replica moves to another node of the same machine, which gets the segments of its log by a second name of each.

The new replica asks for that before it fetches (`HandOvers`), and the node that is to lose its replica does it
(`give`). To all others the new replica is one that has fetched very quickly. Whatever is not as expected, all is
fetched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.checkpoint_files import CorruptCheckpoint
from kbroker.log.hand_over import HandOver
from kbroker.log.log_dir import DELETE_SUFFIX, parse_marked_name
from kbroker.node.peers.peer_pool import NoAnswerInTime
from kbroker.wire.messages.offset_for_leader_epoch import (
    HandedOver,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.peers.peer_pool import PeerPool
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_fetchers import ReplicaFetchers
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import PartitionImage
    from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)

LEAST_VERSION = 4
"""Of OffsetForLeaderEpoch, which carries the question: the first with tagged fields."""
AT_A_TIME = 4
SILENT_SECONDS = 60.0
AGAIN_SECONDS = 0.1
ATTEMPTS = 50
"""Questions until the other node has heard of the reassignment."""


class HandOvers:
    """Has the logs of new replicas handed over by nodes of this machine, and then follows their leaders."""

    def __init__(
        self,
        replicas: ReplicaManager,
        fetchers: ReplicaFetchers,
        pool: PeerPool,
        address: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """``address`` gives where a broker is, None if that is not known."""
        self._replicas = replicas
        self._fetchers = fetchers
        self._pool = pool
        self._address = address
        self._under_way: dict[TopicPartition, Partition] = {}
        self._turn = trio.Semaphore(AT_A_TIME)
        self._silent_until: dict[int, float] = {}
        """Times until which brokers are not asked that did not answer: else each partition would wait for them."""

    def take(self, partition: Partition, assigned: PartitionImage) -> bool:
        """Whether a partition that is to be followed has its log handed over before; it is followed after that."""
        tp, replicas = partition.topic_partition, self._replicas
        if self._under_way.get(tp) is partition:
            return True
        source = self._source(assigned)
        if source is None or not partition.has_log or partition.offline or partition.log.is_on_disk:
            return False
        self._fetchers.unfollow(partition)
        self._under_way[tp] = partition
        replicas.start_soon(self._run, partition, source)
        return True

    def _source(self, assigned: PartitionImage) -> int | None:
        """A broker whose replica goes when ours comes, and which may be on this machine: it has this one's rack, or its
        host."""
        me = self._replicas.node_id
        new = [broker for broker in assigned.adding_replicas if self._may_be_here(broker)]
        if me not in new[:1]:  # of two new ones on this machine, one copies: a damaged block would be in both
            return None
        going = sorted(assigned.removing_replicas, key=lambda each: each != assigned.leader)
        return next((broker for broker in going if self._may_be_here(broker)), None)

    def _may_be_here(self, broker: int) -> bool:
        me, brokers = self._replicas.node_id, self._replicas.image.brokers
        mine, other = brokers.get(me), brokers.get(broker)
        here, there = self._address(me), self._address(broker)
        if mine is None or other is None or here is None or there is None:
            return False
        return here[0] == there[0] or (mine.rack is not None and mine.rack == other.rack)

    async def _run(self, partition: Partition, source: int) -> None:
        tp = partition.topic_partition
        try:
            async with self._turn:
                await self._receive(partition, source)
        except (OSError, ApiError, CorruptCheckpoint) as error:
            logger.info("%s is copied: broker %d does not hand it over: %s", tp, source, error)
            if isinstance(error, NoAnswerInTime):
                self._silent_until[source] = self._replicas.env.now() + SILENT_SECONDS
        except Exception:
            logger.exception("%s is copied: it cannot be handed over", tp)
        if self._under_way.get(tp) is partition:  # not another of the name, which has come since
            del self._under_way[tp]
        if self._replicas.find(*tp) is partition and not partition.state.is_leader:
            self._fetchers.follow(partition)

    async def _receive(self, partition: Partition, source: int) -> None:
        replicas, tp = self._replicas, partition.topic_partition
        env, moves = replicas.env, replicas.log_manager.moves
        log, log_dir = partition.log, replicas.log_manager.log_dir_of(tp)
        began = env.now()
        if log_dir is None or log_dir.room.is_full or began < self._silent_until.get(source, 0.0):
            return
        directory = moves.begin_hand_over(log_dir, tp)
        try:
            handed = await self._ask(tp, source, directory)
            self._check(partition, log, log_dir)
            new = moves.take_over(log, directory, handed, now_ms=env.wall_clock_ms())
        except BaseException:
            moves.abandon_hand_over(log_dir, tp, directory)
            raise
        partition.attach_log(new, 0)
        replicas.checkpoints.request()
        try:
            await env.run_blocking(log_dir.disk.sync_dir, log_dir.path)
        except OSError as error:
            replicas.log_dirs.mark_offline(log_dir, error)
            raise
        took = (env.now() - began) * 1000
        logger.info("%s was handed over by broker %d: %d bytes in %.0f ms", tp, source, new.size, took)

    async def _ask(self, tp: TopicPartition, source: int, directory: str) -> HandedOver:
        wanted = OffsetForLeaderPartition(partition=tp.partition, hand_over_to=directory)
        request = OffsetForLeaderEpochRequest(
            replica_id=self._replicas.node_id, topics=[OffsetForLeaderTopic(topic=tp.topic, partitions=[wanted])]
        )
        seconds = self._replicas.env.budgets.hand_over_seconds
        for _ in range(ATTEMPTS):
            response = await self._pool.ask(source, request, least_version=LEAST_VERSION, timeout=seconds)
            [[answer]] = [topic.partitions for topic in response.topics]
            if answer.error_code != ErrorCode.UNKNOWN_LEADER_EPOCH:
                break
            await trio.sleep(AGAIN_SECONDS)
        if answer.handed_over is None:
            raise ApiError(ErrorCode.of(answer.error_code or ErrorCode.UNSUPPORTED_VERSION))
        return answer.handed_over

    def _check(self, partition: Partition, log: PartitionLog, log_dir: LogDir) -> None:
        """``ApiError`` if the replica is not the empty one any more that asked."""
        is_there = self._replicas.find(*partition.topic_partition) is partition and not partition.offline
        if not is_there or log_dir.offline is not None or partition.log is not log or log.is_on_disk:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its replica has changed meanwhile")
        if partition.state.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it leads meanwhile")


async def give(replicas: ReplicaManager, tp: TopicPartition, asker: int, directory: str) -> HandedOver:
    """Hand the log of a replica that is to go over to the broker that gets it, in a ``directory`` that it has made.

    ``ApiError`` if that cannot be: UNKNOWN_LEADER_EPOCH as long as the metadata here do not have the reassignment.
    """
    assigned = replicas.image.topics.partition(*tp)
    found = parse_marked_name(directory.rpartition("/")[2])
    is_marked = found is not None and found[1] == DELETE_SUFFIX and found[0].partition == tp.partition
    if not is_marked or not tp.topic.startswith(found[0].topic if found is not None else ""):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"no log is handed over to {directory}")
    if assigned is None or asker not in assigned.adding_replicas or replicas.node_id not in assigned.removing_replicas:
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{tp} does not move to broker {asker}")
    partition = replicas.get_partition(*tp)
    log, disk, moves = partition.log, replicas.log_manager.disk, replicas.log_manager.moves
    if partition.read_only or log.is_damaged or log.segments_held or moves.of(tp) is not None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {tp} is damaged, read-only or in use")
    if not log.is_on_disk or log.size < replicas.env.budgets.hand_over_bytes:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the log of {tp} is small")
    if not disk.is_own_dir(directory) or disk.list_dir(directory):
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not on this machine, or not empty")
    log.segments_held = True
    try:
        try:
            log.roll(replicas.env.wall_clock_ms())
        except OSError as error:
            partition.storage_failed(error)
            raise
        hand_over = HandOver(log, disk, directory)
        await partition.flush()
        if hand_over.still_holds:
            hand_over.link()
            await replicas.env.run_blocking(hand_over.complete)
    except OSError as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    finally:
        log.segments_held = False
    if not hand_over.still_holds or log.is_damaged:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {tp} has changed meanwhile")
    log_dir = replicas.log_manager.log_dir_of(tp)
    clean = None if log_dir is None else log_dir.cleaner_offsets.get(tp)
    return HandedOver(
        log_start_offset=hand_over.log_start_offset,
        end_offset=hand_over.end_offset,
        size=hand_over.size,
        clean_offset=-1 if clean is None else clean,
    )
