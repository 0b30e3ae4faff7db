"""Many partitions in the metadata of three nodes: topics, the loss of the active controller with its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster_servers import ClusterServer, KbrokerCluster
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.client import Client
from kbroker.client.nodes import describe_quorum

OF_A_TOPIC = 1_000
REPLICAS = 2
"""A node's partitions have other leaders, and not every node has all."""
SNAPSHOT_BYTES = 2 << 20
"""Records between two snapshots: a node that starts has one to load."""


def many_partitions(topics: int) -> Callable[[Bench, Server], Figures]:
    """Returns the workload of so many topics of 1,000 partitions, on a cluster that nothing else uses."""

    def run(bench: Bench, server: Server) -> Figures:
        if isinstance(server, ClusterServer):
            return _measured(server, topics)
        cluster = KbrokerCluster()
        try:
            return _measured(cluster, topics)
        finally:
            cluster.stop()

    return run


def _measured(server: ClusterServer, topics: int) -> Figures:
    server.more_properties = {"metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES)}
    server.start()
    server.await_port()
    names = [f"many-{number}" for number in range(topics)]
    began = time.monotonic()
    for first in range(0, topics, 9):  # no request may be more than 10,000 records of metadata
        _create(server, names[first : first + 9])
    made = time.monotonic() - began
    began = time.monotonic()
    _create(server, ["one-more"])
    figures = {"made_s": made, "created_s": time.monotonic() - began}
    looked_at = [names[0], names[-1], "one-more"]
    node = server.controller()
    began = time.monotonic()
    server.kill_node(node)
    server.until(lambda client: _active(client) not in (-1, node), "no other node is the active controller")
    figures["elected_s"] = time.monotonic() - began
    server.until(_leaders_are(looked_at, lambda leader: leader not in (-1, node)), "its partitions are not led")
    figures["failover_s"] = time.monotonic() - began
    figures["MB"] = server.resident_bytes() / 1e6 / len(server.plans[1:])
    began = time.monotonic()
    server.start_node(node)
    for name in looked_at:
        server.await_in_sync_of(name, REPLICAS)
    return figures | {"back_s": time.monotonic() - began}


def _create(cluster: ClusterServer, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topics = [NewTopic(name, OF_A_TOPIC, REPLICAS) for name in names]
    for created in admin.create_topics(topics, request_timeout=60).values():
        created.result(90)
    cluster.until(_leaders_are(names[-1:], lambda leader: leader >= 0), "its partitions are not led")


def _leaders_are(names: Sequence[str], wanted: Callable[[int], bool]) -> Callable[[Client], bool]:
    return lambda client: all(
        len(topic.partitions) == OF_A_TOPIC and all(wanted(each.leader_id) for each in topic.partitions)
        for topic in client.refresh(list(names))
    )


def _active(client: Client) -> int:
    return int(describe_quorum(client).topics[0].partitions[0].leader_id)


MANY_WORKLOADS = (
    Workload("cluster-partitions-6000", "three nodes, 6,000 partitions", many_partitions(6), "cluster-alone"),
    Workload("cluster-partitions-100000", "three nodes, 100,000 partitions", many_partitions(100), "alone"),
)
"""Apache Kafka's nodes would map 130,000 files each for the second, which is more than Linux lets a process."""
