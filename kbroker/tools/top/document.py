"""The document of ``kbroker top --once --json``: numbers that a program reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.client.groups import GroupListing
from kbroker.client.topics import TopicDescription, leaderless, under_replicated
from kbroker.tools.top.course import Course, GroupLag
from kbroker.tools.top.facts import Look, OpenTransaction
from kbroker.tools.top.tables import Flow, flow_of_topic, flows_of_nodes, troubles

Document = Mapping[str, Any]


def document(course: Course) -> Document:
    """Everything that the views show. Rates are for one second, times in seconds; what nobody can tell is null."""
    look = course.look
    return {
        **_summary(course),
        "troubles": [
            {"severity": each.severity, "text": each.text, "advice": each.advice} for each in troubles(course)
        ],
        "nodes": _nodes(course),
        "topics": [_topic(course, topic) for topic in look.topics],
        "groups": [_group(group, course.lags.get(group.group_id)) for group in look.groups],
        "transactions": [_transaction(look, each) for each in look.transactions],
        "transactions_count": look.transactions_count,
        "requests": _requests(course),
        "problems": list(look.problems),
        "requests_asked": look.requests,
    }


def _summary(course: Course) -> Document:
    look = course.look
    return {
        "cluster_id": look.cluster_id,
        "controller_id": look.controller if look.controller in look.nodes else None,
        "timestamp": look.now_ms,
        "partitions": course.partitions,
        "partitions_asked": len(course.ends),
        "under_replicated": sum(map(under_replicated, look.topics)),
        "offline": sum(map(leaderless, look.topics)),
    }


def _nodes(course: Course) -> list[Document]:
    look, flows = course.look, flows_of_nodes(course)
    return [
        {
            "id": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "fenced": broker.fenced,
            "silent": look.silent.get(broker.id),
            "leads": state.leads if (state := look.nodes.get(broker.id)) else 0,
            "replicas": state.replicas if state else 0,
            "out_of_sync": state.out_of_sync if state else 0,
            **_flow(flows[broker.id]),
        }
        for broker in look.brokers
    ]


def _topic(course: Course, topic: TopicDescription) -> Document:
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replicas": topic.replication_factor,
        "under_replicated": under_replicated(topic),
        "offline": leaderless(topic),
        **_flow(flow_of_topic(course, topic.name, [entry.partition for entry in topic.partitions])),
    }


def _group(group: GroupListing, lag: GroupLag | None) -> Document:
    age = None if lag is None else lag.age
    return {
        "group": group.group_id,
        "type": group.type or None,
        "state": group.state or None,
        "lag": None if lag is None else lag.records,
        "lag_seconds": None if age is None else round(age.seconds, 3),
        "lag_seconds_exact": None if age is None else age.exact,
    }


def _transaction(look: Look, transaction: OpenTransaction) -> Document:
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "coordinator": transaction.coordinator,
        "start_timestamp": transaction.started_ms,
        "partitions": [list(partition) for partition in transaction.partitions],
        "holds_up_records": sum(look.held.get(partition, 0) for partition in transaction.partitions),
    }


def _requests(course: Course) -> list[Document]:
    return [
        {
            "node": scrape.node,
            "url": scrape.url,
            "api": each.api,
            "count": each.count,
            "per_second": course.request_rates.get((scrape.url, each.api)),
            "median_ms": each.middle,
            "p99_ms": each.slow,
            "p99_stages_ms": dict(each.stages),
        }
        for scrape in course.scrapes.values()
        for each in scrape.requests
    ]


def _flow(flow: Flow) -> dict[str, float | None]:
    return {
        "records_in_per_second": flow.records_in,
        "bytes_in_per_second": flow.bytes_in,
        "bytes_out_per_second": flow.bytes_out,
    }
