"""Steps that are gathered and appended together; whoever is alone does not wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.replication.partition_state import PartitionState
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators import coordinator_driver
from kbroker.node.coordinators.coordinator_loading import replay_log
from kbroker.raft_metadata.image import MetadataDelta
from kbroker.raft_metadata.image.loader import ImageLoader
from kbroker.types import OffsetAndEpoch, TopicPartition
from kbroker.value_types import replace
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import InitProducerIdRequest
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.records.metadata import RemoveTopicRecord
from tests.node.coordinator_harness import commit, ready, submit
from tests.node.node_harness import Client, Node, running_node
from tests.node.placement import create, followed, move
from tests.node.quorum_harness import three_nodes
from tests.patience import SHORT


async def test_commits_of_one_turn_share_a_batch(node: Node) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    log = shard.partition.log
    before = log.log_end_offset
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        for partition in range(8):
            nursery.start_soon(submit(groups, commit(partition, partition + 100), answers))
    assert len(answers) == 8
    assert all(not answer.topics[0].partitions[0].error_code for answer in answers)
    assert log.log_end_offset == before + 8
    data = log.read_bytes(before, 1 << 20, max_offset=log.log_end_offset)
    batches = sum(1 for _ in walk_headers(data))
    assert batches == 2, "the first alone, the others together"
    client = await node.connect()
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (topic,) = (await client.ask(asked, 9)).groups[0].topics
    committed = {each.partition_index: each.committed_offset for each in topic.partitions}
    assert committed == {partition: partition + 100 for partition in range(8)}


async def test_what_is_gathered_goes_into_batches_that_the_topic_takes(tmp_path: Path) -> None:
    async with running_node(tmp_path, message_max_bytes="300") as node:
        groups = await ready(node)
        log = groups.loaded_shard("g").partition.log
        before = log.log_end_offset
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            for partition in range(8):
                nursery.start_soon(submit(groups, commit(partition, partition + 100), answers))
        assert not [answer for answer in answers if isinstance(answer, ErrorCode)]
        assert log.log_end_offset == before + 8
        data = log.read_bytes(before, 1 << 20, max_offset=log.log_end_offset)
        assert all(header.size <= 300 for _, header in walk_headers(data))


@pytest.mark.parametrize(("linger_ms", "batches"), [(300, (1, 2)), (0, (8,))])
async def test_commits_linger_as_long_as_the_property_says(
    tmp_path: Path, linger_ms: int, batches: tuple[int, ...]
) -> None:
    """``group.coordinator.append.linger.ms`` (KIP-1224): here they come in different turns of the event loop."""
    async with running_node(tmp_path, group_coordinator_append_linger_ms=str(linger_ms)) as node:
        groups = await ready(node)
        log = groups.loaded_shard("g").partition.log
        before = log.log_end_offset
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            for partition in range(8):
                nursery.start_soon(submit(groups, commit(partition, partition + 100), answers))
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
        assert len(answers) == 8
        assert all(not answer.topics[0].partitions[0].error_code for answer in answers)
        data = log.read_bytes(before, 1 << 20, max_offset=log.log_end_offset)
        assert sum(1 for _ in walk_headers(data)) in batches  # the first may have come alone


async def test_another_step_comes_after_what_is_gathered(node: Node) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    answers: list[Any] = []
    begun: list[Any] = []
    async with trio.open_nursery() as nursery:
        for partition in range(4):
            nursery.start_soon(submit(groups, commit(partition), answers, begun))
        while len(begun) < 4:  # Trio runs the tasks of a turn in any order
            await trio.lowlevel.checkpoint()
        await groups.run("g", lambda core, now_ms: core.admin.delete_group("g"))
        assert not shard.gathered
    assert len(answers) == 4
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert shard.core.fetch_offsets(asked, {}).topics == []


async def test_who_asks_for_offsets_sees_what_is_gathered(node: Node) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    shard.gathers = True  # and nobody is to come for it
    committing, fetching = await node.connect(), await node.connect()
    answers: list[Any] = []

    async def commit_it() -> None:
        answers.append(await committing.ask(commit(3, 345), 9))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_it)
        while not shard.gathered:
            await trio.lowlevel.checkpoint()
        assert not answers
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (topic,) = (await fetching.ask(asked, 9)).groups[0].topics
        committed = {each.partition_index: each.committed_offset for each in topic.partitions}
        assert committed[3] == 345
    assert answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("unload", [False, True])
async def test_what_cannot_be_stored_is_told_to_all(node: Node, unload: bool) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    shard.gathers = True
    groups._steps._gathering.append(shard)
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        for partition in range(3):
            nursery.start_soon(submit(groups, commit(partition, 999), answers))
        while len(shard.gathered) < 3:
            await trio.lowlevel.checkpoint()
        if unload:
            groups._unload(shard.index)
        else:
            shard.partition.state.leader = 99
            groups._steps._wake_gatherer.set()
    assert answers == [ErrorCode.NOT_COORDINATOR] * 3
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    offsets = [each.committed_offset for each in shard.core.fetch_offsets(asked, {}).topics[0].partitions]
    assert offsets == [7], "what was not stored has not been replayed"


@pytest.mark.parametrize("stays", [True, False])
async def test_a_reply_of_a_later_step_is_forgotten_with_the_request(tmp_path: Path, stays: bool) -> None:
    """Or a coordinator would keep one for each client that has gone while it waited to join a group."""
    async with running_node(tmp_path, group_initial_rebalance_delay_ms="50" if stays else "60000") as node:
        groups = await ready(node)
        client = await node.connect()
        request = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        await client.send(request, 3)
        while not groups._steps.replies:
            await trio.lowlevel.checkpoint()
        if stays:
            assert (await client.receive())[1].error_code == ErrorCode.NONE
        else:
            await client.stream.aclose()
        while groups._steps.replies:
            await trio.lowlevel.checkpoint()


def heartbeat(epoch: int, group: str = "modern") -> ConsumerGroupHeartbeatRequest:
    """That of the only member: epoch 0 joins."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )


@pytest.mark.parametrize(
    "question",
    [
        heartbeat(2),
        ConsumerGroupDescribeRequest(group_ids=["modern"]),
        DescribeGroupsRequest(groups=["classic"]),
        ListGroupsRequest(),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        LeaveGroupRequest(group_id="modern", members=[MemberIdentity(member_id="another")]),
    ],
    ids=lambda question: type(question).__name__,
)
async def test_nothing_is_told_of_what_is_not_committed(
    tmp_path: Path, question: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower in the ISR has fetched nothing since: another leader may have to do without it."""
    options = {"offsets_topic_num_partitions": "1"}
    async with running_node(tmp_path, **options) as node:
        groups = await ready(node)
        writer, asker = await node.connect(), await node.connect()
        shard = groups.loaded_shard("g")
        await writer.ask(commit(1, 1, "classic"), 9)
        state = shard.partition.state
        told: list[str] = []

        async def ask(client: Any, request: Any, name: str) -> None:
            answer = await client.ask(request)
            assert not getattr(answer, "error_code", 0), answer
            told.append(name)

        async with trio.open_nursery() as nursery:
            advance = PartitionState.maybe_advance_high_watermark
            monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", lambda state, end: False)
            await writer.send(heartbeat(0))
            while shard.partition.log.log_end_offset == state.high_watermark:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(ask, asker, question, "answer")
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert not told
            monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", advance)
            log = shard.partition.log
            groups._manager.progress.advance_high_watermark(shard.partition, log)
            assert state.high_watermark == log.log_end_offset
        assert told == ["answer"]
        joined = (await writer.receive())[1]
        assert (joined.error_code, joined.member_epoch) == (0, 2)


async def test_what_is_never_committed_is_never_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", lambda state, end: False)
    shard.partition.append_as_coordinator(bytearray(build_batch([Record(0, 1, b"\0\x7f", b"")])), groups.now_ms())
    asked: list[Any] = []

    async def read() -> None:
        with pytest.raises(ApiError) as error:
            await groups.read("g", lambda core: asked.append(core))
        asked.append(error.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        while not asked:
            await trio.lowlevel.checkpoint()
        groups._manager.purgatory.partition_changed(shard.partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert asked[1:] == [ErrorCode.NOT_COORDINATOR]


async def test_a_topic_that_is_created_again_before_this_node_hears_of_its_end_is_coordinated(tmp_path: Path) -> None:
    """A node that is behind takes both from one image: it leads the partition as before, and it is another one."""
    offsets = "__consumer_offsets"

    async def until_committed(client: Client) -> None:
        while (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code:
            await trio.sleep(0.01)

    async with three_nodes(tmp_path) as cluster:
        leader = cluster.leader()
        assert leader is not None
        behind = next(node_id for node_id in cluster.nodes if node_id != leader)
        controller = await cluster.controller_client(leader)
        for name in ("t", offsets):
            await create(controller, name, behind)
        await cluster.topics_everywhere(["t", offsets])
        client = await cluster.node(behind).connect()
        await until_committed(client)
        driver: Any = cluster.nodes[behind].metadata
        committed: list[int] = []
        driver.on_high_watermark = committed.append
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=offsets)], timeout_ms=5000)
        assert (await controller.ask(gone, 6)).responses[0].error_code == 0
        await create(controller, offsets, behind)
        end = cluster.nodes[leader].metadata.image.offset + 1
        await cluster.until(lambda: bool(committed) and committed[-1] >= end)
        del driver.on_high_watermark
        driver.on_high_watermark(committed[-1])
        await until_committed(client)


@pytest.mark.parametrize("by_snapshot", [False, True])
async def test_the_offsets_of_a_deleted_topic_go_however_the_metadata_tell_of_it(node: Node, by_snapshot: bool) -> None:
    """A node that is far behind the controller learns it from a snapshot, which does not have the topic."""
    groups = await ready(node)
    before = node.broker.metadata.image
    delta = MetadataDelta(before)
    delta.replay(RemoveTopicRecord(topic_id=before.topics.by_name["t"].id))
    image = delta.apply(OffsetAndEpoch(before.offset + 1, before.epoch))
    if by_snapshot:
        end = OffsetAndEpoch(image.offset + 1, image.epoch)
        delta, image = ImageLoader(before).load_snapshot(list(image.records()), end)
    groups.on_image(delta, image)
    await trio.testing.wait_all_tasks_blocked()
    client = await node.connect()
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert (await client.ask(asked, 9)).groups[0].topics == []


def hold_loads(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Coordinators' partitions are not read before the event is set."""
    may_load = trio.Event()

    async def held(*given: Any) -> tuple[int, int]:
        await may_load.wait()
        return await replay_log(*given)

    monkeypatch.setattr(coordinator_driver, "replay_log", held)
    return may_load


async def test_a_shard_that_is_being_loaded_forgets_a_deleted_topic_afterwards(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded again meanwhile, too."""
    groups = await ready(node)
    may_load = hold_loads(monkeypatch)
    groups.reload(groups.loaded_shard("g"))
    admin = await node.connect()
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
    assert (await admin.ask(gone, 6)).responses[0].error_code == 0
    await trio.testing.wait_all_tasks_blocked()
    groups.reload(groups.shards[groups.partition_for("g")])
    may_load.set()
    await trio.testing.wait_all_tasks_blocked()
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert (await admin.ask(asked, 9)).groups[0].topics == []


async def test_a_coordinator_that_takes_over_while_a_topic_is_deleted_keeps_none_of_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "__consumer_offsets"
    async with three_nodes(tmp_path) as cluster:
        third = cluster.leader()
        assert third is not None
        first, second = (node_id for node_id in cluster.nodes if node_id != third)
        controller = await cluster.controller_client(third)
        for topic, leader in (("t", third), (name, first)):
            await create(controller, topic, leader, second)
        await cluster.topics_everywhere(["t", name])
        client = await cluster.node(first).connect()
        while (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code:
            await trio.sleep(0.01)
        may_load = hold_loads(monkeypatch)
        groups = cluster.node(second).groups
        await move(controller, name, second)
        await cluster.until(lambda: bool(groups.shards))
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await controller.ask(gone, 6)).responses[0].error_code == 0
        await cluster.until(lambda: bool(groups.shards[0].when_loaded))
        may_load.set()
        client = await cluster.node(second).connect()
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        while (answer := (await client.ask(asked, 9)).groups[0]).error_code:
            await trio.sleep(0.01)
        assert answer.topics == []


async def test_the_deadlines_of_a_shard_are_kept_while_another_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may be long, and there may be many of them: no group would come to the end of a rebalance meanwhile."""
    async with running_node(tmp_path, group_initial_rebalance_delay_ms="50") as node:
        groups = await ready(node)
        may_load = hold_loads(monkeypatch)
        index = groups.partition_for("g")
        other = next(shard for shard in groups.shards.values() if shard.index != index)
        groups.reload(other)
        client = await node.connect()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        with trio.fail_after(SHORT):
            assert (await client.ask(request, 3)).error_code == ErrorCode.NONE
        assert not groups.shards[other.index].loaded.is_set()
        may_load.set()


@dataclass
class Turns:
    """Turns of the event loop are counted, and the one in which each step of a core is made is remembered."""

    of_steps: list[int] = field(default_factory=list)
    now: int = 0

    async def count(self) -> None:
        while True:
            self.now += 1
            await trio.lowlevel.checkpoint()

    def step(self, *_: object) -> CoordinatorResult[None]:
        self.of_steps.append(self.now)
        return CoordinatorResult(None)


@pytest.mark.parametrize("event", ["deadlines", "a topic is deleted"])
async def test_others_have_their_turns_between_the_steps_of_one_event(
    node: Node, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Sessions of thousands of members end together after a coordinator has moved, and offsets of a topic are in every
    group: a step for each in a single turn would hold up the node for seconds."""
    groups = await ready(node)
    turns, wanted = Turns(), 0
    for shard in groups.shards.values():
        if event == "deadlines":
            due = iter([turns.step] * 3)
            monkeypatch.setattr(shard.core, "on_deadline", lambda now, due=due: (n := next(due, None)) and n())
            wanted += 3
        else:
            monkeypatch.setattr(shard.core, "on_topics_deleted", turns.step)
            wanted += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.count)
        if event == "deadlines":
            groups._wake()
        else:
            before = node.broker.metadata.image
            delta = MetadataDelta(before)
            delta.replay(RemoveTopicRecord(topic_id=before.topics.by_name["t"].id))
            groups.on_image(delta, delta.apply(OffsetAndEpoch(before.offset + 1, before.epoch)))
        while len(turns.of_steps) < wanted:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(Counter(turns.of_steps).values()) <= 2, "the counter may come before a step or after it"


async def test_the_shards_take_turns_at_what_is_due(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends while thousands of offsets of another shard expire, begun before or not, does not wait."""
    groups = await ready(node)
    expiring, *others = list(groups.shards.values())[:3]
    steps: list[int] = []
    due = {expiring.index: 9, others[0].index: 1}

    def on_deadline(index: int) -> CoordinatorResult[None] | None:
        if not due.get(index):
            return None
        due[index] -= 1
        steps.append(index)
        if len(steps) == 4:
            due[others[1].index] = 1
        return CoordinatorResult(None)

    for shard in (expiring, *others):
        monkeypatch.setattr(shard.core, "on_deadline", lambda now, index=shard.index: on_deadline(index))
    groups._wake()
    while any(due.values()):
        await trio.lowlevel.checkpoint()
    assert steps.index(others[0].index) == 1
    assert steps.index(others[1].index) == 4


@pytest.mark.parametrize("deleted", [True, False])
async def test_a_partition_that_goes_while_a_step_waits_for_its_followers_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """It is deleted, or moved to another broker. The step has failed, and its node lives on."""
    name = "__transaction_state"
    async with followed(tmp_path, monkeypatch, name) as placed:
        cluster, controller, first, second, *_ = placed
        client = await cluster.node(first).connect()
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000)
        while (await client.ask(begin)).error_code:
            await trio.sleep(0.01)
        await placed.let_lag(partial(client.send, begin))
        if deleted:
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
            assert (await controller.ask(gone, 6)).responses[0].error_code == 0
        else:
            await move(controller, name, second)
        await cluster.until(lambda: (name, 0) not in cluster.nodes[first].replica_manager.partitions)
        other = await cluster.node(first).connect()
        assert (await other.ask(begin)).error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_what_waits_to_be_loaded_is_loaded_in_a_new_epoch_of_the_same_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower lags, so the log's end is not committed; to replace the follower begins a new epoch."""
    name = "__consumer_offsets"
    async with followed(tmp_path, monkeypatch, name, "t") as placed:
        cluster, controller, first, third = placed.cluster, placed.controller, placed.first, placed.third
        client = await cluster.node(first).connect()
        while (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code:
            await trio.sleep(0.01)
        node = cluster.nodes[first]
        partition, groups = placed.partition, cluster.node(first).groups
        await placed.let_lag(partial(client.send, commit(0), 9))
        epoch = partition.state.leader_epoch
        groups.reload(groups.shards[0])  # as where the leadership is won
        await cluster.until(lambda: bool(node.replica_manager.purgatory.produces.get((name, 0))))
        await move(controller, name, first, third)
        await cluster.until(lambda: partition.state.leader_epoch > epoch)
        await cluster.until(lambda: groups.shards[0].loaded.is_set())


async def test_a_producer_that_asks_again_after_a_slow_write_is_not_fenced(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears nothing for as long as clients wait, since a follower is slow. Its new epoch is committed after that."""
    client, again = await node.connect(), await node.connect()
    await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    while (first := await client.ask(begin)).error_code:
        await trio.sleep(0.01)
    manager: Any = node.broker.services.replica_manager
    index = node.transactions.partition_for("x")
    assert index is not None
    partition = manager.partitions[TopicPartition("__transaction_state", index)]
    recover = replace(begin, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    with monkeypatch.context() as slow:
        slow.setattr(PartitionState, "maybe_advance_high_watermark", lambda state, end: False)
        await client.send(recover)
        while partition.log.log_end_offset == partition.state.high_watermark:
            await trio.lowlevel.checkpoint()
        for operation in manager.purgatory.expirations.take_expired(manager.env.now() + 30):
            operation.expire(ErrorCode.REQUEST_TIMED_OUT)
            manager.purgatory.unwatch_produce(operation)
    manager.progress.advance_high_watermark(partition, partition.log)
    while (bumped := await again.ask(recover)).error_code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ):
        await trio.sleep(0.01)
    assert (bumped.error_code, bumped.producer_id, bumped.producer_epoch) == (0, first.producer_id, 1)


async def test_who_lists_groups_waits_for_a_shard_that_is_loaded_twice(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups of a shard whose leader epoch changes during the load: left out, they would seem to be gone."""
    groups = await ready(node)
    index = groups.loaded_shard("g").index
    client = await node.connect()
    may_load = hold_loads(monkeypatch)
    groups.reload(groups.shards[index])
    await client.send(ListGroupsRequest())
    while not groups.shards[index].loaded.statistics().tasks_waiting:
        await trio.lowlevel.checkpoint()
    groups.reload(groups.shards[index])
    may_load.set()
    assert [each.group_id for each in (await client.receive())[1].groups] == ["g"]


async def test_who_lists_groups_is_not_told_that_some_of_them_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that lists groups asks every broker, and takes such an answer for the end of it."""
    name = "__consumer_offsets"
    async with followed(tmp_path, monkeypatch, name, "t") as placed:
        cluster, controller, first, second, *_ = placed
        client, asker = await cluster.node(first).connect(), await cluster.node(first).connect()
        while (await client.ask(commit(0), 9)).topics[0].partitions[0].error_code:
            await trio.sleep(0.01)
        await placed.let_lag(partial(client.send, commit(0), 9))
        waiting = cluster.nodes[first].replica_manager.purgatory.produces
        before = len(waiting[name, 0])
        await asker.send(ListGroupsRequest())
        await cluster.until(lambda: len(waiting[name, 0]) > before)
        await move(controller, name, second)
        assert (await asker.receive())[1].error_code == 0
