"""AlterPartition (key 56): a leader proposes the ISR of its partitions to the active controller (KIP-497).

Served: 2 to 3. 2: topic ids; 3: the broker epochs of the ISR, so that no earlier life of a broker joins (KIP-903).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.refusals import log_rejection
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica, IsrChange, alter_partitions
from kbroker.raft_metadata.image import PartitionImage
from kbroker.types import Uuid
from kbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)


@handler(AlterPartitionRequest)
async def handle(request: AlterPartitionRequest, ctx: RequestContext) -> AlterPartitionResponse:
    """Change each partition on its own, in the request's order."""
    refused: AlterPartitionResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    changes = [
        IsrChange(
            Uuid(topic.topic_id),
            partition.partition_index,
            partition.leader_epoch,
            _isr(partition, ctx.api_version),
            partition.leader_recovery_state,
            partition.partition_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        decided = await ctx.services.metadata.submit(
            lambda view: alter_partitions(view, request.broker_id, request.broker_epoch, changes)
        )
        outcomes = iter(decided)
    except ApiError as error:
        log_rejection(ctx, f"broker {request.broker_id}", error.code, error.message)
        return AlterPartitionResponse(error_code=error.code)
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[_shape(partition.partition_index, next(outcomes)) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _isr(partition: PartitionData, version: int) -> list[InSyncReplica]:
    if version < 3:
        return [InSyncReplica(broker_id) for broker_id in partition.new_isr]
    return [InSyncReplica(state.broker_id, state.broker_epoch) for state in partition.new_isr_with_epochs]


def _shape(index: int, outcome: PartitionImage | ErrorCode) -> ResponsePartitionData:
    if isinstance(outcome, ErrorCode):
        return ResponsePartitionData(partition_index=index, error_code=outcome)
    return ResponsePartitionData(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=outcome.leader_recovery_state,
        partition_epoch=outcome.partition_epoch,
    )
