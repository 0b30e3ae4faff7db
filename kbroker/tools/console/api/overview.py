"""The overview: brokers, controllers, and what is wrong, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import ClusterDescription, describe_cluster, describe_features
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import TopicDescription, leaderless, under_replicated
from kbroker.client.transactions import TransactionDescription
from kbroker.raft_metadata.metadata_version import metadata_version_name
from kbroker.tools.console.api.groups import findings_json
from kbroker.tools.console.call import Call
from kbroker.tools.console.catalogue import Topics
from kbroker.tools.console.totals import Totals
from kbroker.tools.diagnosis.asking import ask_open_transactions, ask_quorum, now_ms
from kbroker.tools.diagnosis.cluster import findings
from kbroker.tools.diagnosis.facts import ClusterView, Quorum, ReplicaCounts
from kbroker.tools.diagnosis.findings import Finding, Severity

MAX_TROUBLES: Final = 100

_TRANSACTIONS: Final = 100
_PATIENCE: Final = 1.5
"""Open transactions that are judged, and seconds that one broker is waited for to tell of them."""

_MAX_ASKED: Final = 50
"""Topics whose min.insync.replicas is asked for in one look."""


@dataclass(frozen=True, slots=True)
class _ClusterAnswers:
    cluster: ClusterDescription
    quorum: Quorum | None
    quorum_problem: str
    level: int | None
    min_isr: Mapping[str, int]
    transactions: Sequence[TransactionDescription]


async def describe_overview(call: Call) -> Json:
    """Everything that the overview shows."""
    topics = await call.view.catalogue.get(fresh=call.flag("fresh"))
    told = await call.ask(lambda client: _ask(client, topics.totals))
    return await call.compute(lambda: _answer(call, topics, told))


def _answer(call: Call, topics: Topics, told: _ClusterAnswers) -> Json:
    totals, quorum = topics.totals, told.quorum
    view = ClusterView(
        now_ms(),
        told.cluster.cluster_id,
        told.cluster.brokers,
        quorum,
        topics.silent,
        topics.failed_dirs,
        totals.troubled,
        told.min_isr,
        transactions=told.transactions,
        damaged=topics.damaged,
    )
    found = findings(view)
    return {
        "now": view.now_ms,
        "cluster_id": told.cluster.cluster_id,
        "controller": None if quorum is None else quorum.leader,
        "controller_epoch": None if quorum is None else quorum.epoch,
        "metadata_version": None if told.level is None else metadata_version_name(told.level),
        "troubles": _troubles(call, found, view.now_ms),
        "troubles_count": len(found),
        "topics": totals.topics,
        "internal_topics": totals.internal,
        "partitions": totals.partitions,
        "under_replicated": totals.under_replicated,
        "leaderless": totals.leaderless,
        "size": None if topics.sizes is None else sum(topics.sizes.values()),
        "topics_at": topics.at_ms,
        "bytes_rate": totals.bytes_rate,
        "records_rate": totals.records_rate,
        "traffic": [list(point) for point in call.view.catalogue.traffic.of("")],
        "busiest": [
            {"name": name, "bytes_rate": bytes_rate, "records_rate": records_rate}
            for name, bytes_rate, records_rate in totals.busiest
        ],
        "brokers": _brokers(told.cluster, view.controller, topics),
        "quorum": [
            {
                "id": node.id,
                "role": "leader" if node.id == view.controller else node.role,
                "end_offset": node.end_offset,
                "behind": node.behind,
                "caught_up": node.caught_up,
            }
            for node in (() if quorum is None else quorum.nodes)
        ],
        "quorum_problem": told.quorum_problem,
    }


def _troubles(call: Call, found: list[Finding], at_ms: int) -> list[Json]:
    since = call.view.history.update(found, at_ms)
    ordered = sorted(found, key=lambda each: (each.severity != Severity.ERROR, since[each.key][0]))[:MAX_TROUBLES]
    documents = findings_json(ordered)
    for each, document in zip(ordered, documents, strict=True):
        document["key"], document["kind"] = each.key, each.kind
        document["since"], document["exact"] = since[each.key]
    return list(documents)


def _brokers(cluster: ClusterDescription, controller: int | None, topics: Topics) -> list[Json]:
    return [
        {
            "id": broker.id,
            "address": f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "fenced": broker.fenced,
            "controller": broker.id == controller,
            "size": None if topics.sizes is None else topics.sizes_of_brokers.get(broker.id, 0),
            **_counts(topics.totals.brokers.get(broker.id)),
        }
        for broker in cluster.brokers
    ]


def _counts(broker: ReplicaCounts | None) -> dict[str, Json]:
    return {**(broker or ReplicaCounts())._asdict()}


def _ask(client: Client, totals: Totals) -> _ClusterAnswers:
    cluster = describe_cluster(client)
    quorum, problem = ask_quorum(client)
    level: int | None = None
    try:
        _, features = describe_features(client)
        level = next((each.finalized for each in features if each.name == "metadata.version"), None)
    except ClientError:
        pass
    troubled = [topic.name for topic in totals.troubled][:_MAX_ASKED]
    reason = problem if quorum is None else quorum.problem
    transactions = ask_open_transactions(client, _PATIENCE, _TRANSACTIONS)
    return _ClusterAnswers(cluster, quorum, reason, level, _min_isr(client, troubled), transactions)


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
    """Returns a topic's state: ``ok``, ``under-replicated``, or ``offline`` (no leader somewhere)."""
    return "offline" if leaderless(topic) else "under-replicated" if under_replicated(topic) else "ok"
