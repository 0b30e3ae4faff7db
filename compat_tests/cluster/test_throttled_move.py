"""``kafka-reassign-partitions --throttle`` on three nodes: a move takes its time, ``--verify`` ends the throttle."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from compat_tests.apache_kafka import tool
from compat_tests.case import await_everywhere
from kbroker.testing import running_cluster
from tests.patience import LONG, SHORT, eventually

TOPIC = "moved"
SIZE = 6_000_000
RATE = 1_000_000


def throttles(admin: AdminClient, kind: Any, name: str) -> dict[str, str]:
    """The properties of a resource that are about throttles, and set."""
    [future] = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {key: entry.value for key, entry in future.result().items() if "throttled" in key and entry.value}


def replicas_of(admin: AdminClient) -> list[int]:
    """The topic's replicas, as a node says."""
    return admin.list_topics(TOPIC, timeout=SHORT).topics[TOPIC].partitions[0].replicas


def test_kafkas_own_tool_throttles_a_move(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("this test starts nodes of kbroker itself")
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    # Nodes of one machine would hand the log over, and copy nothing that could be throttled.
    properties = {"replica.fetch.max.bytes": 100_000, "log.hand.over.enable": "false"}
    with running_cluster(3, properties) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1]])]).values():
            future.result()
        await_everywhere(cluster.bootstrap_servers, TOPIC)  # the tool asks any node
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
        for number in range(SIZE // 1000):
            producer.produce(TOPIC, random.Random(number).randbytes(1000))
            if number % 1000 == 999:
                producer.flush()
        assert producer.flush(LONG) == 0

        plan = tmp_path / "plan.json"
        partition = {"topic": TOPIC, "partition": 0, "replicas": [2]}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        asked = ("--bootstrap-server", cluster.bootstrap_servers, "--reassignment-json-file", str(plan))
        began = time.monotonic()
        said = tool("kafka-reassign-partitions", *asked, "--execute", "--throttle", str(RATE), check=True).stdout
        assert f"The inter-broker throttle limit was set to {RATE} B/s" in said
        rates = {"leader.replication.throttled.rate": str(RATE), "follower.replication.throttled.rate": str(RATE)}
        replicas = {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "0:2"}
        # The node that is asked hears of a change a moment after the controller has answered.
        eventually(lambda: throttles(admin, ConfigResource.Type.BROKER, "1") == rates, "the throttle of broker 1")
        eventually(lambda: throttles(admin, ConfigResource.Type.BROKER, "2") == rates, "the throttle of broker 2")
        eventually(lambda: throttles(admin, ConfigResource.Type.TOPIC, TOPIC) == replicas, "the throttled replicas")
        # As before, all nodes have to know.
        nodes = [AdminClient({"bootstrap.servers": node.bootstrap_servers}) for node in cluster.nodes]
        eventually(lambda: all(replicas_of(node) == [2] for node in nodes), "the move")
        assert time.monotonic() - began > SIZE / RATE * 0.8

        said = tool("kafka-reassign-partitions", *asked, "--verify", check=True).stdout
        assert f"Reassignment of partition {TOPIC}-0 is completed." in said
        assert "Clearing broker-level throttles on brokers 1,2,3" in said
        for broker in ("1", "2", "3"):
            eventually(
                lambda broker=broker: throttles(admin, ConfigResource.Type.BROKER, broker) == {},  # type: ignore[misc]
                f"no throttle of broker {broker}",
            )
        eventually(lambda: throttles(admin, ConfigResource.Type.TOPIC, TOPIC) == {}, "no throttled replicas")
