"""The rules of replication: partitions without a leader, and those with too few replicas in sync. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.diagnosis.facts import ClusterView
from kbroker.tools.diagnosis.findings import Finding, Link, Severity

_SHOWN_PARTITIONS: Final = 8
_SHOWN_TOPICS: Final = 5
_EVIDENCE: Final = "The metadata lists replicas and ISR."


class _UnderReplicated(NamedTuple):
    """A topic, and those of its partitions with replicas that are not in sync."""

    topic: TopicDescription
    entries: Sequence[PartitionDescription]


def effective_min_isr(least: int, entry: PartitionDescription) -> int:
    """Returns how many replicas of a partition have to be in sync for acks=all: brokers never ask for more than all."""
    return min(least, len(entry.replicas))


def replication(view: ClusterView) -> Iterator[Finding]:
    """Report partitions, once for each topic and kind.

    Where brokers that are missing are the only reason, topics with replicas on the same ones are reported once.
    """
    alive = view.alive
    by_missing: dict[tuple[int, ...], list[_UnderReplicated]] = {}
    for topic in view.topics:
        dead = [entry for entry in topic.partitions if entry.leader is None]
        under = [
            entry for entry in topic.partitions if entry.leader is not None and len(entry.isr) < len(entry.replicas)
        ]
        if dead:
            yield _of_topic(
                topic,
                Severity.ERROR,
                f"{_partitions(dead, topic)} no leader: nobody can read or write there.",
                _missing(dead, alive) or "No replica that was in sync is alive; start the brokers that have one.",
                "offline-partitions",
            )
        least = view.min_isr.get(topic.name)
        refused = [entry for entry in under if least is not None and len(entry.isr) < effective_min_isr(least, entry)]
        if refused:
            yield _of_topic(
                topic,
                Severity.ERROR,
                f"{_partitions(refused, topic)} fewer replicas in sync than min.insync.replicas={least}: records with"
                " acks=all are refused.",
                _missing(refused, alive) or "Followers have to catch up.",
                "under-min-isr",
            )
        rest = [entry for entry in under if entry not in refused]
        if rest:
            missing = {broker for entry in rest for broker in entry.replicas if broker not in entry.isr}
            blamed = () if missing & alive else tuple(sorted(missing))
            by_missing.setdefault(blamed, []).append(_UnderReplicated(topic, rest))
    for missing_brokers, those in by_missing.items():
        if missing_brokers and len(those) > 1:
            yield _without_brokers(missing_brokers, those)
            continue
        for each in those:
            yield _of_topic(
                each.topic,
                Severity.WARNING,
                f"{_partitions(each.entries, each.topic)} replicas that are not in sync.",
                _missing(each.entries, alive)
                or "Followers are behind, or have just been assigned and copy what there is.",
                "under-replicated",
            )


def _of_topic(topic: TopicDescription, severity: Severity, text: str, advice: str, kind: str) -> Finding:
    link = Link("topic", topic=topic.name)
    return Finding(severity, f"topic {topic.name}", f"Topic {topic.name}: {text}", _EVIDENCE, advice, kind, (link,))


def _without_brokers(brokers: Sequence[int], those: Sequence[_UnderReplicated]) -> Finding:
    """Returns the finding of all topics that lack nothing but the replicas of these brokers."""
    count = sum(len(each.entries) for each in those)
    names = [each.topic.name for each in those]
    shown = ", ".join(names[:_SHOWN_TOPICS])
    more = f" and {len(names) - _SHOWN_TOPICS:,} more" if len(names) > _SHOWN_TOPICS else ""
    who, are, them = ("broker", "is", "it") if len(brokers) == 1 else ("brokers", "are", "them")
    about = f"{who} {', '.join(map(str, brokers))}"
    return Finding(
        Severity.WARNING,
        about,
        f"{about.capitalize()} {are} not there: {count:,} partitions of {len(those):,} topics have replicas that are"
        " not in sync.",
        _EVIDENCE,
        f"Start {them}: the replicas catch up by themselves. Topics: {shown}{more}.",
        "under-replicated",
        (Link("topics"),),
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
