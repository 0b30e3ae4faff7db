"""Asks the leaders of partitions, here and on other brokers, for the ends of what consumers may read.

Kafka's ``NetworkPartitionMetadataClient`` (4.4): the group coordinator needs them for the lag of share groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer, NoAnswerInTime, PeerPool
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.wire.messages.list_offsets import ListOffsetsRequest

PORTION = 500
"""Partitions of a request."""

_CONSUMER = -1
_LATEST = -1

Found = dict[TopicPartition, int | ErrorCode]


async def latest_offsets(
    partitions: Collection[TopicPartition], image: MetadataImage, manager: ReplicaManager, peers: PeerPool
) -> Found:
    """Return the high watermark of each partition, or the reason why it is not known."""
    found: Found = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        assigned = image.topics.partition(*partition)
        if assigned is None:
            found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif assigned.leader < 0:
            found[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        elif assigned.leader == manager.node_id:
            found[partition] = _local(manager, partition)
        else:
            elsewhere.setdefault(assigned.leader, []).append(partition)
    await ask_leaders(peers, elsewhere, found)
    return found


def _local(manager: ReplicaManager, partition: TopicPartition) -> int | ErrorCode:
    try:
        leader = manager.get_leader(partition.topic, partition.partition, -1)
    except ApiError as error:
        return error.code
    return ErrorCode.OFFSET_NOT_AVAILABLE if leader.high_watermark_lags else leader.high_watermark


async def ask_leaders(peers: PeerPool, by_leader: Mapping[int, Sequence[TopicPartition]], found: Found) -> None:
    """Ask each broker for the high watermarks of what it leads, all at once, and put the answers into ``found``."""

    async def ask(leader: int, asked: Sequence[TopicPartition]) -> None:
        found.update(dict.fromkeys(asked, ErrorCode.LEADER_NOT_AVAILABLE))
        try:
            for begin in range(0, len(asked), PORTION):
                response = await peers.ask(leader, _request(asked[begin : begin + PORTION]))
                for topic in response.topics:
                    for each in topic.partitions:
                        key = TopicPartition(topic.name, each.partition_index)
                        found[key] = ErrorCode.of(each.error_code) or each.offset
        except NoAnswerInTime:
            found.update(dict.fromkeys(asked[begin:], ErrorCode.REQUEST_TIMED_OUT))
        except NoAnswer:
            pass

    async with trio.open_nursery() as nursery:
        for leader, asked in by_leader.items():
            nursery.start_soon(ask, leader, asked)


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    """Return a consumer's request, without isolation."""
    from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
