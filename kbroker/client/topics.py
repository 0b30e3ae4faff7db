"""Administrators' questions about topics, as values."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kbroker.client.cluster import Client, refuse
from kbroker.client.configs import ConfigSource, ResourceType, describe_configs
from kbroker.client.errors import ClientError, ResponseError, known
from kbroker.client.leaders import ask_leaders
from kbroker.errors import ErrorCode
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kbroker.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kbroker.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from kbroker.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_valid_name(name: str) -> bool:
    """Whether Kafka allows it as the name of a topic (``Topic.validate``)."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as the metadata have it. ``leader`` is None without one, the ELRs where the broker does not tell."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the metadata have it."""

    name: str
    topic_id: Uuid
    internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, as Kafka's tools have it."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def under_replicated(topic: TopicDescription) -> int:
    """The number of partitions that lack a replica in their ISR."""
    return sum(len(entry.isr) < len(entry.replicas) for entry in topic.partitions)


def leaderless(topic: TopicDescription) -> int:
    """The number of partitions that nobody leads."""
    return sum(entry.leader is None for entry in topic.partitions)


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset that ListOffsets found; both -1 if it found none."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker. ``assignment``: partition -> brokers, instead of both."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None
    assignment: Sequence[Sequence[int]] | None = None


def list_topics(client: Client) -> list[TopicDescription]:
    """All topics that this client may see, by name."""
    found = [_from_metadata(topic) for topic in client.refresh(None) if not topic.error_code]
    return sorted(found, key=lambda topic: topic.name)


def describe_topics(client: Client, names: Sequence[str]) -> dict[str, TopicDescription | ResponseError]:
    """Name -> the topic, or why it cannot be described. With ELRs where the broker tells them."""
    wanted = list(dict.fromkeys(names))
    deadline = client.deadline()
    client.refresh((), deadline)
    if not client.any_broker(deadline).serves(DescribeTopicPartitionsRequest):
        return {
            topic.name or "": ResponseError(topic.error_code, f"topic {topic.name}")
            if topic.error_code
            else _from_metadata(topic)
            for topic in client.refresh(wanted, deadline)
        }
    partitions: dict[str, list[PartitionDescription]] = {name: [] for name in wanted}
    seen: dict[str, tuple[Uuid, bool]] = {}
    results: dict[str, TopicDescription | ResponseError] = {}
    cursor: Cursor | None = None
    while True:
        response = client.ask_any(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(wanted)], cursor=cursor)
        )
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                results[name] = ResponseError(topic.error_code, f"topic {name}")
                continue
            seen[name] = (topic.topic_id, topic.is_internal)
            for partition in topic.partitions:
                partitions[name].append(
                    PartitionDescription(
                        partition.partition_index,
                        partition.leader_id if partition.leader_id >= 0 else None,
                        partition.leader_epoch,
                        tuple(partition.replica_nodes),
                        tuple(partition.isr_nodes),
                        tuple(partition.offline_replicas),
                        tuple(partition.eligible_leader_replicas or ()),
                        tuple(partition.last_known_elr or ()),
                    )
                )
        if response.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    for name, (topic_id, internal) in seen.items():
        ordered = sorted(partitions[name], key=lambda partition: partition.partition)
        results[name] = TopicDescription(name, topic_id, internal, tuple(ordered))
    return {name: results[name] for name in wanted if name in results}


def _from_metadata(topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                partition.partition_index,
                partition.leader_id if partition.leader_id >= 0 else None,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                tuple(partition.offline_replicas),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ),
    )


def missing_topics(client: Client, names: Sequence[str]) -> set[str]:
    """Those of the topics that do not exist: two brokers say so, as one may be late to know of a topic."""
    told = describe_topics(client, names) if names else {}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = {name for name, topic in told.items() if isinstance(topic, ResponseError) and topic.code == unknown}
    for node_id in sorted(client.brokers)[:2] if found else ():
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(found)], allow_auto_topic_creation=False
        )
        try:
            response = client.ask_together({node_id: request}, client.deadline(), 12)[node_id]
        except ClientError:
            continue  # it is down
        found.difference_update(topic.name or "" for topic in response.topics if topic.error_code != unknown)
    return found


def list_offsets(
    client: Client, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, ListedOffset | ResponseError]:
    """Partition -> the offset at ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP`` or the first at or after a time in ms.

    With ``read_committed`` the latest is the last stable offset.
    """

    def make(group: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        return offsets_request(group, int(client.timeout * 1000), read_committed=read_committed)

    return ask_leaders(client, wanted, make, listed_offsets)


def offsets_request(
    wanted: Mapping[TopicPartition, int], timeout_ms: int, *, read_committed: bool = False
) -> ListOffsetsRequest:
    """The request for offsets of partitions that one broker leads, as ``list_offsets`` has them."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(entry)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()],
        timeout_ms=timeout_ms,
    )


def listed_offsets(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int, ListedOffset]]:
    """Each partition of an answer with its error code and its offset."""
    for topic in response.topics:
        for entry in topic.partitions:
            listed = ListedOffset(entry.offset, entry.timestamp, entry.leader_epoch)
            yield TopicPartition(topic.name, entry.partition_index), entry.error_code, listed


def list_ranges(
    client: Client, partitions: Iterable[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, tuple[int, int] | ResponseError]:
    """Partition -> (start offset, end offset), or what kept them from being known."""
    wanted = list(partitions)
    starts = list_offsets(client, dict.fromkeys(wanted, EARLIEST), read_committed=read_committed)
    # A partition without a leader has been waited for once.
    known = [each for each in wanted if isinstance(starts[each], ListedOffset)]
    ends = list_offsets(client, dict.fromkeys(known, LATEST), read_committed=read_committed)
    ranges: dict[TopicPartition, tuple[int, int] | ResponseError] = {}
    for partition in wanted:
        start = starts[partition]
        if isinstance(start, ListedOffset):
            end = ends[partition]
            ranges[partition] = (start.offset, end.offset) if isinstance(end, ListedOffset) else end
        else:
            ranges[partition] = start
    return ranges


def partition_sizes(client: Client) -> dict[TopicPartition, dict[int, int]]:
    """Partition -> broker -> bytes on its disk; what has no data yet is not in it.

    :class:`ResponseError` if the client may not look into log directories, which needs DESCRIBE on the cluster.
    """
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node_id, response in client.ask_nodes(
        {node_id: DescribeLogDirsRequest(topics=None) for node_id in client.all_nodes()}
    ).items():
        add_sizes(sizes, node_id, response)
    return sizes


def sizes_request(partitions: Iterable[TopicPartition] | None) -> DescribeLogDirsRequest:
    """The request for sizes of some partitions on one broker, or of all, and for what is missing from damaged logs."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    wanted = [DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return DescribeLogDirsRequest(topics=None if partitions is None else wanted, wants_damage=True)


def add_sizes(sizes: dict[TopicPartition, dict[int, int]], node_id: int, response: DescribeLogDirsResponse) -> None:
    """Add the sizes of one broker's answer; :class:`ResponseError` as of `partition_sizes`."""
    if response.error_code:  # from version 3 on; before, there is nothing in the answer
        raise ResponseError(response.error_code, "sizes")
    for directory in response.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    known = sizes.setdefault(TopicPartition(topic.name, partition.partition_index), {})
                    known[node_id] = partition.partition_size


def create_topics(
    client: Client, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatableTopicResult | ResponseError]:
    """Create topics, or only judge; name -> what the broker made of it."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=-1 if topic.assignment else topic.partitions,
                replication_factor=-1 if topic.assignment else topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in enumerate(topic.assignment or ())
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in (topic.configs or {}).items()],
            )
            for topic in topics
        ],
        timeout_ms=int(client.timeout * 1000),
        validate_only=validate_only,
    )

    def check(response: CreateTopicsResponse) -> None:
        for result in response.topics:
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                raise ResponseError(result.error_code)

    response = client.ask_controller(request, check)
    return {
        result.name: ResponseError(result.error_code, f"topic {result.name}", result.error_message)
        if result.error_code
        else result
        for result in response.topics
    }


def delete_topics(client: Client, names: Sequence[str]) -> dict[str, ResponseError | None]:
    """Delete topics; name -> None, or why not."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
        topic_names=list(names),
        timeout_ms=int(client.timeout * 1000),
    )

    def check(response: DeleteTopicsResponse) -> None:
        for result in response.responses:
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                raise ResponseError(result.error_code)

    def prepare(version: int) -> DeleteTopicsRequest:
        return request if version >= 6 else DeleteTopicsRequest(topic_names=list(names), timeout_ms=request.timeout_ms)

    version = client.any_broker(client.deadline()).version_for(DeleteTopicsRequest)
    response = client.ask_controller(prepare(version), check, highest=version)
    return {
        result.name or "": ResponseError(result.error_code, f"topic {result.name}", result.error_message)
        if result.error_code
        else None
        for result in response.responses
    }


def recreate_topic(client: Client, name: str, partitions: int | None = None) -> Uuid:
    """Delete a topic and create it with its own configs, replication factor and partitions (or so many); its old id.

    What could not be created is not deleted. A topic of the name that somebody else has made in between stays:
    ``ResponseError`` TOPIC_ALREADY_EXISTS then.
    """
    before = known(describe_topics(client, [name]))[name]
    entries = describe_configs(client, ResourceType.TOPIC, name)
    own = {each.name: each.value or "" for each in entries if each.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.name}
    anew = NewTopic(name, partitions or len(before.partitions), before.replication_factor, own)
    known(create_topics(client, [replace(anew, name=f"{name[:240]}-anew")], validate_only=True))
    if (refused := delete_topics(client, [name])[name]) is not None:
        raise refused
    deadline = client.deadline()
    while True:
        created = create_topics(client, [anew])[name]
        if not isinstance(created, ResponseError):
            return before.topic_id
        there = describe_topics(client, [name])[name]
        is_another = not isinstance(there, ResponseError) and there.topic_id != before.topic_id
        if created.code != ErrorCode.TOPIC_ALREADY_EXISTS or is_another or time.monotonic() > deadline:
            raise ResponseError(created.code, f"topic {name} is deleted, and was not created again", created.message)
        client.back_off()  # brokers before KRaft delete it a moment later


def create_partitions(
    client: Client,
    name: str,
    total: int,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Give a topic more partitions, ``total`` in all; ``assignment``: the brokers of each new one."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=total,
                assignments=None
                if assignment is None
                else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignment],
            )
        ],
        timeout_ms=int(client.timeout * 1000),
        validate_only=validate_only,
    )

    def check(response: CreatePartitionsResponse) -> None:
        for result in response.results:
            refuse(result.error_code, f"topic {result.name}", result.error_message)

    client.ask_controller(request, check)


def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ResponseError]:
    """Delete what is before an offset (-1: everything up to the high watermark); partition -> the new start offset."""

    def make(group: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for (topic, partition), offset in group.items():
            topics.setdefault(topic, []).append(DeleteRecordsPartition(partition_index=partition, offset=offset))
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=entries) for name, entries in topics.items()],
            timeout_ms=int(client.timeout * 1000),
        )

    def read(response: DeleteRecordsResponse) -> Iterable[tuple[TopicPartition, int, int]]:
        for topic in response.topics:
            for entry in topic.partitions:
                yield TopicPartition(topic.name, entry.partition_index), entry.error_code, entry.low_watermark

    return ask_leaders(client, before, make, read)
