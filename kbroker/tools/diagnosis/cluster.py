"""The rules of a cluster: controllers, brokers, disks, partitions, transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.tools.diagnosis.facts import ClusterView
from kbroker.tools.diagnosis.findings import Finding, Link, Severity, by_severity
from kbroker.tools.diagnosis.replication import replication

if TYPE_CHECKING:
    from kbroker.client.transactions import TransactionDescription

QUORUM_SECONDS: Final = 15
"""A voter that has not caught up for so long is reported; the controllers' own limit is the fetch time-out, 2 s."""

GRACE_MS: Final = 30_000
"""Coordinators look for transactions that are over their time every ten seconds by default."""


def findings(view: ClusterView) -> list[Finding]:
    """Returns all that is wrong with a cluster, the most severe first."""
    return sorted((finding for rule in RULES for finding in rule(view)), key=by_severity)


def controllers(view: ClusterView) -> Iterator[Finding]:
    """Report a quorum without a leader, and voters that are behind, by the leader's own clock."""
    quorum = view.quorum
    if quorum is None:
        return
    if quorum.leader < 0:
        yield Finding(
            Severity.ERROR,
            "quorum",
            "There is no active controller: topics, configs and leaders cannot change, and no broker can join."
            if not quorum.problem
            else "No active controller answers: topics, configs and leaders cannot change, and no broker can join.",
            f"DescribeQuorum has no answer: {quorum.problem}." if quorum.problem else "DescribeQuorum names no leader.",
            "More than half of the controllers have to be up and to reach one another: start those that are down, and"
            " look at controller.quorum.voters or controller.quorum.bootstrap.servers of each.",
            "controller-quorum",
        )
    now_ms = view.now_ms if quorum.leader_clock is None else quorum.leader_clock
    for node in quorum.nodes:
        is_late = node.caught_up is not None and now_ms - node.caught_up > QUORUM_SECONDS * 1000
        if node.role == "voter" and (is_late or (node.caught_up is None and node.end_offset < 0)):
            records = "" if node.behind is None else f" by {node.behind:,} records"
            yield Finding(
                Severity.WARNING,
                f"controller {node.id}",
                f"Controller {node.id} does not follow the metadata log: it is behind{records}.",
                f"DescribeQuorum: the leader has not seen it caught up for {QUORUM_SECONDS} seconds.",
                "If it is down, start it again: the quorum bears the loss of less than half of its voters.",
                "quorum-lag",
                since=node.caught_up,
            )


def brokers(view: ClusterView) -> Iterator[Finding]:
    """Report brokers that are fenced or do not answer, log directories that have failed, and damaged logs."""
    fenced = {broker.id for broker in view.brokers if broker.fenced}
    for broker in sorted(fenced):
        yield Finding(
            Severity.ERROR,
            f"broker {broker}",
            f"Broker {broker} is fenced: it is registered, and does not serve.",
            "DescribeCluster says so.",
            "Start it, or if it runs look in its log why the controller does not hear of it; if it is gone for good"
            " take it out of the cluster (kbroker cluster unregister).",
            "fenced-broker",
        )
    for broker, problem in view.silent.items():
        if broker not in fenced:
            text = f"Broker {broker} does not answer."
            advice = f"See whether its process runs, and whether this machine reaches its address: {problem}."
            yield Finding(Severity.ERROR, f"broker {broker}", text, f"{problem}.", advice, "silent-broker")
    for broker, directory in view.failed_dirs:
        yield Finding(
            Severity.ERROR,
            f"broker {broker}, {directory}",
            f"Broker {broker}: the log directory {directory} has failed, and the replicas in it are offline.",
            "DescribeLogDirs says so.",
            "The broker's log says why. Once the disk is mended, the broker has to be started again.",
            "disk-failed",
            (Link("broker", broker=broker),),
        )
    for replica in view.damaged:
        yield Finding(
            Severity.ERROR,
            f"broker {replica.broker}, {replica.partition} from offset {replica.start}",
            f"Broker {replica.broker}: its log of {replica.partition} is damaged, offsets {replica.start} to"
            f" {replica.end - 1} are missing.",
            f"damage.json beside the log says so: {replica.reason}.",
            "While another replica is in sync this one fetches them again by itself. If none has them, they are lost"
            " but for what kbroker put-back --list shows; this is told until kbroker put-back gives them back, or the"
            " log starts behind them (retention, kbroker topic truncate).",
            "damaged-replica",
            (Link("topic", topic=replica.partition.topic),),
        )


def open_ms(transaction: TransactionDescription, now_ms: int) -> int | None:
    """Returns how long a transaction has been open, in ms; None if its coordinator does not tell."""
    return None if transaction.start_timestamp is None else max(now_ms - transaction.start_timestamp, 0)


def is_overdue(transaction: TransactionDescription, now_ms: int) -> bool:
    """Returns whether its coordinator should have ended a transaction by now."""
    age = open_ms(transaction, now_ms)
    return age is not None and age > transaction.timeout_ms + GRACE_MS


def transactions(view: ClusterView) -> Iterator[Finding]:
    """Report open transactions that block readers of committed records for too long (KIP-664)."""
    for each in view.transactions:
        if is_overdue(each, view.now_ms):
            yield Finding(
                Severity.ERROR,
                f"transactional id {each.transactional_id}",
                f"The transaction of {each.transactional_id} is open for"
                f" {(open_ms(each, view.now_ms) or 0) / 1000:,.0f} s, longer than its timeout: consumers with"
                " read_committed wait behind it.",
                f"DescribeTransactions: {each.state}, timeout {each.timeout_ms / 1000:g} s.",
                f"If its producer is gone: kbroker txn abort {each.transactional_id}. The log of its coordinator"
                " says why it does not end it.",
                "hanging-transactions",
                (Link("transaction", transactional_id=each.transactional_id),),
            )
    for entry in view.hanging:
        topic, number = entry.partition
        yield Finding(
            Severity.ERROR,
            f"partition {entry.partition}",
            f"A transaction hangs in {entry.partition} from offset {entry.start_offset}: consumers with"
            " read_committed do not get past it.",
            f"DescribeProducers: producer {entry.producer.producer_id} has it open. No coordinator has a transaction of"
            " this producer with this partition.",
            f"kbroker txn abort --topic {topic} --partition {number} --start-offset {entry.start_offset}",
            "hanging-transactions",
            (Link("blocked", topic=topic),),
        )


RULES: Final[tuple[Callable[[ClusterView], Iterator[Finding]], ...]] = (controllers, brokers, replication, transactions)


_OF_COMPLETE: Final = ("fenced-broker", "offline-partitions", "under-min-isr", "under-replicated")


def health_problems(view: ClusterView, *, broker: int | None = None, complete: bool = False) -> list[str]:
    """Returns what keeps a node that has answered from serving; with ``complete``, also what the cluster lacks."""
    found = [
        each.text
        for each in findings(view)
        if each.kind == "controller-quorum"
        or (complete and each.kind in _OF_COMPLETE)
        or (each.kind == "fenced-broker" and each.about == f"broker {broker}")
    ]
    if broker is not None and broker not in {each.id for each in view.brokers}:
        found.append(f"broker {broker} is not registered")
    return found
