"""Waiting until every node of a cluster has heard of a change: the node that answered may be the first to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from kbroker.client import ClientError
from kbroker.testing import ClusterNode, RunningCluster
from kbroker.types import TopicPartition
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.patience import LONG, eventually


def await_topics(cluster: RunningCluster, *names: str, gone: bool = False) -> None:
    """Return once every node that runs knows these topics and a leader of each partition, or knows them no more."""
    for id in [node.id for node in _awake(cluster)]:
        eventually(partial(_knows, cluster, id, names, gone), f"node {id} knows {names}, gone: {gone}")


def await_leader(cluster: RunningCluster, partition: TopicPartition, leader: int) -> None:
    """Return once every node that runs takes this node for the leader of a partition; -1 for nobody."""
    deadline = time.monotonic() + LONG
    for node in _awake(cluster):
        while (found := _leader(cluster, node.id, partition)) != leader:
            assert time.monotonic() < deadline, f"node {node.id} takes {found} for the leader of {partition}"
            time.sleep(0.02)


def await_nodes(cluster: RunningCluster, ids: Sequence[int]) -> None:
    """Return once every node that runs sees these nodes unfenced, and no others."""
    deadline = time.monotonic() + LONG
    for node in _awake(cluster):
        while (found := _unfenced(cluster, node.id)) != list(ids):
            assert time.monotonic() < deadline, f"node {node.id} sees {found}, not {ids}"
            time.sleep(0.02)


def _leader(cluster: RunningCluster, node_id: int, partition: TopicPartition) -> int | None:
    try:
        with cluster.client(timeout=10) as client:
            client.refresh(())
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
            )
            [topic] = client.ask_node(node_id, asked).topics
    except ClientError:
        return None
    return next((one.leader_id for one in topic.partitions if one.partition_index == partition.partition), None)


def _awake(cluster: RunningCluster) -> list[ClusterNode]:
    return [node for node in cluster.nodes if node.is_running and "paused" not in repr(node)]


def _unfenced(cluster: RunningCluster, node_id: int) -> list[int]:
    try:
        with cluster.client(timeout=10) as client:
            client.refresh(())
            answer = client.ask_node(node_id, MetadataRequest(topics=[]))
    except ClientError:
        return []
    return sorted(broker.node_id for broker in answer.brokers)


def _knows(cluster: RunningCluster, node_id: int, names: tuple[str, ...], gone: bool) -> bool:
    topics = [MetadataRequestTopic(name=name) for name in names]
    try:
        with cluster.client(timeout=10) as client:
            client.refresh(())
            answer = client.ask_node(node_id, MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    except ClientError:
        return False
    if gone:
        return all(topic.error_code for topic in answer.topics)
    return all(
        not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions)
        for topic in answer.topics
    )
