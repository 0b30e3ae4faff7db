"""Replication: partitions without leader or replicas, too few copies, min.insync.replicas that stops producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.client.transactions import TRANSACTIONS_TOPIC
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import MIN_ISR, OFFSETS_TOPIC, SHARE_TOPIC, ClusterFacts, Facts, number_of
from kbroker.tools.doctor.findings import check, share

INTERNAL: Final = {
    OFFSETS_TOPIC: ("offsets.topic.replication.factor", "groups cannot commit offsets"),
    TRANSACTIONS_TOPIC: ("transaction.state.log.replication.factor", "transactional producers cannot start"),
    SHARE_TOPIC: ("share.coordinator.state.topic.replication.factor", "share groups cannot work"),
}
"""Internal topic -> the property with its replication factor, and what fails without the topic."""

_SHOWN: Final = 8


share(
    "replication",
    {
        "offline-partitions": "A partition has no leader",
        "under-min-isr": "Fewer replicas are in sync than min.insync.replicas: acks=all is refused now",
        "under-replicated": "A replica is not in sync",
    },
    see="replication",
)


@check(
    "min-isr",
    "min.insync.replicas is more than the replicas, or as many, so that one lost node stops producers",
    see="replication",
)
def min_isr(facts: Facts) -> Iterator[Finding]:
    """Compare ``min.insync.replicas`` with how many replicas there are: brokers never ask for more than all."""
    known = [(topic, least) for topic in facts.topics if (least := topic.number(MIN_ISR)) is not None and least > 1]
    few = [
        topic.name for topic, least in known if any(len(each.replicas) < least for each in topic.description.partitions)
    ]
    if few:
        yield Finding(
            Severity.WARNING,
            _names(few),
            f"{_names(few)}: fewer replicas than {MIN_ISR}. Records with acks=all wait for all of them, and no more.",
            "DescribeConfigs and the metadata say so.",
            "Give it more replicas (kafka-reassign-partitions), or lower min.insync.replicas.",
        )
    exact = [
        topic.name
        for topic, least in known
        if any(len(each.replicas) == least for each in topic.description.partitions)
    ]
    if exact:
        yield Finding(
            Severity.WARNING,
            _names(exact),
            f"{_names(exact)}: {MIN_ISR} is as large as the replication factor: when one node is down, restarts too,"
            " records with acks=all are refused.",
            "DescribeConfigs and the metadata say so.",
            f"Have one replica more than {MIN_ISR}: 3 and 2 are usual.",
        )
    if facts.configuration is not None and not facts.configuration.problem:
        values = facts.configuration.values
        wanted, factor = number_of(values, MIN_ISR), number_of(values, "default.replication.factor") or 1
        if wanted is not None and wanted > factor:
            yield Finding(
                Severity.WARNING,
                facts.configuration.source,
                f"{MIN_ISR}={wanted} and default.replication.factor={factor}: topics that are created with the defaults"
                " have fewer replicas than that. Records with acks=all wait for all of them, and no more.",
                "The file says so.",
                "Set default.replication.factor to one more.",
            )


@check("single-copy", "A topic has one replica in a cluster of several brokers", see="replication")
def single_copy(facts: Facts) -> Iterator[Finding]:
    """Report topics that are away, or lost, with one node; internal ones have a check of their own."""
    if facts.cluster is None or facts.cluster.machines < 2:
        return
    single = [
        topic.name
        for topic in facts.topics
        if topic.name not in INTERNAL and any(len(each.replicas) == 1 for each in topic.description.partitions)
    ]
    if single:
        yield Finding(
            Severity.WARNING,
            _names(single),
            f"{_names(single)}: one replica only. While its node is down nobody reads or writes, and with its disk the"
            " records are lost.",
            f"The metadata lists one replica, and there are {len(facts.cluster.brokers)} brokers.",
            "Create topics with --replicas 3; an existing one gets more by kafka-reassign-partitions.",
        )


@check("racks", "Two replicas of a partition are in one rack, although there are others", see="replication")
def racks(facts: Facts) -> Iterator[Finding]:
    """Report topics that one rack, which may be one machine, takes more of than it has to."""
    rack_of = {broker.id: broker.rack for broker in facts.brokers}
    count = len(set(rack_of.values()))
    wrong = [
        topic.name
        for topic in facts.topics
        if any(
            len({rack_of.get(broker) for broker in each.replicas}) < min(count, len(each.replicas))
            for each in topic.description.partitions
        )
    ]
    if count > 1 and wrong:
        yield Finding(
            Severity.WARNING,
            _names(wrong),
            f"{_names(wrong)}: two replicas of a partition are in one rack, and fail together.",
            f"The metadata names their brokers, which are in {count} racks.",
            "Move one of them to another rack by kafka-reassign-partitions, or on the topic's page of kbroker console.",
        )


@check("replication-factor", "A default replication factor is larger than the number of brokers", see="replication")
def replication_factor(facts: Facts) -> Iterator[Finding]:
    """Compare ``default.replication.factor`` with how many brokers there are."""
    cluster = facts.cluster
    if cluster is None or not cluster.brokers:
        return
    count = len(cluster.brokers)
    large = {broker.id: number_of(broker.configs, "default.replication.factor") for broker in cluster.brokers}
    wrong = {broker: factor for broker, factor in large.items() if factor is not None and factor > count}
    if wrong:
        factor = max(wrong.values())
        yield Finding(
            Severity.ERROR,
            "default.replication.factor",
            f"default.replication.factor={factor}, and there {_are(count)}: topics created without a replication factor"
            " are refused.",
            f"Broker {min(wrong)} says so in DescribeConfigs.",
            f"Set default.replication.factor={min(count, 3)}, or add brokers.",
        )


@check("internal-topics", "Internal topics have too few replicas, or cannot be created", see="groups-and-transactions")
def internal_topics(facts: Facts) -> Iterator[Finding]:
    """Judge the topics that groups and transactions live in."""
    cluster = facts.cluster
    if cluster is None or not cluster.brokers:
        return
    count, machines = len(cluster.brokers), min(cluster.machines, 3)
    there = {topic.name: topic for topic in facts.topics}
    for name, (key, fails) in INTERNAL.items():
        topic = there.get(name)
        if topic is not None:
            fewest = min((len(each.replicas) for each in topic.description.partitions), default=0)
            if 0 < fewest < machines:
                yield Finding(
                    Severity.WARNING,
                    f"topic {name}",
                    f"{name} has {_replicas(fewest)}, and there {_are(count)}: {fails} while one of them is down.",
                    "The metadata lists its replicas.",
                    f"Give it {machines} replicas by kafka-reassign-partitions, and set {key} for new clusters.",
                )
            continue
        factors = [number_of(broker.configs, key) for broker in cluster.brokers]
        factor = max((each for each in factors if each is not None), default=0)
        if cluster.topics is not None and factor > count and not _is_lowered(cluster):
            yield Finding(
                Severity.ERROR if name == OFFSETS_TOPIC else Severity.WARNING,
                key,
                f"{key}={factor}, and there {_are(count)}: {name} cannot be created, and {fails}.",
                "DescribeConfigs says so, and the topic is not there yet.",
                f"Set {key}={count} on every broker, or add brokers.",
            )


def _is_lowered(cluster: ClusterFacts) -> bool:
    """Whether internal topics get fewer replicas by themselves: on a machine with kbroker that is alone."""
    is_kbroker = all(broker.is_kbroker for broker in cluster.brokers)
    voters = 0 if cluster.quorum is None else cluster.quorum.voters
    return is_kbroker and cluster.machines == 1 and voters <= 1


@check(
    "unclean-election",
    "A replica that is not in sync may become leader: acknowledged records may be lost",
    see="replication",
)
def unclean_election(facts: Facts) -> Iterator[Finding]:
    """Report ``unclean.leader.election.enable``."""
    key = "unclean.leader.election.enable"
    open_to = [topic.name for topic in facts.topics if topic.configs.get(key) == "true"]
    if open_to:
        yield Finding(
            Severity.WARNING,
            _names(open_to),
            f"{_names(open_to)}: {key} is true. When all replicas in sync are down, one that lacks records takes over,"
            " and what it lacks is lost.",
            "DescribeConfigs says so.",
            f"Set {key}=false, unless being there is worth more than each record.",
        )
    elif facts.configuration is not None and facts.configuration.values.get(key, "").strip() == "true":
        yield Finding(
            Severity.WARNING,
            facts.configuration.source,
            f"{key}=true: acknowledged records of all topics may be lost when nodes fail.",
            "The file says so.",
            "Take it out, and set it for single topics where it is meant.",
        )


def _names(topics: list[str]) -> str:
    """``topic a``, or ``topics a, b and 3 others``."""
    if len(topics) == 1:
        return f"topic {topics[0]}"
    if len(topics) <= _SHOWN:
        return f"topics {', '.join(topics[:-1])} and {topics[-1]}"
    return f"topics {', '.join(topics[:_SHOWN])} and {len(topics) - _SHOWN} others"


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"


def _are(count: int) -> str:
    return "is one broker" if count == 1 else f"are {count} brokers"
