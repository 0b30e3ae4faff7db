"""Nodes of one role, at old levels of ``metadata.version`` that are raised one by one: what they write to the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.image import DIR_MIGRATING
from kbroker.raft_metadata.metadata_version import METADATA_VERSION_NAMES
from kbroker.raft_metadata.raft.batches import decode_batches
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kbroker.wire.records.metadata import RegisterBrokerRecord, RegisterControllerRecord
from tests.node.node_harness import batch, fetch_request, produce_request, values
from tests.node.quorum_harness import Quorum, quorum

APART = {1: "controller", 2: "broker"}


async def raise_level(cluster: Quorum, level: int) -> None:
    client = await cluster.node(2).connect()
    wish = FeatureUpdateKey(feature="metadata.version", max_version_level=level)
    answer = await client.ask(UpdateFeaturesRequest(feature_updates=[wish], timeout_ms=5000))
    assert answer.error_code == 0, answer
    await client.stream.aclose()
    nodes = cluster.nodes.values()
    await cluster.until(lambda: all(node.metadata.image.features.metadata_version == level for node in nodes))


async def write_and_read(cluster: Quorum, topic: str) -> None:
    client = await cluster.node(2).connect()
    wish = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[wish], timeout_ms=5000))
    assert answer.topics[0].error_code == 0, answer
    await cluster.topics_everywhere([topic])
    produced = await client.ask(produce_request(topic, batch(b"x"), partition=1), 9)
    assert produced.responses[0].partition_responses[0].error_code == 0, produced
    fetched = await client.ask(fetch_request(topic, [(1, 0)]), 12)
    assert values(fetched.responses[0].partitions[0].records) == [(0, b"x")]
    await client.stream.aclose()


def registrations(cluster: Quorum, kind: type[RegisterControllerRecord | RegisterBrokerRecord]) -> list[int]:
    """The nodes that have registered by the controller's log, in order."""
    log = cluster.path / "node1" / "__cluster_metadata-0" / f"{0:020d}.log"
    records = [record for written in decode_batches(log.read_bytes()) for record in written.records]
    return [
        record.controller_id if isinstance(record, RegisterControllerRecord) else record.broker_id
        for record in records
        if isinstance(record, kind)
    ]


async def test_roles_apart_rise_from_the_oldest_level_and_register_what_each_lets_them_say(tmp_path: Path) -> None:
    async with quorum(tmp_path, 2, initial=1, roles_of=APART, metadata_version=7) as cluster:
        await cluster.start(1, 2)
        broker = cluster.nodes[2]
        epoch = broker.broker_epoch
        directory = broker.log_manager.log_dirs[0].directory_id
        for level in METADATA_VERSION_NAMES:
            if level > 7:
                await raise_level(cluster, level)
            await cluster.until(
                lambda: (
                    broker.metadata.image.brokers[2].log_dirs == ((directory,) if level >= 17 else ())  # noqa: B023
                    and list(broker.metadata.image.controllers) == ([1] if level >= 15 else [])  # noqa: B023
                )
            )
            await write_and_read(cluster, f"at-{level}")
        registered = broker.metadata.image.brokers[2]
        assert registered.epoch == epoch and not registered.fenced, "the same life of the broker goes on"
        assert registrations(cluster, RegisterBrokerRecord) == [2, 2]
        assert registrations(cluster, RegisterControllerRecord) == [1]


async def test_a_node_alone_rises_as_well(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1, metadata_version=14) as cluster:
        await cluster.start(1)
        node = cluster.nodes[1]
        client = await cluster.node(1).connect()
        directory = node.log_manager.log_dirs[0].directory_id
        epoch = node.broker_epoch
        wish = FeatureUpdateKey(feature="metadata.version", max_version_level=17)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[wish], timeout_ms=5000))).error_code == 0
        await cluster.until(
            lambda: (
                node.metadata.image.brokers[1].log_dirs == (directory,) and list(node.metadata.image.controllers) == [1]
            )
        )
        assert node.metadata.image.brokers[1].epoch == epoch and not node.metadata.image.brokers[1].fenced


@pytest.mark.parametrize("level", [14, 15])
async def test_controllers_are_described_from_3_7_on(tmp_path: Path, level: int) -> None:
    async with quorum(tmp_path, 2, initial=1, roles_of=APART, metadata_version=level) as cluster:
        await cluster.start(1, 2)
        await cluster.controllers_registered(*([1] if level >= 15 else []))
        client = await cluster.controller_client(1)
        answer = await client.ask(DescribeClusterRequest(endpoint_type=2))
        code = ErrorCode.NONE if level >= 15 else ErrorCode.UNSUPPORTED_VERSION
        assert (answer.error_code, len(answer.brokers)) == (code, int(level >= 15))


async def test_several_log_directories_serve_below_3_7_too_and_are_told_of_from_there_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker.node.replicas.directory_assignments")
    own = {2: {"log.dirs": f"{tmp_path / 'node2'},{tmp_path / 'other'}"}}
    async with quorum(tmp_path, 2, initial=1, roles_of=APART, properties_of=own, metadata_version=16) as cluster:
        await cluster.start(1, 2)
        assert "several log directories are not supported at metadata.version 3.7-IV1" in caplog.text
        await write_and_read(cluster, "t")
        broker = cluster.nodes[2]
        told = {log_dir.directory_id for log_dir in broker.log_manager.log_dirs}
        await raise_level(cluster, 17)

        def is_known() -> bool:
            image = broker.metadata.image
            partitions = image.topics.by_name["t"].partitions.values()
            known = {partition.directory(2) for partition in partitions} - {DIR_MIGRATING}
            # A partition that was never written to has no directory yet.
            return set(image.brokers[2].log_dirs) == told and bool(known) and known <= told

        await cluster.until(is_known)
        assert "does not take note of directories" not in caplog.text, "it is not asked before it can"
