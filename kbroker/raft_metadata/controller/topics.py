"""Topics and partitions: CreateTopics, DeleteTopics, CreatePartitions (Kafka's ``ReplicationControlManager``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.config_entries import ConfigEntry, topic_entries
from kbroker.raft_metadata.controller.assignments import check_assigned, new_partition_records, place_on_brokers
from kbroker.raft_metadata.controller.configs import SET, ConfigChange, incremental_records
from kbroker.raft_metadata.controller.view import (
    MAX_RECORDS_PER_USER_OP,
    ControllerResult,
    ControllerView,
    too_many_records,
)
from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.raft_metadata.topics import (
    NewPartitions,
    NewTopic,
    has_collision_chars,
    unify_collision_chars,
    validate_topic_name,
)
from kbroker.types import Uuid, random_uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import RemoveTopicRecord, TopicRecord

UNKNOWN_TOPIC_ID_MESSAGE = "This server does not host this topic ID."
"""Kafka's standard text, which DeleteTopics passes on."""


CountPartitions = Callable[[int], None]
"""Counts partitions that come or go for a client's quota; ``ApiError`` THROTTLING_QUOTA_EXCEEDED if they may not now
(``ControllerRequestContext.applyPartitionChangeQuota``)."""


def _uncounted(partitions: int) -> None:
    """Count nothing: the client has no quota."""


class CreatedTopic(NamedTuple):
    """A topic as it was, or would be, created. ``configs`` is every effective property, in name order."""

    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    configs: list[ConfigEntry]


MAX_PARTITIONS_PER_BATCH = 10_000
"""No request may ask for more new partitions than this (``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``)."""


# --- CreateTopics -----------------------------------------------------------------------------------------------


def create_topics(
    view: ControllerView,
    topics: Sequence[NewTopic],
    *,
    validate_only: bool = False,
    count_partitions: CountPartitions = _uncounted,
) -> ControllerResult[dict[str, CreatedTopic | ApiError]]:
    """Create topics, each wholly or not at all; the outcome of each by name. Names must differ.

    ``ApiError`` POLICY_VIOLATION if the request as a whole is too big.
    """
    _check_size(view, topics)
    results: dict[str, CreatedTopic | ApiError] = {}

    def records() -> Iterator[object]:
        count = 0
        # Of all topics without properties of their own they are the same.
        entries = cache(lambda configs: _entries(view, dict(configs)))
        for topic in topics:
            try:
                own, partitions, created = yield from _create(view, topic, count_partitions, entries)
            except ApiError as error:
                results[topic.name] = error.without_traceback()
                yield None
                continue
            count += len(own) + created.num_partitions
            if count > MAX_RECORDS_PER_USER_OP:  # topics and their configs have records, too
                raise too_many_records()
            results[topic.name] = created
            yield from (None,) if validate_only else chain(own, partitions)

    return ControllerResult(results, records())


def _check_size(view: ControllerView, topics: Sequence[NewTopic]) -> None:
    default = view.schema.config.num_partitions
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == -1 else max(topic.num_partitions, 0)
        if total > MAX_PARTITIONS_PER_BATCH:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create(
    view: ControllerView,
    topic: NewTopic,
    count_partitions: CountPartitions,
    entries: Callable[[tuple[tuple[str, str], ...]], list[ConfigEntry]],
) -> Generator[None, None, tuple[list[object], Iterator[object], CreatedTopic]]:
    """The records of one topic, and those of its partitions; in steps."""
    _check_name(view, topic.name)
    null = [name for name, value in topic.configs if value is None]
    if null:
        raise ApiError(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(null))
    configs = {name: value for name, value in topic.configs if value is not None}
    config_records = incremental_records(
        view,
        ConfigResource(ResourceType.TOPIC, topic.name),
        [ConfigChange(name, SET, value) for name, value in configs.items()],
        new_resource=True,
    )
    partitions: Iterable[Sequence[int]]
    if topic.assignments:
        partitions = assigned = yield from _assigned(view, topic)
        count, factor = len(assigned), len(assigned[0])
    else:
        count, factor, partitions = _placed(view, topic)
    _ask_policy(view, topic, count, factor, configs)
    count_partitions(count)
    topic_id = _new_topic_id(view)
    created = CreatedTopic(topic_id, count, factor, entries(tuple(configs.items())))
    records: list[object] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    return records, new_partition_records(view, topic_id, 0, partitions), created


def _entries(view: ControllerView, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every effective property of a topic with these of its own, in name order."""
    # As in Kafka, values stand as they were written; DescribeConfigs tells what they mean.
    return sorted(
        entry._replace(value=configs.get(entry.name, entry.value))
        for entry in topic_entries(view.schema, view.image.configs, configs)
    )


def _ask_policy(view: ControllerView, topic: NewTopic, count: int, factor: int, configs: Mapping[str, str]) -> None:
    """`ApiError` POLICY_VIOLATION if the policy is against the topic (KIP-108)."""
    policy = view.policies.create_topic
    if policy is None:
        return
    if topic.assignments:
        policy(topic.name, None, None, {each: tuple(brokers) for each, brokers in topic.assignments}, configs)
    else:
        policy(topic.name, count, factor, None, configs)


def _check_name(view: ControllerView, name: str) -> None:
    """`ApiError` if there is a topic of that name, or one but for ``.`` and ``_``; as in Kafka, two such topics of one
    request do not collide."""
    validate_topic_name(name)
    topics = view.image.topics
    if name in topics.by_name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if has_collision_chars(name):
        others = topics.colliding.get(unify_collision_chars(name))
        if others:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {others[0]}"
            )


def _new_topic_id(view: ControllerView) -> Uuid:
    while True:
        topic_id = random_uuid(view.rng)
        if topic_id not in view.image.topics.by_id:
            return topic_id


def _assigned(view: ControllerView, topic: NewTopic) -> Generator[None, None, list[Sequence[int]]]:
    """The replicas of a topic's partitions that the client has chosen, judged in steps of one."""
    if topic.replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, Sequence[int]] = {}
    factor: int | None = None
    for partition_id, brokers in topic.assignments:
        if partition_id in found:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition_id}",
            )
        check_assigned(view, partition_id, brokers, factor)
        found[partition_id] = brokers
        factor = len(brokers)
        yield
    if set(found) != set(range(len(found))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[partition_id] for partition_id in range(len(found))]


def _placed(view: ControllerView, topic: NewTopic) -> tuple[int, int, Iterator[Sequence[int]]]:
    """The number of a topic's partitions, that of their replicas, and these, which the controller chooses."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    defaults = view.schema.config
    count = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = defaults.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    try:
        return count, factor, place_on_brokers(view, count, factor)
    except ApiError as error:
        raise ApiError(error.code, f"Unable to replicate the partition {factor} time(s): {error.message}") from None


# --- CreatePartitions -------------------------------------------------------------------------------------------


def create_partitions(
    view: ControllerView,
    topics: Sequence[NewPartitions],
    *,
    validate_only: bool = False,
    count_partitions: CountPartitions = _uncounted,
) -> ControllerResult[dict[str, ApiError | None]]:
    """Add partitions, for each topic all or none; an error or None by name. Names must differ.

    ``ApiError`` POLICY_VIOLATION if the request as a whole is too big.
    """
    by_name, total = view.image.topics.by_name, 0
    for topic in topics:
        known = by_name.get(topic.name)
        total += 0 if known is None else max(topic.total - len(known.partitions), 0)
        if total > MAX_PARTITIONS_PER_BATCH:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")
    results: dict[str, ApiError | None] = {}

    def records() -> Iterator[object]:
        for topic in topics:
            try:
                partitions = yield from _add_partitions(view, topic, count_partitions)
                results[topic.name] = None
            except ApiError as error:
                results[topic.name] = error.without_traceback()
                partitions = iter(())
            yield None
            if not validate_only:
                yield from partitions

    return ControllerResult(results, records())


def _add_partitions(
    view: ControllerView, wanted: NewPartitions, count_partitions: CountPartitions
) -> Generator[None, None, Iterator[object]]:
    """The records of one topic's new partitions. Replicas that the client has chosen are judged in steps of one."""
    topic = view.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    existing = len(topic.partitions)
    if wanted.total == existing:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if wanted.total < existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {existing} partition(s); {wanted.total} would not be an increase.",
        )
    additional = wanted.total - existing
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
            "assignment(s) were specified.",
        )
    count_partitions(additional)
    factor = len(topic.partitions[0].replicas)
    for partition_id, brokers in enumerate(wanted.assignments or (), existing):
        check_assigned(view, partition_id, brokers, factor)
        yield
    placed = wanted.assignments if wanted.assignments is not None else place_on_brokers(view, additional, factor)
    return new_partition_records(view, topic.id, existing, placed)


# --- DeleteTopics -----------------------------------------------------------------------------------------------


def delete_topics(
    view: ControllerView,
    topic_ids: Collection[Uuid],
    *,
    count_partitions: CountPartitions = _uncounted,
    begun: set[Uuid] | None = None,
) -> ControllerResult[dict[Uuid, ApiError | None]]:
    """Delete topics by id; UNKNOWN_TOPIC_ID for each that does not exist.

    ``begun``: those that an earlier decision on the request deletes, to which these come. What is gone of them is
    deleted, for the first of several batches may have been written before that decision was overtaken.
    """
    results: dict[Uuid, ApiError | None] = {}

    def records() -> Iterator[object]:
        for topic_id in topic_ids:
            record, results[topic_id] = None, None
            try:
                topic = view.image.topics.by_id.get(topic_id)
                if topic is not None:
                    count_partitions(len(topic.partitions))
                    record = RemoveTopicRecord(topic_id=topic_id)
                    if begun is not None:
                        begun.add(topic_id)
                elif begun is None or topic_id not in begun:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID_MESSAGE)
            except ApiError as error:
                results[topic_id] = error.without_traceback()
            yield record

    return ControllerResult(results, records())
