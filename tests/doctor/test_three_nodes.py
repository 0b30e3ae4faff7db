"""Clusters of three nodes: sound ones, and one with mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.client.topics import NewTopic, delete_topics
from kbroker.testing import RunningCluster, running_cluster
from tests.doctor.conftest import QUIET, Doctor, create


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3, QUIET) as running:
        yield running


def test_a_sound_cluster_has_nothing_wrong(cluster: RunningCluster, doctor: Doctor) -> None:
    with cluster.client() as client:
        create(client, NewTopic("t", 6))
    assert doctor("-b", cluster.bootstrap_servers) == {}


def test_a_sound_secure_cluster_has_nothing_wrong(
    doctor: Doctor, properties_file: Callable[[Mapping[str, str]], Path]
) -> None:
    with running_cluster(3, QUIET, secure=True) as cluster:
        assert doctor("--command-config", properties_file(cluster.client_properties("admin"))) == {}


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
        found = doctor("-b", cluster.bootstrap_servers)
        delete_topics(client, [topic.name])
    assert list(found) == [name] and topic.name in found[name][0]["about"]


def test_a_node_that_is_down(cluster: RunningCluster, doctor: Doctor) -> None:
    cluster.node(3).stop()
    found = doctor("-b", cluster.bootstrap_servers)
    found.pop("quorum-lag", None)  # a leader of the quorum that is new knows nothing of the controller that is down
    assert set(found) == {"bootstrap", "fenced-broker", "under-replicated"}
    assert found["bootstrap"][0]["severity"] == "warning" and found["fenced-broker"][0]["about"] == "broker 3"
