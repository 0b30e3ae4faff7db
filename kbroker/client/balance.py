"""Balances the load of brokers: measures what partitions cost, and plans which replicas are to lead or to move.

The load of a broker is the processor time that its partitions cost it, as a share of one core. A partition costs its
leader by requests and by bytes in and out, and each follower by the bytes that it copies; brokers count these
(`DescribeLogDirs`, a tagged field of kbroker's), and `kbroker.base.costs` makes them seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbroker.base.costs import BYTE_COPIED, BYTE_IN, BYTE_OUT, REQUEST
from kbroker.client.cluster import Client, refuse
from kbroker.client.nodes import brokers_open_to_new, describe_cluster
from kbroker.client.reassignments import list_reassignments
from kbroker.client.topics import list_topics
from kbroker.types import TopicPartition
from kbroker.wire.messages.log_dirs import DescribeLogDirsRequest

TOLERANCE: Final = 1.2
"""A broker with at most this many times the mean load is left alone."""
WORTH: Final = 0.1
"""A move takes at least this share of the mean load from the most loaded broker."""
IDLE: Final = 0.005
"""Where no broker has more load than this share of a core, nothing is worth a move."""


class NoLoads(Exception):
    """The loads cannot be known; the text says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """The cost of a partition for its leader and for each of its followers, in processor seconds a second."""

    lead: float
    follow: float


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition and its replicas, ``replicas`` with the preferred leader first."""

    replicas: tuple[int, ...]
    leader: int
    isr: frozenset[int]
    size: int
    """Bytes of the leader's log, which a new replica copies."""
    load: Load
    is_in_trouble: bool = False
    """It is not in sync, or moves: it stays as it is."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that gets other replicas, or their order: the first leads then."""

    partition: TopicPartition
    before: Placed
    replicas: tuple[int, ...]
    hosts: Mapping[int, str] = field(default_factory=dict)
    """The hosts of brokers, as far as known."""

    @property
    def copied(self) -> int:
        """Bytes that new replicas copy; 0 if only another replica leads, or another node of a host takes a log over."""
        before = self.before.replicas
        handed = {self.hosts.get(broker) for broker in before if broker not in self.replicas} - {None}
        new = [broker for broker in self.replicas if broker not in before and self.hosts.get(broker) not in handed]
        return self.before.size * len(new)


@dataclass(slots=True)
class Plan:
    """Moves, the loads of brokers before and after them, and why there are not more."""

    moves: list[Move]
    before: dict[int, float]
    after: dict[int, float]
    notes: list[str] = field(default_factory=list)


def loads_of(placed: Mapping[TopicPartition, Placed], brokers: Collection[int]) -> dict[int, float]:
    """Returns broker -> its load."""
    loads = dict.fromkeys(brokers, 0.0)
    for each in placed.values():
        for broker in each.replicas:
            loads[broker] = loads.get(broker, 0.0) + (each.load.lead if broker == each.leader else each.load.follow)
    return loads


def plan_balance(
    placed: Mapping[TopicPartition, Placed],
    racks: Mapping[int, str | None],
    *,
    most: int,
    only_leaders: bool = False,
    resting: Collection[TopicPartition] = (),
    closed: Collection[int] = (),
    hosts: Mapping[int, str] | None = None,
) -> Plan:
    """Plan up to ``most`` moves, each from the most loaded broker, which it makes less loaded than before by at least
    `WORTH` without loading another as much: so the loads' sum of squares falls, and no plan takes back another.

    ``racks`` has the brokers with their racks; two replicas that are in different racks stay so. Brokers that are
    ``closed`` get no replicas.
    A move that copies nothing, as between nodes of one of the ``hosts``, is preferred to others that gain up to half as
    much more. Partitions that are
    ``resting`` have moved lately.
    """
    now = dict(placed)
    before = loads_of(now, [broker for broker in racks if broker not in closed])
    plan = Plan([], before, dict(before))
    mean = sum(before.values()) / max(1, len(before))
    done: set[TopicPartition] = set(resting)
    while len(plan.moves) < most:
        loads = plan.after
        hottest = max(loads, key=lambda broker: (loads[broker], broker), default=None)
        if hottest is None or loads[hottest] <= TOLERANCE * mean:
            break
        if loads[hottest] <= IDLE:
            if not plan.moves:
                plan.notes.append(f"no broker has more load than {IDLE:.1%} of a core: nothing to move")
            break
        best: tuple[float, Move, dict[int, float]] | None = None
        for partition, each in now.items():
            if partition in done or each.is_in_trouble or hottest not in each.replicas:
                continue
            for replicas in _others(each, hottest, racks, closed, only_leaders):
                move = Move(partition, each, replicas, hosts or {})
                changed = _changed(loads, each, replicas)
                gain = loads[hottest] - max(changed[broker] for broker in {hottest, *replicas})
                worth = gain if move.copied else 1.5 * gain
                if gain >= WORTH * mean and (best is None or worth > best[0]):
                    best = worth, move, changed
        if best is None:
            heavy = max(now, key=lambda each: now[each].load.lead * (now[each].leader == hottest))
            plan.notes.append(
                f"broker {hottest} has more than its share, and no move helps; its heaviest partition is {heavy} with"
                f" {now[heavy].load.lead:.1%} of a core: more partitions can be spread"
            )
            break
        _, move, plan.after = best
        plan.moves.append(move)
        done.add(move.partition)
    return plan


def _others(
    each: Placed, hottest: int, racks: Mapping[int, str | None], closed: Collection[int], only_leaders: bool
) -> Iterator[tuple[int, ...]]:
    """Yields the replicas that relieve a broker: another one in sync leads, or another broker takes its place."""
    if each.leader == hottest:
        for broker in each.replicas:
            if broker != hottest and broker in each.isr and broker in racks and broker not in closed:
                yield (broker, *(other for other in each.replicas if other != broker))
    if only_leaders:
        return
    first = (each.leader, *(other for other in each.replicas if other != each.leader))
    kept = [racks.get(other) for other in each.replicas if other != hottest]
    spread = len({racks.get(other) for other in each.replicas})
    for broker in racks:
        if broker not in closed and broker not in each.replicas and len({*kept, racks[broker]}) >= spread:
            yield tuple(broker if other == hottest else other for other in first)


def _changed(loads: Mapping[int, float], each: Placed, replicas: tuple[int, ...]) -> dict[int, float]:
    """Returns the loads once ``replicas`` have the partition, and the first of them leads."""
    changed = dict(loads)
    for broker in each.replicas:
        changed[broker] -= each.load.lead if broker == each.leader else each.load.follow
    for broker in replicas:
        changed[broker] += each.load.lead if broker == replicas[0] else each.load.follow
    return changed


Counts = dict[tuple[int, TopicPartition], tuple[int, int, int, int]]
"""Broker and partition -> bytes in, bytes out and requests since the broker's process began, and the log's size."""
_NOTHING: Final = (0, 0, 0, 0)


def read_counts(client: Client) -> Counts:
    """Ask all brokers for their partitions' counts. ``NoLoads`` if one does not tell."""
    request = DescribeLogDirsRequest(topics=None, wants_load=True)
    found: Counts = {}
    for broker, response in client.ask_nodes(dict.fromkeys(client.all_nodes(), request)).items():
        refuse(response.error_code, f"broker {broker}")
        told = [
            (TopicPartition(topic.name, each.partition_index), load, each.partition_size)
            for directory in response.results
            for topic in directory.topics
            for each in topic.partitions
            for load in each.load
        ]
        if not told and any(directory.topics for directory in response.results):
            raise NoLoads(f"broker {broker} does not tell what its partitions cost: it is not of kbroker, or older")
        for partition, load, size in told:
            found[broker, partition] = load.bytes_in, load.bytes_out, load.requests, size
    return found


def place(client: Client, before: Counts, after: Counts, seconds: float) -> dict[TopicPartition, Placed]:
    """Returns all partitions with what each has cost between two looks, ``seconds`` apart.

    A partition whose leader was another in between, or started again, costs what it did since then.
    """
    moving = list_reassignments(client)
    placed: dict[TopicPartition, Placed] = {}
    for topic in list_topics(client):
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition)
            leader = -1 if each.leader is None else each.leader
            new = after.get((leader, partition), _NOTHING)
            old = before.get((leader, partition), _NOTHING)
            if new[2] < old[2]:
                old = _NOTHING
            bytes_in, bytes_out, requests = ((now - then) / seconds for now, then in zip(new[:3], old[:3], strict=True))
            leading = bytes_in * BYTE_IN.value + bytes_out * BYTE_OUT.value + requests * REQUEST.value
            placed[partition] = Placed(
                each.replicas,
                leader,
                frozenset(each.isr),
                new[3],
                Load(leading, bytes_in * BYTE_COPIED.value),
                partition in moving or leader < 0 or set(each.isr) != set(each.replicas),
            )
    return placed


def still_free(client: Client, moves: Sequence[Move]) -> list[Move]:
    """Returns the moves of partitions that nobody else has moved, or has begun to, since they were planned."""
    moving = list_reassignments(client)
    now = {
        TopicPartition(topic.name, each.partition): {*each.replicas}
        for topic in list_topics(client)
        for each in topic.partitions
    }
    return [
        each for each in moves if each.partition not in moving and now.get(each.partition) == {*each.before.replicas}
    ]


def broker_hosts(client: Client) -> dict[int, str]:
    """Returns the host of each broker: nodes of one machine have the same."""
    return {each.id: each.host for each in describe_cluster(client).brokers}


def broker_racks(client: Client) -> tuple[dict[int, str | None], set[int]]:
    """Returns the racks of brokers, each without one as a rack of its own, and the brokers that get no replicas."""
    racks: dict[int, str | None] = {
        each.id: each.rack or f"broker {each.id}" for each in describe_cluster(client).brokers
    }
    return racks, {*racks} - {*brokers_open_to_new(client)}
