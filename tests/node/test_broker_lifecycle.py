"""A broker's standing with the active controller, which may be in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import FatalError
from kbroker.node.controller.broker_sessions import SessionKeeper
from kbroker.node.controller.controller_channel import ControllerChannels
from kbroker.raft_metadata.controller.brokers import unregister_broker
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.wire.messages.alter_partition import AlterPartitionRequest
from kbroker.wire.messages.nodes import BrokerRegistrationRequest
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.placement import create
from tests.node.quorum_harness import quorum, three_nodes


async def test_a_controller_that_makes_a_mistake_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its own nor others', which ask it by way of a connection."""
    heartbeat = SessionKeeper.heartbeat
    beats: dict[int, list[bool]] = {1: [], 2: [], 3: []}

    async def mistaken(keeper: SessionKeeper, beat: Heartbeat, connection: Any) -> HeartbeatState:
        seen = beats[beat.broker_id]
        if len(seen) < 3:
            seen.append(False)
            raise LookupError("a mistake")
        state = await heartbeat(keeper, beat, connection)
        seen.append(True)
        return state

    async with three_nodes(tmp_path) as cluster:
        monkeypatch.setattr(SessionKeeper, "heartbeat", mistaken)
        await cluster.until(lambda: all(any(seen) for seen in beats.values()))


async def test_an_answer_that_is_of_a_later_release_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of each kind from the active controller has an error code that is unknown here."""
    ask = ControllerChannels.ask
    asked: set[tuple[int, type[Any]]] = set()

    async def of_later_release(channels: ControllerChannels, request: Any, *options: Any) -> Any:
        response = await ask(channels, request, *options)
        about = channels._node_id, type(request)
        if response is None or about in asked or "error_code" not in type(response).__slots__:
            return response
        asked.add(about)
        return type(response)(error_code=9999)

    monkeypatch.setattr(ControllerChannels, "ask", of_later_release)
    async with three_nodes(tmp_path, initial=1, roles_of={1: "controller", 2: "broker", 3: "broker"}) as cluster:
        assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned])
        client = await cluster.controller_client(1)
        assert (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0

        def in_sync(*expected: int) -> bool:
            topic = cluster.newest_image().topics.by_name.get("t")
            return topic is not None and set(topic.partitions[0].isr) == set(expected)

        await cluster.until(lambda: in_sync(2, 3))
        await cluster.stop(3)
        await cluster.until(lambda: in_sync(2))
        await cluster.start(3)
        await cluster.until(lambda: in_sync(2, 3))
        expected = {(2, AlterPartitionRequest), (2, BrokerRegistrationRequest), (3, BrokerRegistrationRequest)}
        await cluster.until(lambda: asked >= expected)


async def test_a_broker_that_cannot_tell_of_a_failed_directory_stops(tmp_path: Path) -> None:
    """``log.dir.failure.timeout.ms`` (KIP-858): the controller would have it lead what is lost."""
    two = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}", "log.dir.failure.timeout.ms": "300"}
    told = r"could not be told for 0.3 s \(log.dir.failure.timeout.ms\) that the log directory .*two has failed"
    with pytest.RaisesGroup(pytest.RaisesExc(FatalError, match=told), flatten_subgroups=True):
        async with quorum(
            tmp_path, 2, initial=1, roles_of={1: "controller", 2: "broker"}, properties_of={2: two}
        ) as cluster:
            await cluster.start(1, 2)
            broker = cluster.nodes[2]
            failed = next(each for each in broker.log_manager.log_dirs if each.path.endswith("two"))
            await cluster.kill(1)
            broker.log_manager.mark_offline(failed, OSError(5, "Input/output error"))
            await trio.sleep_forever()


async def test_a_broker_that_is_alone_sends_heartbeats_only_when_it_has_something_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = SessionKeeper.heartbeat
    beats: list[int] = []

    async def counted(keeper: SessionKeeper, beat: Heartbeat, connection: Any) -> HeartbeatState:
        beats.append(beat.broker_id)
        return await heartbeat(keeper, beat, connection)

    monkeypatch.setattr(SessionKeeper, "heartbeat", counted)
    async with quorum(tmp_path, 2, initial=1, roles_of={2: "broker"}) as cluster:
        await cluster.start(1)
        first = list(beats)
        await trio.sleep(1.3)  # more than a session of this cluster
        assert beats == first and set(first) == {1}
        assert not cluster.nodes[1].metadata.image.brokers[1].fenced
        await cluster.start(2)
        await cluster.until(lambda: beats.count(1) >= len(first) + 5 and beats.count(2) >= 5)


async def test_the_broker_of_a_controller_that_comes_back_without_one_is_fenced(tmp_path: Path) -> None:
    """Others lead its partitions then, and clients are not sent to it any more."""
    options: Any = {"initial": 1, "controlled_shutdown_enable": "false"}  # as one that is killed leaves
    async with quorum(tmp_path, 2, roles_of={2: "broker"}, **options) as cluster:
        await cluster.start(1, 2)
        await create(await cluster.controller_client(1), "t", 1, 2)
        await cluster.until(lambda: cluster.newest_image().topics.by_name["t"].partitions[0].leader == 1)
    async with quorum(tmp_path, 2, roles_of={1: "controller", 2: "broker"}, **options) as cluster:
        await cluster.start(1, 2)
        await cluster.until(lambda: cluster.newest_image().brokers[1].fenced)
        await cluster.until(lambda: cluster.newest_image().topics.by_name["t"].partitions[0].leader == 2)


async def test_a_broker_that_is_alone_and_unregistered_registers_again(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as cluster:
        await cluster.start(1)
        node = cluster.nodes[1]
        before = node.broker_epoch
        await node.metadata.submit(lambda view: unregister_broker(view, 1))
        await cluster.until(lambda: node.broker_epoch > before)
        await cluster.until(lambda: not node.metadata.image.brokers[1].fenced)
