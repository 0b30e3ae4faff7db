"""The questions behind the waits and moves of :mod:`kbroker.testing.verbs`, asked as an administrator's client does."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.client import Client, ResponseError
from kbroker.client.cluster import refuse
from kbroker.client.configs import ConfigChange, ConfigSource, Operation, ResourceType, alter_configs, describe_configs
from kbroker.client.errors import known
from kbroker.client.groups import committed_offsets, delete_group, list_groups
from kbroker.client.quotas import alter_quotas, describe_quotas
from kbroker.client.reassignments import alter_reassignments
from kbroker.client.share_groups import SHARE, describe_any_group, share_offsets
from kbroker.client.topics import (
    LATEST,
    NewTopic,
    PartitionDescription,
    create_topics,
    delete_topics,
    describe_topics,
    list_offsets,
    list_ranges,
    list_topics,
)
from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.errors import ErrorCode
from kbroker.testing.seen import CannotNow, GroupSeen, LagSeen, LeaderSeen, NotThere, ResetDone
from kbroker.tools.diagnosis.log_gaps import LogGaps, Spot
from kbroker.types import TopicPartition
from kbroker.wire.messages.configs import ListConfigResourcesRequest
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

OFFSETS_TOPIC = "__consumer_offsets"


def group_seen(client: Client, group: str) -> GroupSeen:
    """A group of any type, also one that is not there."""
    try:
        found = describe_any_group(client, group)
    except ResponseError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return GroupSeen(group, "", "", -1, [], {})
    members = [member.member_id for member in found.members]
    assigned = {member.member_id: list(map(str, member.assignment)) for member in found.members}
    return GroupSeen(group, found.type, found.state, found.coordinator, members, assigned)


def committed_by(client: Client, group: str) -> Mapping[TopicPartition, int]:
    """The offsets that a group has committed; a share group's starts."""
    offsets = {partition: each.offset for partition, each in committed_offsets(client, group).items()}
    if offsets or group_seen(client, group).type != SHARE:
        return offsets
    shared = share_offsets(client, group)
    return {partition: -1 if each.start is None else each.start for partition, each in shared.items()}


def end_of(client: Client, partition: TopicPartition) -> int:
    """The end of a partition for readers of committed records; -1 of one that is not there."""
    found = list_offsets(client, {partition: LATEST}, read_committed=True)[partition]
    if not isinstance(found, ResponseError):
        return found.offset
    if found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return -1
    raise found


def _topic(client: Client, topic: str) -> tuple[PartitionDescription, ...]:
    """The partitions of a topic; ``NotThere``."""
    found = describe_topics(client, [topic])[topic]
    if not isinstance(found, ResponseError):
        return found.partitions
    if found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotThere(f"there is no topic {topic}")
    raise found


def lag_of(client: Client, topic: str, group: str, gaps: LogGaps) -> LagSeen:
    """The records that a group has not read; ``gaps`` remembers the ends of logs without any."""
    partitions = [TopicPartition(topic, each.partition) for each in _topic(client, topic)]
    ranges = known(list_ranges(client, partitions, read_committed=True))
    lag: dict[TopicPartition, int] = {}
    if group_seen(client, group).type == SHARE:
        for partition, shared in share_offsets(client, group).items():
            if partition in ranges and shared.lag is not None:
                lag[partition] = shared.lag
    committed = committed_offsets(client, group)
    spots: dict[Spot, int] = {}
    for partition, (start, end) in ranges.items():
        begin = committed[partition].offset if partition in committed else start
        if partition not in lag:
            lag[partition] = max(0, end - begin)
            if begin < end:
                spots[partition, begin] = end
    for partition, _ in gaps.look(client, spots):
        lag[partition] = 0
    return LagSeen(topic, group, {partition.partition: behind for partition, behind in sorted(lag.items())})


def choose_leader(client: Client, partition: TopicPartition, to: int | None) -> int:
    """Make a node the preferred leader of a partition: ``to``, or another replica in sync; the node."""
    chosen, replicas = _next_leader(client, partition, to)
    known(alter_reassignments(client, {partition: replicas}))
    return chosen


def partition_of_group(client: Client, group: str) -> int:
    """The partition of ``__consumer_offsets`` that has a group."""
    client.coordinator(group)  # which makes the topic
    return partition_for(group, len(_topic(client, OFFSETS_TOPIC)))


def create_topic(client: Client, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
    """Create a topic; -1 leaves a number to the nodes. ``ResponseError``."""
    for error in create_topics(client, [NewTopic(topic, partitions, replicas, configs)]).values():
        if isinstance(error, ResponseError):
            raise error


def delete_all(client: Client) -> ResetDone:
    """Delete all topics but internal ones, and all groups without members."""
    names = [topic.name for topic in list_topics(client) if not topic.internal]
    for error in delete_topics(client, names).values() if names else ():
        if error is not None and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    gone: list[str] = []
    kept: list[str] = []
    for group in list_groups(client):
        try:
            delete_group(client, group.group_id)
            gone.append(group.group_id)
        except ResponseError as error:
            if error.code == ErrorCode.NON_EMPTY_GROUP:
                kept.append(group.group_id)
            elif error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return ResetDone(names, gone, kept)


def forget_settings(client: Client) -> None:
    """Take back quotas, and the configs that brokers, groups and subscriptions to metrics were given."""
    for owner, values in describe_quotas(client, {}):
        alter_quotas(client, owner, dict.fromkeys(values))
    kinds = [ResourceType.GROUP, ResourceType.CLIENT_METRICS, ResourceType.BROKER]
    listed = client.ask_any(ListConfigResourcesRequest(resource_types=list(kinds)))
    refuse(listed.error_code, "configs")
    own = [(ResourceType(each.resource_type), each.resource_name) for each in listed.config_resources]
    for kind, name in [*own, (ResourceType.BROKER, "")]:  # without a name, the default of all brokers
        inherited = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.name if name else ""
        given = [
            ConfigChange(each.name, Operation.DELETE)
            for each in describe_configs(client, kind, name)
            if each.source.startswith("DYNAMIC_")
            and each.source != inherited
            and (name or each.name != "min.insync.replicas")  # which a cluster with ELR always has
        ]
        if given:
            alter_configs(client, kind, name, given)


def _next_leader(client: Client, partition: TopicPartition, to: int | None) -> tuple[int, list[int]]:
    """The node that is to lead, and the replicas that the partition has then, it the first of them."""
    found = next((each for each in _topic(client, partition.topic) if each.partition == partition.partition), None)
    if found is None:
        raise NotThere(f"there is no partition {partition}")
    if to is not None and to not in client.brokers:
        raise NotThere(f"there is no node {to} that runs")
    others = [node for node in found.isr if node != found.leader]
    if to is None and not others:
        raise CannotNow(f"{partition} has no other replica in sync")
    chosen = others[0] if to is None else to
    left = [node for node in found.replicas if node != chosen]
    if chosen not in found.replicas:  # it takes the place of the last one that does not lead
        left.remove(next((node for node in reversed(left) if node != found.leader), left[-1]))
    return chosen, [chosen, *left]


def elected(client: Client, partition: TopicPartition, chosen: int) -> LeaderSeen:
    """The leader, once an election is asked for where that would help."""
    topic, index = partition
    found = next(each for each in _topic(client, topic) if each.partition == index)
    if found.leader != chosen and chosen in found.isr:
        wanted = [TopicPartitions(topic=topic, partitions=[index])]
        client.ask_controller(ElectLeadersRequest(topic_partitions=wanted), lambda _: None)
        found = next(each for each in _topic(client, topic) if each.partition == index)
    return LeaderSeen(topic, index, -1 if found.leader is None else found.leader)
