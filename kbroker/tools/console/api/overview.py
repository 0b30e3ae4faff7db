"""The overview: brokers, controllers, and what is wrong, in words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import ClusterDescription, describe_cluster, describe_features, describe_quorum
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import TopicDescription, leaderless, under_replicated
from kbroker.client.troubles import (
    ERROR,
    QuorumNode,
    Trouble,
    cluster_troubles,
    disk_troubles,
    quorum_nodes,
    topic_troubles,
)
from kbroker.raft_metadata.metadata_version import metadata_version_name
from kbroker.tools.console.call import Call
from kbroker.tools.console.catalogue import Topics
from kbroker.tools.console.totals import OfBroker, Totals

MAX_TROUBLES: Final = 100

_MAX_ASKED: Final = 50
"""Topics whose min.insync.replicas is asked for in one look."""


@dataclass(frozen=True, slots=True)
class _Told:
    cluster: ClusterDescription
    leader: int | None
    epoch: int | None
    quorum: tuple[QuorumNode, ...]
    quorum_problem: str
    level: int | None
    min_isr: Mapping[str, int]


async def describe_overview(call: Call) -> Json:
    """Everything that the overview shows."""
    topics = await call.view.catalogue.get(fresh=call.flag("fresh"))
    told = await call.ask(lambda client: _ask(client, topics.totals))
    return await call.compute(lambda: _answer(call, topics, told))


def _answer(call: Call, topics: Topics, told: _Told) -> Json:
    now_ms = time.time_ns() // 1_000_000
    alive = {broker.id for broker in told.cluster.brokers if not broker.fenced}
    troubles = cluster_troubles(told.cluster.brokers, told.leader, told.quorum, now_ms, topics.silent)
    troubles += disk_troubles(topics.failed_dirs)
    totals = topics.totals
    troubles += topic_troubles(totals.troubled, alive, told.min_isr)
    return {
        "now": now_ms,
        "cluster_id": told.cluster.cluster_id,
        "controller": told.leader,
        "controller_epoch": told.epoch,
        "metadata_version": None if told.level is None else metadata_version_name(told.level),
        "troubles": _troubles(call, troubles, now_ms),
        "troubles_count": len(troubles),
        "topics": totals.topics,
        "internal_topics": totals.internal,
        "partitions": totals.partitions,
        "under_replicated": totals.under_replicated,
        "leaderless": totals.leaderless,
        "size": None if topics.sizes is None else sum(topics.sizes.values()),
        "topics_at": topics.at_ms,
        "bytes_rate": totals.bytes_rate,
        "records_rate": totals.records_rate,
        "busiest": [
            {"name": name, "bytes_rate": bytes_rate, "records_rate": records_rate}
            for name, bytes_rate, records_rate in totals.busiest
        ],
        "brokers": _brokers(told, topics),
        "quorum": [
            {
                "id": node.id,
                "role": "leader" if node.id == told.leader else node.role,
                "end_offset": node.end_offset,
                "behind": node.behind,
                "caught_up": node.caught_up,
            }
            for node in told.quorum
        ],
        "quorum_problem": told.quorum_problem,
    }


def _troubles(call: Call, troubles: list[Trouble], now_ms: int) -> list[Json]:
    since = call.view.history.update(troubles, now_ms)
    ordered = sorted(troubles, key=lambda trouble: (trouble.severity != ERROR, since[trouble.key][0]))
    return [
        {
            "key": trouble.key,
            "severity": trouble.severity,
            "text": trouble.text,
            "advice": trouble.advice,
            "link": trouble.link,
            "since": since[trouble.key][0],
            "exact": since[trouble.key][1],
        }
        for trouble in ordered[:MAX_TROUBLES]
    ]


def _brokers(told: _Told, topics: Topics) -> list[Json]:
    return [
        {
            "id": broker.id,
            "address": f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "fenced": broker.fenced,
            "controller": broker.id == told.leader,
            "size": None if topics.sizes is None else topics.sizes_of_brokers.get(broker.id, 0),
            **_counts(topics.totals.brokers.get(broker.id)),
        }
        for broker in told.cluster.brokers
    ]


def _counts(broker: OfBroker | None) -> dict[str, Json]:
    known = broker or OfBroker()
    return {"leads": known.leads, "replicas": known.replicas, "out_of_sync": known.out_of_sync}


def _ask(client: Client, totals: Totals) -> _Told:
    short = [topic.name for topic in totals.troubled]
    cluster = describe_cluster(client)
    leader: int | None = None
    epoch: int | None = None
    quorum: tuple[QuorumNode, ...] = ()
    problem = ""
    level: int | None = None
    try:
        partition = describe_quorum(client).topics[0].partitions[0]
    except ClientError as error:
        problem = str(error)
    else:
        leader, epoch = int(partition.leader_id), int(partition.leader_epoch)
        quorum = quorum_nodes(partition)
    try:
        _, features = describe_features(client)
        level = next((each.finalized for each in features if each.name == "metadata.version"), None)
    except ClientError:
        pass
    return _Told(cluster, leader, epoch, quorum, problem, level, _min_isr(client, short[:_MAX_ASKED]))


def _min_isr(client: Client, topics: Iterable[str]) -> dict[str, int]:
    """Topic -> min.insync.replicas, of those whose configs may be seen."""
    found: dict[str, int] = {}
    for name in topics:
        try:
            entries = describe_configs(client, ResourceType.TOPIC, name, keys=["min.insync.replicas"])
        except ClientError:
            continue
        for entry in entries:
            if entry.name == "min.insync.replicas" and entry.value is not None and entry.value.isdigit():
                found[name] = int(entry.value)
    return found


def partition_state(topic: TopicDescription) -> str:
    """A topic's state in a word: ``ok``, ``short`` (replicas not in sync) or ``offline`` (no leader somewhere)."""
    return "offline" if leaderless(topic) else "short" if under_replicated(topic) else "ok"
