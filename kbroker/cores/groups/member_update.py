"""The steps of an update of a member, which ConsumerGroupHeartbeat and a classic member's JoinGroup share.

Each step adds records; nothing of the group changes before they are replayed, so a step takes the members and epochs
as the records before it have made them. Rules: Kafka's ``GroupMetadataManager`` (4.3), its
``hasMemberSubscriptionChanged``, ``maybeUpdateRegularExpressions``, ``updateSubscriptionMetadata``,
``maybeUpdateTargetAssignment`` and ``maybeReconcile``; and its ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kbroker.config import GroupConfig
from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.assignors import ASSIGNORS
from kbroker.cores.groups.assignors.spec import (
    Assignment,
    AssignmentKept,
    AssignorError,
    GroupSpec,
    MemberSpec,
    NamedTopicsAssignor,
)
from kbroker.cores.groups.consumer_group import ConsumerGroup, ConsumerGroupMember, MemberState, ResolvedRegex
from kbroker.cores.groups.consumer_group_records import (
    current_record,
    group_epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from kbroker.cores.groups.modern_group import NOTHING_ASSIGNED, RETRY_ASSIGNMENT_MS, UNSETTLED_INTERVAL_MS
from kbroker.cores.groups.reconciliation import OwnedPartitions, Reconciliation
from kbroker.cores.groups.regex import compile_topic_regex
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import CoordinatorMetadataImage, MetadataHasher
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.value_types import dataclass

logger = logging.getLogger(__name__)

REGEX_REFRESH_MIN_INTERVAL_MS = 10_000
"""Regular expressions are not resolved more often than that."""


@dataclass(slots=True)
class MemberUpdate:
    """One member's request on its way through the group. ``old`` is the member before, ``new`` after it."""

    group: ConsumerGroup
    old: ConsumerGroupMember
    new: ConsumerGroupMember
    records: list[CoordinatorRecord]
    hasher: MetadataHasher
    settings: GroupSettings
    now_ms: int
    group_epoch: int
    own_assignors: Mapping[str, NamedTopicsAssignor]
    topics_with_new_names_version: int
    """The version of the metadata that last brought a new topic."""
    regexes_to_resolve: frozenset[str] = frozenset()

    # -- the member and its subscription -------------------------------------------------------

    def store_member(self) -> bool:
        """Write the member if it differs; whether the topics that it names do."""
        if self.new == self.old:
            return False
        self.records.append(member_record(self.group.group_id, self.new))
        return self.new.subscribed_topic_names != self.old.subscribed_topic_names

    def update_regex(self, is_refreshing: bool) -> tuple[bool, bool]:
        """Follow a change of the member's regular expression, and find out whether all are to be resolved again.

        Returns whether it changed, and whether the topics that it matches are known already. `ApiError`
        INVALID_REGULAR_EXPRESSION.
        """
        group = self.group
        old, new = self.old.subscribed_topic_regex or "", self.new.subscribed_topic_regex or ""
        resolved = must_refresh = False
        changed = self.old.subscribed_topic_regex != self.new.subscribed_topic_regex
        if changed:
            if old and group.regexes.get(old) == 1:
                self.records.append(regex_tombstone(group.group_id, old))
            if new and not group.regexes.get(new):
                compile_topic_regex(new)
                must_refresh = True
            else:
                resolved = new in group.resolved_regexes if new else bool(old)
        self._maybe_resolve_regexes(old, new, must_refresh, is_refreshing)
        return changed, resolved

    def _maybe_resolve_regexes(self, old: str, new: str, must_refresh: bool, is_refreshing: bool) -> None:
        group, now_ms = self.group, self.now_ms
        if is_refreshing or not (must_refresh or group.regexes):
            return
        # All regular expressions are resolved together, so any of them has the time of all.
        last = next(iter(group.resolved_regexes.values()), None)
        if last is not None and last.timestamp_ms <= now_ms <= last.timestamp_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
            return
        subscribed = dict(group.regexes)
        if old:
            if subscribed.get(old, 0) <= 1:
                subscribed.pop(old, None)
            else:
                subscribed[old] -= 1
        if new:
            subscribed[new] = subscribed.get(new, 0) + 1
        if (
            must_refresh
            or len(subscribed) != len(group.resolved_regexes)
            or (0 if last is None else last.version) < self.topics_with_new_names_version
            or last is None
            or now_ms > last.timestamp_ms + self.settings.consumer_regex_refresh_interval_ms
        ):
            self.regexes_to_resolve = frozenset(subscribed)

    def changes_assignor(self) -> bool:
        """Whether the group's target is to be made by another assignor now (Kafka 4.4, for members that choose one)."""
        default = self.settings.consumer_assignors[0]
        before = self.group.preferred_assignor() or default
        return before != (self.group.preferred_assignor(self.old, self.new) or default)

    def refresh_metadata(self, bump: bool) -> None:
        """Check the metadata hash where there is a reason to; a new hash, or ``bump``, is a new group epoch."""
        group = self.group
        if not bump and not group.is_metadata_expired(self.now_ms):
            return
        old_regex = self.old.subscribed_topic_regex
        dropped = old_regex != self.new.subscribed_topic_regex and group.regexes.get(old_regex or "") == 1
        topics = group.subscribed_topics([self.old], self.new, [old_regex] if dropped and old_regex else ())
        metadata_hash = self.hasher.group_hash(topics)
        if bump or metadata_hash != group.metadata_hash:
            self.group_epoch += 1
            self.records.append(group_epoch_record(group.group_id, self.group_epoch, metadata_hash))
        group.trust_metadata(self.now_ms, self.group_epoch)
        if group.has_partition_metadata_record:
            self.records.append(partition_metadata_tombstone(group.group_id))

    # -- the member's assignment ---------------------------------------------------------------

    def update_target(self, assignment_interval_ms: int) -> tuple[int, Assignment]:
        """Make the target assignment of the group epoch, unless it is made or the last one is too young.

        Returns its epoch and the member's part. `ApiError` UNKNOWN_SERVER_ERROR when the assignor cannot.
        """
        group = self.group
        if group.assignment_epoch >= self.group_epoch or not group.may_assign(assignment_interval_ms, self.now_ms):
            return group.assignment_epoch, group.target_of(self.new)
        members = dict(group.members)
        members[self.new.member_id] = self.new
        if self.new.instance_id is not None:
            replaced = group.static_members.get(self.new.instance_id)
            if replaced is not None and replaced != self.new.member_id:
                members.pop(replaced, None)
        try:
            target = assign_members(group, members, self._assignor(), self.hasher.image)
        except AssignmentKept:
            group.retry_assignment_ms = self.now_ms + RETRY_ASSIGNMENT_MS
            return group.assignment_epoch, group.target_of(self.new)
        except AssignorError as error:
            message = f"Failed to compute a new target assignment for epoch {self.group_epoch}: {error}"
            logger.error("group %s: %s", group.group_id, message)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.records += target_records(group, target, self.group_epoch, self.now_ms)
        return self.group_epoch, target.get(self.new.member_id, NOTHING_ASSIGNED)

    def _assignor(self) -> NamedTopicsAssignor:
        """The assignor that most members ask for; the default in place of one that the broker has no more."""
        default = self.settings.consumer_assignors[0]
        for name in (self.group.preferred_assignor(self.old, self.new), default):
            if name is not None:
                found = self.own_assignors.get(name) or ASSIGNORS.get(name)
                if found is not None:
                    return found
        raise AssignorError(f"there is no assignor {default}")

    def heartbeat_interval_ms(self, config: GroupConfig, target_epoch: int, *, joins: bool, is_resolving: bool) -> int:
        """The time until the member's next heartbeat, in ms; to be asked when the other steps are done.

        A member hears news only in answer to a heartbeat. At the regular interval, a member that asks a moment before a
        partition is given up gets it one interval later, and members that start together need two. So a member asks
        again soon where there are partitions to come for it, and where others may be about to need its own.
        """
        regular_ms = config.consumer_heartbeat_interval_ms
        made_ms, assignment_interval_ms = self.group.assignment_timestamp_ms, config.consumer_assignment_interval_ms
        soon_ms = min(regular_ms, UNSETTLED_INTERVAL_MS)
        if is_resolving or self.regexes_to_resolve:
            return soon_ms
        if target_epoch < self.group_epoch:
            due_ms = self.group.assignment_due_ms(assignment_interval_ms, self.now_ms)
            due_ms = max(due_ms, self.group.retry_assignment_ms)
            return min(regular_ms, max(soon_ms, due_ms - self.now_ms))
        if target_epoch > self.group.assignment_epoch:
            made_ms = self.now_ms
        if self.new.state is MemberState.UNRELEASED_PARTITIONS:
            # Two intervals after the target was made every owner has heard of it. One that is slow to give up must
            # not make a large group send more than Apache Kafka's does.
            return soon_ms if self.now_ms < made_ms + 2 * regular_ms else regular_ms
        if self.new.assigned and not joins and self.now_ms < made_ms + assignment_interval_ms:
            # A member that joins meanwhile waits for the next target, which may take partitions from this one. A member
            # that joins itself sends a heartbeat at once, with its new partitions, and hears of the target then.
            return soon_ms
        return regular_ms

    def reconcile(
        self, target_epoch: int, target: Assignment, owned: OwnedPartitions | None, subscription_changed: bool
    ) -> bool:
        """Move the member towards its target; whether it moved. `ApiError` FENCED_MEMBER_EPOCH."""
        if not subscription_changed and self.new.is_reconciled_to(target_epoch):
            return False
        group = self.group
        moved = Reconciliation(
            member=self.new,
            target_epoch=target_epoch,
            target=target,
            is_owned=lambda topic_id, partition: group.owner(topic_id, partition) is not None,
            is_subscribed=_subscription(group.topics_of(self.new), self.hasher.image),
            owned=owned,
            subscription_changed=subscription_changed,
        ).next()
        if moved is self.new:
            return False
        self.new = moved
        self.records.append(current_record(group.group_id, moved))
        return True


def _subscription(names: frozenset[str], topics: CoordinatorMetadataImage) -> Callable[[Uuid], bool]:
    """Whether a topic has one of the names, without looking up more of them than are asked for."""

    def is_subscribed(topic_id: Uuid) -> bool:
        topic = topics.by_id(topic_id)
        return topic is not None and topic.name in names

    return is_subscribed


def resolve_regexes(
    regexes: frozenset[str], topics: CoordinatorMetadataImage, now_ms: int, may_see: Callable[[str], bool] | None = None
) -> dict[str, ResolvedRegex]:
    """The topics that each regular expression matches, and ``may_see`` does not hide; one that is not valid matches
    none."""
    names = list(topics.names())
    resolved = {}
    for regex in sorted(regexes):
        try:
            compiled = compile_topic_regex(regex)
        except ApiError as error:
            logger.error("regular expression %r cannot be resolved: %s", regex, error)
            matched: frozenset[str] = frozenset()
        else:
            matched = frozenset(name for name in names if compiled.matches(name) and (may_see is None or may_see(name)))
        resolved[regex] = ResolvedRegex(matched, topics.version, now_ms)
    return resolved


def regexes_resolved(
    group: ConsumerGroup, resolved: dict[str, ResolvedRegex], hasher: MetadataHasher, now_ms: int
) -> list[CoordinatorRecord]:
    """The records of freshly resolved regular expressions; other topics than before are a new group epoch."""
    records = []
    bump = False
    kept = dict(group.resolved_regexes)
    for regex, new in resolved.items():
        if not group.regexes.get(regex):
            continue  # Nobody subscribes to it any more.
        old = group.resolved_regexes.get(regex)
        bump = bump or (frozenset() if old is None else old.topics) != new.topics
        kept[regex] = new
        records.append(regex_record(group.group_id, regex, new))
    topics = group.subscribed_topics(without_regexes=kept)
    for each in kept.values():
        topics |= each.topics
    metadata_hash = hasher.group_hash(topics)
    if bump or metadata_hash != group.metadata_hash:
        epoch = group.group_epoch + 1
        records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        group.trust_metadata(now_ms, epoch)
    return records


def owned_partitions(topic_partitions: list[tuple[Uuid, list[int]]]) -> OwnedPartitions:
    """The partitions of a heartbeat, by topic id."""
    owned: dict[Uuid, set[int]] = {}
    for topic_id, partitions in topic_partitions:
        owned.setdefault(topic_id, set()).update(partitions)
    return owned


def assign_members(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerGroupMember],
    assignor: NamedTopicsAssignor,
    topics: CoordinatorMetadataImage,
) -> Mapping[str, Assignment]:
    """The assignor's answer for ``members``, which are the group's after the step under way. `AssignorError`,
    `AssignmentKept`."""
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    specs = {}
    for member_id, member in members.items():
        names = group.topics_of(member)
        topic_ids = ids.get(names)
        if topic_ids is None:
            found = (topics.by_name(name) for name in names)
            topic_ids = ids[names] = frozenset(topic.id for topic in found if topic is not None)
        previous_id = member_id
        if member.instance_id is not None:
            previous_id = group.static_members.get(member.instance_id, member_id)
        specs[member_id] = MemberSpec(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            subscribed_topic_ids=topic_ids,
            assigned=group.target.get(previous_id, NOTHING_ASSIGNED),
        )
    return assignor.assign(GroupSpec.of(specs), topics)


def target_records(
    group: ConsumerGroup, target: Mapping[str, Assignment], epoch: int, now_ms: int
) -> list[CoordinatorRecord]:
    """The records that make ``target`` the group's: one for each member whose part differs, and the epoch."""
    records = [
        target_record(group.group_id, member_id, assignment) for member_id, assignment in group.changed_targets(target)
    ]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records
