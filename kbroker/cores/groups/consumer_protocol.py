"""The consumer group protocol of KIP-848: changes of a group by ConsumerGroupHeartbeat and by time.

Each method returns records; only their replay changes a group. Rules: Kafka's ``GroupMetadataManager`` (its consumer
half, 4.3).
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import Continuation, CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups import consumer_group_records
from kbroker.cores.groups.assignors import spec
from kbroker.cores.groups.classic_group import ClassicGroupState
from kbroker.cores.groups.classic_protocol import ClassicRebalanceProtocol
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember
from kbroker.cores.groups.consumer_group_records import group_epoch_record, group_removal, regex_tombstone
from kbroker.cores.groups.consumer_migration import check_upgrade, creation_records, downgraded, may_downgrade, upgraded
from kbroker.cores.groups.groups import Groups
from kbroker.cores.groups.member_update import MemberUpdate, owned_partitions, regexes_resolved, resolve_regexes
from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kbroker.cores.groups.modern_protocol import StaticProtocol
from kbroker.cores.groups.record_maker import write_partitions
from kbroker.cores.groups.records import group_metadata_record, group_metadata_tombstone
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid, random_uuid, uuid_to_str
from kbroker.value_types import replace
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

logger = logging.getLogger(__name__)
R = TypeVar("R")


class ConsumerProtocol(StaticProtocol[ConsumerGroup, ConsumerGroupMember, spec.Assignment]):
    """Moves consumer groups."""

    RECORDS = consumer_group_records

    def __init__(
        self,
        groups: Groups,
        classic: ClassicRebalanceProtocol,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[str], GroupConfig],
        rng: random.Random,
        own_assignors: Mapping[str, spec.NamedTopicsAssignor],
    ) -> None:
        super().__init__(groups, groups.consumer, settings, group_config, MetadataHasher())
        self._own_assignors = own_assignors
        self.classic = classic
        self._rng = rng
        self._new_topics_version = -1
        self._resolving: set[str] = set()

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.group_config(group_id).consumer_session_timeout_ms

    def on_topics(self, image: CoordinatorMetadataImage, changed: Collection[str], has_new: bool) -> None:
        """Follow the metadata: groups that subscribe to a changed topic check their hash with the next heartbeat."""
        self.hasher.update(image, changed)
        if has_new or self._new_topics_version < 0:
            self._new_topics_version = image.version
        self.doubt_metadata(changed)

    # -- requests ------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat of a request whose fields are in order. `ApiError` for the whole."""
        if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
            return self._leave(request, now_ms)
        group = self.groups.consumer.get(request.group_id)
        if group is None:
            return self._create(request, client, now_ms)
        records: list[CoordinatorRecord] = []
        return self._heartbeat(group, request, client, records, now_ms)

    def _create(
        self, request: ConsumerGroupHeartbeatRequest, client: ClientContext, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """The first member of a group; a classic group of the same id becomes a consumer group."""
        group_id = request.group_id
        classic = self.groups.classic.get(group_id)
        is_of_another_kind = classic is None and group_id in self.groups
        if request.member_epoch != 0 or is_of_another_kind:
            missing = f"Consumer group {group_id} not found."
            if group_id in self.groups:
                missing = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, missing)
        self.groups.check_has_offsets(group_id)
        if classic is None:
            return self._heartbeat(ConsumerGroup(group_id), request, client, [], now_ms)
        records = [group_metadata_tombstone(group_id)]
        if classic.state is ClassicGroupState.EMPTY:
            return self._heartbeat(ConsumerGroup(group_id), request, client, records, now_ms)
        check_upgrade(classic, self.settings())
        group = upgraded(classic, self.hasher)
        records += creation_records(group)
        # The rebalance that was under way ends here. Kafka 4.3 takes the assignment so far as the target. If the new
        # member has the place of a static member and its subscription, no other target is made, and partitions stay
        # unassigned.
        unfinished = classic.state is not ClassicGroupState.STABLE
        result = self._heartbeat(group, request, client, records, now_ms, rebalance=unfinished)
        # Members that wait for the classic group's rebalance get an error, join again, and find the consumer group.
        result.completed += self.classic.fail_all(classic, ErrorCode.REBALANCE_IN_PROGRESS)
        for member in classic.members.values():
            self.timers.schedule("session", group_id, member.member_id, now_ms + member.session_timeout_ms)
        return result

    def _heartbeat(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientContext,
        records: list[CoordinatorRecord],
        now_ms: int,
        *,
        rebalance: bool = False,
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """``rebalance`` makes a new target even if the request has no reason for one."""
        config = self.group_config(group.group_id)
        group.check_size(request.member_id, self.settings().consumer_max_size, request.instance_id)
        owned = None
        if request.topic_partitions is not None:
            owned = owned_partitions([(Uuid(each.topic_id), each.partitions) for each in request.topic_partitions])
        member_id = request.member_id or self.new_member_id()
        joins = request.member_epoch == 0
        member = self.find_member(
            group, member_id, request, lambda known: owned is not None and known.has_all(owned), records
        )
        update = self.update(group, member, _with_request(member, request, client), records, now_ms)
        names_changed = update.store_member()
        is_resolving = self.is_resolving(group.group_id)
        regex_changed, regex_resolved = update.update_regex(is_resolving)
        update.refresh_metadata(names_changed or regex_resolved or update.changes_assignor() or rebalance)
        target_epoch, target = update.update_target(config.consumer_assignment_interval_ms)
        if update.reconcile(target_epoch, target, owned, names_changed or regex_changed):
            self.schedule_rebalance(group.group_id, update.new, now_ms)
        updated = update.new
        self.schedule_session(group.group_id, member_id, now_ms)

        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=update.heartbeat_interval_ms(
                config, target_epoch, joins=joins, is_resolving=is_resolving
            ),
        )
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        is_full = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
        if joins or is_full or updated.assigned != member.assigned:
            response.assignment = HeartbeatAssignment(
                topic_partitions=write_partitions(HeartbeatTopicPartitions, updated.assigned)
            )
        return CoordinatorResult(response, records, on_stored=self.when_stored(update, client))

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        group = self.groups.consumer_group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return self.leave_static(group, request, response, now_ms)

    # -- shared with classic members -----------------------------------------------------------

    def new_member_id(self) -> str:
        """An id as Kafka makes them."""
        return uuid_to_str(random_uuid(self._rng))

    def update(
        self,
        group: ConsumerGroup,
        old: ConsumerGroupMember,
        new: ConsumerGroupMember,
        records: list[CoordinatorRecord],
        now_ms: int,
    ) -> MemberUpdate:
        """The steps that follow for the member; they add to ``records``."""
        return MemberUpdate(
            group=group,
            old=old,
            new=new,
            records=records,
            hasher=self.hasher,
            settings=self.settings(),
            now_ms=now_ms,
            group_epoch=group.group_epoch,
            own_assignors=self._own_assignors,
            topics_with_new_names_version=self._new_topics_version,
        )

    def is_resolving(self, group_id: str) -> bool:
        """Whether the group's regular expressions are being resolved."""
        return group_id in self._resolving

    def when_stored(self, update: MemberUpdate, client: ClientContext) -> Continuation | None:
        """The rest of a step, once its records are stored: regular expressions are resolved in a step of their own.

        They match for the whole group what this client may describe, as in Kafka (``TopicRegexResolver``).
        """
        if update.group_epoch > update.group.group_epoch:
            self.groups.rebalances["consumer"] += 1
        if not update.regexes_to_resolve:
            return None
        group_id, regexes = update.group.group_id, update.regexes_to_resolve
        self._resolving.add(group_id)

        def resolve(error: ErrorCode | None, now_ms: int) -> CoordinatorResult[None]:
            self._resolving.discard(group_id)
            group = self.groups.consumer.get(group_id)
            if error is not None or group is None:
                return CoordinatorResult(None)
            resolved = resolve_regexes(regexes, self.topics, now_ms, client.may_see)
            records = regexes_resolved(group, resolved, self.hasher, now_ms)
            if group.metadata_refresh_epoch > group.group_epoch:
                self.groups.rebalances["consumer"] += 1
            return CoordinatorResult(None, records)

        return resolve

    def fence(
        self, group: ConsumerGroup, members: Collection[ConsumerGroupMember], response: R, now_ms: int
    ) -> CoordinatorResult[R]:
        """Take members out; the group becomes classic where only classic members are left."""
        if not members:
            return CoordinatorResult(response)
        if may_downgrade(group, members, self.settings()):
            records, on_stored = self.downgrade(group, members, None, rebalance=True, now_ms=now_ms)
            return CoordinatorResult(response, records, on_stored=on_stored)
        return super().fence(group, members, response, now_ms)

    def _epoch_without(
        self, group: ConsumerGroup, members: Collection[ConsumerGroupMember], epoch: int
    ) -> list[CoordinatorRecord]:
        leaving = Counter(member.subscribed_topic_regex for member in members if member.subscribed_topic_regex)
        dropped = [regex for regex, count in leaving.items() if group.regexes.get(regex) == count]
        records = [regex_tombstone(group.group_id, regex) for regex in dropped]
        metadata_hash = self.hasher.group_hash(group.subscribed_topics(members, None, dropped))
        records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        return records

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[ConsumerGroupMember],
        joining: ConsumerGroupMember | None,
        *,
        rebalance: bool,
        now_ms: int,
    ) -> tuple[list[CoordinatorRecord], Continuation]:
        """Make the group classic. Returns the records, and the rest of the step when they are stored. `ApiError`."""
        member_ids = list(group.members)
        if joining is not None and joining.instance_id is not None:
            # Records before these have put the joining member in the place of the one that it replaces.
            replaced = group.static_members[joining.instance_id]
            member_ids = [joining.member_id if each == replaced else each for each in member_ids]
        classic = downgraded(group, leaving, joining, self.topics, now_ms)
        if rebalance:
            classic.leader_id = None  # says so to a coordinator that loads the record before the rebalance is through
        assignment = {member.member_id: member.assignment for member in classic.members.values()}
        records = group_removal(group, member_ids)
        records.append(group_metadata_record(classic, assignment, now_ms))
        old_ids = set(group.members)

        def stored(error: ErrorCode | None, later_ms: int) -> CoordinatorResult[None]:
            # With an error the group may be classic all the same: the records are there, not known to be committed.
            restored = self.groups.classic.get(group.group_id)
            if restored is None:
                return CoordinatorResult(None)
            self.timers.cancel_members(group.group_id, old_ids)
            for member in restored.members.values():
                self.classic.renew_session(restored, member, later_ms)
                converted = classic.members.get(member.member_id)
                if converted is not None and member.awaiting_join is None:
                    # The record holds but one of each member's assignors; the converted group knows all of them.
                    member.protocols = converted.protocols
            if not rebalance or not restored.can_rebalance:
                return CoordinatorResult(None)
            return self.classic.start_rebalance(restored, later_ms)

        return records, stored


_OPTIONAL = ("instance_id", "rack_id", "server_assignor", "subscribed_topic_regex")
"""The fields of a heartbeat that are None where they are as in the last one."""


def _with_request(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client: ClientContext
) -> ConsumerGroupMember:
    """Return the member with the fields of the request; a heartbeat has only those that differ from the last one."""
    changes: dict[str, Any] = {name: value for name in _OPTIONAL if (value := getattr(request, name)) is not None}
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
    updated = replace(member, client_id=client.client_id, client_host=client.client_host, classic=None, **changes)
    return member if updated == member else updated
