"""Reassignments of partitions: begun, cancelled and listed.

AlterPartitionReassignments: begin or cancel the move of partitions to other brokers (KIP-455).
Served: 0 to 1. 1: whether the replication factor may change (KIP-860).

ListPartitionReassignments: partitions whose replicas are being moved. Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_denial
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare, portions
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.image import MetadataImage
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handler(AlterPartitionReassignmentsRequest)
async def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Change each partition on its own, in the request's order."""
    denial = cluster_denial(ctx)
    if denial is not None:
        return _denied_alter(request, denial)
    if not request.topics:
        # Apache Kafka's response to an empty request is empty, whatever its other fields.
        return AlterPartitionReassignmentsResponse(error_message="")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    wanted = (
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    )
    outcomes: list[tuple[int, str | None]] = []
    share = FairShare(ctx)
    for some in portions(ctx, wanted):
        try:
            found = await _alter(some, request.allow_replication_factor_change, ctx)
        except ApiError as error:
            if not outcomes:
                response.error_code, response.error_message = error_fields(error)
                return response
            outcomes += [error_fields(error)] * len(some)
        else:
            outcomes += map(error_fields, found)
        await share.next(len(some))
    fields = iter(outcomes)
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        for partition in topic.partitions:
            await share.next()
            code, message = next(fields)
            result.partitions.append(
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=message
                )
            )
        response.responses.append(result)
    return response


def _denied_alter(request: AlterPartitionReassignmentsRequest, denial: ApiError) -> AlterPartitionReassignmentsResponse:
    """The error at the top and at each partition, as Apache Kafka has it."""
    code, message = error_fields(denial)
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def _alter(
    wanted: list[Reassignment], allow_replication_factor_change: bool, ctx: RequestContext
) -> list[ApiError | None]:
    results: list[ApiError | None] = await ctx.services.metadata.submit(
        lambda view: alter_partition_reassignments(
            view, wanted, allow_replication_factor_change=allow_replication_factor_change
        )
    )
    return results


@handler(ListPartitionReassignmentsRequest)
async def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, ctx: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List those among the partitions asked for (all, with null); unknown ones are passed over."""
    denial = cluster_denial(ctx)
    if denial is not None:
        return _denied_list(request, denial)
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


def _denied_list(request: ListPartitionReassignmentsRequest, denial: ApiError) -> ListPartitionReassignmentsResponse:
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
