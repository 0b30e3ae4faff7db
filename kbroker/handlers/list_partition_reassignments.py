"""ListPartitionReassignments: partitions whose replicas are being moved. Served: 0."""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_denial
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import MetadataImage
from kbroker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handler(ListPartitionReassignmentsRequest)
async def handle(request: ListPartitionReassignmentsRequest, ctx: RequestContext) -> ListPartitionReassignmentsResponse:
    """List those among the partitions asked for (all, with null); unknown ones are passed over."""
    denial = cluster_denial(ctx)
    if denial is not None:
        return _denied(request, denial)
    image: MetadataImage = ctx.services.metadata.image
    if request.topics is None:
        asked = [(name, list(topic.partitions)) for name, topic in image.topics.by_name.items()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = []
    for name, indexes in asked:
        moving = []
        for index in indexes:
            partition = image.topics.partition(name, index)
            if partition is not None and (partition.adding_replicas or partition.removing_replicas):
                moving.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(topics=topics, error_message=None)


def _denied(request: ListPartitionReassignmentsRequest, denial: ApiError) -> ListPartitionReassignmentsResponse:
    """The error, and the partitions asked for without replicas, as Apache Kafka has it."""
    return ListPartitionReassignmentsResponse(
        error_code=denial.code,
        error_message=denial.message,
        topics=[
            OngoingTopicReassignment(
                name=topic.name,
                partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
            )
            for topic in request.topics or ()
        ],
    )
