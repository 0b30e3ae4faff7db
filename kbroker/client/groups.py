"""Administrators' questions about groups, as values: of consumers, by both protocols, and what all groups have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ApiNotServed, ResponseError
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, Member
from kbroker.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kbroker.wire.records.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kbroker.wire.schema import Request

MemberT = TypeVar("MemberT", covariant=True)
"""A member in an answer, of the type of that answer."""

T = TypeVar("T")

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""States in which partitions change hands, of groups of either protocol."""
MEMBERLESS: Final = frozenset({"Empty", "Dead"})
"""States in which nobody is in a group."""

_NAMES_UP_TO: Final = 9
"""OffsetFetch and OffsetCommit name topics up to this version; later ones have ids only."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups tells it; empty texts where the broker is too old to say."""

    group_id: str
    type: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. ``epoch`` and the target are of KIP-848 groups; an assignment that cannot be read is empty."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    topics: tuple[str, ...] = ()
    topic_regex: str | None = None
    epoch: int | None = None
    rack: str | None = None
    target: tuple[TopicPartition, ...] | None = None
    protocol: str = "classic"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. ``assignor`` is the chosen protocol of a classic group; the epochs are of KIP-848 groups."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


def assigned_to(group: GroupDescription) -> set[TopicPartition]:
    """The partitions that the members of a group have."""
    return {partition for member in group.members for partition in member.assignment}


def subscribed_and_unassigned(group: GroupDescription, unknown: Collection[str] = ()) -> dict[str, int]:
    """Topic -> the members that subscribe to it by name, of the topics of which no member has a partition.

    Partitions of ``unknown`` topics do not count: a member of a classic group keeps them until it hears of the end of
    the topic.
    """
    assigned = {partition.topic for member in group.members for partition in member.assignment}.difference(unknown)
    return Counter(topic for member in group.members for topic in set(member.topics) if topic not in assigned)


def topics_of_members(group: GroupDescription) -> set[str] | None:
    """The topics that a group reads: those that its members subscribe to by name, or have partitions of.

    None where that is not known: nobody is in the group, or a member tells no names of topics.
    """
    if not group.members or any(member.topic_regex is not None or not member.topics for member in group.members):
        return None
    assigned = {partition.topic for member in group.members for partition in member.assignment}
    return assigned.union(*(member.topics for member in group.members))


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset of a partition."""

    offset: int
    leader_epoch: int
    metadata: str


def list_groups(client: Client, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """All groups of all brokers, by name; of some states and types only, if any are given."""
    groups: dict[str, GroupListing] = {}

    def ask(node_ids: Iterable[int]) -> Mapping[int, ListGroupsResponse]:
        deadline = client.deadline()
        requests = {}
        for node_id in node_ids:
            version = client.node(node_id, deadline).version_for(ListGroupsRequest)
            if (states and version < 4) or (types and version < 5):
                raise ApiNotServed(f"broker {node_id} is too old to list groups by state or type")
            requests[node_id] = ListGroupsRequest(
                states_filter=list(states) if version >= 4 else [], types_filter=list(types) if version >= 5 else []
            )
        return client.ask_nodes(requests)

    def gather() -> None:
        for node_id, response in ask(client.all_nodes()).items():
            groups.update((group.group_id, group) for group in _listings(node_id, response))

    client.retrying(gather, client.deadline())
    return [groups[name] for name in sorted(groups)]


def groups_of_node(client: Client, node_id: int) -> list[GroupListing]:
    """The groups that one broker coordinates, in one request."""
    return list(_listings(node_id, client.ask_node(node_id, ListGroupsRequest())))


def _listings(node_id: int, response: ListGroupsResponse) -> Iterable[GroupListing]:
    refuse(response.error_code, f"broker {node_id}")
    return (
        GroupListing(group.group_id, group.group_type.capitalize(), group.protocol_type, group.group_state)
        for group in response.groups
    )


def describe_group(client: Client, group_id: str) -> GroupDescription:
    """Describe a group of consumers, of either type; ``ResponseError`` (GROUP_ID_NOT_FOUND) if there is none."""
    try:
        group = ask_about_group(client, group_id, ConsumerGroupDescribeRequest(group_ids=[group_id]))
    except ApiNotServed:
        return _describe_classic(client, group_id)
    except ResponseError as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
        return _describe_classic(client, group_id)
    return description_of(client, group_id, group, CONSUMER, group.assignor_name, _consumer_member)


def describe_by_node(client: Client, node_id: int, groups: Iterable[GroupListing]) -> dict[str, GroupDescription]:
    """Group -> its description, of groups of consumers that one broker coordinates; a request for each type.

    A group that fails (it has moved, it is not this user's) is left out.
    """
    found: dict[str, GroupDescription] = {}
    names: dict[bool, list[str]] = {}
    for each in groups:
        names.setdefault(each.type == CONSUMER, []).append(each.group_id)
    if True in names:
        for group in client.ask_node(node_id, ConsumerGroupDescribeRequest(group_ids=names[True])).groups:
            if not group.error_code:
                found[group.group_id] = _with_epochs(
                    node_id, group.group_id, group, CONSUMER, group.assignor_name, _consumer_member
                )
    if False in names:
        for classic in client.ask_node(node_id, DescribeGroupsRequest(groups=names[False])).groups:
            if not classic.error_code:
                found[classic.group_id] = _classic(node_id, classic)
    return found


class _Described(Protocol):
    """A group in the answer of its coordinator, or the error instead of it."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...


DescribedT = TypeVar("DescribedT", bound=_Described, covariant=True)


class _Descriptions(Protocol[DescribedT]):
    """The answer of a coordinator about groups."""

    @property
    def groups(self) -> Sequence[DescribedT]: ...


def ask_about_group(client: Client, group_id: str, request: Request[_Descriptions[DescribedT]]) -> DescribedT:
    """The answer of the coordinator about the one group that a request names: the first of its ``groups``.

    ``ResponseError`` for the error of that group.
    """

    def check(response: _Descriptions[DescribedT]) -> None:
        refuse(response.groups[0].error_code, f"group {group_id}", response.groups[0].error_message)

    return client.ask_coordinator(group_id, request, check).groups[0]


class _Members(Protocol[MemberT]):
    """A group in an answer of its coordinator."""

    @property
    def members(self) -> Sequence[MemberT]: ...


class _WithEpochs(_Members[MemberT], Protocol[MemberT]):
    """A group of consumers (KIP-848), a share or a Streams group."""

    @property
    def group_state(self) -> str: ...
    @property
    def group_epoch(self) -> int: ...
    @property
    def assignment_epoch(self) -> int: ...


def description_of(
    client: Client,
    group_id: str,
    group: _WithEpochs[MemberT],
    group_type: str,
    assignor: str,
    member_of: Callable[[MemberT], GroupMember],
) -> GroupDescription:
    """A group with epochs, as its coordinator describes it: of consumers (KIP-848), a share or a Streams group."""
    return _with_epochs(client.coordinator(group_id), group_id, group, group_type, assignor, member_of)


def _with_epochs(
    coordinator: int,
    group_id: str,
    group: _WithEpochs[MemberT],
    group_type: str,
    assignor: str,
    member_of: Callable[[MemberT], GroupMember],
) -> GroupDescription:
    return GroupDescription(
        group_id,
        group_type,
        group.group_state,
        group_type.lower(),
        assignor,
        coordinator,
        _members_of(group, member_of),
        group.group_epoch,
        group.assignment_epoch,
    )


def _members_of(group: _Members[MemberT], member_of: Callable[[MemberT], GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(map(member_of, group.members), key=lambda member: member.member_id))


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        partitions_of(member.assignment.topic_partitions),
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        member.member_epoch,
        member.rack_id,
        partitions_of(member.target_assignment.topic_partitions),
        "classic" if member.member_type == 0 else "consumer",
    )


class _AssignedTopic(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def partitions_of(topics: Iterable[_AssignedTopic]) -> tuple[TopicPartition, ...]:
    """An assignment of a described member, in order."""
    return tuple(sorted(TopicPartition(entry.topic_name, number) for entry in topics for number in entry.partitions))


def _describe_classic(client: Client, group_id: str) -> GroupDescription:
    group = ask_about_group(client, group_id, DescribeGroupsRequest(groups=[group_id]))
    if group.group_state == "Dead":  # how brokers before DescribeGroups 6 say that there is none
        raise ResponseError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
    return _classic(client.coordinator(group_id), group)


def _classic(coordinator: int, group: DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        _members_of(group, _classic_member),
    )


def _classic_member(member: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        classic_assignment(member.member_assignment),
        classic_subscription(member.member_metadata),
    )


def classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """A member's assignment as the consumer protocol has it; empty if it is of another protocol."""
    assignment = _embedded(ConsumerProtocolAssignment, data)
    if assignment is None:
        return ()
    return tuple(
        sorted(
            TopicPartition(entry.topic, number)
            for entry in assignment.assigned_partitions
            for number in entry.partitions
        )
    )


def classic_subscription(data: bytes) -> tuple[str, ...]:
    """The topics of a member's subscription; empty if it is of another protocol."""
    subscription = _embedded(ConsumerProtocolSubscription, data)
    return () if subscription is None else tuple(sorted(subscription.topics))


def _embedded(cls: type[T], data: bytes) -> T | None:
    if len(data) < 2:
        return None
    version = min(int.from_bytes(data[:2], "big"), 3)
    try:
        message: T = decode(cls, version, data, 2)[0]
        return message
    except WireError:
        return None


def committed_offsets(client: Client, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """All that a group has committed; empty for a group that is not there."""

    def make(version: int) -> OffsetFetchRequest:
        if version >= 8:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        return OffsetFetchRequest(group_id=group_id, topics=None)

    def whole(response: OffsetFetchResponse) -> OffsetFetchResponse | OffsetFetchResponseGroup:
        return response.groups[0] if response.groups else response

    def check(response: OffsetFetchResponse) -> None:
        refuse(whole(response).error_code, f"group {group_id}")

    response = client.ask_coordinator_versioned(group_id, make, OffsetFetchRequest, check, highest=_NAMES_UP_TO)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in whole(response).topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            refuse(entry.error_code, f"group {group_id}, partition {partition}")
            if entry.committed_offset >= 0:
                offsets[partition] = CommittedOffset(
                    entry.committed_offset, entry.committed_leader_epoch, entry.metadata or ""
                )
    return dict(sorted(offsets.items()))


def committed_by_node(client: Client, node_id: int, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Group -> its committed offsets, of groups that one broker coordinates.

    One request; of brokers before OffsetFetch 8 one for each group. A group that fails (it has moved, it is not this
    user's) is left out.
    """
    version = client.node(node_id, client.deadline()).version_for(OffsetFetchRequest, _NAMES_UP_TO)
    wholes: list[tuple[str, OffsetFetchResponse | OffsetFetchResponseGroup]] = []
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
        response = client.ask_node(node_id, OffsetFetchRequest(groups=groups), highest=version)
        wholes = [(group.group_id, group) for group in response.groups]
    else:
        for group_id in group_ids:
            request = OffsetFetchRequest(group_id=group_id, topics=None)
            wholes.append((group_id, client.ask_node(node_id, request, highest=version)))
    return {
        group_id: {
            TopicPartition(topic.name, entry.partition_index): entry.committed_offset
            for topic in whole.topics
            for entry in topic.partitions
            if not entry.error_code and entry.committed_offset >= 0
        }
        for group_id, whole in wholes
        if not whole.error_code
    }


def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ResponseError]:
    """Set a group's offsets from outside (no member may be in it); returns those that were refused."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        entry = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics.setdefault(topic, []).append(entry)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )

    def check(response: OffsetCommitResponse) -> None:
        codes = {entry.error_code for topic in response.topics for entry in topic.partitions}
        for code in codes:
            if ResponseError(code).retriable and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ResponseError(code, f"group {group_id}")

    response = client.ask_coordinator(group_id, request, check, highest=_NAMES_UP_TO)
    return _refused_partitions(response)


def delete_group(client: Client, group_id: str) -> None:
    """Delete a group that has no members, with its offsets."""

    def check(response: DeleteGroupsResponse) -> None:
        refuse(response.results[0].error_code, f"group {group_id}")

    client.ask_coordinator(group_id, DeleteGroupsRequest(groups_names=[group_id]), check)


def delete_offsets(
    client: Client, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ResponseError]:
    """Delete a group's offsets of some partitions; returns those that were refused."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))

    def check(response: OffsetDeleteResponse) -> None:
        refuse(response.error_code, f"group {group_id}")

    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )
    response = client.ask_coordinator(group_id, request, check)
    return _refused_partitions(response)


def _refused_partitions(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, ResponseError]:
    refused: dict[TopicPartition, ResponseError] = {}
    for topic in response.topics:
        for entry in topic.partitions:
            if entry.error_code:
                name = f"partition {topic.name}-{entry.partition_index}"
                refused[TopicPartition(topic.name, entry.partition_index)] = ResponseError(entry.error_code, name)
    return refused
