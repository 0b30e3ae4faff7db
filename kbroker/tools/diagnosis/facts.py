"""The facts about a cluster that rules judge, as they were seen once; what was not asked is empty or None. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client.nodes import ClusterBroker
    from kbroker.client.open_transactions import OpenTransaction
    from kbroker.client.topics import TopicDescription
    from kbroker.client.transactions import TransactionDescription
    from kbroker.wire.messages.describe_quorum import ResponsePartitionData as PartitionOfQuorum
    from kbroker.wire.messages.log_dirs import DescribeLogDirsResult


class QuorumNode(NamedTuple):
    """A node of the metadata quorum: ``behind`` in records, ``caught_up`` in ms, both None if nobody knows."""

    id: int
    role: str
    end_offset: int
    behind: int | None
    caught_up: int | None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum of controllers. ``leader`` is -1 without an active controller.

    ``problem`` says why there is no answer although the client may ask. Times are of this machine's clock.
    """

    leader: int
    nodes: tuple[QuorumNode, ...] = ()
    epoch: int | None = None
    problem: str = ""
    asked_at: int = 0
    answered_at: int = 0

    @property
    def leader_clock(self) -> int | None:
        """The time of the active controller when it answered, by its own clock; None if it does not tell."""
        return next((node.caught_up for node in self.nodes if node.id == self.leader), None)

    @property
    def voters(self) -> int:
        """The number of voters."""
        return sum(node.role == "voter" for node in self.nodes)


def quorum_nodes(partition: PartitionOfQuorum) -> tuple[QuorumNode, ...]:
    """Returns the nodes in the answer to DescribeQuorum, voters first."""
    end = max((int(state.log_end_offset) for state in partition.current_voters), default=0)
    return tuple(
        QuorumNode(
            state.replica_id,
            role,
            state.log_end_offset,
            max(end - state.log_end_offset, 0) if state.log_end_offset >= 0 else None,
            state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
        )
        for role, states in (("voter", partition.current_voters), ("observer", partition.observers))
        for state in states
    )


class Holder(NamedTuple):
    """An open transaction in one partition, and the transaction as its coordinator describes it.

    ``owner`` is None where no coordinator tells of it: it hangs, or this user may not see it.
    """

    opened: OpenTransaction
    owner: TransactionDescription | None = None


class ReplicaCounts(NamedTuple):
    """Partitions of one broker: those it leads, those it has replicas of, and replicas that are not in sync."""

    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0


def replica_counts(
    topics: Iterable[TopicDescription], brokers: Iterable[ClusterBroker] = ()
) -> dict[int, ReplicaCounts]:
    """Returns broker -> counts, of these brokers and of others that lead a partition or have a replica."""
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    for topic in topics:
        for entry in topic.partitions:
            if entry.leader is not None:
                leads[entry.leader] += 1
            replicas.update(entry.replicas)
            if len(entry.isr) < len(entry.replicas):
                out_of_sync.update(broker for broker in entry.replicas if broker not in entry.isr)
    ids = {*leads, *replicas, *(broker.id for broker in brokers)}
    return {each: ReplicaCounts(leads[each], replicas[each], out_of_sync[each]) for each in ids}


class DamagedReplica(NamedTuple):
    """Offsets from ``start`` on, below ``end``, that a broker's log of a partition has lost."""

    broker: int
    partition: TopicPartition
    start: int
    end: int
    reason: str


def damaged_replicas(broker: int, log_dir: DescribeLogDirsResult) -> list[DamagedReplica]:
    """Returns what a broker that was asked for damage says of a log directory; one that is not kbroker says nothing."""
    return [
        DamagedReplica(
            broker,
            TopicPartition(topic.name, partition.partition_index),
            damage.start_offset,
            damage.end_offset,
            damage.reason,
        )
        for topic in log_dir.topics
        for partition in topic.partitions
        for damage in partition.damage
    ]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at ``now_ms`` of this machine's clock.

    ``quorum`` is None where the cluster does not tell. ``silent``: brokers that are listed and do not answer, with what
    was tried. ``failed_dirs``: (broker, directory). ``min_isr``: topic -> min.insync.replicas, as far as it is known.
    ``counts``: of each broker, by all topics. ``transactions``: open ones, as their coordinators know them.
    ``hanging``: open ones in partitions that no coordinator ends.
    """

    now_ms: int
    cluster_id: str | None = None
    brokers: Sequence[ClusterBroker] = ()
    quorum: Quorum | None = None
    silent: Mapping[int, str] = field(default_factory=dict)
    failed_dirs: Sequence[tuple[int, str]] = ()
    topics: Sequence[TopicDescription] = ()
    min_isr: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[int, ReplicaCounts] = field(default_factory=dict)
    transactions: Sequence[TransactionDescription] = ()
    hanging: Sequence[OpenTransaction] = ()
    damaged: Sequence[DamagedReplica] = ()

    @property
    def alive(self) -> frozenset[int]:
        """The brokers that are not fenced."""
        return frozenset(broker.id for broker in self.brokers if not broker.fenced)

    @property
    def controller(self) -> int | None:
        """The active controller, None without one and where the cluster does not tell."""
        return None if self.quorum is None or self.quorum.leader < 0 else self.quorum.leader
