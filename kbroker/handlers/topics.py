"""Topics and their partitions: created and deleted.

CreateTopics.
Served: 2 to 7. 1: validate only; 4: defaults for partitions and replication factor; 5: flexible, the topic's
effective configuration; 6: THROTTLING_QUOTA_EXCEEDED; 7: topic ids.

DeleteTopics, by name or by id.
Served: 1 to 6. 3: TOPIC_DELETION_DISABLED; 4: flexible; 5: error messages,
THROTTLING_QUOTA_EXCEEDED; 6: topic ids (KIP-516).

CreatePartitions: more partitions for existing topics.
Served: 0 to 3. 2: flexible; 3: THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import allowed_names, may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import duplicates, error_fields, mutation_quota, standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.topics import CreatedTopic, create_partitions, create_topics, delete_topics
from kbroker.raft_metadata.image import MetadataImage, is_one_machine
from kbroker.raft_metadata.topics import NewPartitions, NewTopic
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.types import METADATA_TOPIC, ZERO_UUID, Uuid
from kbroker.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

logger = logging.getLogger(__name__)


@handler(CreateTopicsRequest)
async def handle_create_topics(request: CreateTopicsRequest, ctx: RequestContext) -> CreateTopicsResponse:
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
                    view, wanted, validate_only=request.validate_only, count_partitions=quota.anew()
                )
            )
        except ApiError as error:
            results = {topic.name: error for topic in wanted}
        else:
            if not request.validate_only and is_one_machine(ctx.services.metadata.image.brokers.values()):
                _warn_of_one_machine(results)
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


def _warn_of_one_machine(results: Mapping[str, CreatedTopic | ApiError]) -> None:
    for name, created in results.items():
        if isinstance(created, CreatedTopic) and created.replication_factor > 1:
            logger.warning(
                "topic %s has %d replicas, and ALL OF THEM ARE ON ONE MACHINE: its death takes them all",
                name,
                created.replication_factor,
            )


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


@handler(DeleteTopicsRequest)
async def handle_delete_topics(request: DeleteTopicsRequest, ctx: RequestContext) -> DeleteTopicsResponse:
    """Delete topics; each has its own result."""
    if not ctx.services.config.delete_topic_enable:
        return _disabled(request, ctx.api_version)
    chosen, answers = await _choose(request, ctx.services.metadata.image, lambda names: _authorized(names, ctx))
    quota = mutation_quota(ctx, strict_since=5)
    begun: set[Uuid] = set()
    if chosen:
        try:
            results = await ctx.services.metadata.submit(
                lambda view: delete_topics(view, list(chosen), count_partitions=quota.anew(), begun=begun)
            )
        except ApiError as failure:
            results = dict.fromkeys(chosen, failure)
        for topic_id, error in results.items():
            if error is None:
                answers.append(_answer(chosen[topic_id], topic_id, ErrorCode.NONE))
            else:
                answers.append(_answer(chosen[topic_id], topic_id, error.code, error.message))
    return DeleteTopicsResponse(responses=answers, throttle_time_ms=quota.throttle_ms)


def _answer(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def _disabled(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    message = standard_message(code)
    answers = [_answer(name, ZERO_UUID, code, message) for name in request.topic_names]
    answers += [_answer(topic.name, Uuid(topic.topic_id), code, message) for topic in request.topics]
    return DeleteTopicsResponse(responses=answers)


def _named(request: DeleteTopicsRequest, refused: list[DeletableTopicResult]) -> tuple[Counter[str], Counter[Uuid]]:
    """The names and the ids of a request with their counts; entries with neither or both go to ``refused``."""
    names = Counter(request.topic_names)
    ids: Counter[Uuid] = Counter()
    invalid = ErrorCode.INVALID_REQUEST
    for topic in request.topics:
        topic_id = Uuid(topic.topic_id)
        if topic.name is None and topic_id == ZERO_UUID:
            refused.append(_answer(None, ZERO_UUID, invalid, "Neither topic name nor id were specified."))
        elif topic.name is None:
            ids[topic_id] += 1
        elif topic_id == ZERO_UUID:
            names[topic.name] += 1
        else:
            refused.append(_answer(topic.name, topic_id, invalid, "You may not specify both topic name and topic id."))
    return names, ids


async def _authorized(names: list[str], ctx: RequestContext) -> tuple[set[str], set[str]]:
    """Those of ``names`` that the principal may know of, and those that it may delete: all, if it may delete topics in
    the cluster."""
    if may(ctx, AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, audits_denial=False):
        return set(names), set(names)
    return (
        await allowed_names(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, names),
        await allowed_names(ctx, AclOperation.DELETE, ResourceType.TOPIC, names),
    )


async def _choose(
    request: DeleteTopicsRequest,
    image: MetadataImage,
    authorized: Callable[[list[str]], Awaitable[tuple[set[str], set[str]]]],
) -> tuple[dict[Uuid, str], list[DeletableTopicResult]]:
    """The topics to delete, names by id, and the results of the request's other entries.

    A topic that is named twice, by name, id or both, is not deleted at all. A client that may not know of a topic is
    told the same by its name whether it exists or not, and not told the name by its id. ``authorized`` gives those of
    some names that it may know of, and those that it may delete.
    """
    refused: list[DeletableTopicResult] = []
    names, ids = _named(request, refused)
    asked = [name for name, count in names.items() if count == 1]
    asked.extend(image.topics.by_id[each].name for each, n in ids.items() if n == 1 and each in image.topics.by_id)
    describable, deletable = await authorized(asked)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    chosen: dict[Uuid, str] = {}
    for topic_id, count in ids.items():
        found = image.topics.by_id.get(topic_id)
        if count > 1:
            refused.append(_answer(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        elif found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            refused.append(_answer(None, topic_id, code, standard_message(code)))
        elif found.name not in deletable:
            name_if_known = found.name if found.name in describable else None
            refused.append(_answer(name_if_known, topic_id, denied, standard_message(denied)))
        else:
            chosen[topic_id] = found.name
    for name, count in names.items():
        found = image.topics.by_name.get(name)
        if count > 1:
            refused.append(_answer(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name not in describable:
            refused.append(_answer(name, ZERO_UUID, denied, standard_message(denied)))
        elif found is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_answer(name, ZERO_UUID, code, standard_message(code)))
        elif name not in deletable:
            refused.append(_answer(name, ZERO_UUID, denied, standard_message(denied)))
        elif found.id in ids:
            message = "The provided topic name maps to an ID that was already supplied."
            refused.append(_answer(name, found.id, ErrorCode.INVALID_REQUEST, message))
            chosen.pop(found.id, None)
        else:
            chosen[found.id] = name
    return chosen, refused


@handler(CreatePartitionsRequest)
async def handle_create_partitions(request: CreatePartitionsRequest, ctx: RequestContext) -> CreatePartitionsResponse:
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
                    view, wanted, validate_only=request.validate_only, count_partitions=quota.anew()
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
