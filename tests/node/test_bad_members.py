"""Nodes that do not belong, or are not well: refused with Kafka's error and one readable line. The rest serves on."""

from __future__ import annotations

import errno
import random
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, FatalError
from kbroker.handlers.common.refusals import SILENT_SECONDS
from kbroker.log.disk import OsDisk
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.env import RealEnv
from kbroker.types import METADATA_TOPIC, Uuid, random_uuid
from kbroker.wire.messages.alter_partition import AlterPartitionRequest
from kbroker.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kbroker.wire.messages.begin_quorum_epoch import PartitionData as BeginPartition
from kbroker.wire.messages.begin_quorum_epoch import TopicData as BeginTopic
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest, BrokerRegistrationRequest
from tests.node.node_harness import CLUSTER_ID, batch, produce_request
from tests.node.quorum_harness import Quorum, quorum, three_nodes
from tests.node.test_log_dirs import FaultyDisk
from tests.node.test_quorum import vote
from tests.node.test_replication import TOPIC, create, leader_of, replica
from tests.patience import LONG

OTHER_CLUSTER = "BBBBBBBBBBBBBBBBBBBBBw"


def lines(caplog: pytest.LogCaptureFixture, pattern: str) -> list[str]:
    """The logged warnings and errors in which ``pattern`` is found."""
    messages = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    return [message for message in messages if re.search(pattern, message)]


async def acknowledged(cluster: Quorum, topic_id: Uuid, *, within: float = LONG, timestamp: int = 1000) -> None:
    """A record is acknowledged by all in-sync replicas, by whoever leads."""
    with trio.fail_after(within):
        while True:
            leader = leader_of(cluster)
            if leader in cluster.nodes:
                client = await cluster.node(leader).connect()
                request = produce_request("", batch(b"on", timestamp=timestamp), topic_id=topic_id, timeout_ms=2000)
                response = await client.ask(request)
                await client.stream.aclose()
                if not response.responses[0].partition_responses[0].error_code:
                    return
            await trio.sleep(0.05)


async def test_a_node_of_another_cluster_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with quorum(tmp_path, 4, initial=3, roles_of={4: "broker"}) as cluster:
        await cluster.start(1, 2, 3)
        leader = await cluster.await_leader()
        topic_id = await create(cluster)
        config = cluster.config(4)
        format_log_dirs(
            OsDisk(),
            config.log_dirs,
            config.metadata_log_dir,
            node_id=4,
            cluster_id=OTHER_CLUSTER,
            rng=random.Random(4),
            now_ms=0,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, 4)
            for pattern in ("belongs to another cluster than this node", "is refused: INCONSISTENT_CLUSTER_ID"):
                await cluster.until(lambda pattern=pattern: bool(lines(caplog, pattern)))  # type: ignore[misc]
            await trio.sleep(1)  # it asks again and again
            nursery.cancel_scope.cancel()
        assert 4 not in cluster.nodes and 4 not in cluster.nodes[leader].metadata.image.brokers
        told = lines(caplog, "belongs to another cluster than this node")
        assert told and len(set(told)) == len(told), "once for each address"
        assert OTHER_CLUSTER in told[0]
        [refused] = lines(caplog, "is refused: INCONSISTENT_CLUSTER_ID")[:1]
        assert OTHER_CLUSTER in refused and CLUSTER_ID in refused
        assert len(lines(caplog, "is refused")) <= 3, "once on each node that it has asked"
        await acknowledged(cluster, topic_id)


async def test_a_second_broker_with_the_same_id_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with quorum(
        tmp_path,
        5,
        initial=3,
        roles_of={4: "broker", 5: "broker"},
        initial_broker_registration_timeout_ms="300",
        broker_session_timeout_ms="60000",
    ) as cluster:
        await cluster.start(1, 2, 3, 4)
        await cluster.await_leader()
        topic_id = await create(cluster)
        cluster.ids[5] = 4
        with pytest.raises(BaseExceptionGroup) as caught:
            await cluster.start(5)
        assert caught.group_contains(FatalError, match="refuses the registration of this broker: DUPLICATE_BROKER")
        [line] = lines(caplog, "is refused")
        assert re.fullmatch(
            r"broker 4 at 127\.0\.0\.1:\d+ is refused: DUPLICATE_BROKER_REGISTRATION "
            r"\(Another broker is registered with that broker id 4\.\)",
            line,
        )
        await acknowledged(cluster, topic_id)


async def test_an_earlier_life_of_a_broker_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        topic_id = await create(cluster)
        client = await cluster.controller_client(leader)
        other = leader % 3 + 1
        for _ in range(3):
            beat = await client.ask(BrokerHeartbeatRequest(broker_id=other, broker_epoch=1))
            assert beat.error_code == ErrorCode.STALE_BROKER_EPOCH
        wish = await client.ask(AlterPartitionRequest(broker_id=other, broker_epoch=1))
        assert wish.error_code == ErrorCode.STALE_BROKER_EPOCH

        async def beat_of_stranger() -> int:
            stranger = await client.ask(BrokerHeartbeatRequest(broker_id=77, broker_epoch=1))
            assert stranger.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            return len(lines(caplog, "broker 77 at .* is refused: BROKER_ID_NOT_REGISTERED"))

        assert [await beat_of_stranger(), await beat_of_stranger()] == [1, 1]
        registration = await client.ask(BrokerRegistrationRequest(broker_id=9, cluster_id=OTHER_CLUSTER))
        assert registration.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        [line] = lines(caplog, f"broker {other} at .* is refused: STALE_BROKER_EPOCH")
        assert "1" in line
        await acknowledged(cluster, topic_id)
        assert not cluster.nodes[leader].metadata.image.brokers[other].fenced
        env = cluster.envs[leader]
        now = env.now
        env.now = lambda: now() + SILENT_SECONDS  # type: ignore[method-assign]
        assert [await beat_of_stranger(), await beat_of_stranger()] == [2, 2], "it is told again after a while"


def begin(epoch: int, leader: int) -> BeginQuorumEpochRequest:
    """A node says that it is the active controller."""
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        topics=[
            BeginTopic(topic_name=METADATA_TOPIC, partitions=[BeginPartition(leader_id=leader, leader_epoch=epoch)])
        ],
    )


async def test_who_may_not_vote_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        topic_id = await create(cluster)
        epoch = cluster.nodes[leader].metadata.describe_quorum().leader_epoch
        client = await cluster.controller_client(leader)
        for request in (vote(epoch + 5, 9, pre_vote=False), vote(epoch, 9), begin(epoch + 5, 9)):
            answer = (await client.ask(request)).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.INCONSISTENT_VOTER_SET
        [line] = lines(caplog, "is refused")
        assert re.fullmatch(r"node 9 at 127\.0\.0\.1:\d+ is refused: INCONSISTENT_VOTER_SET", line)
        await acknowledged(cluster, topic_id)
        assert cluster.leader() == leader
        assert cluster.nodes[leader].metadata.describe_quorum().leader_epoch == epoch


async def test_a_vote_that_is_asked_of_another_disk_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With dynamic voters a replica is its node and its directory (KIP-853)."""
    async with three_nodes(tmp_path, dynamic=True) as cluster:
        leader = await cluster.await_leader()
        topic_id = await create(cluster)
        epoch = cluster.nodes[leader].metadata.describe_quorum().leader_epoch
        request = vote(epoch, leader % 3 + 1)
        request.voter_id = leader
        request.topics[0].partitions[0].voter_directory_id = random_uuid(random.Random(99))
        client = await cluster.controller_client(leader)
        answer = (await client.ask(request)).topics[0].partitions[0]
        assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
        [line] = lines(caplog, "is refused")
        assert re.fullmatch(rf"node {leader % 3 + 1} at 127\.0\.0\.1:\d+ is refused: INVALID_VOTER_KEY", line)
        await acknowledged(cluster, topic_id)
        assert cluster.leader() == leader


async def test_a_node_with_anothers_disk_does_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with quorum(tmp_path, 5, initial=3, roles_of={4: "broker", 5: "broker"}) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        topic_id = await create(cluster)
        # The disk of node 2 as it is, in node 4.
        shutil.copytree(tmp_path / "node2", tmp_path / "node4")
        with pytest.raises(BaseExceptionGroup) as caught:
            await cluster.start(4)
        assert caught.group_contains(FatalError, match="node4 belongs to node 2, not to node 4")
        # And with the number on it changed: what else the disk says of itself counts more.
        shutil.copytree(tmp_path / "node2", tmp_path / "node5")
        properties = tmp_path / "node5" / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=2", "node.id=5"))
        with pytest.raises(BaseExceptionGroup) as caught:
            await cluster.start(5)
        assert caught.group_contains(FatalError, match="node5 belongs to node 2, not to node 5")
        await acknowledged(cluster, topic_id)


async def test_a_full_disk_on_one_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The leader's log dir is full: its partitions are led by others, what it has elsewhere goes on, and it follows
    again when there is room."""
    disks = {node_id: FaultyDisk() for node_id in (1, 2, 3)}
    async with quorum(tmp_path) as cluster:
        configure = cluster.config

        def with_second_dir(node_id: int) -> BrokerConfig:
            config = configure(node_id)
            [first] = config.log_dirs
            return config.with_properties({"log.dirs": f"{first},{first}-b", "metadata.log.dir": first})

        cluster.config = with_second_dir  # type: ignore[method-assign]
        for node_id, disk in disks.items():
            env = cluster.envs[node_id] = RealEnv(seed=node_id)
            env.disk = disk
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        first = await create(cluster, min_insync_replicas="2")
        await acknowledged(cluster, first)
        old = leader_of(cluster)
        # Not the metadata: without these a node cannot go on.
        moved = replica(cluster, old).log.directory
        full = str(Path(moved).parent)
        for part in (f"{moved}/", f"{full}/.reserve"):
            disks[old].broken["write", part] = errno.ENOSPC
        client = await cluster.node(old).connect()
        answer = await client.ask(produce_request("", batch(b"no room"), topic_id=first, timeout_ms=2000))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await acknowledged(cluster, first)
        await cluster.until(lambda: leader_of(cluster) != old)
        image = cluster.nodes[leader_of(cluster)].metadata.image
        await cluster.until(lambda: old not in replica(cluster, leader_of(cluster)).state.isr)
        assert not image.brokers[old].fenced, "it lives, and its other log dir does"
        [line] = lines(caplog, "is full")
        assert full in line and "broken" in line
        disks[old].broken.clear()
        await cluster.until(lambda: old in replica(cluster, leader_of(cluster)).state.isr)
        images = cluster.nodes[leader_of(cluster)].metadata
        await cluster.until(lambda: images.image.topics.by_id[first].partitions[0].directory(old) != DIR_LOST)


async def test_a_clock_that_is_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A node whose clock is two hours late takes what clients stamp for the future (``message.timestamp.after.max.ms``
    is an hour); an hour early, nobody minds. Nobody is fenced, nothing expires, the others serve on."""
    skew = {1: 0, 2: 0, 3: 0}

    class SkewedEnv(RealEnv):
        def __init__(self, node_id: int) -> None:
            super().__init__(seed=node_id)
            self.node_id = node_id

        def wall_clock_ms(self) -> int:
            return super().wall_clock_ms() + skew[self.node_id]

    async with quorum(tmp_path) as cluster:
        cluster.envs.update({node_id: SkewedEnv(node_id) for node_id in skew})
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        topic_id = await create(cluster, partitions=3, retention_ms="3600000", min_insync_replicas="2")
        leaders = {leader_of(cluster, TOPIC, index): index for index in range(3)}
        assert len(leaders) == 3
        now_ms = time.time_ns() // 1_000_000
        isr_before = {index: replica(cluster, 1, TOPIC, index).state.isr for index in range(3)}

        async def produce_to(node_id: int) -> Any:
            client = await cluster.node(node_id).connect()
            request = produce_request(
                "", batch(b"now", timestamp=now_ms), topic_id=topic_id, partition=leaders[node_id], timeout_ms=2000
            )
            return (await client.ask(request)).responses[0].partition_responses[0]

        skew[2] = -2 * 3_600_000
        skew[3] = 3_600_000
        await trio.sleep(0.5)
        for _ in range(3):
            assert (await produce_to(2)).error_code == ErrorCode.INVALID_TIMESTAMP
            assert (await produce_to(1)).error_code == 0
            assert (await produce_to(3)).error_code == 0
        [line] = lines(caplog, "INVALID_TIMESTAMP")
        assert f"records for {TOPIC}-{leaders[2]} are refused with INVALID_TIMESTAMP: timestamp {now_ms} " in line
        assert line.endswith("here, is a clock wrong?")
        skew[2] = 0
        assert (await produce_to(2)).error_code == 0
        await trio.sleep(0.5)
        for index in range(3):
            assert replica(cluster, 1, TOPIC, index).state.isr == isr_before[index]
        assert not any(broker.fenced for broker in cluster.nodes[1].metadata.image.brokers.values())
        for node_id in cluster.nodes:
            for index in range(3):
                assert replica(cluster, node_id, TOPIC, index).log.log_start_offset == 0
