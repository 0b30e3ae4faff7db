"""A failure in a coordinator or its log ends the shard, which is loaded again, and not the node."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.replication.partition_state import PartitionState
from kbroker.cores.transactions.transaction import TransactionState
from kbroker.errors import ApiError, ErrorCode
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS
from kbroker.log.partition_log import PartitionLog
from kbroker.node.replicas.partition import Partition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.classic_groups import MemberIdentity
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.node.coordinator_harness import commit, ready, submit
from tests.node.node_harness import Client, Node, running_node
from tests.patience import LONG, SHORT, until


async def begun(client: Client) -> Any:
    """The answer to the first request of "id", whose coordinator may still be read in."""
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    with trio.fail_after(SHORT):
        while (answer := await client.ask(request, 4)).error_code:
            assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), answer
            await trio.sleep(0.01)
    return answer


def wrong(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("where", ["on_deadline", "on_stored", "on_topics_deleted", "replay"])
async def test_a_mistake_in_the_core_is_the_end_of_the_shard_and_not_of_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")

    if where == "on_deadline":
        shard.core.on_deadline = wrong
        groups._wake()
    elif where == "on_topics_deleted":
        shard.core.on_topics_deleted = wrong
        await node.create_topic("other")
        admin = await node.connect()
        named = [DeleteTopicState(name="other")]
        gone = await admin.ask(DeleteTopicsRequest(topics=named, timeout_ms=5000))
        assert not gone.responses[0].error_code
    elif where == "on_stored":
        result = CoordinatorResult(None, [CoordinatorRecord(b"\0\x7f", b"")], on_stored=wrong)
        await groups.run("g", lambda core, now_ms: result)
    else:
        monkeypatch.setattr(shard.core, "replay", wrong)
        answers: list[Any] = []
        await submit(groups, commit(3, 33), answers)()
        assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]
    while groups.shards[shard.index] is shard:
        await trio.lowlevel.checkpoint()
    client = await node.connect()
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    found = (await client.ask(asked, 9)).groups[0]
    assert found.error_code == ErrorCode.NONE
    committed = {each.partition_index: each.committed_offset for each in found.topics[0].partitions}
    assert committed == ({0: 7, 3: 33} if where == "replay" else {0: 7})
    assert "are loaded again" in caplog.text


async def test_a_transaction_that_the_core_cannot_take_when_it_is_committed_is_loaded_from_the_log(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client has been told by then, and what it was told holds."""
    await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    first = await begun(client)
    transactions = node.transactions
    shard = transactions.loaded_shard("id")
    monkeypatch.setattr(shard.core, "replay", wrong)
    answer = await client.ask(request, 4)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, first.producer_epoch + 1)
    assert transactions.shards[shard.index] is not shard
    assert "are loaded again" in caplog.text
    last = await client.ask(request, 4)
    assert (last.error_code, last.producer_id) == (ErrorCode.NONE, first.producer_id)
    assert last.producer_epoch == first.producer_epoch + 2


async def with_offset(
    client: Client, offset: int, version: int = 5, of_id: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Commit an offset of partition 1 in a transaction of "id", which begins by itself in version 5. Returns its
    producer."""
    if of_id is None:
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
        first = await begun(client)
        of_id = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    if version < 5:
        added = await client.ask(AddOffsetsToTxnRequest(transactional_id="id", group_id="g", **of_id), 3)
        assert not added.error_code
    asked = TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=offset)
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[asked])]
    request = TxnOffsetCommitRequest(transactional_id="id", group_id="g", topics=topics, **of_id)
    answer = await client.ask(request, version)
    assert not answer.topics[0].partitions[0].error_code
    return of_id


async def offsets(client: Client, *, stable: bool = True) -> dict[int, int]:
    """The offsets of the group, once no transaction of it is open if ``stable``."""
    asked_for = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=stable)
    with trio.fail_after(LONG):
        while (found := (await client.ask(asked_for, 9)).groups[0]).error_code:
            await trio.sleep(0.01)
    return {each.partition_index: each.committed_offset for each in found.topics[0].partitions}


def cut(path: Path, position: int) -> None:
    """Cut the end of a log off, as damage does; nothing tells of it."""
    os.truncate(path, position)
    for name in (CLEAN_SHUTDOWN, HIGH_WATERMARKS, RECOVERY_POINTS):
        (path.parent.parent / name).unlink()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
async def test_a_marker_that_was_cut_off_with_the_end_of_a_log_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, committed: bool, version: int
) -> None:
    """The coordinator's own log may say that all is done: power cuts, and damage, take the end of another log."""
    over = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    async with running_node(tmp_path) as node:
        groups = await ready(node)
        client = await node.connect()
        of_id = await with_offset(client, 11, version)
        end = EndTxnRequest(transactional_id="id", committed=committed, **of_id)
        assert not (await client.ask(end, version)).error_code
        await until(lambda: node.transactions.loaded_core("id").describe("id").state is over)
        path = Path(groups.loaded_shard("g").partition.log.active_segment.path)
    *_, (position, header) = walk_headers(path.read_bytes())
    assert header.is_control
    cut(path, position)
    async with running_node(tmp_path) as node:
        await until(lambda: "its marker is missing in __consumer_offsets-" in caplog.text)
        await until(lambda: node.transactions.loaded_core("id").describe("id").state is over)
        assert await offsets(await node.connect()) == ({0: 7, 1: 11} if committed else {0: 7})


@pytest.mark.parametrize("version", [4, 5])
async def test_a_transaction_whose_beginning_was_cut_off_is_not_ended_as_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Nobody has decided to commit it. Before version 5 of EndTxn both have the same epoch."""
    async with running_node(tmp_path) as node:
        await ready(node)
        client = await node.connect()
        of_id = await with_offset(client, 11, version)
        ended = await client.ask(EndTxnRequest(transactional_id="id", committed=True, **of_id), version)
        over = TransactionState.COMPLETE_COMMIT
        await until(lambda: node.transactions.loaded_core("id").describe("id").state is over)
        log = node.transactions.loaded_shard("id").partition.log
        path, position = Path(log.active_segment.path), log.active_segment.size
        if version >= 5:
            of_id = {"producer_id": ended.producer_id, "producer_epoch": ended.producer_epoch}
        await with_offset(client, 99, version, of_id)
        assert log.active_segment.size > position
    cut(path, position)
    async with running_node(tmp_path) as node:
        await until(lambda: node.transactions.loaded_core("id").describe("id").state is over)
        assert await offsets(await node.connect(), stable=False) == {0: 7, 1: 11}
    assert "its marker is missing" not in caplog.text


@pytest.mark.parametrize("where", ["replay", "on_markers_written", "replay_end_transaction"])
async def test_a_mistake_while_a_transaction_ends_is_the_end_of_the_shard_alone(
    node: Node, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    groups = await ready(node)
    client = await node.connect()
    of_id = await with_offset(client, 11)
    driver = groups if where == "replay_end_transaction" else node.transactions
    shard = driver.loaded_shard("g" if driver is groups else "id")
    setattr(shard.core, where, wrong)
    ended = await client.ask(EndTxnRequest(transactional_id="id", committed=True, **of_id), 5)
    assert ended.error_code == ErrorCode.NONE
    while driver.shards[shard.index] is shard:
        await trio.lowlevel.checkpoint()
    assert "are loaded again" in caplog.text

    async def is_over() -> bool:
        return await offsets(client) == {0: 7, 1: 11}

    await until(is_over)
    again = await client.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 4)
    assert again.error_code == ErrorCode.NONE, "the transaction is complete"


async def test_a_decision_that_is_committed_after_its_shard_was_loaded_again_is_carried_out_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 5 a second marker may end the producer's next transaction, which has the same epoch."""
    groups, client = await ready(node), await node.connect()
    of_id = await with_offset(client, 11, 4)
    transactions, log = node.transactions, groups.loaded_shard("g").partition.log
    shard, open_end = transactions.loaded_shard("id"), log.log_end_offset
    partition, manager = shard.partition, cast(Any, node.broker.services.replica_manager)
    with monkeypatch.context() as slow:
        slow.setattr(PartitionState, "maybe_advance_high_watermark", lambda state, end: False)
        await client.send(EndTxnRequest(transactional_id="id", committed=True, **of_id), 4)
        while partition.log.log_end_offset == partition.state.high_watermark:
            await trio.lowlevel.checkpoint()
    transactions.reload(shard)
    manager.progress.advance_high_watermark(partition, partition.log)
    assert not (await client.receive())[1].error_code
    over = TransactionState.COMPLETE_COMMIT
    await until(lambda: transactions.shards[shard.index].loaded.is_set())
    await until(lambda: transactions.shards[shard.index].core.describe("id").state is over)
    assert await offsets(client) == {0: 7, 1: 11}
    assert [header.is_control for _, header in walk_headers(log.read_bytes(open_end, 1 << 20))] == [True]


async def test_a_mistake_while_a_shard_is_loaded_is_not_the_end_of_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node:
        groups = await ready(node)
        shard = groups.loaded_shard("g")
        monkeypatch.setattr(type(shard.core), "on_loaded", wrong)
        groups.reload(shard)
        client = await node.connect()
        await until(lambda: "cannot load the" in caplog.text)
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        found = (await client.ask(OffsetFetchRequest(groups=[group]), 9)).groups[0]
        assert found.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_disk_that_cannot_be_read_while_a_shard_is_loaded_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or this node would lead the partition on, and never look at it again."""
    async with running_node(tmp_path, log_dirs=f"{tmp_path / 'data'},{tmp_path / 'more'}") as node:
        groups = await ready(node)
        shard = groups.loaded_shard("g")
        log = shard.partition.log
        read = PartitionLog.read_bytes

        def fail(which: PartitionLog, *args: Any, **more: Any) -> bytes:
            if which is log:
                raise OSError(errno.EIO, "broken")
            return read(which, *args, **more)

        monkeypatch.setattr(PartitionLog, "read_bytes", fail)
        groups.reload(shard)
        while shard.index in groups.shards:
            await trio.lowlevel.checkpoint()
        assert shard.partition.offline
        log_dir = node.broker.log_manager.log_dir_of(log.topic_partition)
        assert log_dir is not None
        assert log_dir.offline is not None


@pytest.mark.parametrize("gathered", [True, False])
async def test_a_mistake_in_the_log_is_the_end_of_the_shard_and_not_of_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gathered: bool
) -> None:
    """Where what was gathered is appended, or what a deadline led to, there is no request to fail."""
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append_as_coordinator", wrong)
        if gathered:
            shard.gathers = True
            groups._steps._gathering.append(shard)
            groups._steps._wake_gatherer.set()
            answers: list[Any] = []
            await submit(groups, commit(3, 33), answers)()
            assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]
        else:
            result = CoordinatorResult(None, [CoordinatorRecord(b"\0\x7f", b"")])
            shard.core.on_deadline = lambda now_ms: result
            groups._wake()
        while groups.shards[shard.index] is shard:
            await trio.lowlevel.checkpoint()
    assert "are loaded again" in caplog.text
    client = await node.connect()
    while (await client.ask(commit(3, 34), 9)).topics[0].partitions[0].error_code:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("is_lost", [True, False])
async def test_who_asks_for_a_log_that_is_lost_or_not_led_here_is_told_of_another_coordinator(
    node: Node, is_lost: bool
) -> None:
    """Before the controller has found one. A consumer ends at an error that it does not know, as that of a disk; and a
    damaged log that is not to lead may lack what was committed."""
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    leave = [MemberIdentity(member_id="another")]
    if is_lost:
        shard.partition.offline = True
    else:
        shard.partition.state.leader = -1
    with pytest.raises(ApiError) as error:
        groups.run("g", lambda core, now_ms: core.leave_group("g", leave, now_ms))
    assert error.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError) as error:
        await groups.read("g", lambda core: core.fetch_offsets(OffsetFetchRequestGroup(group_id="g", topics=None), {}))
    assert error.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_damaged_log_whose_directory_fails_while_it_is_loaded_is_not_the_end_of_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = await ready(node)
    shard = groups.loaded_shard("g")
    monkeypatch.setattr(Partition, "is_damaged", True)
    shard.partition.offline = True
    groups.reload(shard)
    while shard.index in groups.shards:
        await trio.lowlevel.checkpoint()
    client = await node.connect()
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert (await client.ask(asked, 9)).groups[0].error_code == ErrorCode.NOT_COORDINATOR
