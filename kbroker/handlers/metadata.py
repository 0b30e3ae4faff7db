"""Metadata: brokers, topics, partitions and their leaders; creates topics that are asked for and missing.

Served: 0 to 13. 1: controller, racks, internal topics, null for all topics; 2: cluster id; 4: auto-creation is the
client's choice; 5: offline replicas; 7: leader epochs; 8-10: authorized operations; 9: flexible; 10: topic ids in the
response; 12: topics by id in the request; 13: top-level error.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import (
    allowed_names,
    authorized_operations,
    cluster_operations,
    may_each,
    may_on_cluster,
)
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.handlers.common.metadata_common import (
    NOT_ASKED,
    offline_replicas,
    reachable,
    reachable_brokers,
    some_broker_id,
)
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.raft_metadata.image import MetadataImage, PartitionImage, TopicImage
from kbroker.raft_metadata.topics import INTERNAL_TOPICS, NewTopic, topic_name_problem
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

logger = logging.getLogger(__name__)


def asks_for_all(request: MetadataRequest, version: int) -> bool:
    """Whether a request asks for all topics."""
    return request.topics is None or (version == 0 and not request.topics)  # version 0 has no null


def _lists_of(response: MetadataResponse) -> Iterator[list[Any]]:
    for topic in response.topics:
        yield topic.partitions
    yield response.topics


@handler(MetadataRequest, large_answers=LargeAnswers(_lists_of, asks_for_all))
async def handle(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    """Describe the cluster and some or all of its topics.

    Of a topic that the principal may not describe, it is not told whether it exists.
    """
    version = ctx.api_version
    services = ctx.services
    # Of a broker that dies, librdkafka must hear in one answer who leads instead and in a later one that it is gone:
    # otherwise it may leave its partitions with nobody until its next round, a second later.
    replaced: frozenset[int] = frozenset()
    if services.replica_manager.fetchers is not None:
        replaced = await services.replica_manager.fetchers.until_clear()
    image: MetadataImage = services.metadata.image
    listener = ctx.connection.listener_name
    entries = request.topics
    all_topics = asks_for_all(request, version)
    topics: list[MetadataResponseTopic] = []
    denied: list[MetadataResponseTopic] = []
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=not all_topics)
    share = FairShare(ctx)
    if all_topics or entries is None:
        for topic in image.topics.by_name.values():
            await share.next(_parts_of(topic))
            if may_see is None or may_see(topic.name):
                topics.append(_describe(image, topic, listener, version))
    elif version < 12 and any(entry.name is None or entry.topic_id != ZERO_UUID for entry in entries):
        return _refused(request, ctx, ErrorCode.INVALID_REQUEST)
    elif any(entry.name is None and entry.topic_id == ZERO_UUID for entry in entries):
        return _refused(request, ctx, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        # As Kafka: one id in the request, and names are not looked at.
        ids = [Uuid(entry.topic_id) for entry in entries if entry.topic_id != ZERO_UUID]
        if ids:
            topics, denied = await _by_id(ids, image, may_see, ctx)
        else:
            topics, denied = await _by_name(entries, image, may_see, ctx, request.allow_auto_topic_creation)
    if version >= 8 and request.include_topic_authorized_operations:
        for entry in topics:
            await share.next()
            if entry.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                continue
            entry.topic_authorized_operations = authorized_operations(ctx, ResourceType.TOPIC, entry.name or "")
    operations = NOT_ASKED
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        operations = cluster_operations(ctx)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=found.broker.id, host=found.endpoint.host, port=found.endpoint.port, rack=found.broker.rack
            )
            for found in reachable_brokers(image, listener, replaced)
        ],
        cluster_id=services.cluster_id,
        controller_id=some_broker_id(image, services.node_id),
        topics=topics + denied,
        cluster_authorized_operations=operations,
    )


_Topics = list[MetadataResponseTopic]
_MaySee = Callable[[str], bool] | None


async def _by_id(
    topic_ids: Iterable[Uuid], image: MetadataImage, may_see: _MaySee, ctx: RequestContext
) -> tuple[_Topics, _Topics]:
    """Topics by their ids, and those that the principal may not describe."""
    topics: _Topics = []
    denied: _Topics = []
    share = FairShare(ctx)
    for topic_id in dict.fromkeys(topic_ids):
        found = image.topics.by_id.get(topic_id)
        await share.next(_parts_of(found))
        if found is None:
            topics.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif may_see is not None and not may_see(found.name):
            # Ids are no secret, as in Kafka; the name is.
            denied.append(_denied(None, topic_id))
        else:
            topics.append(_describe(image, found, ctx.connection.listener_name, ctx.api_version))
    return topics, denied


async def _by_name(
    entries: Iterable[MetadataRequestTopic],
    image: MetadataImage,
    may_see: _MaySee,
    ctx: RequestContext,
    may_create: bool,
) -> tuple[_Topics, _Topics]:
    """Topics by their names, missing ones perhaps created, and those that the principal may not have."""
    topics: _Topics = []
    denied: _Topics = []
    missing: list[str] = []
    share = FairShare(ctx)
    for name in dict.fromkeys(entry.name for entry in entries if entry.name is not None):
        found = image.topics.by_name.get(name)
        await share.next(_parts_of(found))
        if may_see is not None and not may_see(name):
            denied.append(_denied(name))
            continue
        if found is None:
            missing.append(name)
        else:
            topics.append(_describe(image, found, ctx.connection.listener_name, ctx.api_version))
    if missing:
        create = may_create and ctx.services.config.auto_create_topics_enable
        if create and ctx.services.authorizer is not None:
            missing = await _creatable(missing, denied, ctx)
        topics += await _missing(missing, ctx, share, create=create)
    return topics, denied


def _parts_of(topic: TopicImage | None) -> int:
    """The parts that a topic counts for: eight more partitions take about as long as another topic."""
    return 1 if topic is None else 1 + len(topic.partitions) // 8


def _denied(name: str | None, topic_id: Uuid = ZERO_UUID, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id, is_internal=is_internal
    )


async def _creatable(missing: list[str], denied: list[MetadataResponseTopic], ctx: RequestContext) -> list[str]:
    """The missing topics that the principal may create; the others go to ``denied``."""
    if may_on_cluster(ctx, AclOperation.CREATE, audits_denial=False):
        return missing
    allowed = await allowed_names(ctx, AclOperation.CREATE, ResourceType.TOPIC, missing)
    denied += [_denied(name, is_internal=name in INTERNAL_TOPICS) for name in missing if name not in allowed]
    return [name for name in missing if name in allowed]


def _refused(request: MetadataRequest, ctx: RequestContext, error: ErrorCode) -> MetadataResponse:
    """Null names and ids came with version 12, and never both as nothing."""
    return MetadataResponse(
        cluster_id=ctx.services.cluster_id,
        topics=[
            MetadataResponseTopic(error_code=error, name=entry.name or "", topic_id=entry.topic_id)
            for entry in request.topics or ()
        ],
    )


def _describe(image: MetadataImage, topic: TopicImage, listener: str, version: int) -> MetadataResponseTopic:
    partitions = []
    # Most topics have one replica set throughout: what only depends on it is worked out once.
    known: dict[Any, tuple[list[int], list[int], list[int], int, int]] = {}
    for partition_id, partition in topic.partitions.items():
        key = (partition.replicas, partition.isr, partition.leader, partition.directories)
        facts = known.get(key)
        if facts is None:
            facts = known[key] = _facts(image, partition, listener, version)
        replicas, isr, offline, leader, error = facts
        partitions.append(
            MetadataResponsePartition(
                error_code=error,
                partition_index=partition_id,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.name in INTERNAL_TOPICS, partitions=partitions
    )


def _facts(
    image: MetadataImage, partition: PartitionImage, listener: str, version: int
) -> tuple[list[int], list[int], list[int], int, int]:
    """Replicas, ISR, offline replicas, leader, error."""
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        # Version 0 clients take an unreachable replica for an error; later ones are simply not told of its broker.
        replicas = [broker for broker in replicas if reachable(image, broker, listener)]
        isr = [broker for broker in isr if reachable(image, broker, listener)]
    leader = image.brokers.get(partition.leader)
    error = ErrorCode.NONE
    leader_id = partition.leader
    if leader is None:
        leader_id, error = -1, ErrorCode.LEADER_NOT_AVAILABLE
    elif listener not in leader.endpoints:
        leader_id = -1
        error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return replicas, isr, offline_replicas(image, partition, listener), leader_id, error


async def _missing(
    names: list[str], ctx: RequestContext, share: FairShare, *, create: bool
) -> list[MetadataResponseTopic]:
    """The entries of topics that do not exist: as Kafka, they are told to be unknown even while they are created, and
    the client asks again."""
    topics = []
    wanted = []
    for name in names:
        await share.next()
        if topic_name_problem(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            wanted.append(name)
        topics.append(MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS))
    if create and wanted:
        await _auto_create(wanted, ctx)
    return topics


def _plain_topic(name: str, config: BrokerConfig) -> NewTopic:
    """A topic by this broker's properties; -1 leaves a number to the controller's."""
    return NewTopic(
        name,
        config.num_partitions if "num.partitions" in config.raw else -1,
        config.default_replication_factor if "default.replication.factor" in config.raw else -1,
    )


async def _auto_create(names: list[str], ctx: RequestContext) -> None:
    services = ctx.services
    try:
        for name in INTERNAL_TOPICS.intersection(names):
            # One whose coordinator is not there yet is not made: as an ordinary topic it would have the wrong shape.
            with contextlib.suppress(KeyError):
                await ensure_internal_topic(services, name)
        plain = [_plain_topic(name, services.config) for name in names if name not in INTERNAL_TOPICS]
        if plain:
            results = await services.metadata.create_topics(plain, ctx)
            for name, result in results.items():
                if isinstance(result, ApiError) and result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    logger.warning("auto topic creation failed for %s: %s", name, result)
    except ApiError as error:
        logger.warning("auto topic creation failed for %s: %s", ", ".join(names), error)
