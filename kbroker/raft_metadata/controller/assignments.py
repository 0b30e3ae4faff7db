"""Replicas of new partitions: assignments that a client has chosen, and those that the controller places itself.

Places are striped over racks and brokers (Kafka's ``StripedReplicaPlacer``): the leader of each partition is in the
next rack, and followers continue from the rack after the leader's, so both spread evenly. Fenced brokers take replicas
only when there are not enough others, and never lead.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.view import ControllerView
from kbroker.raft_metadata.image import DIR_MIGRATING, DIR_UNASSIGNED
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import PartitionRecord


def validate_assignment(view: ControllerView, brokers: Sequence[int], factor: int | None = None) -> None:
    """``ApiError`` INVALID_REPLICA_ASSIGNMENT unless these are distinct registered brokers, ``factor`` of them."""
    if not brokers:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    previous: int | None = None
    for broker in sorted(brokers):
        if broker not in view.image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
            )
        if not view.image.brokers[broker].has_uncordoned_dirs:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but all its log directories are cordoned.",
            )
        if broker == previous:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker} more than once.",
            )
        previous = broker
    if factor is not None and len(brokers) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s).",
        )


def check_assigned(view: ControllerView, partition_id: int, brokers: Sequence[int], factor: int | None) -> None:
    """``ApiError`` INVALID_REPLICA_ASSIGNMENT unless a new partition may be on the brokers that a client has chosen.

    ``factor`` is that of the topic's other partitions, if it has any.
    """
    validate_assignment(view, brokers, factor)
    if not any(map(view.is_active, brokers)):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition_id} are fenced or "
            "in controlled shutdown.",
        )


def place_on_brokers(view: ControllerView, count: int, factor: int) -> Iterator[list[int]]:
    """Brokers for ``count`` new partitions with ``factor`` replicas each. ``ApiError`` INVALID_REPLICATION_FACTOR."""
    usable = [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown and broker.has_uncordoned_dirs
    ]
    return place_replicas(usable, count, factor, view.rng)


def new_partition_records(
    view: ControllerView, topic_id: Uuid, first: int, partitions: Iterable[Sequence[int]]
) -> Iterator[PartitionRecord]:
    """Returns the records of new partitions on these brokers, one at a time: the active replicas are in sync."""
    level = view.image.features.metadata_version
    broker_ids = view.image.brokers
    active = {broker_id for broker_id in broker_ids if view.is_active(broker_id)}
    directory_of = {broker_id: default_directory(view, broker_id) for broker_id in broker_ids}
    for partition_id, brokers in enumerate(partitions, first):
        isr = [broker for broker in brokers if broker in active]
        yield PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=[*brokers],
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory_of[broker] for broker in brokers] if level >= DIRECTORIES else [],
        )


def default_directory(view: ControllerView, broker_id: int) -> Uuid:
    """The log directory of a new replica on this broker, as far as the controller can tell (KIP-858).

    A broker with one directory puts it there. MIGRATING below the level of ``metadata.version`` that has directories,
    and for a broker that registered without them.
    """
    if view.image.features.metadata_version < DIRECTORIES:
        return DIR_MIGRATING
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        return DIR_UNASSIGNED
    if not broker.log_dirs:
        return DIR_MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIR_UNASSIGNED


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None
    fenced: bool


class _BrokerRing:
    """Brokers of one kind in one rack; each epoch (partition) gives each broker once."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._index = 0
        self._offset = 0
        self._epoch = 0

    def initialize(self, rng: random.Random) -> None:
        if self.brokers:
            self.brokers.sort()
            self._offset = rng.randrange(len(self.brokers))

    def next(self, epoch: int, *, turns: bool) -> int:
        """The next broker, -1 if there is none. With ``turns`` an epoch starts one further than the one before."""
        count = len(self.brokers)
        if not count:
            return -1
        if self._epoch != epoch:
            self._epoch = epoch
            self._index = 0
            self._offset = (self._offset + turns) % count
        if self._index >= count:
            return -1
        broker = self.brokers[(self._index + self._offset) % count]
        self._index += 1
        return broker


class _Rack:
    def __init__(self) -> None:
        self.fenced = _BrokerRing()
        self.unfenced = _BrokerRing()

    def lead(self, epoch: int) -> int:
        # A turn with each leader: Kafka's, which come with each partition, leave half of the brokers without leaders
        # where a rack has two and there are two racks.
        return self.unfenced.next(epoch, turns=True)

    def follow(self, epoch: int) -> int:
        broker = self.unfenced.next(epoch, turns=False)
        return broker if broker >= 0 else self.fenced.next(epoch, turns=True)


def place_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, rng: random.Random
) -> Iterator[list[int]]:
    """The replicas of each partition, leader first, chosen as they are read. ``ApiError`` INVALID_REPLICATION_FACTOR,
    at once, if it cannot be done."""
    racks: dict[str | None, _Rack] = {}
    total = unfenced = 0
    for broker in sorted(brokers):
        rack = racks.setdefault(broker.rack, _Rack())
        total += 1
        if broker.fenced:
            rack.fenced.brokers.append(broker.id)
        else:
            rack.unfenced.brokers.append(broker.id)
            unfenced += 1
    _check(replication_factor, total, unfenced)
    if total == 1:
        only = next(iter(racks.values())).unfenced.brokers
        return repeat(only, partitions)
    return _striped(racks, unfenced, partitions, replication_factor, rng)


def _striped(
    racks: dict[str | None, _Rack], unfenced: int, partitions: int, replication_factor: int, rng: random.Random
) -> Iterator[list[int]]:
    names = sorted(racks, key=lambda name: (name is not None, name or ""))
    for name in names:
        racks[name].unfenced.initialize(rng)
        racks[name].fenced.initialize(rng)
    offset = rng.randrange(len(names))
    epoch = 0
    for _ in range(partitions):
        # After as many partitions as there are brokers the pattern would repeat: shuffle. With one broker there is
        # nothing to shuffle, and the epoch must move on.
        if epoch == unfenced and unfenced > 1:
            rng.shuffle(names)
            for rack in racks.values():
                rng.shuffle(rack.unfenced.brokers)
                rng.shuffle(rack.fenced.brokers)
            epoch = 0
        if offset == len(names):
            offset = 0
        first = offset
        replicas: list[int] = []
        while True:
            leader = racks[names[first]].lead(epoch)
            if leader >= 0:
                replicas.append(leader)
                break
            first = (first + 1) % len(names)
        index = offset
        skip_once = first
        while len(replicas) < replication_factor:
            if index == skip_once:
                skip_once = -1  # the leader's rack has had its turn in this round
            else:
                follower = racks[names[index]].follow(epoch)
                if follower >= 0:
                    replicas.append(follower)
            index = (index + 1) % len(names)
        yield replicas
        epoch += 1
        offset += 1


def _check(replication_factor: int, total: int, unfenced: int) -> None:
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if unfenced == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > total:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {total} broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        )
