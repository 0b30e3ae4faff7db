"""Requests of the classic protocol to a consumer group, while the group migrates (KIP-848).

JoinGroup, SyncGroup, Heartbeat and LeaveGroup. A classic member's generation is its member epoch. It never leads: the
broker assigns, and SyncGroup answers the assignment.

Rules: Kafka's ``GroupMetadataManager`` (4.3): ``classicGroup...ToConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_group import ClassicMemberMetadata, ConsumerGroup, ConsumerGroupMember, MemberState
from kbroker.cores.groups.consumer_migration import decode_subscription, encode_assignment, may_downgrade_replacing
from kbroker.cores.groups.consumer_protocol import ConsumerProtocol
from kbroker.cores.groups.member_update import MemberUpdate, owned_partitions
from kbroker.cores.groups.reconciliation import OwnedPartitions
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import replace
from kbroker.wire.errors import WireError
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kbroker.wire.records.consumer_protocol import ConsumerProtocolSubscription

_MEMBER_ID_REQUIRED_VERSION = 4
"""From this version of JoinGroup on, a dynamic member comes back with the id that it was given (KIP-394)."""


class ClassicRequestsToConsumerGroup:
    """Serves the classic protocol's requests to consumer groups."""

    def __init__(self, consumer: ConsumerProtocol) -> None:
        self._consumer = consumer
        self._timers = consumer.timers

    # -- JoinGroup -----------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse]:
        """JoinGroup to a group that has members; there is no join phase to wait for. `ApiError` for the whole."""
        settings = self._consumer.settings()
        if not settings.is_migration_enabled:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = request.group_instance_id
        is_unknown = not request.member_id
        member_id = request.member_id or self._consumer.new_member_id()
        group.check_size(member_id, settings.consumer_max_size, instance_id)
        names = [protocol.name for protocol in request.protocols]
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if is_unknown and instance_id is None and client.api_version >= _MEMBER_ID_REQUIRED_VERSION:
            return CoordinatorResult(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=None)
            )
        records: list[CoordinatorRecord] = []
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerGroupMember(member_id)
        elif is_unknown:
            member = self._consumer.subscribe_static(group, member_id, instance_id, records, is_classic=True)
        else:
            member = group.find_static(member_id, instance_id)
        replaced = group.static_member(instance_id)
        downgrades = replaced is not None and may_downgrade_replacing(group, replaced, settings)

        try:
            subscription = decode_subscription(bytes(request.protocols[0].metadata))
        except WireError:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        new = _with_join(member, request, client, subscription)
        update = self._consumer.update(group, member, new, records, now_ms)
        names_changed = update.store_member()
        regex_changed, _ = update.update_regex(self._consumer.is_resolving(group.group_id))
        changed = names_changed or regex_changed
        update.refresh_metadata(changed)
        owned = self._owned(subscription)
        if downgrades:
            return self._join_downgrading(update, owned, changed, names[0], now_ms)
        interval_ms = self._consumer.group_config(group.group_id).consumer_assignment_interval_ms
        target_epoch, target = update.update_target(interval_ms)
        update.reconcile(target_epoch, target, owned, changed)
        return self._joined(update, request, client, names[0])

    def _joined(
        self, update: MemberUpdate, request: JoinGroupRequest, client: ClientContext, protocol: str
    ) -> CoordinatorResult[JoinGroupResponse]:
        group_id, member_id = update.group.group_id, update.new.member_id
        then = self._consumer.when_stored(update, client)

        def stored(error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            group = self._consumer.groups.consumer.get(group_id)
            if group is not None and member_id in group.members:
                # With an error as well, if it is in the log and only not known to be committed.
                self._timers.cancel("join", group_id, member_id)
                self._timers.schedule("session", group_id, member_id, now_ms + request.session_timeout_ms)
                self._timers.schedule("sync", group_id, member_id, now_ms + request.rebalance_timeout_ms)
            return CoordinatorResult(None) if then is None else then(error, now_ms)

        return CoordinatorResult(_join_reply(update.new, protocol), update.records, on_stored=stored)

    def _join_downgrading(
        self, update: MemberUpdate, owned: OwnedPartitions | None, changed: bool, protocol: str, now_ms: int
    ) -> CoordinatorResult[JoinGroupResponse]:
        """Make the group classic: its last member of the consumer protocol has joined again as a classic one."""
        group = update.group
        replaced = group.static_member(update.new.instance_id)
        # Kafka 4.3 looks at the target's epoch alone: partitions that another member had yet to get stay unassigned.
        rebalance = group.assignment_epoch < update.group_epoch or any(
            not member.is_reconciled_to(group.assignment_epoch)
            for member in group.members.values()
            if member is not replaced
        )
        if not rebalance:
            update.reconcile(group.assignment_epoch, group.target_of(update.new), owned, changed)
        records, stored = self._consumer.downgrade(group, (), update.new, rebalance=rebalance, now_ms=now_ms)
        update.records += records
        return CoordinatorResult(_join_reply(update.new, protocol), update.records, on_stored=stored)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> OwnedPartitions:
        by_name = self._consumer.topics.by_name
        return owned_partitions(
            [
                (topic.id, each.partitions)
                for each in subscription.owned_partitions
                if (topic := by_name(each.topic)) is not None
            ]
        )

    # -- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int
    ) -> CoordinatorResult[SyncGroupResponse]:
        """SyncGroup: the assignment that the broker made for the member. `ApiError`."""
        member, classic = _find(group, request.member_id, request.group_instance_id, request.generation_id)
        protocol = classic.protocols[0][0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, protocol):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member, now_ms)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        assigned = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
        try:
            assignment = encode_assignment(assigned, self._consumer.topics, classic.protocols[0][1])
        except WireError:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._timers.cancel("sync", group.group_id, member.member_id)
        self._renew(group, member, classic, now_ms)
        return CoordinatorResult(
            SyncGroupResponse(
                protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
            )
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat: REBALANCE_IN_PROGRESS when there is something to join again for. `ApiError`."""
        member, classic = _find(group, request.member_id, request.group_instance_id, request.generation_id)
        self._renew(group, member, classic, now_ms)
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
            or self._nobody_else_makes_the_target(group, now_ms)
        ):
            self._expect_join(group, member, now_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _nobody_else_makes_the_target(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether a target is due, which heartbeats of the consumer protocol would make, and there is none to come.

        Kafka 4.3 leaves such a group in its state until somebody joins; it takes a policy without downgrade.
        """
        if group.group_epoch <= group.assignment_epoch or group.classic_member_count < len(group.members):
            return False
        interval_ms = self._consumer.group_config(group.group_id).consumer_assignment_interval_ms
        return group.may_assign(interval_ms, now_ms)

    def leave(
        self, group: ConsumerGroup, identities: Iterable[MemberIdentity], now_ms: int
    ) -> CoordinatorResult[list[MemberResponse]]:
        """LeaveGroup: of classic members, or by an administrator of any."""
        leaving: dict[str, ConsumerGroupMember] = {}
        responses = []
        for identity in identities:
            error = ErrorCode.NONE
            try:
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except ApiError as failure:
                error = failure.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        return self._consumer.fence(group, list(leaving.values()), responses, now_ms)

    def _renew(
        self, group: ConsumerGroup, member: ConsumerGroupMember, classic: ClassicMemberMetadata, now_ms: int
    ) -> None:
        self._timers.schedule("session", group.group_id, member.member_id, now_ms + classic.session_timeout_ms)

    def _expect_join(self, group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> None:
        self._timers.schedule_if_absent("join", group.group_id, member.member_id, now_ms + member.rebalance_timeout_ms)


def _find(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    """The classic member that asks. `ApiError` UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.find_static(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation_id != member.member_epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    if identity.member_id:
        return group.find_static(identity.member_id, identity.group_instance_id)
    # An administrator removes a static member by its instance id (KIP-345).
    member = group.static_member(identity.group_instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _with_join(
    member: ConsumerGroupMember,
    request: JoinGroupRequest,
    client: ClientContext,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerGroupMember:
    """The member with the fields of a JoinGroup; it may have been one of the consumer protocol before."""
    timeout_ms = request.rebalance_timeout_ms
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )
    return member if updated == member else updated


def _join_reply(member: ConsumerGroupMember, protocol: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
    )
