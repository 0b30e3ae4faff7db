"""Internal topics, created when they are first needed (Kafka's ``AutoTopicCreationManager``)."""

from __future__ import annotations

import logging
from typing import Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import Services
from kbroker.raft_metadata.image import TopicImage, is_one_machine
from kbroker.raft_metadata.topics import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    NewTopic,
)

logger = logging.getLogger(__name__)

_FACTORS: Final = {
    CONSUMER_OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}
"""The properties with their replication factors."""


def _consumer_offsets(services: Services) -> NewTopic:
    config = services.config
    return NewTopic(
        name=CONSUMER_OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=_affordable(services, CONSUMER_OFFSETS_TOPIC, config.offsets_topic_replication_factor),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        ),
    )


def _transaction_state(services: Services) -> NewTopic:
    config = services.config
    return NewTopic(
        name=TRANSACTION_STATE_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=_affordable(
            services, TRANSACTION_STATE_TOPIC, config.transaction_state_log_replication_factor
        ),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ),
    )


def _share_group_state(services: Services) -> NewTopic:
    from kbroker.cores.share_coordinator.settings import ShareCoordinatorSettings

    settings = ShareCoordinatorSettings.from_config(services.config)
    return NewTopic(
        name=SHARE_GROUP_STATE_TOPIC,
        num_partitions=settings.topic_partitions,
        replication_factor=_affordable(services, SHARE_GROUP_STATE_TOPIC, settings.topic_replication_factor),
        configs=(
            # Records that nobody needs are deleted by the coordinator, which alone knows them.
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("min.insync.replicas", str(settings.topic_min_isr)),
            ("retention.ms", "-1"),
            ("segment.bytes", str(settings.topic_segment_bytes)),
        ),
    )


_INTERNAL_TOPICS = {
    CONSUMER_OFFSETS_TOPIC: _consumer_offsets,
    TRANSACTION_STATE_TOPIC: _transaction_state,
    SHARE_GROUP_STATE_TOPIC: _share_group_state,
}


def _affordable(services: Services, topic: str, replication_factor: int) -> int:
    """The factor that the topic's property says (KIP-115); of a node that is alone and was told none, one that it has.
    The nodes of one machine (``--cores``) are as one.

    With Kafka's default of 3 no group on a single node would find its coordinator; Kafka's own examples and images
    lower the property there. A value in the node's file is kept to. In a cluster it is right to refuse: the topic would
    keep too few replicas for good, only because some nodes had not started yet.
    """
    image = services.metadata.image
    # Of a controller apart nobody knows how many brokers are still to come.
    has_own_controller = len(image.controllers) == 1 and image.controllers.keys() <= image.brokers.keys()
    is_machine = has_own_controller and is_one_machine(image.brokers.values())
    if _FACTORS[topic] in services.config.raw or not (is_machine or services.metadata.is_alone):
        return replication_factor
    return 1 if is_machine else max(1, min(replication_factor, len(image.alive_brokers())))


async def ensure_internal_topic(services: Services, name: str) -> TopicImage:
    """The topic's image; the topic is created if need be. `ApiError` COORDINATOR_NOT_AVAILABLE if that fails."""
    topic = services.metadata.image.topics.by_name.get(name)
    if topic is not None:
        return topic
    wanted = _INTERNAL_TOPICS[name](services)
    try:
        created = await services.metadata.create_topics([wanted])
    except ApiError as error:  # clients do not know of controllers
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    outcome = created[name]
    if isinstance(outcome, ApiError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        if outcome.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            _warn_of_factor(services, wanted, outcome)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, outcome.message)
    topic = services.metadata.image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return topic


def _warn_of_factor(services: Services, topic: NewTopic, refusal: ApiError) -> None:
    """Tell once why the topic is not there: clients ask for coordinators again and again."""
    if topic.name not in services.unmade_topics:
        services.unmade_topics.add(topic.name)
        name, factor = _FACTORS[topic.name], topic.replication_factor
        logger.warning("%s cannot be made with %s=%d: %s", topic.name, name, factor, refusal.message)
