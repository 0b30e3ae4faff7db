"""The group coordinator's shard: the groups and offsets of one partition of ``__consumer_offsets``.

Pure: every method takes the time and returns a `CoordinatorResult`; the driver in `kbroker.node`
appends its records, replays them, and gives the replies when they are committed. Replaying a
partition from its start rebuilds the shard.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

from kbroker.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.classic_group import ClassicGroup, ClassicGroupState, ClassicMember
from kbroker.groups.classic_protocol import ClassicProtocol, ClientContext
from kbroker.groups.offsets import CommittedOffsets, expired_offsets
from kbroker.groups.records import (
    OffsetAndMetadata,
    group_metadata_tombstone,
    offset_commit_record,
    read_group_metadata,
    read_key,
    read_offset_commit,
)
from kbroker.groups.settings import GroupSettings
from kbroker.types import Uuid
from kbroker.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kbroker.wire.messages.heartbeat import HeartbeatRequest
from kbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kbroker.wire.messages.leave_group import MemberIdentity, MemberResponse
from kbroker.wire.messages.list_groups import ListedGroup
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kbroker.wire.records.consumer_offsets import GroupMetadataKey, GroupMetadataValue

_S = ClassicGroupState
CLASSIC_GROUP_TYPE = "Classic"


class GroupCoordinator:
    """One shard. ``settings`` is asked at each use, so that dynamic configs take effect."""

    def __init__(self, settings: Callable[[], GroupSettings], rng: random.Random) -> None:
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._offsets = CommittedOffsets()
        self._classic = ClassicProtocol(self._groups, settings, rng)
        self._next_expiry_check_ms: int | None = None

    # -- classic members -----------------------------------------------------------------------

    def join_group(
        self, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse] | CoordinatorResult[Token]:
        """JoinGroup."""
        settings = self._settings()
        timeout = request.session_timeout_ms
        if not settings.group_min_session_timeout_ms <= timeout <= settings.group_max_session_timeout_ms:
            return CoordinatorResult(
                JoinGroupResponse(
                    error_code=ErrorCode.INVALID_SESSION_TIMEOUT,
                    member_id=request.member_id,
                    protocol_name=None,
                )
            )
        return self._classic.join(request, client, now_ms)

    def sync_group(
        self, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse] | CoordinatorResult[Token]:
        """SyncGroup."""
        return self._classic.sync(request, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat; it never has records."""
        return self._classic.heartbeat(request, now_ms)

    def leave_group(
        self, group_id: str, members: Iterable[MemberIdentity], now_ms: int
    ) -> CoordinatorResult[list[MemberResponse]]:
        """LeaveGroup. `ApiError` for the whole request."""
        return self._classic.leave(group_id, members, now_ms)

    # -- offsets -------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int, now_ms: int
    ) -> CoordinatorResult[OffsetCommitResponse]:
        """OffsetCommit of partitions that exist. `ApiError` where the member or group is at fault."""
        self._validate_commit(request, api_version, now_ms)
        limit = self._settings().offset_metadata_max_bytes
        retention_ms = request.retention_time_ms
        expires = None if retention_ms == -1 else now_ms + retention_ms
        records = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error = ErrorCode.NONE
                if len(metadata) > limit:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    committed = OffsetAndMetadata(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp_ms=now_ms,
                        expire_timestamp_ms=expires,
                        topic_id=Uuid(topic.topic_id),
                    )
                    records.append(
                        offset_commit_record(
                            request.group_id, topic.name, partition.partition_index, committed
                        )
                    )
                partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                )
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
        return CoordinatorResult(OffsetCommitResponse(topics=topics), records)

    def _validate_commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> None:
        generation_id = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation_id >= 0:
                missing = ErrorCode.GROUP_ID_NOT_FOUND if api_version >= 9 else ErrorCode.ILLEGAL_GENERATION
                raise ApiError(missing)
            return  # A consumer without a group's membership: the first commit makes the group.
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and group.state is _S.EMPTY:
            return
        if generation_id >= 0 or request.member_id or request.group_instance_id is not None:
            member = group.validate_member(request.member_id, request.group_instance_id)
            if generation_id != group.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        else:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is _S.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._classic.renew_session(group, member, now_ms)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, topic_ids: dict[str, Uuid]
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group: the partitions named, or all for ``topics=None``.

        ``topic_ids`` are the current ids, so that an offset of a deleted topic of the same name is not given.
        """
        group = self._groups.get(request.group_id)
        known = group is not None and group.state is not _S.DEAD
        topics = []
        if request.topics is None:
            by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
            for partition, committed in self._offsets.of_group(request.group_id) if known else ():
                entry = _fetched(partition.partition, committed)
                by_topic.setdefault(partition.topic, []).append(entry)
            topics = [
                OffsetFetchResponseTopics(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ]
        else:
            for topic in request.topics:
                topic_id = topic_ids.get(topic.name, Uuid(topic.topic_id))
                partitions = [
                    _fetched(
                        index,
                        self._offsets.get(request.group_id, topic.name, index, topic_id) if known else None,
                    )
                    for index in topic.partition_indexes
                ]
                topics.append(
                    OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
                )
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """OffsetDelete: not for topics that a live member reads. `ApiError` for the whole request."""
        group = self._group(request.group_id)
        if group.state is not _S.EMPTY and not group.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        records = []
        topics = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name) and group.state is not _S.EMPTY
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
                if not subscribed and self._offsets.get(group.group_id, topic.name, index, Uuid(bytes(16))):
                    records.append(offset_commit_record(group.group_id, topic.name, index, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(OffsetDeleteResponse(topics=topics), records)

    def on_topics_deleted(self, deleted: Collection[tuple[str, Uuid]]) -> CoordinatorResult[None]:
        """Forget the offsets of topics that are gone."""
        names = dict(deleted)
        records = []
        for group_id in self._offsets.groups():
            for partition, committed in self._offsets.of_group(group_id):
                topic_id = names.get(partition.topic)
                if topic_id is not None and committed.topic_id in (bytes(16), topic_id):
                    records.append(offset_commit_record(group_id, *partition, None))
        return CoordinatorResult(None, records)

    # -- administration ------------------------------------------------------------------------

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """ListGroups; filters are lower case and match any where empty."""
        if types and CLASSIC_GROUP_TYPE.lower() not in types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_GROUP_TYPE,
            )
            for group in self._groups.values()
            if not states or group.state.value.lower() in states
        ]

    def describe_group(self, group_id: str, api_version: int) -> DescribedGroup:
        """DescribeGroups of one group; one that does not exist is shown as Dead."""
        group = self._groups.get(group_id)
        if group is None:
            missing = api_version >= 6
            return DescribedGroup(
                group_id=group_id,
                group_state=_S.DEAD.value,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
                error_message=f"Group {group_id} not found." if missing else None,
            )
        stable = group.state is _S.STABLE
        protocol = (group.protocol_name or "") if stable else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def delete_group(self, group_id: str) -> CoordinatorResult[None]:
        """DeleteGroups of one group, with its offsets. `ApiError` GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self._group(group_id)
        if group.state is not _S.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return CoordinatorResult(None, self._deletion(group))

    def _deletion(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        records = [
            offset_commit_record(group.group_id, *partition, None)
            for partition, _ in self._offsets.of_group(group.group_id)
        ]
        records.append(group_metadata_tombstone(group.group_id))
        return records

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None or group.state is _S.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms since the epoch; None if never."""
        classic = self._classic.next_deadline()
        if not self._groups:
            return classic
        expiry = self._next_expiry_check_ms
        return classic if expiry is None else expiry if classic is None else min(classic, expiry)

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one thing whose time has come; None when there is none (left)."""
        result = self._classic.on_deadline(now_ms)
        if result is not None:
            return result
        if self._next_expiry_check_ms is not None and now_ms >= self._next_expiry_check_ms:
            self._next_expiry_check_ms = now_ms + self._settings().offsets_retention_check_interval_ms
            return self._expire_offsets(now_ms)
        return None

    def _expire_offsets(self, now_ms: int) -> CoordinatorResult[None]:
        records = []
        retention_ms = self._settings().offsets_retention_ms
        for group in self._groups.values():
            expired = expired_offsets(group, self._offsets, retention_ms, now_ms)
            records += [offset_commit_record(group.group_id, *partition, None) for partition in expired]
            remaining = sum(1 for _ in self._offsets.of_group(group.group_id)) - len(expired)
            # An empty group is kept for its offsets only; one that never held any goes as well.
            if group.state is _S.EMPTY and not remaining and not group.pending_join_members:
                records.append(group_metadata_tombstone(group.group_id))
        return CoordinatorResult(None, records)

    # -- loading and leaving -------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, now_ms: int) -> None:
        """Apply one record of the partition, in log order. `WireError` for one that cannot be read."""
        key = read_key(record.key)
        if key is None:
            return
        if isinstance(key, GroupMetadataKey):
            group = self._groups.pop(key.group, None)
            if group is not None:
                self._classic.forget(group)
            if record.value is not None:
                self._groups[key.group] = _restored(key.group, read_group_metadata(record.value))
            return
        committed = None if record.value is None else read_offset_commit(record.value)
        self._offsets.put(key.group, key.topic, key.partition, committed)
        if committed is not None and key.group not in self._groups:
            self._groups[key.group] = ClassicGroup(key.group)

    def on_loaded(self, now_ms: int) -> None:
        """All records are replayed; from now on time counts."""
        for group in self._groups.values():
            self._classic.on_loaded(group, now_ms)
        self._next_expiry_check_ms = now_ms + self._settings().offsets_retention_check_interval_ms

    def on_unloaded(self) -> list[tuple[Token, object]]:
        """This node stops being the coordinator: what everybody who waits is told."""
        completed: list[tuple[Token, object]] = []
        for group in self._groups.values():
            completed += self._classic.fail_all(group, ErrorCode.NOT_COORDINATOR)
            self._classic.forget(group)
        return completed


def _fetched(index: int, committed: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _restored(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """A group as its record describes it: Stable with members, Empty without."""
    group = ClassicGroup(
        group_id,
        state=_S.STABLE if value.members else _S.EMPTY,
        state_timestamp_ms=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
    )
    for each in value.members:
        subscription = bytes(each.subscription)
        group.add(
            ClassicMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=(
                    each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout
                ),
                session_timeout_ms=each.session_timeout,
                protocol_type=value.protocol_type,
                protocols=[(value.protocol or "", subscription)],
                assignment=bytes(each.assignment),
            )
        )
    if value.members:
        group.leader_id = value.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
