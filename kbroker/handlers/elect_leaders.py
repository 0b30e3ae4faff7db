"""ElectLeaders: give leadership to the preferred replica, or to any active one (unclean).

Served: 0 to 2. 1: unclean elections, top-level error; 2: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_denial
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import portions
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.requested_elections import elect_leaders
from kbroker.types import TopicPartition
from kbroker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED = 0
_UNCLEAN = 1


@handler(ElectLeadersRequest)
async def handle(request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    """Elect leaders for the named partitions; null means all, of which those that need no election are left out."""
    response = await _answer(request, ctx)
    if ctx.api_version < 1:
        response.error_code = ErrorCode.NONE  # each partition has its own
    return response


async def _answer(request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    every = request.topic_partitions is None
    image = ctx.services.metadata.image
    partitions = [
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions or ()
        for partition in topic.partitions
    ]
    denial = cluster_denial(ctx)
    if denial is not None:
        return _shape(dict.fromkeys(partitions, denial), int(denial.code))
    if every:
        partitions = [
            TopicPartition(name, partition)
            for name, topic in image.topics.by_name.items()
            for partition in topic.partitions
        ]
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        error = ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        return _shape(dict.fromkeys(partitions, error), int(error.code))
    results: dict[TopicPartition, ApiError | None] = {}
    for some in portions(ctx, dict.fromkeys(partitions)):
        try:
            results |= await _elect(some, request.election_type == _UNCLEAN, ctx)
        except ApiError as failure:
            if not results:
                return _shape(dict.fromkeys(partitions, failure), int(failure.code))
            results |= dict.fromkeys(some, failure)
        if len(some) < len(partitions):
            await trio.lowlevel.checkpoint()
    if every:
        results = {
            partition: outcome
            for partition, outcome in results.items()
            if outcome is None or outcome.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
    # With null, also topics without an election are listed, as Kafka does.
    return _shape(results, 0, image.topics.by_name if every else ())


async def _elect(
    partitions: list[TopicPartition], unclean: bool, ctx: RequestContext
) -> dict[TopicPartition, ApiError | None]:
    results: dict[TopicPartition, ApiError | None] = await ctx.services.metadata.submit(
        lambda view: elect_leaders(view, partitions, unclean=unclean)
    )
    return results


def _shape(
    results: dict[TopicPartition, ApiError | None], error_code: int, topics: Iterable[str] = ()
) -> ElectLeadersResponse:
    by_topic = {name: ReplicaElectionResult(topic=name) for name in topics}
    for partition, outcome in results.items():
        entry = by_topic.setdefault(partition.topic, ReplicaElectionResult(topic=partition.topic))
        entry.partition_result.append(
            PartitionResult(
                partition_id=partition.partition,
                error_code=0 if outcome is None else int(outcome.code),
                error_message=None if outcome is None else outcome.message,
            )
        )
    return ElectLeadersResponse(error_code=error_code, replica_election_results=list(by_topic.values()))
