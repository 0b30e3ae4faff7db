"""AssignReplicasToDirs (key 73): a broker reports the log directories of its replicas (KIP-858).

Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.types import Uuid
from kbroker.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
    TopicData,
)


@handler(AssignReplicasToDirsRequest)
async def handle(request: AssignReplicasToDirsRequest, ctx: RequestContext) -> AssignReplicasToDirsResponse:
    """Write the directories down; replicas in a failed directory lose leadership."""
    refused: AssignReplicasToDirsResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    wanted = [
        _replica(directory, topic, partition)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]
    try:
        errors = await ctx.services.metadata.submit(
            lambda view: assign_replicas(view, request.broker_id, request.broker_epoch, wanted)
        )
    except ApiError as error:
        return AssignReplicasToDirsResponse(error_code=error.code)
    return AssignReplicasToDirsResponse(
        directories=[
            ResponseDirectoryData(
                id=directory.id,
                topics=[
                    ResponseTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            ResponsePartitionData(
                                partition_index=partition.partition_index,
                                error_code=errors[_replica(directory, topic, partition)],
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def _replica(directory: DirectoryData, topic: TopicData, partition: PartitionData) -> ReplicaDirectory:
    return ReplicaDirectory(Uuid(topic.topic_id), partition.partition_index, Uuid(directory.id), partition.is_damaged)
