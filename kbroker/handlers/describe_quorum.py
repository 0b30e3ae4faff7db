"""DescribeQuorum: the metadata quorum's leader, voters and observers.

Served: 0 to 2. 1: fetch timestamps; 2: directory ids and the voters' addresses (KIP-853), which no earlier version can
express.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.raft.quorum_description import QuorumDescription, ReplicaDescription
from kbroker.types import METADATA_TOPIC, ZERO_UUID
from kbroker.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


@handler(DescribeQuorumRequest)
async def handle(request: DescribeQuorumRequest, ctx: RequestContext) -> DescribeQuorumResponse:
    """Describe partition 0 of the metadata topic, the only one there is."""
    refused: DescribeQuorumResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    asked = [(topic.topic_name, [entry.partition_index for entry in topic.partitions]) for topic in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=[
                ResponseTopicData(
                    topic_name=name,
                    partitions=[
                        ResponsePartitionData(
                            partition_index=index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message=standard_message(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                        )
                        for index in partitions
                    ],
                )
                for name, partitions in asked
            ]
        )
    quorum: QuorumDescription = ctx.services.metadata.describe_quorum()
    if quorum.leader_id != ctx.services.node_id:
        # To a client of a broker this is no answer: the broker asks again (``forwarding.by_controller``).
        partition = ResponsePartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message=standard_message(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        )
        return DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    version = ctx.api_version
    partition = ResponsePartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(replica, version) for replica in quorum.current_voters],
        observers=[_replica(replica, version) for replica in quorum.observers],
    )
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=_nodes(quorum) if version >= 2 else [],
    )


def _nodes(quorum: QuorumDescription) -> list[Node]:
    return [
        Node(
            node_id=voter.id,
            listeners=[
                Listener(name=name, host=endpoint.host, port=endpoint.port)
                for name, endpoint in voter.endpoints.items()
            ],
        )
        for voter in quorum.voters
    ]


def _replica(replica: ReplicaDescription, version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id if version >= 2 else ZERO_UUID,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
