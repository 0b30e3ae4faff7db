"""Three nodes and their metadata quorum, over TCP."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.registration import BOTH, registrations
from kbroker.handlers.services.requester import principal_bytes
from kbroker.log.disk import Buffer, DiskUsage, OsDisk, OsFile
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.node.controller.raft_peers import RaftPeers
from kbroker.raft_metadata.raft import messages
from kbroker.raft_metadata.raft.messages import FetchResult, FetchSnapshotResult, OutboundRequest, Reply
from kbroker.raft_metadata.raft.rpcs import rpc_of
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import ANONYMOUS
from kbroker.types import METADATA_TOPIC, OffsetAndEpoch, random_uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.conversation import Conversation
from kbroker.wire.framing import request_bytes
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.envelope import EnvelopeRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import InitProducerIdRequest
from kbroker.wire.messages.vote import PartitionData as VotePartition
from kbroker.wire.messages.vote import TopicData, VoteRequest
from tests.node.node_harness import CLUSTER_ID, PATIENT
from tests.node.quorum_harness import quorum, three_nodes
from tests.node.test_log_dirs import FaultyDisk


@pytest.mark.parametrize("dynamic", [False, True])
async def test_three_nodes_elect_and_share_their_metadata(tmp_path: Path, dynamic: bool) -> None:
    async with quorum(tmp_path, dynamic=dynamic) as cluster:
        began = trio.current_time()
        await cluster.start(1, 2, 3)
        leader = await cluster.await_leader()
        print(f"three nodes serve after {trio.current_time() - began:.2f} s")
        # Created by way of any node.
        for node_id in (1, 2, 3):
            await cluster.node(node_id).create_topic(f"by-{node_id}")
        await cluster.topics_everywhere(["by-1", "by-2", "by-3"])
        images = [node.metadata.image for node in cluster.nodes.values()]
        assert all(sorted(image.brokers) == [1, 2, 3] for image in images)
        assert all(not broker.fenced for image in images for broker in image.brokers.values())
        assert all(image.controller_id == leader for image in images)


@pytest.mark.parametrize("orderly", [True, False])
async def test_the_metadata_survives_its_leader(tmp_path: Path, orderly: bool) -> None:
    async with three_nodes(tmp_path) as cluster:
        old = await cluster.await_leader()
        await cluster.node(old).create_topic("before")
        await cluster.topics_everywhere(["before"])
        began = trio.current_time()
        await (cluster.stop(old) if orderly else cluster.kill(old))
        new = await cluster.await_leader()
        print(f"a new controller after {trio.current_time() - began:.2f} s")
        assert new != old
        await cluster.node(new).create_topic("after")
        await cluster.topics_everywhere(["before", "after"])
        await cluster.until(lambda: cluster.nodes[new].metadata.image.brokers[old].fenced)
        await cluster.start(old)
        await cluster.topics_everywhere(["before", "after"])
        await cluster.until(lambda: not cluster.nodes[new].metadata.image.brokers[old].fenced)


def vote(epoch: int, candidate: int, *, cluster_id: str | None = CLUSTER_ID, pre_vote: bool = True) -> VoteRequest:
    return VoteRequest(
        cluster_id=cluster_id,
        topics=[
            TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    VotePartition(
                        replica_epoch=epoch,
                        replica_id=candidate,
                        last_offset_epoch=epoch if pre_vote else epoch - 1,
                        last_offset=1_000_000,
                        pre_vote=pre_vote,
                    )
                ],
            )
        ],
    )


async def test_a_node_that_was_away_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        away = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await cluster.node(leader).create_topic("gone")
        await cluster.topics_everywhere(["gone"])
        await cluster.stop(away)
        client = await cluster.node(leader).connect()
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000))
        await cluster.node(leader).create_topic("new")
        for node in cluster.nodes.values():
            await cluster.until(lambda node=node: "new" in node.metadata.image.topics.by_name)  # type: ignore[misc]
            await node.metadata.snapshots.write()
        await cluster.start(away)
        await cluster.topics_everywhere(["new"])
        assert "gone" not in cluster.nodes[away].metadata.image.topics.by_name
        assert not (tmp_path / f"node{away}" / "gone-0").exists()


async def test_a_node_that_begins_with_a_snapshot_knows_the_controller(tmp_path: Path) -> None:
    """The record of its election is before the snapshot."""
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        again = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        await cluster.nodes[again].metadata.snapshots.write()
        await cluster.stop(again)
        await cluster.start(again)
        assert cluster.nodes[again].metadata.image.controller_id == leader


@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "middle", "last"])
async def test_a_leader_whose_log_is_damaged_has_a_snapshot_for_whoever_was_away(tmp_path: Path, number: int) -> None:
    async with quorum(tmp_path, log_scrub_bytes_per_second="0") as cluster:
        await cluster.start(1, 2, 3)
        away = await cluster.await_leader() % 3 + 1
        await cluster.stop(away)
        leader = await cluster.await_leader()
        before = cluster.nodes[leader].metadata.image.offset
        names = ["first", "second", "third"]
        for name in names:
            await cluster.node(leader).create_topic(name)
        await cluster.topics_everywhere(names)
        records = cluster.nodes[leader].metadata.records
        assert records is not None
        path = Path(records.active_segment.path)
        content = bytearray(path.read_bytes())
        lacking = [position for position, header in walk_headers(content) if header.base_offset > before]
        content[lacking[number] + 70] ^= 1
        path.write_bytes(content)
        await cluster.start(away)
        await cluster.topics_everywhere(names)
        assert cluster.nodes[leader].metadata.is_leader
        await cluster.node(leader).create_topic("fourth")
        await cluster.topics_everywhere([*names, "fourth"])


async def test_a_node_fetches_no_more_at_a_time_than_its_properties_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-1219: of the log and of snapshots; a batch that is larger comes alone."""
    replies: list[Any] = []
    send = RaftPeers.send

    async def watched(peers: RaftPeers, outbound: OutboundRequest) -> Reply:
        reply = await send(peers, outbound)
        replies.append(reply.response)
        return reply

    monkeypatch.setattr(RaftPeers, "send", watched)
    limits = {"controller_quorum_fetch_max_bytes": "400", "controller_quorum_fetch_snapshot_max_bytes": "300"}
    async with three_nodes(tmp_path, properties=limits) as cluster:
        away = await cluster.await_leader() % 3 + 1
        await cluster.stop(away)
        leader = await cluster.await_leader()
        await cluster.node(leader).create_topic("in-the-snapshot", 5)
        await cluster.topics_everywhere(["in-the-snapshot"])
        for name in ("between", "two-snapshots"):
            for node in cluster.nodes.values():
                await node.metadata.snapshots.write()
            await cluster.node(leader).create_topic(name)
            await cluster.topics_everywhere([name])
        for node in cluster.nodes.values():
            await node.metadata.snapshots.write()
        names = [f"topic-{index}" for index in range(5)]
        for name in names:
            await cluster.node(leader).create_topic(name)
        replies.clear()
        await cluster.start(away)
        await cluster.topics_everywhere(["in-the-snapshot", *names])
    pieces = [len(reply.data) for reply in replies if isinstance(reply, FetchSnapshotResult)]
    assert len(pieces) > 3 and max(pieces) == 300
    answers = [reply.records for reply in replies if isinstance(reply, FetchResult) and reply.records]
    assert len(answers) > 3
    for records in answers:
        assert len(records) <= 400 or len(list(walk_headers(records))) == 1, len(records)


class SmallDisk(FaultyDisk):
    """Counts what it refuses."""

    refused = 0

    def check(self, operation: str, path: str) -> None:
        try:
            super().check(operation, path)
        except OSError:
            self.refused += 1
            raise


@pytest.mark.parametrize("of_snapshot", [False, True])
async def test_a_follower_whose_disk_is_full_stays_and_goes_on_when_there_is_room(
    tmp_path: Path, of_snapshot: bool
) -> None:
    async with quorum(tmp_path) as cluster:
        for node_id in (1, 2, 3):
            cluster.envs[node_id] = RealEnv(seed=node_id, budgets=PATIENT)
            cluster.envs[node_id].disk = SmallDisk()
        await cluster.start(1, 2, 3)
        away = await cluster.await_leader() % 3 + 1
        disk: Any = cluster.envs[away].disk
        if of_snapshot:
            await cluster.stop(away)
        leader = await cluster.await_leader()
        for name in ("in-the-snapshot", "between") if of_snapshot else ():
            await cluster.node(leader).create_topic(name)
            await cluster.topics_everywhere([name])
            for node in cluster.nodes.values():
                await node.metadata.snapshots.write()
        disk.broken[("write", ".checkpoint.part" if of_snapshot else "__cluster_metadata-0/0")] = errno.ENOSPC
        async with trio.open_nursery() as nursery:
            if of_snapshot:
                nursery.start_soon(cluster.start, away)
            nursery.start_soon(cluster.node(leader).create_topic, "last")
            await cluster.until(lambda: disk.refused > 8)  # more than the pieces of a reserve
            disk.broken = {}
        await cluster.topics_everywhere(["last"])


class LimitedFile(OsFile):
    """A file of a `LimitedDisk`."""

    __slots__ = ("disk",)

    def __init__(self, fd: int, disk: LimitedDisk) -> None:
        super().__init__(fd)
        self.disk = disk

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.disk.claim(position + sum(map(len, buffers)) - self.size())
        super().write_at(position, buffers)


class LimitedDisk(OsDisk):
    """A disk that has room for ``limit`` bytes in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.limit = 1 << 40

    def used(self) -> int:
        total = 0
        for directory, _, names in os.walk(self._directory):
            for name in names:
                with suppress(FileNotFoundError):
                    total += os.stat(os.path.join(directory, name)).st_size
        return total

    def claim(self, size: int) -> None:
        if size > 0 and self.used() + size > self.limit:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        fd, file.fd = file.fd, -1
        return LimitedFile(fd, self)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.claim(len(data))
        super().write_bytes(path, data, sync=sync)

    def take_room(self, path: str, size: int) -> None:
        self.claim(size)
        super().take_room(path, size)

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(1 << 25, max(0, self.limit - self.used()))


async def test_a_follower_whose_disk_is_full_votes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else it ended with the next election, as what it had followed took the room of its vote."""
    async with quorum(tmp_path) as cluster:
        for node_id in (1, 2, 3):
            cluster.envs[node_id] = RealEnv(seed=node_id, budgets=PATIENT)
            cluster.envs[node_id].disk = LimitedDisk(tmp_path / f"node{node_id}")
        await cluster.start(1, 2, 3)
        leader = await cluster.await_leader()
        away = leader % 3 + 1
        disk: Any = cluster.envs[away].disk
        disk.limit = disk.used()
        names: list[str] = []
        full = "no room for the metadata of leader"
        while full not in caplog.text:
            names.append(f"t{len(names)}")
            replicas = ",".join(["0:1"] * (8_000 if len(names) <= 7 else 800))  # the reserve, and what is left
            configs = {f"{each}_replication_throttled_replicas": replicas for each in ("leader", "follower")}
            await cluster.node(leader).create_topic(names[-1], **configs)
            await cluster.until(
                lambda: names[-1] in cluster.nodes[away].metadata.image.topics.by_name or full in caplog.text
            )
        await cluster.kill(leader)
        others = [node.metadata for node in cluster.nodes.values()]
        await cluster.until(lambda: {each.describe_quorum().leader_id for each in others} == {6 - leader - away})
        disk.limit = 1 << 40
        await cluster.topics_everywhere(names)


async def test_brokers_without_a_vote_follow_controllers_without_clients(tmp_path: Path) -> None:
    brokers = {4: "broker", 5: "broker"}
    session = {"broker_session_timeout_ms": "60000"}
    async with quorum(tmp_path, 5, initial=3, roles="controller", roles_of=brokers, properties=session) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.start(4, 5)
        await cluster.node(4).create_topic("by-a-broker", 4)
        await cluster.topics_everywhere(["by-a-broker"])
        await cluster.controllers_registered(1, 2, 3)
        image = cluster.nodes[5].metadata.image
        assert sorted(image.brokers) == [4, 5]
        placed = {partition.leader for partition in image.topics.by_name["by-a-broker"].partitions.values()}
        assert placed == {4, 5}
        assert await cluster.leader_with_observers([4, 5]) in (1, 2, 3)
        # A broker that stops in good order is fenced then, not at the end of its session.
        await cluster.stop(5)
        await cluster.until(lambda: cluster.newest_image().brokers[5].fenced)


async def test_a_broker_that_does_not_lead_the_quorum_asks_its_leader(tmp_path: Path) -> None:
    """Producer ids, topics that are made when they are first asked for, requests in an envelope."""
    async with three_nodes(tmp_path, broker_session_timeout_ms="60000") as cluster:
        leader = await cluster.await_leader()
        follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        client = await cluster.node(follower).connect()
        idempotent = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        ids = {(await client.ask(idempotent)).producer_id for _ in range(3)}
        assert len(ids) == 3 and min(ids) >= 0
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        await client.ask(asked)
        await cluster.topics_everywhere(["auto"])

        inner = CreateTopicsRequest(
            topics=[CreatableTopic(name="enveloped", num_partitions=1, replication_factor=1)], timeout_ms=5000
        )
        inside = Conversation("a client", correlation_ids=iter([55]))
        data = b"".join(inside.send(inner, 7))[4:]
        envelope = EnvelopeRequest(
            request_data=data, request_principal=principal_bytes(ANONYMOUS), client_host_address=bytes(4)
        )
        to_leader = await cluster.controller_client(leader)
        answer = await to_leader.ask(envelope)
        assert answer.error_code == ErrorCode.NONE
        created = inside.receive(answer.response_data)
        assert (created.topics[0].name, created.topics[0].error_code) == ("enveloped", ErrorCode.NONE)
        to_other = await cluster.controller_client(follower)
        assert (await to_other.ask(envelope)).error_code == ErrorCode.NOT_CONTROLLER
        envelope.request_data = request_bytes(4, 1, "", ApiVersionsRequest())[4:]
        assert (await to_leader.ask(envelope)).error_code == ErrorCode.INVALID_REQUEST
        for unreadable in (b"", data[:9], data[:-8]):
            envelope.request_data = unreadable
            assert (await to_leader.ask(envelope)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_node_that_has_left_the_quorum_says_so_as_kafkas_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its listener closes a little later. BROKER_NOT_AVAILABLE is what Kafka's replicas expect of a node that stops."""

    async def ended(plane: MetadataPlane, request: messages.RaftRequest) -> messages.RaftResponse:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "This node has left the metadata quorum.")

    replica = ReplicaKey(2, random_uuid(random.Random(2)))
    at = {"CONTROLLER": VoterEndpoint("127.0.0.1", 1)}
    requests = [
        messages.Fetch(1, replica, 0, 0, 0, 1000, 0),
        messages.FetchSnapshot(1, replica, OffsetAndEpoch(1, 1), 0, 1000),
        messages.Vote(1, replica, OffsetAndEpoch(1, 1), pre_vote=True),
        messages.BeginQuorumEpoch(1, 2, at),
        messages.EndQuorumEpoch(1, 2, at),
        messages.AddVoter(replica, at, 1000),
        messages.RemoveVoter(replica),
        messages.UpdateVoter(1, replica, at, 0, 1),
    ]
    async with three_nodes(tmp_path) as cluster:
        client = await cluster.controller_client(1)
        with monkeypatch.context() as patch:
            patch.setattr(MetadataPlane, "ask_quorum", ended)
            for request in requests:
                rpc = rpc_of(request)
                version = registrations(BOTH)[rpc.wire_request.api_key].versions.highest
                answer = await client.ask(rpc.encode_request(request, CLUSTER_ID, version), version)
                assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE, answer
    assert not [record for record in caplog.records if record.exc_info]
