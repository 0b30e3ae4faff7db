"""Groups that rebalance for ever or stand still, transactions that hang, clients that are slowed down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.client.groups import REBALANCING
from kbroker.tools.doctor.facts import ClusterFacts, Facts, OpenTransaction, number_of
from kbroker.tools.doctor.findings import Finding, Severity, check
from kbroker.types import TopicPartition

_GRACE_MS: Final = 30_000
"""Coordinators look for transactions that are over their time every ten seconds by default."""

_LOW_BYTES: Final = 1 << 20
"""A rate below this throttles a client with its first large batch (1 MiB is the default of max.request.size)."""


@check("group-rebalancing", "A group rebalances for ever, or its members come and go", see="groups-and-transactions")
def group_rebalancing(facts: Facts) -> Iterator[Finding]:
    """Compare two looks at each group: it rebalances in both, its epoch moves, or its members are others."""
    for group in facts.groups:
        first, second = group.first, group.second
        if second is None:
            continue
        came, gone = second.members - first.members, first.members - second.members
        if came and gone:
            evidence = f"Within {group.seconds:.0f} s {len(came)} of its members came and {len(gone)} left."
        elif first.epoch is not None and second.epoch is not None and second.epoch > first.epoch:
            evidence = f"Its epoch went from {first.epoch} to {second.epoch} within {group.seconds:.0f} s."
        elif first.state in REBALANCING and second.state in REBALANCING:
            evidence = f"It was in {first.state}, and {group.seconds:.0f} s later in {second.state}."
        else:
            continue
        yield Finding(
            Severity.WARNING,
            f"group {group.group_id}",
            f"Group {group.group_id} rebalances again and again: meanwhile its members read little or nothing.",
            evidence,
            "Usual reasons: a member needs longer than max.poll.interval.ms for what it polls, or crashes and is"
            " started again; session.timeout.ms is too short; members of one group subscribe to different"
            " topics. The members' logs say why they leave; group.instance.id keeps a restart from being a rebalance.",
        )


@check("consumer-stuck", "A group's lag grows while its committed offset stands still", see="groups-and-transactions")
def consumer_stuck(facts: Facts) -> Iterator[Finding]:
    """Compare two looks: records come, a member is there, and nothing is committed."""
    for group in facts.groups:
        first, second = group.first, group.second
        if second is None or not first.members or not second.members:
            continue
        stuck: list[tuple[TopicPartition, int]] = []
        for partition, offset in second.committed.items():
            before, end = first.ends.get(partition), second.ends.get(partition)
            if before is None or end is None or first.committed.get(partition) != offset:
                continue
            if end > before > offset:
                stuck.append((partition, end - offset))
        if not stuck:
            continue
        partition, lag = max(stuck, key=lambda each: each[1])
        more = f", and {len(stuck) - 1} other partitions" if len(stuck) > 1 else ""
        yield Finding(
            Severity.WARNING,
            f"group {group.group_id}",
            f"Group {group.group_id} does not get on in {partition}{more}: it is {lag:,} records behind, and falls"
            " back.",
            f"Within {group.seconds:.0f} s records came, and the committed offset stayed"
            f" {second.committed[partition]:,}. (A group that commits more seldom than that looks alike.)",
            f"Look at the record there: kbroker consume {partition.topic} --partition {partition.partition} --from"
            f" {second.committed[partition]} -n 1. A consumer that fails on one record reads it again and again;"
            " skip it with kbroker group reset.",
        )


@check(
    "hanging-transactions",
    "A transaction is open for too long, or its coordinator does not know it",
    see="groups-and-transactions",
)
def hanging_transactions(facts: Facts) -> Iterator[Finding]:
    """Report what holds up readers of committed records (KIP-664)."""
    cluster = facts.cluster
    if cluster is None:
        return
    for each in cluster.transactions or ():
        open_ms = 0 if each.began is None else facts.now - each.began
        if each.began is not None and open_ms > each.timeout_ms + _GRACE_MS:
            yield Finding(
                Severity.ERROR,
                f"transactional id {each.transactional_id}",
                f"The transaction of {each.transactional_id} is open for {open_ms / 1000:,.0f} s, longer than its"
                " timeout: consumers with read_committed wait behind it.",
                f"DescribeTransactions: {each.state}, timeout {each.timeout_ms / 1000:g} s.",
                f"If its producer is gone: kbroker txn abort {each.transactional_id}. The log of its coordinator"
                " says why it does not end it.",
            )
    for entry in cluster.open_transactions:
        if entry.has_coordinator or not (_sees_all(cluster) or _is_over(entry, cluster, facts.now)):
            continue
        topic, number = entry.partition
        yield Finding(
            Severity.ERROR,
            f"partition {entry.partition}",
            f"A transaction hangs in {entry.partition} from offset {entry.start_offset}: consumers with"
            " read_committed do not get past it.",
            f"DescribeProducers: producer {entry.producer_id} has it open. No coordinator has a transaction of this"
            " producer with this partition.",
            f"kbroker txn abort --topic {topic} --partition {number} --start-offset {entry.start_offset}",
        )


def _sees_all(cluster: ClusterFacts) -> bool:
    """Whether no authorizer may keep transactional ids from the doctor: ListTransactions leaves those out."""
    return all((broker.configs or {}).get("authorizer.class.name") == "" for broker in cluster.brokers)


def _is_over(entry: OpenTransaction, cluster: ClusterFacts, now: int) -> bool:
    """Whether no coordinator would have let it be open for so long."""
    longest = max((number_of(each.configs, "transaction.max.timeout.ms") or 0 for each in cluster.brokers), default=0)
    return longest > 0 and now - entry.last_write > longest + _GRACE_MS


@check("throttling", "Clients are slowed down: by quotas that are very low, or right now", see="quotas")
def throttling(facts: Facts) -> Iterator[Finding]:
    """Judge quotas, and throttle times in the answers to the doctor itself."""
    cluster = facts.cluster
    if cluster is None:
        return
    if cluster.throttled_ms:
        yield Finding(
            Severity.WARNING,
            "this client",
            f"The brokers throttle this client, by up to {cluster.throttled_ms / 1000:g} s for one request.",
            "throttle_time_ms of their answers.",
            "Look at the limits of its user and client id: kbroker quota list.",
        )
    for entry in cluster.quotas or ():
        low = [
            f"{name}={value:g}"
            for name, value in sorted(entry.values.items())
            if (name in ("producer_byte_rate", "consumer_byte_rate") and value < _LOW_BYTES)
            or (name in ("request_percentage", "connection_creation_rate", "controller_mutation_rate") and value < 1)
        ]
        if low:
            whom = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entry.entity.items())
            yield Finding(
                Severity.WARNING,
                whom,
                f"The quota of {whom} is so low that it holds up single requests: {', '.join(low)}.",
                "DescribeClientQuotas. Rates are bytes a second (not kilobytes) and percent of one thread, per broker.",
                "Raise or remove it with kbroker quota.",
            )
