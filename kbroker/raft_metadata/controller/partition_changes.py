"""The one function that changes a partition: its leader, its ISR, its eligible leader replicas, its assignment.

:func:`partition_change` takes a partition and the wanted changes. It returns one record with these and their
consequences: the end of a reassignment (KIP-455), an election, the eligible leader replicas (KIP-966), a new leader
epoch. Rules: Kafka's ``PartitionChangeBuilder``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence

from kbroker.raft_metadata.controller.surviving_logs import Key, LogEnds, most_complete
from kbroker.raft_metadata.image import NO_LEADER, NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage
from kbroker.raft_metadata.metadata_version import DIRECTORIES, NO_EPOCH_BUMP_ON_ISR_SHRINK
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple, dataclass
from kbroker.wire.records.metadata import PartitionChangeRecord


class Election(enum.Enum):
    """Kinds of election. The present leader stays if it may, unless PREFERRED finds the preferred one."""

    PREFERRED = enum.auto()
    """The first replica if it is in sync, else as ONLINE."""
    ONLINE = enum.auto()
    """A replica that has all that was acknowledged: of the ISR, or of the ELR when the ISR is empty."""
    UNCLEAN = enum.auto()
    """As ONLINE; if there is none, any active replica, whatever records it lacks."""
    AT_ONCE = enum.auto()
    """An UNCLEAN election by what is known, which does not wait until replicas have said what they have."""


class ChangeRules(NamedTuple):
    """The cluster's state and the topic's configuration, as far as a change depends on them."""

    is_acceptable_leader: Callable[[int, PartitionImage], bool]
    """Whether the broker is active and the log directory of its replica online."""
    min_isr: int
    """The topic's ``min.insync.replicas``; a partition with fewer replicas needs all of them."""
    elr_enabled: bool
    metadata_version: int
    default_directory: Callable[[int], Uuid]
    """The log directory of a replica that is new to the broker."""
    log_ends: LogEnds
    """The answers of brokers about partitions of which no replica is known to have everything."""


@dataclass(slots=True)
class _Target:
    """The partition after the change, while it is computed."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    elr: tuple[int, ...]


def partition_change(
    topic_id: Uuid,
    partition_id: int,
    old: PartitionImage,
    rules: ChangeRules,
    *,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    leader_recovery_state: int | None = None,
    directories: Mapping[int, Uuid] | None = None,
    unclean_shutdown: Collection[int] = (),
    election: Election = Election.ONLINE,
) -> PartitionChangeRecord | None:
    """The record of the given changes (None: unchanged) and their consequences; None if nothing changes.

    ``unclean_shutdown``: brokers that may have lost records, and are not eligible to lead any more.
    """
    target = _Target(
        isr=old.isr if isr is None else tuple(isr),
        replicas=old.replicas if replicas is None else tuple(replicas),
        adding=old.adding_replicas if adding is None else tuple(adding),
        removing=old.removing_replicas if removing is None else tuple(removing),
        elr=old.elr,
    )
    record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    _complete_reassignment(target)
    if rules.elr_enabled:
        target.elr = _eligible_leader_replicas(target, old, rules, unclean_shutdown)
    _elect(record, target, old, rules, election)
    if (
        record.leader == NO_LEADER_CHANGE
        and target.replicas is not old.replicas
        and not set(old.replicas) <= set(target.replicas)
    ):
        # Followers must notice that replicas were removed: the same leader begins a new epoch.
        record.leader = old.leader
    unclean = record.isr is not None
    if unclean or not rules.elr_enabled:
        target.elr = ()
    if target.elr != old.elr:
        record.eligible_leader_replicas = list(target.elr)
    if not unclean:
        if not target.isr and not rules.elr_enabled:
            # Without eligible leader replicas the last in-sync replica stays in the ISR: it alone has everything.
            target.isr = tuple(broker for broker in old.isr if broker in target.replicas) or target.replicas[:1]
        if target.isr != old.isr:
            record.isr = list(target.isr)
    if (
        rules.metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK
        and record.leader == NO_LEADER_CHANGE
        and record.isr is not None
        and not set(old.isr) <= set(record.isr)
    ):
        record.leader = old.leader
    if rules.elr_enabled:
        _keep_last_known_leader(record, old)
    _assign(record, target, old, rules, directories or {})
    if leader_recovery_state is not None and leader_recovery_state != old.leader_recovery_state:
        record.leader_recovery_state = leader_recovery_state
    return None if _is_no_op(record) else record


def _complete_reassignment(target: _Target) -> None:
    """Take the old replicas out if all that are being added are in sync (``PartitionReassignmentReplicas``)."""
    adding, removing = target.adding, target.removing
    if not (adding or removing):
        return
    replicas = tuple(broker for broker in target.replicas if broker not in removing)
    isr = tuple(broker for broker in target.isr if broker not in removing)
    # With fewer replicas than before, the ISR must not shrink more than it has to.
    needed = {*adding} if len(adding) >= len(removing) else {*adding, *replicas}
    # A replica in sync must remain when replicas are removed; with none to remove, an empty ISR stays as it is.
    if not needed <= set(isr) or (removing and not isr):
        return
    target.replicas, target.isr, target.adding, target.removing = replicas, isr, (), ()


def _eligible_leader_replicas(
    target: _Target, old: PartitionImage, rules: ChangeRules, unclean_shutdown: Collection[int]
) -> tuple[int, ...]:
    """The replicas that left the ISR when it was below ``min_isr``: they have all that was acknowledged."""
    if len(target.isr) >= min(rules.min_isr, len(target.replicas)):
        return ()
    candidates = dict.fromkeys((*old.elr, *old.isr))
    return tuple(
        broker
        for broker in candidates
        if broker not in target.isr and broker not in unclean_shutdown and broker in target.replicas
    )


def _elect(
    record: PartitionChangeRecord, target: _Target, old: PartitionImage, rules: ChangeRules, election: Election
) -> None:
    leader, unclean = _choose((Uuid(record.topic_id), record.partition_id), target, old, rules, election)
    if leader == old.leader:
        return
    if leader in target.elr:
        target.isr = (leader,)
        alone = min(rules.min_isr, len(target.replicas)) <= 1  # it acknowledges by itself what the others lack then
        target.elr = () if alone else tuple(broker for broker in target.elr if broker != leader)
    record.leader = leader
    if unclean:
        # Records that only other replicas had are lost. The leader has to recover before others may join the ISR.
        record.isr = [leader]
        if old.leader_recovery_state == RECOVERED:
            record.leader_recovery_state = RECOVERING


def _choose(key: Key, target: _Target, old: PartitionImage, rules: ChangeRules, election: Election) -> tuple[int, bool]:
    """The leader, and whether it may lack acknowledged records."""

    def valid(broker: int) -> bool:
        has_all = broker in target.isr or (not target.isr and broker in target.elr)
        return has_all and rules.is_acceptable_leader(broker, old)

    preferred = target.replicas[0] if target.replicas else NO_LEADER
    if election is Election.PREFERRED and valid(preferred):
        return preferred, False
    for broker in (old.leader, *target.replicas):
        if valid(broker):
            return broker, False
    active = [broker for broker in target.replicas if rules.is_acceptable_leader(broker, old)]
    is_unclean = election in (Election.UNCLEAN, Election.AT_ONCE)
    if rules.elr_enabled and not target.isr and not target.elr:
        # No replica is known to have all records.
        known = rules.log_ends.of(key, active)
        is_choice = len(target.replicas) > 1 and election is not Election.AT_ONCE
        if is_choice and rules.log_ends.awaited(key, old, known, active):
            return NO_LEADER, False
        last = old.last_known_elr[0] if len(old.last_known_elr) == 1 else NO_LEADER
        if last in active and last not in known:
            return last, True  # Apache Kafka's rule: the last leader is the best guess
        if known and (last in known or is_unclean):
            return most_complete(known, (last, *target.replicas)), True
    return (active[0], True) if is_unclean and active else (NO_LEADER, False)


def _keep_last_known_leader(record: PartitionChangeRecord, old: PartitionImage) -> None:
    """Keep the last leader of a leaderless partition in ``last_known_elr`` (KIP-966, as Kafka 4 does it)."""
    if record.leader == NO_LEADER and not old.last_known_elr and old.leader != NO_LEADER:
        record.last_known_elr = [old.leader]
    elif record.isr == [] and not old.last_known_elr and old.leader == NO_LEADER:
        record.last_known_elr = list(old.isr)  # it lost its leader before there were eligible leader replicas
    elif record.leader >= 0 and old.last_known_elr:
        record.last_known_elr = []


def _assign(
    record: PartitionChangeRecord,
    target: _Target,
    old: PartitionImage,
    rules: ChangeRules,
    directories: Mapping[int, Uuid],
) -> None:
    if target.replicas != old.replicas:
        record.replicas = list(target.replicas)
    if rules.metadata_version >= DIRECTORIES and (directories or target.replicas is not old.replicas):
        wanted = []
        for broker in target.replicas:
            known = directories.get(broker)
            if known is None:
                known = old.directory(broker) if broker in old.replicas else rules.default_directory(broker)
            wanted.append(known)
        if wanted != [old.directory(broker) for broker in old.replicas]:
            record.directories = wanted
    if target.removing != old.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != old.adding_replicas:
        record.adding_replicas = list(target.adding)


def _is_no_op(record: PartitionChangeRecord) -> bool:
    if record.leader != NO_LEADER_CHANGE or record.isr is not None:
        return False  # most that are no no-op
    return record == PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id)
