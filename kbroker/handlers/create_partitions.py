"""CreatePartitions: more partitions for existing topics.

Served: 0 to 3. 2: flexible; 3: THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import allowed_names
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import duplicates, error_fields, mutation_quota
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.topics import create_partitions
from kbroker.raft_metadata.topics import NewPartitions
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


@handler(CreatePartitionsRequest)
async def handle(request: CreatePartitionsRequest, ctx: RequestContext) -> CreatePartitionsResponse:
    """Add partitions; each topic has its own result."""
    twice = duplicates(topic.name for topic in request.topics)
    results: dict[str, ApiError | None] = {
        name: ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice
    }
    names = [topic.name for topic in request.topics if topic.name not in results]
    allowed = await allowed_names(ctx, AclOperation.ALTER, ResourceType.TOPIC, names)
    results |= {name: ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in names if name not in allowed}
    wanted = []
    share = FairShare(ctx)
    for topic in request.topics:
        await share.next()
        if topic.name in allowed:
            brokers = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
            wanted.append(NewPartitions(topic.name, topic.count, brokers))
    quota = mutation_quota(ctx, strict_since=3)
    if wanted:
        try:
            outcomes = await ctx.services.metadata.submit(
                lambda view: create_partitions(
                    view, wanted, validate_only=request.validate_only, count_partitions=quota.record
                )
            )
            results |= outcomes
        except ApiError as error:
            results |= {topic.name: error for topic in wanted}
    response = CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms)
    for name, outcome in results.items():
        await share.next()
        code, message = error_fields(outcome)
        response.results.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
    return response
