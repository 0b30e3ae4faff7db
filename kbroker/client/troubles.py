"""The troubles of a cluster, each in a sentence for a person, and since when they have been seen. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kbroker.client.nodes import ClusterBroker
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.wire.messages.describe_quorum import ResponsePartitionData as PartitionOfQuorum

ERROR: Final = "error"
WARNING: Final = "warning"

_QUORUM_SECONDS: Final = 15
"""A voter that has not caught up for so long is told of; the controllers' own limit is the fetch time-out, 2 s."""

_SHOWN_PARTITIONS: Final = 8
_SHOWN_TOPICS: Final = 5

MISSING: Final = "missing-"
"""Key prefix for missing brokers, followed by their ids."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """``key`` tells it from others for as long as it lasts; ``link`` is a place in the page, or empty.

    ``since`` is in ms where the cluster itself tells it, None where only the observer can.
    """

    key: str
    severity: str
    text: str
    advice: str
    link: str = ""
    since: int | None = None


class QuorumNode(NamedTuple):
    """A node of the metadata quorum: ``behind`` in records, ``caught_up`` in ms, both None if nobody knows."""

    id: int
    role: str
    end_offset: int
    behind: int | None
    caught_up: int | None


def quorum_nodes(partition: PartitionOfQuorum) -> tuple[QuorumNode, ...]:
    """The nodes in the answer to DescribeQuorum, voters first."""
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


def cluster_troubles(
    brokers: Sequence[ClusterBroker],
    leader: int | None,
    quorum: Sequence[QuorumNode],
    now_ms: int,
    silent: Mapping[int, str] | None = None,
) -> list[Trouble]:
    """Troubles of brokers and controllers. ``leader`` is -1 without an active controller, None if it is not told.

    ``silent``: brokers that are listed and do not answer, with what was tried.
    """
    found: list[Trouble] = []
    if leader == -1:
        found.append(
            Trouble(
                "no-controller",
                ERROR,
                "There is no active controller: topics, configs and leaders cannot change.",
                "More than half of the controllers have to be up and to reach one another.",
            )
        )
    found.extend(
        Trouble(
            f"fenced-{broker.id}",
            ERROR,
            f"Broker {broker.id} is fenced: it is registered, and does not serve.",
            "It is stopped, it starts, or the controller has not heard of it for its session's time-out.",
        )
        for broker in brokers
        if broker.fenced
    )
    fenced = {broker.id for broker in brokers if broker.fenced}
    found.extend(
        Trouble(
            f"silent-{broker}",
            ERROR,
            f"Broker {broker} does not answer this console.",
            f"{problem}.",
        )
        for broker, problem in (silent or {}).items()
        if broker not in fenced
    )
    for node in quorum:
        is_voter = node.role == "voter"
        late = node.caught_up is not None and now_ms - node.caught_up > _QUORUM_SECONDS * 1000
        if is_voter and (late or (node.caught_up is None and node.end_offset < 0)):
            records = "" if node.behind is None else f" by {node.behind:,} records"
            found.append(
                Trouble(
                    f"voter-{node.id}",
                    WARNING,
                    f"Controller {node.id} does not follow the metadata log: it is behind{records}.",
                    "If it is down, start it again: the quorum bears the loss of less than half of its voters.",
                    since=node.caught_up,
                )
            )
    return found


def disk_troubles(failed: Iterable[tuple[int, str]]) -> list[Trouble]:
    """Troubles of log directories that have failed: (broker, directory)."""
    return [
        Trouble(
            f"disk-{broker}-{directory}",
            ERROR,
            f"Broker {broker}: the log directory {directory} has failed, and the replicas in it are offline.",
            "The broker's log says why. Once the disk is mended, the broker has to be started again.",
            f"#/broker?id={broker}",
        )
        for broker, directory in failed
    ]


class _Short(NamedTuple):
    """A topic, and those of its partitions with replicas that are not in sync."""

    topic: TopicDescription
    entries: Sequence[PartitionDescription]


def topic_troubles(
    topics: Iterable[TopicDescription], alive: Collection[int], min_isr: Mapping[str, int]
) -> list[Trouble]:
    """Troubles of partitions, one for each topic and kind.

    Where nothing but brokers that are not there is to blame, topics with replicas on the same ones are told of once.

    ``min_isr``: topic -> min.insync.replicas, as far as it is known.
    """
    found: list[Trouble] = []
    by_missing: dict[tuple[int, ...], list[_Short]] = {}
    for topic in topics:
        dead = [entry for entry in topic.partitions if entry.leader is None]
        short = [
            entry for entry in topic.partitions if entry.leader is not None and len(entry.isr) < len(entry.replicas)
        ]
        link = f"#/topic?name={topic.name}"
        if dead:
            found.append(
                Trouble(
                    f"leaderless-{topic.name}",
                    ERROR,
                    f"Topic {topic.name}: {_partitions(dead, topic)} no leader: nobody can read or write there.",
                    _missing(dead, alive) or "No replica that was in sync is alive; start the brokers that have one.",
                    link,
                )
            )
        least = min_isr.get(topic.name)
        refused = [] if least is None else [entry for entry in short if len(entry.isr) < least]
        if refused:
            found.append(
                Trouble(
                    f"min-isr-{topic.name}",
                    ERROR,
                    f"Topic {topic.name}: {_partitions(refused, topic)} fewer replicas in sync than"
                    f" min.insync.replicas={least}: records with acks=all are refused.",
                    _missing(refused, alive) or "Followers have to catch up.",
                    link,
                )
            )
        rest = [entry for entry in short if entry not in refused]
        if rest:
            missing = {broker for entry in rest for broker in entry.replicas if broker not in entry.isr}
            blamed = () if missing & set(alive) else tuple(sorted(missing))
            by_missing.setdefault(blamed, []).append(_Short(topic, rest))
    for missing_brokers, those in by_missing.items():
        if missing_brokers and len(those) > 1:
            found.append(_without_brokers(missing_brokers, those))
        else:
            found += [_short_topic(each, alive) for each in those]
    return found


def _short_topic(short: _Short, alive: Collection[int]) -> Trouble:
    topic, entries = short
    return Trouble(
        f"short-{topic.name}",
        WARNING,
        f"Topic {topic.name}: {_partitions(entries, topic)} replicas that are not in sync.",
        _missing(entries, alive) or "Followers are behind, or have just been assigned and copy what there is.",
        f"#/topic?name={topic.name}",
    )


def _without_brokers(brokers: Sequence[int], shorts: Sequence[_Short]) -> Trouble:
    """The trouble of all topics that lack nothing but the replicas of these brokers."""
    count = sum(len(short.entries) for short in shorts)
    names = [short.topic.name for short in shorts]
    shown = ", ".join(names[:_SHOWN_TOPICS])
    more = f" and {len(names) - _SHOWN_TOPICS:,} more" if len(names) > _SHOWN_TOPICS else ""
    who, are, them = (
        (f"Broker {brokers[0]}", "is", "it")
        if len(brokers) == 1
        else (f"Brokers {', '.join(map(str, brokers))}", "are", "them")
    )
    return Trouble(
        f"{MISSING}{'-'.join(map(str, brokers))}",
        WARNING,
        f"{who} {are} not there: {count:,} partitions of {len(shorts):,} topics have replicas that are not in sync.",
        f"Start {them}: the replicas catch up by themselves. Topics: {shown}{more}.",
        "#/topics?troubled=true&internal=true",
    )


def _partitions(entries: Sequence[PartitionDescription], topic: TopicDescription) -> str:
    """``partitions 0, 3 and 4 of 12 have`` or ``partition 3 has``."""
    if len(topic.partitions) == 1:
        return "its partition has"
    if len(entries) == 1:
        return f"partition {entries[0].partition} has"
    if len(entries) == len(topic.partitions) == 2:
        return "both partitions have"
    if len(entries) == len(topic.partitions):
        return f"all {len(entries)} partitions have"
    if len(entries) > _SHOWN_PARTITIONS:
        return f"{len(entries)} of {len(topic.partitions)} partitions have"
    *first, last = [str(entry.partition) for entry in entries]
    return f"partitions {', '.join(first)} and {last} of {len(topic.partitions)} have"


def _missing(entries: Iterable[PartitionDescription], alive: Collection[int]) -> str:
    """Names brokers with replicas that are not alive."""
    gone = sorted({broker for entry in entries for broker in entry.replicas if broker not in alive})
    if not gone:
        return ""
    if len(gone) == 1:
        return f"Broker {gone[0]}, which has a replica, is not there: start it."
    return f"Brokers {', '.join(map(str, gone))}, which have replicas, are not there: start them."


class TroubleHistory:
    """Remembers when each trouble was first seen: Kafka does not tell."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._looked: int | None = None

    def update(self, troubles: Iterable[Trouble], now_ms: int) -> dict[str, tuple[int, bool]]:
        """Key -> (since when in ms, whether it began then).

        A trouble that was there at the first look may be older, and so may one that the cluster dates itself not.
        """
        current = {trouble.key: trouble for trouble in troubles}
        first_look = self._looked is None
        for key in [key for key in self._seen if key not in current]:
            del self._seen[key]
        result: dict[str, tuple[int, bool]] = {}
        for key, trouble in current.items():
            since = self._seen.setdefault(key, -now_ms if first_look else now_ms)
            result[key] = (trouble.since, True) if trouble.since is not None else (abs(since), since > 0)
        self._looked = now_ms
        return result
