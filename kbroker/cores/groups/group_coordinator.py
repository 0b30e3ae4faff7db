"""The group coordinator's shard: the groups and offsets of one partition of ``__consumer_offsets``.

Pure: every method takes the time and returns a `CoordinatorResult`; the driver in `kbroker.node`
appends its records, replays them, and gives the replies when they are committed. Replaying a
partition from its start rebuilds the shard.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.cores.groups import consumer_group_records
from kbroker.cores.groups.classic_group import ClassicGroup, ClassicGroupState, ClassicMember
from kbroker.cores.groups.classic_protocol import ClassicRebalanceProtocol
from kbroker.cores.groups.classic_requests import ClassicRequestsToConsumerGroup
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_group_records import group_removal
from kbroker.cores.groups.consumer_protocol import ConsumerProtocol
from kbroker.cores.groups.group_admin import GroupAdmin
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.offset_requests import OffsetRequests, OffsetsToCommit
from kbroker.cores.groups.offsets import OffsetKey
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS, OwnAssignors
from kbroker.cores.groups.records import (
    OffsetKeys,
    is_of_share_group,
    is_of_streams_group,
    keep_offset,
    keep_offsets,
    partitions_of,
    read_group_metadata,
    read_key,
    read_offset_commit,
)
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kbroker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kbroker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kbroker.wire.records.consumer_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey

if TYPE_CHECKING:
    from kbroker.cores.groups.share.admin import ShareAdmin
    from kbroker.cores.groups.share.protocol import ShareProtocol
    from kbroker.cores.groups.share.requests import StateDeletion, StateInitialization
    from kbroker.cores.groups.streams_descriptions import StreamsDescriptions
    from kbroker.cores.groups.streams_protocol import StreamsHeartbeatResult, StreamsProtocol
    from kbroker.wire.messages.streams_groups import StreamsGroupHeartbeatRequest

R = TypeVar("R")
_S = ClassicGroupState
_DEFAULT_GROUP_CONFIG = GroupConfig(45_000, 5_000, 1_000)


class GroupCoordinator:
    """The core of a shard. ``settings`` and ``group_config`` (by group id) are asked at each use: they may change."""

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        rng: random.Random,
        group_config: Callable[[str], GroupConfig] = lambda group_id: _DEFAULT_GROUP_CONFIG,
        own_assignors: OwnAssignors = NO_OWN_ASSIGNORS,
        rebalances: Counter[str] | None = None,
    ) -> None:
        """``rebalances`` counts them by type of group, for all shards."""
        self._settings = settings
        self.groups = Groups() if rebalances is None else Groups(rebalances=rebalances)
        self._classic = ClassicRebalanceProtocol(self.groups.classic, settings, rng, self.groups.rebalances)
        self._consumer = ConsumerProtocol(
            self.groups, self._classic, settings, group_config, rng, own_assignors.consumer
        )
        self._own_assignors = own_assignors
        self._group_config = group_config
        self._streams_if_any: StreamsProtocol | None = None
        self._share_if_any: ShareProtocol | None = None
        self._share_admin_if_any: ShareAdmin | None = None
        self._classic_requests = ClassicRequestsToConsumerGroup(self._consumer)
        self._offsets = OffsetRequests(self.groups, self._classic, settings)
        self.admin = GroupAdmin(self.groups, self._offsets, settings, self._consumer.hasher)
        self._next_expiry_check_ms: int | None = None
        self._groups_to_expire: list[str] = []
        """Those whose offsets the check that is going on has not looked at."""
        self._offset_keys = OffsetKeys()

    def on_topics(self, image: CoordinatorMetadataImage, changed: Collection[str], has_new: bool) -> None:
        """The next image of the topics: ``changed`` names those that differ, ``has_new`` says that some are new."""
        self._consumer.on_topics(image, changed, has_new)
        if self._streams_if_any is not None:
            self._streams_if_any.doubt_metadata(changed)
        if self._share_if_any is not None:
            self._share_if_any.doubt_metadata(changed)

    @property
    def _streams(self) -> StreamsProtocol:
        if self._streams_if_any is None:
            # With the first streams group: a node without them starts without its modules.
            from kbroker.cores.groups.streams_protocol import StreamsProtocol

            hasher = self._consumer.hasher
            self._streams_if_any = StreamsProtocol(
                self.groups, self._settings, self._group_config, hasher, self._own_assignors.streams
            )
        return self._streams_if_any

    @property
    def share(self) -> ShareProtocol:
        """The protocol of the shard's share groups."""
        if self._share_if_any is None:
            # With the first share group: a node without them starts without its modules.
            from kbroker.cores.groups.share.protocol import ShareProtocol

            hasher = self._consumer.hasher
            self._share_if_any = ShareProtocol(
                self.groups, self._settings, self._group_config, hasher, self._own_assignors.share
            )
        return self._share_if_any

    @property
    def share_admin(self) -> ShareAdmin:
        """The administration of the shard's share groups."""
        if self._share_admin_if_any is None:
            from kbroker.cores.groups.share.admin import ShareAdmin

            self._share_admin_if_any = ShareAdmin(
                self.groups, lambda: self._consumer.topics, self.share.empty_group, self._settings
            )
        return self._share_admin_if_any

    @property
    def descriptions(self) -> StreamsDescriptions:
        """The descriptions that a plugin keeps of the shard's streams groups."""
        from kbroker.cores.groups.streams_descriptions import StreamsDescriptions  # with such a plugin only

        return StreamsDescriptions(self.groups, self._offsets.has_any)

    def begin_deletion_of_states(self, group_id: str) -> CoordinatorResult[StateDeletion | None]:
        """The states that go before a group can be deleted: those of a share group. `ApiError` NON_EMPTY_GROUP."""
        if group_id not in self.groups.share:
            return CoordinatorResult(None)
        return self.share_admin.begin_deletion(group_id)

    def take_wanted_states(self) -> Sequence[StateInitialization]:
        """The states to be initialized for share groups since the last call; ``share_admin`` hears of the outcome."""
        return () if self._share_if_any is None else self._share_if_any.take_wanted()

    # -- members -------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        return self._consumer.heartbeat(request, client, now_ms)

    def streams_group_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[StreamsHeartbeatResult]:
        """StreamsGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        return self._streams.heartbeat(request, client, now_ms)

    def join_group(
        self, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse] | CoordinatorResult[Token]:
        """JoinGroup with a session timeout that the settings allow."""
        if request.group_id in self.groups.streams:
            return self._join_streams_group(request, client, now_ms)
        if request.group_id in self.groups.share:
            return CoordinatorResult(_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._classic.join(request, client, now_ms)
        if group.members:
            try:
                return self._classic_requests.join(group, request, client, now_ms)
            except ApiError as error:
                return CoordinatorResult(_join_error(error.code))
        if request.member_id:
            return CoordinatorResult(_join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        # An empty consumer group gives way. The classic group is not made from records, so this cannot wait for them.
        del self.groups.consumer[request.group_id]
        result = self._classic.join(request, client, now_ms)
        result.records[:0] = group_removal(group)
        return result

    def _join_streams_group(
        self, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse] | CoordinatorResult[Token]:
        """JoinGroup where there is a streams group: an empty one gives way."""
        from kbroker.cores.groups.streams.records import group_removal as streams_group_removal

        group = self.groups.streams[request.group_id]
        if group.members:
            return CoordinatorResult(_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if request.member_id:
            return CoordinatorResult(_join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        if self._settings().keeps_descriptions and self.descriptions.stored_epoch(request.group_id) != -1:
            return CoordinatorResult(_join_error(ErrorCode.REBALANCE_IN_PROGRESS))  # the plugin has not deleted it yet
        del self.groups.streams[request.group_id]
        result = self._classic.join(request, client, now_ms)
        result.records[:0] = streams_group_removal(group)
        return result

    def sync_group(
        self, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse] | CoordinatorResult[Token]:
        """SyncGroup."""
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._classic.sync(request, now_ms)
        try:
            return self._classic_requests.sync(group, request, now_ms)
        except ApiError as error:
            return CoordinatorResult(SyncGroupResponse(error_code=error.code))

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat; it never has records."""
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._classic.heartbeat(request, now_ms)
        try:
            return self._classic_requests.heartbeat(group, request, now_ms)
        except ApiError as error:
            return error.code

    def leave_group(
        self, group_id: str, members: Iterable[MemberIdentity], now_ms: int
    ) -> CoordinatorResult[list[MemberResponse]]:
        """LeaveGroup. `ApiError` for the whole request."""
        group = self.groups.consumer.get(group_id)
        if group is None:
            return self._classic.leave(group_id, members, now_ms)
        return self._classic_requests.leave(group, members, now_ms)

    # -- offsets -------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int, now_ms: int, committed_ms: int | None = None
    ) -> CoordinatorResult[OffsetCommitResponse]:
        """OffsetCommit of partitions that exist. `ApiError` where the member or group is at fault.

        ``committed_ms`` is the time that is stored, if it is not ``now_ms``.
        """
        return self._offsets.commit(request, api_version, now_ms, committed_ms or now_ms)

    def commit_offsets_again(
        self, commit: OffsetsToCommit, offsets: Sequence[int], now_ms: int, committed_ms: int
    ) -> list[CoordinatorRecord]:
        """The records of `commit_offsets` of other offsets for the same partitions."""
        return self._offsets.commit_again(commit, offsets, now_ms, committed_ms)

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
    ) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """TxnOffsetCommit of partitions that exist. `ApiError` where the member or group is at fault."""
        return self._offsets.commit_in_transaction(request, api_version, now_ms)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, topic_ids: dict[str, Uuid], require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group; ``topic_ids`` are the current ids. `ApiError` for the whole group."""
        return self._offsets.fetch(request, topic_ids, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """OffsetDelete. `ApiError` for the whole request."""
        return self._offsets.delete(request)

    def on_topics_deleted(self, deleted: Collection[tuple[str, Uuid]]) -> CoordinatorResult[None]:
        """Forget the offsets of topics that are gone, and their place in share groups."""
        result = self._offsets.on_topics_deleted(deleted)
        result.records += self.share_admin.on_topics_deleted([topic_id for _, topic_id in deleted])
        return result

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms since the epoch; None if never."""
        earliest = self._classic.next_deadline()
        for protocol in (self._consumer, self._streams_if_any, self._share_if_any):
            deadline = None if protocol is None else protocol.next_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        expiry = self._next_expiry_check_ms
        if expiry is not None and (earliest is None or expiry < earliest) and self.groups:
            earliest = expiry
        return earliest

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one thing whose time has come; None when there is none (left)."""
        result = self._classic.on_deadline(now_ms)
        if result is None:
            result = self._consumer.on_deadline(now_ms)
        if result is None and self._streams_if_any is not None:
            result = self._streams_if_any.on_deadline(now_ms)
        if result is None and self._share_if_any is not None:
            result = self._share_if_any.on_deadline(now_ms)
        if result is None and self._next_expiry_check_ms is not None and now_ms >= self._next_expiry_check_ms:
            if not self._groups_to_expire:
                self._groups_to_expire = [group.group_id for group in self.groups.with_offsets()]
            result = self._offsets.expire(self._groups_to_expire, now_ms)
            if not self._groups_to_expire:
                self._next_expiry_check_ms = now_ms + self._settings().offsets_retention_check_interval_ms
        return result

    # -- loading and leaving -------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, now_ms: int, *, offset: int = -1, producer_id: int = -1) -> None:
        """Apply one record of the partition, in log order. `WireError` for one that cannot be read.

        ``producer_id`` is that of the transaction in which an offset was committed, -1 for none.
        """
        whose = self._offset_keys.read(record.key)
        if whose is not None:
            self._replay_offset(*whose, record.value, offset, producer_id)
            return
        key = read_key(record.key)
        if key is None:
            return
        if isinstance(key, GroupMetadataKey):
            self._forget_classic(key.group)
            self.groups.consumer.pop(key.group, None)
            self.groups.streams.pop(key.group, None)
            self.groups.share.pop(key.group, None)
            if record.value is not None:
                self.groups.classic[key.group] = _restored(key.group, read_group_metadata(record.value))
        elif isinstance(key, OffsetCommitKey):
            self._replay_offset(key.group, key.topic, key.partition, record.value, offset, producer_id)
        else:
            if record.value is not None:
                # Where a group has but offsets, it is a classic one until its first member's record.
                self._forget_classic(key.group_id)
            if is_of_streams_group(record.key):
                self._streams.replay(key, record.value)
            elif is_of_share_group(record.key):
                self.share.replay(key, record.value, now_ms)
            else:
                consumer_group_records.replay(self.groups.consumer, key, record.value)

    def _replay_offset(
        self, group_id: str, topic: str, partition: int, value: bytes | None, offset: int, producer_id: int
    ) -> None:
        if value is None:
            self._offsets.replay_tombstone(OffsetKey(group_id, topic, partition))
            return
        if producer_id < 0:
            self._offsets.committed.put(group_id, topic, partition, keep_offset(value, offset))
        else:
            committed = read_offset_commit(value, offset)
            self._offsets.pending.put(producer_id, OffsetKey(group_id, topic, partition), committed)
        if group_id not in self.groups:
            self.groups.classic[group_id] = ClassicGroup(group_id)

    def replay_alike(self, keys: Sequence[bytes], values: Sequence[bytes | None], offset: int) -> bool:
        """Apply commits of one group in one topic at once. False, and nothing is done, where they are others."""
        names = self._offset_keys.read(keys[0])
        if names is None or values[0] is None:
            return False
        group_id, topic, first = names
        partitions = partitions_of(keys) if len(keys) > 1 else (first,)
        kept = keep_offsets(cast("Sequence[bytes]", values), offset)
        if partitions is None or kept is None:
            return False
        self._offsets.committed.put_all(group_id, topic, zip(partitions, kept, strict=True))
        if group_id not in self.groups:
            self.groups.classic[group_id] = ClassicGroup(group_id)
        return True

    def replay_end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply the marker that ends a transaction: its offsets count from now on, or never did."""
        self._offsets.replay_end_transaction(producer_id, commit)

    def _forget_classic(self, group_id: str) -> None:
        group = self.groups.classic.pop(group_id, None)
        if group is not None:
            self._classic.forget(group)

    def on_loaded(self, now_ms: int) -> None:
        """Begin to count time: all records are replayed."""
        for group in list(self.groups.classic.values()):
            self._classic.on_loaded(group, now_ms)
        self._consumer.on_loaded(now_ms)
        if self._streams_if_any is not None:
            self._streams_if_any.on_loaded(now_ms)
        if self._share_if_any is not None:
            self._share_if_any.on_loaded(now_ms)
        self._next_expiry_check_ms = now_ms + self._settings().offsets_retention_check_interval_ms

    def on_unloaded(self) -> list[tuple[Token, object]]:
        """Stop being the coordinator. Returns NOT_COORDINATOR for every request that waits."""
        completed: list[tuple[Token, object]] = []
        for group in self.groups.classic.values():
            completed += self._classic.fail_all(group, ErrorCode.NOT_COORDINATOR)
            self._classic.forget(group)
        return completed


def _join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


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
                rebalance_timeout_ms=(each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout),
                session_timeout_ms=each.session_timeout,
                protocol_type=value.protocol_type,
                protocols=[(value.protocol or "", subscription)],
                assignment=bytes(each.assignment),
            )
        )
    if value.members:
        if value.leader is None:
            group.must_rebalance = True
        else:
            group.leader_id = value.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
