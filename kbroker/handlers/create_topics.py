"""CreateTopics.

Served: 2 to 7. 1: validate only; 4: defaults for partitions and replication factor; 5: flexible, the topic's
effective configuration; 6: THROTTLING_QUOTA_EXCEEDED; 7: topic ids.
"""

from __future__ import annotations

from collections import Counter

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import allowed_names, may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import mutation_quota
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.topics import CreatedTopic, create_topics
from kbroker.raft_metadata.topics import NewTopic
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.types import METADATA_TOPIC
from kbroker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@handler(CreateTopicsRequest)
async def handle(request: CreateTopicsRequest, ctx: RequestContext) -> CreateTopicsResponse:
    """Create topics; each has its own result."""
    counts = Counter(topic.name for topic in request.topics)
    names = [name for name, count in counts.items() if count == 1 and name != METADATA_TOPIC]
    creatable = await _creatable(names, ctx)
    describable = await allowed_names(
        ctx, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, creatable, audits_denial=False
    )
    wanted = []
    share = FairShare(ctx)
    for topic in request.topics:
        await share.next()
        if topic.name in creatable:
            wanted.append(_new_topic(topic))
    results: dict[str, CreatedTopic | ApiError] = {}
    quota = mutation_quota(ctx, strict_since=6)
    if wanted:
        try:
            results = await ctx.services.metadata.submit(
                lambda view: create_topics(
                    view, wanted, validate_only=request.validate_only, count_partitions=quota.record
                )
            )
        except ApiError as error:
            results = {topic.name: error for topic in wanted}
    response = CreateTopicsResponse(throttle_time_ms=quota.throttle_ms)
    for name in counts:
        await share.next()
        if counts[name] > 1:
            outcome: CreatedTopic | ApiError = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif name == METADATA_TOPIC:
            outcome = ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        elif name not in creatable:
            outcome = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            outcome = results[name]
        response.topics.append(_result(name, outcome, with_configs=name in describable))
    return response


async def _creatable(names: list[str], ctx: RequestContext) -> set[str]:
    """The topics that the principal may create: all, if it may create topics in the cluster."""
    if may(ctx, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, audits_denial=False):
        return set(names)
    return await allowed_names(ctx, AclOperation.CREATE, ResourceType.TOPIC, names)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(entry.partition_index, entry.broker_ids) for entry in topic.assignments],
        configs=list({config.name: (config.name, config.value) for config in topic.configs}.values()),
    )


def _result(name: str, outcome: CreatedTopic | ApiError, *, with_configs: bool) -> CreatableTopicResult:
    if isinstance(outcome, ApiError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    if not with_configs:
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=outcome.num_partitions,
        replication_factor=outcome.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in outcome.configs
        ],
    )
