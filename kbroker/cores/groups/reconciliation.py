"""Reconciliation of KIP-848: the way of a member from its present partitions to its target assignment.

A partition moves only after its owner has said that it gave it up: the owner stays in its epoch (UNREVOKED_PARTITIONS)
until its heartbeat names the partition no more; the next owner goes on without it (UNRELEASED_PARTITIONS).
Rules: Kafka's ``CurrentAssignmentBuilder`` (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.consumer_group import NO_PARTITIONS, ConsumerGroupMember, MemberState, PartitionEpochs
from kbroker.cores.groups.modern_group import moved
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.value_types import dataclass

OwnedPartitions = Mapping[Uuid, Set[int]]
"""The partitions that a member's heartbeat names, by topic id; None where it names none."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One member's step towards a target.

    ``is_owned``: whether any member has a partition; ``is_subscribed``: whether the member reads a topic.
    """

    member: ConsumerGroupMember
    target_epoch: int
    target: Assignment
    is_owned: Callable[[Uuid, int], bool]
    is_subscribed: Callable[[Uuid], bool]
    owned: OwnedPartitions | None
    subscription_changed: bool = False

    def next(self) -> ConsumerGroupMember:
        """The member after the step; the same object where it cannot move. `ApiError` FENCED_MEMBER_EPOCH."""
        member = self.member
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self.target_epoch:
                    return self._advance(member.member_epoch)
                return self._unsubscribe() if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if self._still_has(member.pending_revocation):
                    return self._unsubscribe() if self.subscription_changed else member
                return self._advance(member.member_epoch)
            case MemberState.UNRELEASED_PARTITIONS:
                return self._advance(member.member_epoch)
            case MemberState.UNKNOWN:
                # Only a member without partitions can start over from a state that nobody here knows.
                if self.owned is None or self.owned:
                    raise ApiError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._advance(self.target_epoch)

    def _still_has(self, partitions: PartitionEpochs) -> bool:
        """Whether the member has any of them, as far as is known: it says so, or says nothing."""
        if self.owned is None:
            return True
        return any(
            not owned.isdisjoint(partitions[topic_id])
            for topic_id, owned in self.owned.items()
            if topic_id in partitions
        )

    def _unsubscribe(self) -> ConsumerGroupMember:
        """Take from the member the topics that it does not read any more, before there is a new target."""
        member = self.member
        gone = [topic_id for topic_id in member.assigned if not self.is_subscribed(topic_id)]
        if not gone:
            return member
        assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in gone}
        pending = dict(member.pending_revocation)
        for topic_id in gone:
            pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
        if self._still_has(pending):
            return moved(self.member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending)
        return moved(self.member, member.state, member.member_epoch, assigned, member.pending_revocation)

    def _advance(self, member_epoch: int) -> ConsumerGroupMember:
        """Give up the partitions that are not in the target; after that, take those of the target that are free."""
        member = self.member
        assigned: dict[Uuid, dict[int, int]] = {}
        to_revoke: dict[Uuid, dict[int, int]] = {}
        to_assign: dict[Uuid, list[int]] = {}
        waits = False
        for topic_id in {**self.target, **member.assigned}:
            has = member.assigned.get(topic_id, {})
            target = self.target.get(topic_id, frozenset()) if self.is_subscribed(topic_id) else frozenset()
            kept = {partition: epoch for partition, epoch in has.items() if partition in target}
            if kept:
                assigned[topic_id] = kept
            if len(kept) < len(has):
                to_revoke[topic_id] = {partition: epoch for partition, epoch in has.items() if partition not in kept}
            revoked = member.pending_revocation.get(topic_id, {})
            for partition in sorted(target):
                if partition in kept:
                    continue
                if partition in revoked or not self.is_owned(topic_id, partition):
                    to_assign.setdefault(topic_id, []).append(partition)
                else:
                    waits = True
        if to_revoke and self._still_has(to_revoke):
            return moved(self.member, MemberState.UNREVOKED_PARTITIONS, member_epoch, assigned, to_revoke)
        for topic_id, partitions in to_assign.items():
            epochs = assigned.setdefault(topic_id, {})
            for partition in partitions:
                epochs[partition] = self.target_epoch
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return moved(self.member, state, self.target_epoch, assigned, NO_PARTITIONS)
