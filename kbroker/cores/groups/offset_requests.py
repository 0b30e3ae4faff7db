"""Requests about committed offsets: permission to commit, fetch and delete them, and their expiry.

Rules: Kafka's ``OffsetMetadataManager`` and the groups' ``validateOffset...`` (4.4).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.classic_group import ClassicGroup, ClassicGroupState
from kbroker.cores.groups.classic_protocol import ClassicRebalanceProtocol
from kbroker.cores.groups.consumer_group import ConsumerGroup
from kbroker.cores.groups.consumer_group_records import group_removal
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.offset_committers import (
    CONSUMER_MEMBER_VERSION,
    TRANSACTIONAL_ERRORS_VERSION,
    Committer,
    streams_committer,
    validate_by_assignment,
    validate_fetch,
    validate_member_commit,
    validate_partition,
    wrong_epoch,
    wrong_transactional_epoch,
)
from kbroker.cores.groups.offsets import CommittedOffsets, OffsetKey, PendingOffsets, expired_offsets
from kbroker.cores.groups.records import (
    OffsetAndMetadata,
    group_metadata_tombstone,
    offset_commit_record,
    offset_key_prefix,
    offset_value,
)
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
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
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kbroker.cores.groups.share_group import ShareGroup
    from kbroker.cores.groups.streams.group import StreamsGroup, StreamsGroupMember

_S = ClassicGroupState
_pack_index = struct.Struct(">i").pack
EXPIRED_TOGETHER = 500
"""Offsets and groups that are looked at in one step, for their expiry: some milliseconds. A group's are not divided."""
_FOR_EVER = 2**63 - 1
"""The latest time that a record can hold, in ms since the epoch."""


class _CommittedPartition(NamedTuple):
    """A partition for which an offset is committed, and the fields besides the offset."""

    key: bytes
    topic_id: Uuid
    partition: int
    leader_epoch: int
    metadata: str


class OffsetsToCommit:
    """An OffsetCommit of partitions that exist: the places of its offsets, and its response on success.

    Partitions with more than ``metadata_limit`` characters of metadata (``offset.metadata.max.bytes``) are left out,
    and answered with their error.
    """

    __slots__ = ("api_version", "offsets", "places", "request", "response")

    def __init__(self, request: OffsetCommitRequest, api_version: int, metadata_limit: int) -> None:
        self.request = request
        self.api_version = api_version
        self.offsets: list[int] = []
        self.places: list[_CommittedPartition] = []
        # Here fields are set one by one, which takes half of the time that arguments by name do.
        self.response = OffsetCommitResponse()
        self.response.topics = [self._topic(topic, metadata_limit) for topic in request.topics]

    def _topic(self, topic: OffsetCommitRequestTopic, metadata_limit: int) -> OffsetCommitResponseTopic:
        prefix, topic_id = offset_key_prefix(self.request.group_id, topic.name), Uuid(topic.topic_id)
        answers = OffsetCommitResponseTopic()
        answers.name, answers.topic_id, answers.partitions = topic.name, topic.topic_id, []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            answer = OffsetCommitResponsePartition()
            answer.partition_index = index
            answers.partitions.append(answer)
            if len(metadata) > metadata_limit:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            key = prefix + _pack_index(index)
            self.places.append(_CommittedPartition(key, topic_id, index, partition.committed_leader_epoch, metadata))
            self.offsets.append(partition.committed_offset)
        return answers


class OffsetRequests:
    """The committed offsets of a shard's groups."""

    def __init__(
        self, groups: Groups, classic: ClassicRebalanceProtocol, settings: Callable[[], GroupSettings]
    ) -> None:
        self.committed = CommittedOffsets()
        self.pending = PendingOffsets()
        self._groups = groups
        self._classic = classic
        self._settings = settings

    # -- offsets -------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, api_version: int, now_ms: int, committed_ms: int
    ) -> CoordinatorResult[OffsetCommitResponse]:
        """OffsetCommit of partitions that exist. `ApiError` where the member or group is at fault."""
        commit = OffsetsToCommit(request, api_version, self._settings().offset_metadata_max_bytes)
        records = self.commit_again(commit, commit.offsets, now_ms, committed_ms)
        if not records:
            self._exists_now(request.group_id)
        return CoordinatorResult(commit.response, records)

    def _exists_now(self, group_id: str) -> None:
        """Have the group of a commit in memory whose offsets were all refused, as Kafka does: until it expires."""
        if self._groups.with_offsets_of(group_id) is None:
            self._groups.classic[group_id] = ClassicGroup(group_id)

    def commit_again(
        self, commit: OffsetsToCommit, offsets: Sequence[int], now_ms: int, committed_ms: int
    ) -> list[CoordinatorRecord]:
        """The records of `commit` of other offsets for the same partitions; ``commit`` has the response already."""
        request = commit.request
        by_partition = self._validate_commit(request, commit.api_version, now_ms)
        retention_ms = request.retention_time_ms
        expires = None if retention_ms == -1 else min(committed_ms + retention_ms, _FOR_EVER)
        records = []
        for (key, topic_id, partition, leader_epoch, metadata), offset in zip(commit.places, offsets, strict=True):
            if by_partition is not None:
                validate_partition(by_partition, topic_id, partition)
            value = offset_value(offset, leader_epoch, metadata, committed_ms, expires, topic_id)
            records.append(CoordinatorRecord(key, value))
        return records

    def _validate_commit(self, request: OffsetCommitRequest, api_version: int, now_ms: int) -> Committer | None:
        """`ApiError` where the request must not commit.

        Returns the member and its epoch where each partition is to be judged by the epoch that it was assigned in.
        """
        epoch = request.generation_id_or_member_epoch
        group = self._groups.classic.get(request.group_id)
        if group is None:
            return self._validate_modern_commit(request, api_version)
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if epoch < 0 and group.state is _S.EMPTY:
            return None
        if epoch >= 0 or request.member_id or request.group_instance_id is not None:
            member = group.validate_member(request.member_id, request.group_instance_id)
            if epoch != group.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        else:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.state is _S.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._classic.renew_session(group, member, now_ms)
        return None

    def _validate_modern_commit(self, request: OffsetCommitRequest, api_version: int) -> Committer | None:
        """`_validate_commit` where no classic group has the id: for a modern group, or for none."""
        epoch = request.generation_id_or_member_epoch
        consumer = self._groups.consumer.get(request.group_id)
        if consumer is not None:
            return validate_member_commit(consumer, request.member_id, epoch, api_version)
        streams = self._groups.streams.get(request.group_id)
        if streams is not None:
            if epoch < 0 and not streams.members:
                return None
            if streams.member(request.member_id) and api_version < CONSUMER_MEMBER_VERSION:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            return streams_committer(streams, request.member_id, epoch, request.topics, wrong_epoch)
        self._groups.check_has_offsets(request.group_id)
        if epoch >= 0:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if api_version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        return None  # A consumer without a group's membership: the first commit makes the group.

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """TxnOffsetCommit of partitions that exist; each topic has its name and its id. `ApiError` where the member or
        group is at fault."""
        by_partition = self._validate_transactional_commit(request, api_version)
        limit = self._settings().offset_metadata_max_bytes
        records = []
        topics = []
        for topic in request.topics:
            topic_id = Uuid(topic.topic_id)
            partitions = []
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                error = ErrorCode.NONE
                if len(metadata) > limit:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if by_partition is not None:
                        validate_by_assignment(by_partition, topic_id, partition.partition_index, api_version)
                    committed = OffsetAndMetadata(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp_ms=now_ms,
                        topic_id=topic_id,
                    )
                    records.append(
                        offset_commit_record(request.group_id, topic.name, partition.partition_index, committed)
                    )
                partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic_id, partitions=partitions))
        if not records:
            self._exists_now(request.group_id)
        return CoordinatorResult(TxnOffsetCommitResponse(topics=topics), records)

    def _validate_transactional_commit(self, request: TxnOffsetCommitRequest, api_version: int) -> Committer | None:
        """Judge a commit in a transaction (KIP-447): a client that names no member is not asked for one, and a group in
        the middle of a rebalance takes offsets of members of the generation before."""
        epoch = request.generation_id_or_member_epoch
        self._groups.check_has_offsets(request.group_id)
        anonymous = epoch < 0 and not request.member_id and request.group_instance_id is None
        consumer = self._groups.consumer.get(request.group_id)
        if consumer is not None:
            if anonymous or (epoch < 0 and not consumer.members):
                return None
            member = consumer.member(request.member_id)
            if epoch > member.member_epoch:
                raise wrong_transactional_epoch(member, api_version)
            return None if epoch == member.member_epoch else Committer(member, epoch, member.partition_epoch)
        streams = self._groups.streams.get(request.group_id)
        if streams is not None:
            if anonymous or (epoch < 0 and not streams.members):
                return None

            def wrong(member: StreamsGroupMember) -> ApiError:
                return wrong_transactional_epoch(member, api_version)

            return streams_committer(streams, request.member_id, epoch, request.topics, wrong)
        group = self._groups.classic.get(request.group_id)
        if group is None:
            if epoch >= 0:
                named = api_version >= TRANSACTIONAL_ERRORS_VERSION
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND if named else ErrorCode.ILLEGAL_GENERATION)
            return None
        if group.state is _S.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if anonymous or (epoch < 0 and group.state is _S.EMPTY):
            return None
        group.validate_member(request.member_id, request.group_instance_id)
        if epoch != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return None

    def replay_tombstone(self, key: OffsetKey) -> None:
        """Delete an offset, and those that open transactions commit for the same partition."""
        self.committed.put(*key, None)
        self.pending.remove(key)

    def replay_end_transaction(self, producer_id: int, commit: bool) -> None:
        """End a transaction in this partition. Of offsets committed in it and beside it, the later one counts."""
        for key, offset in self.pending.end(producer_id).items():
            if not commit:
                continue
            existing = self.committed.get(*key, ZERO_UUID)
            if existing is None or offset.record_offset > existing.record_offset:
                self.committed.put(*key, offset)

    def fetch(
        self, request: OffsetFetchRequestGroup, topic_ids: dict[str, Uuid], require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group: the partitions named, or all for ``topics=None``. `ApiError` for the whole.

        ``topic_ids`` are the current ids, so that an offset of a deleted topic of the same name is not given.
        With ``require_stable`` a partition for which a transaction is open gets UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        group_id = request.group_id
        unstable = frozenset(self.pending.of_group(group_id)) if require_stable else frozenset()
        group = self._groups.consumer.get(group_id) or self._groups.streams.get(group_id)
        if group is not None:
            validate_fetch(group, request.member_id, request.member_epoch)
        classic = self._groups.classic.get(group_id)
        known = group is not None or (classic is not None and classic.state is not _S.DEAD)
        topics = []
        if request.topics is None:
            by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
            for partition, committed in self.committed.of_group(group_id) if known else ():
                entry = _fetched(partition.partition, committed, partition in unstable)
                by_topic.setdefault(partition.topic, []).append(entry)
            topics = [
                OffsetFetchResponseTopics(name=name, partitions=partitions) for name, partitions in by_topic.items()
            ]
        else:
            for topic in request.topics:
                topic_id = topic_ids.get(topic.name, Uuid(topic.topic_id))
                partitions = [
                    _fetched(
                        index,
                        self.committed.get(group_id, topic.name, index, topic_id) if known else None,
                        (topic.name, index) in unstable,
                    )
                    for index in topic.partition_indexes
                ]
                topics.append(
                    OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
                )
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def delete(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """OffsetDelete: not for topics that a live member reads. `ApiError` for the whole request."""
        self._groups.check_has_offsets(request.group_id)
        groups, group_id = self._groups, request.group_id
        group = groups.classic.get(group_id) or groups.streams.get(group_id) or groups.consumer_group(group_id)
        if isinstance(group, ClassicGroup):
            if group.state is not _S.EMPTY and not group.uses_consumer_protocol:
                raise ApiError(ErrorCode.NON_EMPTY_GROUP)
            has_members = group.state is not _S.EMPTY
        else:
            has_members = bool(group.members)
        records = []
        topics = []
        for topic in request.topics:
            subscribed = has_members and group.is_subscribed_to(topic.name)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
                if not subscribed and (
                    self.committed.get(group.group_id, topic.name, index, ZERO_UUID)
                    or self.pending.has(group.group_id, topic.name, index)
                ):
                    records.append(offset_commit_record(group.group_id, topic.name, index, None))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(OffsetDeleteResponse(topics=topics), records)

    def removal(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones of all offsets of a group, those in open transactions as well."""
        partitions = dict.fromkeys(partition for partition, _ in self.committed.of_group(group_id))
        partitions.update(dict.fromkeys(self.pending.of_group(group_id)))
        return [offset_commit_record(group_id, *partition, None) for partition in partitions]

    def on_topics_deleted(self, deleted: Collection[tuple[str, Uuid]]) -> CoordinatorResult[None]:
        """Forget the offsets of topics that are gone, those in open transactions as well.

        A tombstone would take every offset of its key. Where a topic of the same name has got one meanwhile, the key
        stays; what is left there of the old topic is told apart by its id.
        """
        ids: dict[str, set[Uuid]] = {}
        for name, topic_id in deleted:
            ids.setdefault(name, {ZERO_UUID}).add(topic_id)
        gone: dict[OffsetKey, bool] = {}
        for name, of_gone in ids.items():
            for group_id, partition, committed in self.committed.of_topic(name):
                gone[OffsetKey(group_id, name, partition)] = committed.topic_id in of_gone
        for key, offset in self.pending.offsets():
            if key.topic in ids:
                gone[key] = gone.get(key, True) and offset.topic_id in ids[key.topic]
        return CoordinatorResult(None, [offset_commit_record(*key, None) for key, is_gone in gone.items() if is_gone])

    def expire(self, group_ids: list[str], now_ms: int) -> CoordinatorResult[None]:
        """Delete offsets whose time is over (KIP-211), and groups that have neither members nor offsets.

        Looks at some of the groups, and takes them from the end of ``group_ids``.
        """
        records: list[CoordinatorRecord] = []
        retention_ms = self._settings().offsets_retention_ms
        looked_at = 0
        while group_ids and looked_at < EXPIRED_TOGETHER:
            group_id = group_ids.pop()
            group = self._groups.with_offsets_of(group_id)
            if group is None:
                continue
            count = self.committed.count(group_id)
            looked_at += 1 + count
            expired = [
                partition
                for partition in expired_offsets(group, self.committed, retention_ms, now_ms)
                if not self.pending.has(group_id, *partition)
            ]
            records += [offset_commit_record(group_id, *partition, None) for partition in expired]
            if len(expired) < count or group_id in self.pending:
                continue
            # An empty group is kept for its offsets only; one that never held any goes as well.
            if not isinstance(group, ClassicGroup):
                if not group.members and not self._is_kept(group):
                    records += removal_of(group)
            elif group.state is _S.EMPTY and not group.pending_join_members:
                records.append(group_metadata_tombstone(group_id))
        return CoordinatorResult(None, records)

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, or will have some of an open transaction."""
        return bool(self.committed.count(group_id)) or group_id in self.pending

    def _is_kept(self, group: ConsumerGroup | StreamsGroup | ShareGroup) -> bool:
        """Whether a plugin may still have the description of the group's topology (KIP-1331)."""
        if not self._settings().keeps_descriptions:
            return False
        streams = self._groups.streams.get(group.group_id)
        return streams is not None and streams.stored_description_topology_epoch != -1


def removal_of(group: ConsumerGroup | StreamsGroup | ShareGroup) -> list[CoordinatorRecord]:
    """The records that remove a group with all that it has but offsets."""
    if isinstance(group, ConsumerGroup):
        return group_removal(group)
    # The modules of the other kinds are not loaded without such a group.
    from kbroker.cores.groups.share_group import ShareGroup

    if isinstance(group, ShareGroup):
        from kbroker.cores.groups.share.records import group_removal as share_group_removal

        return share_group_removal(group)
    from kbroker.cores.groups.streams.records import group_removal as streams_group_removal

    return streams_group_removal(group)


def _fetched(index: int, committed: OffsetAndMetadata | None, is_unstable: bool) -> OffsetFetchResponsePartitions:
    if committed is None or is_unstable:
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE,
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
