"""Clusters of three nodes: sound ones, and one with mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.client.topics import NewTopic, delete_topics
from kbroker.testing import RunningCluster, running_cluster
from tests.doctor.conftest import QUIET, Doctor, create
from tests.every_node import await_topics
from tests.patience import LONG


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3, QUIET) as running:
        yield running


def test_a_sound_cluster_has_nothing_wrong(cluster: RunningCluster, doctor: Doctor) -> None:
    with cluster.client() as client:
        create(client, NewTopic("t", 6))
    await_topics(cluster, "t")
    assert doctor("-b", cluster.bootstrap_servers) == {}


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        (NewTopic("alone", 1, 1, {"min.insync.replicas": "1"}), "single-copy"),
        (NewTopic("exact", 1, 2, {"min.insync.replicas": "2"}), "min-isr"),
        (NewTopic("never", 1, 2, {"min.insync.replicas": "3"}), "min-isr"),
    ],
)
def test_a_topic_with_a_mistake(topic: NewTopic, name: str, cluster: RunningCluster, doctor: Doctor) -> None:
    with cluster.client() as client:
        create(client, topic)
        await_topics(cluster, topic.name)
        found = doctor("-b", cluster.bootstrap_servers)
        delete_topics(client, [topic.name])
        await_topics(cluster, topic.name, gone=True)
    assert list(found) == [name] and topic.name in found[name][0]["about"]


@pytest.mark.everything
def test_a_secure_cluster_loses_its_nodes(doctor: Doctor, properties_file: Callable[[Mapping[str, str]], Path]) -> None:
    """Nothing is wrong with it; then a node is stopped, and a second is killed."""
    with running_cluster(3, QUIET, secure=True) as cluster:
        client = ("--command-config", properties_file(cluster.client_properties("admin")))
        with cluster.client() as admin:
            create(admin, NewTopic("t", 6))
        await_topics(cluster, "t")
        assert doctor(*client) == {}
        controller = cluster.controller
        stopped = next(node for node in cluster.nodes if node is not controller)
        stopped.stop()
        expected = {"bootstrap", "fenced-broker", "under-replicated"}
        deadline = time.monotonic() + LONG
        while set(found := doctor(*client)) != expected:  # the nodes that are left hear of it one after the other
            assert time.monotonic() < deadline, found
        assert found["bootstrap"][0]["severity"] == "warning"
        assert found["fenced-broker"][0]["about"] == f"broker {stopped.id}"
        controller = cluster.controller  # on a machine that is busy it may be another one by now
        left = next(node for node in cluster.nodes if node not in (stopped, controller))
        controller.kill()
        lost = {"controller-quorum", "advertised-reachable"}
        gone = f"broker {controller.id}"
        for seconds in ("1", "20", "120"):  # the first may be too short for what is left to answer
            found = doctor(*client, "-b", left.bootstrap_servers, "--timeout", seconds)
            unreachable = [each["about"] for each in found.get("advertised-reachable", ())]
            if lost <= set(found) and unreachable == [gone]:
                break
        assert lost <= set(found) and unreachable == [gone]
