"""The document of ``kbroker top --once --json``: numbers that a program reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.client.groups import GroupListing
from kbroker.client.topics import TopicDescription, leaderless, under_replicated
from kbroker.client.transactions import TransactionDescription
from kbroker.tools.diagnosis.cluster import findings
from kbroker.tools.top.facts import Snapshot
from kbroker.tools.top.history import ClusterHistory
from kbroker.tools.top.tables import Flow, flow_of_topic, flows_of_nodes

Document = Mapping[str, Any]


def document(history: ClusterHistory) -> Document:
    """Everything that the views show. Rates are for one second, times in seconds; what nobody can tell is null."""
    snapshot = history.snapshot
    return {
        **_summary(history),
        "troubles": [each.document() for each in findings(snapshot.cluster)],
        "nodes": _nodes(history),
        "topics": [_topic(history, topic) for topic in snapshot.cluster.topics],
        "groups": [_group(group, history) for group in snapshot.groups],
        "transactions": [_transaction(snapshot, each) for each in snapshot.cluster.transactions],
        "transactions_count": snapshot.transactions_count,
        "requests": _requests(history),
        "problems": list(snapshot.problems),
        "requests_asked": snapshot.requests,
    }


def _summary(history: ClusterHistory) -> Document:
    cluster = history.snapshot.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller if cluster.controller in cluster.counts else None,
        "timestamp": cluster.now_ms,
        "partitions": history.partitions,
        "partitions_asked": len(history.ends),
        "under_replicated": sum(map(under_replicated, cluster.topics)),
        "offline": sum(map(leaderless, cluster.topics)),
    }


def _nodes(history: ClusterHistory) -> list[Document]:
    snapshot, flows = history.snapshot, flows_of_nodes(history)
    return [
        {
            "id": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "fenced": broker.fenced,
            "silent": snapshot.cluster.silent.get(broker.id),
            "leads": state.leads if (state := snapshot.cluster.counts.get(broker.id)) else 0,
            "replicas": state.replicas if state else 0,
            "out_of_sync": state.out_of_sync if state else 0,
            **_flow(flows[broker.id]),
        }
        for broker in snapshot.cluster.brokers
    ]


def _topic(history: ClusterHistory, topic: TopicDescription) -> Document:
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replicas": topic.replication_factor,
        "under_replicated": under_replicated(topic),
        "offline": leaderless(topic),
        **_flow(flow_of_topic(history, topic.name, [entry.partition for entry in topic.partitions])),
    }


def _group(group: GroupListing, history: ClusterHistory) -> Document:
    lag, judged = history.lags.get(group.group_id), history.judged.get(group.group_id)
    age = None if lag is None else lag.age
    return {
        "group": group.group_id,
        "type": group.type or None,
        "state": group.state or None,
        "lag": None if lag is None else lag.records,
        "lag_seconds": None if age is None else round(age.seconds, 3),
        "lag_seconds_exact": None if age is None else age.exact,
        "progress": None if judged is None else judged.progress.kind,
        "reasons": [] if judged is None else [each.document() for each in judged.reasons],
    }


def _transaction(snapshot: Snapshot, transaction: TransactionDescription) -> Document:
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "coordinator": transaction.coordinator,
        "start_timestamp": transaction.start_timestamp,
        "partitions": [list(partition) for partition in transaction.partitions],
        "holds_up_records": sum(snapshot.blocked.get(partition, 0) for partition in transaction.partitions),
    }


def _requests(history: ClusterHistory) -> list[Document]:
    return [
        {
            "node": scrape.node,
            "url": scrape.url,
            "api": each.api,
            "count": each.count,
            "per_second": history.request_rates.get((scrape.url, each.api)),
            "median_ms": each.middle,
            "p99_ms": each.slow,
            "p99_stages_ms": dict(each.stages),
        }
        for scrape in history.scrapes.values()
        for each in scrape.requests
    ]


def _flow(flow: Flow) -> dict[str, float | None]:
    return {
        "records_in_per_second": flow.records_in,
        "bytes_in_per_second": flow.bytes_in,
        "bytes_out_per_second": flow.bytes_out,
    }
