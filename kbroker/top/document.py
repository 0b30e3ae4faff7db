"""The document of ``kbroker top --once --json``: numbers that a program reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.client.topics import leaderless, under_replicated
from kbroker.top.course import Course
from kbroker.top.tables import Flow, flow_of_topic, flows_of_nodes, troubles

Document = Mapping[str, Any]


def document(course: Course) -> Document:
    """Everything that the views show. Rates are for one second, times in seconds; what nobody can tell is null."""
    look, flows = course.look, flows_of_nodes(course)
    return {
        "cluster_id": look.cluster_id,
        "controller_id": look.controller if look.controller in look.nodes else None,
        "timestamp": look.now_ms,
        "partitions": course.partitions,
        "partitions_asked": len(course.ends),
        "under_replicated": sum(map(under_replicated, look.topics)),
        "offline": sum(map(leaderless, look.topics)),
        "troubles": [
            {"severity": each.severity, "text": each.text, "advice": each.advice} for each in troubles(course)
        ],
        "nodes": [
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
        ],
        "topics": [
            {
                "name": topic.name,
                "internal": topic.internal,
                "partitions": len(topic.partitions),
                "replicas": topic.replication_factor,
                "under_replicated": under_replicated(topic),
                "offline": leaderless(topic),
                **_flow(flow_of_topic(course, topic.name, [entry.partition for entry in topic.partitions])),
            }
            for topic in look.topics
        ],
        "groups": [
            {
                "group": group.group_id,
                "type": group.type or None,
                "state": group.state or None,
                "lag": None if (lag := course.lags.get(group.group_id)) is None else lag.records,
                "lag_seconds": None if lag is None or lag.age is None else round(lag.age.seconds, 3),
                "lag_seconds_exact": None if lag is None or lag.age is None else lag.age.exact,
            }
            for group in look.groups
        ],
        "transactions": [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
                "coordinator": each.coordinator,
                "start_timestamp": each.started_ms,
                "partitions": [list(partition) for partition in each.partitions],
                "holds_up_records": sum(look.held.get(partition, 0) for partition in each.partitions),
            }
            for each in look.transactions
        ],
        "transactions_count": look.transactions_count,
        "requests": [
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
        ],
        "problems": list(look.problems),
        "requests_asked": look.requests,
    }


def _flow(flow: Flow) -> dict[str, float | None]:
    return {
        "records_in_per_second": flow.records_in,
        "bytes_in_per_second": flow.bytes_in,
        "bytes_out_per_second": flow.bytes_out,
    }
