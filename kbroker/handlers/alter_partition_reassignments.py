"""AlterPartitionReassignments: begin or cancel the move of partitions to other brokers (KIP-455).

Served: 0 to 1. 1: whether the replication factor may change (KIP-860).
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import error_fields
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.reassignments import Reassignment
from kbroker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handler(AlterPartitionReassignmentsRequest)
async def handle(
    request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Change each partition on its own, in the request's order."""
    wanted = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if not request.topics:
        # Apache Kafka answers an empty request with an empty response, whatever its other fields.
        return AlterPartitionReassignmentsResponse(error_message="")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    try:
        errors = iter(
            await ctx.services.metadata.submit(
                lambda controller, now_ms: controller.reassignments.alter(
                    wanted, allow_replication_factor_change=request.allow_replication_factor_change
                )
            )
        )
    except ApiError as error:
        response.error_code, response.error_message = error_fields(error)
        return response
    for topic in request.topics:
        result = ReassignableTopicResponse(name=topic.name)
        for partition in topic.partitions:
            code, message = error_fields(next(errors))
            result.partitions.append(
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=message
                )
            )
        response.responses.append(result)
    return response
