"""Asks the leaders of partitions, here and on other brokers, for the ends of what consumers may read.

Kafka's ``NetworkPartitionMetadataClient`` (4.4): the group coordinator needs them for the lag of share groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.node.peers.peer import Peer
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Network

logger = logging.getLogger(__name__)

_CONSUMER = -1
_LATEST = -1


class LatestOffsets:
    """Answers with an offset or an error for each partition. ``address`` gives where a broker is, None if unknown."""

    def __init__(
        self,
        network: Network,
        replica_manager: ReplicaManager,
        image: Callable[[], MetadataImage],
        address: Callable[[int], tuple[str, int] | None],
        timeout_ms: int,
    ) -> None:
        self._network = network
        self._manager = replica_manager
        self._image = image
        self._address = address
        self._timeout = timeout_ms / 1000

    async def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | ErrorCode]:
        """The high watermark of each partition, or the reason why it is not known."""
        found: dict[TopicPartition, int | ErrorCode] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        topics = self._image().topics.by_name
        for partition in partitions:
            topic = topics.get(partition.topic)
            assigned = None if topic is None else topic.partitions.get(partition.partition)
            if assigned is None:
                found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif assigned.leader < 0:
                found[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            elif assigned.leader == self._manager.node_id:
                found[partition] = self._local(partition)
            else:
                elsewhere.setdefault(assigned.leader, []).append(partition)
        if elsewhere:
            async with trio.open_nursery() as nursery:
                for broker_id, asked in elsewhere.items():
                    nursery.start_soon(self._ask, broker_id, asked, found)
        return found

    def _local(self, partition: TopicPartition) -> int | ErrorCode:
        try:
            leader = self._manager.get_leader(partition.topic, partition.partition, -1)
        except ApiError as error:
            return error.code
        return ErrorCode.OFFSET_NOT_AVAILABLE if leader.high_watermark_lags else leader.high_watermark

    async def _ask(
        self, broker_id: int, partitions: list[TopicPartition], found: dict[TopicPartition, int | ErrorCode]
    ) -> None:
        """Ask one broker, and put its answers into ``found``."""
        from kbroker.node.peers.peer import Peer, UnsupportedByPeer

        found.update(dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE))
        address = self._address(broker_id)
        if address is None:
            return
        peer = Peer(self._network, *address, client_id=f"broker-{self._manager.node_id}-latest-offsets")
        try:
            with trio.move_on_after(self._timeout) as scope:
                found.update(await _latest(peer, partitions))
            if scope.cancelled_caught:
                found.update(dict.fromkeys(partitions, ErrorCode.REQUEST_TIMED_OUT))
        except (OSError, WireError, UnsupportedByPeer) as error:
            logger.info("latest-offsets: broker at %s:%d: %s", *address, error)
        finally:
            peer.close()


async def _latest(peer: Peer, partitions: list[TopicPartition]) -> dict[TopicPartition, int | ErrorCode]:
    from kbroker.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    response: ListOffsetsResponse = await peer.ask(
        ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
    )
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code) or each.offset
        for topic in response.topics
        for each in topic.partitions
    }
