"""Transactions through a whole node: what is read, what waits, what a restart finds."""

from __future__ import annotations

import dataclasses
import select
import time
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ErrorCode as E
from kbroker.node.coordinators.transaction_markers import MarkerWriter
from kbroker.node.replicas.partition import Partition
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kbroker.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node, values
from tests.patience import SHORT, until

READ_COMMITTED = 1
ID = "transactional-id"


class Producer:
    """A transactional producer over raw requests; ``version`` 1 or 2 of the protocol."""

    def __init__(self, client: Client, version: int, producer_id: int, epoch: int) -> None:
        self.client = client
        self.version = version
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    async def add(self, topic: str = "t", *partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))]
        answer = await self.client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        for result in answer.results_by_topic_v3_and_below:
            for each in result.results_by_partition:
                assert each.partition_error_code == 0

    def request(self, *contents: bytes, topic: str = "t") -> Any:
        request = produce_request(
            topic,
            batch(
                *contents,
                timestamp=int(time.time() * 1000),
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                is_transactional=True,
            ),
        )
        self.sequence += len(contents)
        request.transactional_id = ID
        return request

    async def send(self, *contents: bytes, topic: str = "t") -> int:
        """The error code."""
        answer = await self.client.ask(self.request(*contents, topic=topic), 12 if self.version == 2 else 11)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def end(self, commit: bool) -> int:
        """The error code; in version 2 the producer takes its next epoch."""
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        answer = await self.client.ask(request, 5 if self.version == 2 else 4)
        if self.version == 2 and answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)


async def open_producer(node: Node, version: int = 2, timeout_ms: int = 60_000) -> Producer:
    client = await node.connect()
    found = await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4)
    assert found.coordinators[0].error_code == 0
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    answer = await client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms), 4)
    assert answer.error_code == 0
    return Producer(client, version, answer.producer_id, answer.producer_epoch)


async def read(node: Node, topic: str = "t", isolation: int = READ_COMMITTED, **options: Any) -> Any:
    client = await node.connect()
    answer = await client.ask(fetch_request(topic, isolation_level=isolation, **options), 11)
    return answer.responses[0].partitions[0]


async def state(node: Node) -> Any:
    client = await node.connect()
    return (await client.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)).transaction_states[0]


async def offset(node: Node, stable: bool) -> tuple[int, int]:
    """Error code and committed offset of the group in partition 0."""
    client = await node.connect()
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    answer = await client.ask(OffsetFetchRequest(groups=groups, require_stable=stable), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return int(found.error_code), int(found.committed_offset)


def commit_request(producer: Producer, committed: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=committed)
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def contents(found: Any) -> list[bytes]:
    return [value for _, value in values(found.records) if not value.startswith(b"\0\0")]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_reader_of_what_is_committed_is_woken_by_the_marker(tmp_path: Path, version: int) -> None:
    async with running_node(tmp_path) as node, trio.open_nursery() as nursery:
        await node.create_topic("t")
        producer = await open_producer(node, version)
        if version == 1:
            await producer.add()
        assert await producer.send(b"a", b"b") == 0
        found = await read(node)
        assert (found.last_stable_offset, found.high_watermark, contents(found)) == (0, 2, [])
        assert contents(await read(node, isolation=0)) == [b"a", b"b"]
        woken: list[Any] = []

        async def wait() -> None:
            # It wants more than the marker has, but what the marker opens is more than it wants.
            woken.append(await read(node, max_wait_ms=3_600_000, min_bytes=100))

        nursery.start_soon(wait)
        with trio.fail_after(SHORT):
            purgatory = node.broker.replica_manager.purgatory
            while not purgatory.fetch_watch_count:
                await trio.sleep(0)
            assert await producer.end(commit=True) == 0
            while not woken:
                await trio.sleep(0)
        assert contents(woken[0]) == [b"a", b"b"] and woken[0].last_stable_offset == 3
        assert (await state(node)).transaction_state == "CompleteCommit"


async def test_a_late_batch_of_a_finished_transaction_has_no_place_in_the_next(node: Node) -> None:
    await node.create_topic("t")
    producer = await open_producer(node)
    assert await producer.send(b"a") == 0
    late = producer.request(b"late")
    assert await producer.end(commit=True) == 0
    answer = await producer.client.ask(late, 12)
    assert answer.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH
    assert (await state(node)).transaction_state == "CompleteCommit"


class HeldMarkers:
    """Stands for the marker writer of a node and keeps what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write, self._holds = MarkerWriter.write, True
        self.held: list[tuple[Any, ...]] = []
        monkeypatch.setattr(MarkerWriter, "write", lambda *arguments: self._take(arguments))

    def _take(self, arguments: tuple[Any, ...]) -> None:
        if self._holds:
            self.held.append(arguments)
        else:
            self._write(*arguments)

    def release(self) -> None:
        for arguments in self.held:
            self._write(*arguments)
        self.forget()

    def forget(self) -> None:
        """A process that ends does the same."""
        self._holds = False
        self.held.clear()


async def test_the_next_transaction_waits_for_the_markers_of_the_last_and_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = "add.partitions.to.txn.retry.backoff"
    patience = {f"{retry}.max.ms": "20000", f"{retry}.ms": "1"}
    async with running_node(tmp_path, **patience) as node:
        await node.create_topic("t")
        producer = await open_producer(node)
        assert await producer.send(b"a") == 0
        markers = HeldMarkers(monkeypatch)
        assert await producer.end(commit=True) == 0
        assert (await state(node)).transaction_state == "PrepareCommit"
        first = await producer.client.send(producer.request(b"b"), 12)
        second = await producer.client.send(producer.request(b"c"), 12)
        assert contents(await read(node, isolation=0)) == [b"a"]
        markers.release()
        with trio.fail_after(SHORT):
            answers = dict([await producer.client.receive(), await producer.client.receive()])
        assert [answers[each].responses[0].partition_responses[0].error_code for each in (first, second)] == [0, 0]
        assert contents(await read(node, isolation=0)) == [b"a", b"b", b"c"]
        assert contents(await read(node)) == [b"a"]


async def test_the_first_partition_of_the_next_transaction_waits_for_the_markers_of_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is told to try again waits for a tenth of a second, and the markers take milliseconds."""
    patience = {"add.partitions.to.txn.retry.backoff.max.ms": "20000"}
    async with running_node(tmp_path, **patience) as node:
        await node.create_topic("t")
        producer = await open_producer(node, 1)
        await producer.add()
        assert await producer.send(b"a") == 0
        markers = HeldMarkers(monkeypatch)
        assert await producer.end(commit=True) == 0
        driver = node.transactions

        async def release() -> None:
            await until(lambda: driver._awaited)
            markers.release()

        with trio.fail_after(SHORT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(release)
                await producer.add()
        assert not driver._awaited
        assert await producer.send(b"b") == 0
        driver.settings = dataclasses.replace(driver.settings, add_partitions_retry_backoff_max_ms=10)
        HeldMarkers(monkeypatch)
        assert await producer.end(commit=True) == 0
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        answer = (await producer.client.ask(request, 3)).results_by_topic_v3_and_below[0]
        assert answer.results_by_partition[0].partition_error_code == E.CONCURRENT_TRANSACTIONS
        assert not driver._awaited


@pytest.mark.parametrize("coordinator", ["goes on", "is loaded anew"])
async def test_a_change_that_ends_before_others_have_begun_to_wait_for_it_wakes_them(
    node: Node, monkeypatch: pytest.MonkeyPatch, coordinator: str
) -> None:
    """A request that is to wait gets a task for it, and with followers the change may end before that has its turn."""
    await node.create_topic("t", 2)
    opened = await open_producer(node)
    producer = ProducerIdAndEpoch(opened.producer_id, opened.epoch)
    driver = node.transactions
    core = driver.loaded_core(ID)
    change = core.add_partitions(ID, producer, [TopicPartition("t", 0)], 2, driver.now_ms())
    added: Later[None] = Later()
    driver.add_partitions(ID, producer, [TopicPartition("t", 1)], 2, added, patience_ms=3_600_000)
    if coordinator == "is loaded anew":
        await trio.testing.wait_all_tasks_blocked()  # it waits already, for what will never end
        monkeypatch.setattr(core, "replay", None)
    stored = driver.run(ID, lambda core, now_ms: change)
    assert stored.done and not added.done
    await added
    assert driver.loaded_core(ID).describe(ID).partitions == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("version", [1, 2])
async def test_the_end_is_answered_before_the_markers_are_written(
    node: Node, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t")
    producer = await open_producer(node, version)
    write = MarkerWriter.write
    answered: list[bool] = []

    def watched(*arguments: Any) -> None:
        # The same thread serves both ends of the connection: what is there has been sent already.
        fd = producer.client.stream.socket.fileno()
        answered.append(bool(select.select([fd], [], [], 0)[0]))
        write(*arguments)

    monkeypatch.setattr(MarkerWriter, "write", watched)
    for commit in (True, False):
        if version == 1:
            await producer.add()
        assert await producer.send(b"a") == 0
        assert await producer.end(commit) == 0
    assert answered == [True, True]
    assert contents(await read(node)) == [b"a", b"a"]
    assert (await state(node)).transaction_state == "CompleteAbort"


async def test_the_end_waits_for_a_coordinator_that_loads(node: Node) -> None:
    await node.create_topic("t")
    producer = await open_producer(node, 1)
    await producer.add()
    assert await producer.send(b"a") == 0
    shard = node.transactions.loaded_shard(ID)
    shard.loaded = trio.Event()

    async def load() -> None:
        await until(lambda: shard.loaded.statistics().tasks_waiting)
        shard.loaded.set()

    with trio.fail_after(SHORT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            assert await producer.end(commit=True) == 0
    assert contents(await read(node)) == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
async def test_version_1_goes_on_with_its_sequence_after_the_end_and_a_repeated_batch_is_not_a_new_one(
    node: Node, commit: bool
) -> None:
    """Redpanda #5026: sequence numbers were taken anew after an abort."""
    await node.create_topic("t")
    producer = await open_producer(node, 1)
    for value in (b"a", b"b"):
        await producer.add()
        repeated = producer.sequence
        assert await producer.send(value) == 0
        producer.sequence = repeated
        assert await producer.send(value) == 0  # its answer was lost: it is there once
        assert await producer.end(commit) == 0
    await producer.add()
    producer.sequence = 7
    assert await producer.send(b"out of order") == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await producer.end(commit=False) == 0
    assert contents(await read(node)) == [b"a", b"b"]  # readers leave out the aborted by themselves
    assert len((await read(node)).aborted_transactions) == (0 if commit else 2)


@pytest.mark.parametrize("commit", [True, False])
async def test_after_a_restart_a_decision_is_carried_out(
    tmp_path: Path, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        producer = await open_producer(node)
        assert await producer.send(b"a") == 0
        assert (await producer.client.ask(commit_request(producer, 7), 5)).topics[0].partitions[0].error_code == 0
        markers = HeldMarkers(monkeypatch)
        assert await producer.end(commit) == 0
        assert (await read(node)).last_stable_offset == 0
        assert await offset(node, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        assert await offset(node, stable=False) == (0, -1)
    markers.forget()
    async with running_node(tmp_path) as node:
        with trio.fail_after(SHORT):
            while (await state(node)).transaction_state.startswith("Prepare"):
                await trio.sleep(0.01)
        found = await read(node)
        assert found.last_stable_offset == 2
        assert [each.first_offset for each in found.aborted_transactions] == ([] if commit else [0])
        assert await offset(node, stable=True) == (0, 7 if commit else -1)
    async with running_node(tmp_path) as node:  # now from markers in the log
        assert await offset(node, stable=True) == (0, 7 if commit else -1)


async def test_offsets_of_an_open_transaction_are_pending_also_after_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create_topic("t")
        producer = await open_producer(node, 1)
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        assert (await producer.client.ask(request, 3)).error_code == 0
        assert (await producer.client.ask(commit_request(producer, 7), 3)).topics[0].partitions[0].error_code == 0
    async with running_node(tmp_path) as node:
        assert await offset(node, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        producer.client = await node.connect()
        assert await producer.end(commit=True) == 0
        assert await offset(node, stable=True) == (0, 7)


async def test_offsets_are_committed_for_topics_by_id(node: Node) -> None:
    """TxnOffsetCommit 6 (KIP-1319): an id that nobody has is told apart from a partition that is not there."""
    topic_id, unknown = await node.create_topic("t"), bytes(range(16))
    producer = await open_producer(node)
    request = commit_request(producer, 7)
    [own] = request.topics
    own.name, own.topic_id = "", Uuid(topic_id)
    own.partitions.append(TxnOffsetCommitRequestPartition(partition_index=9, committed_offset=7))
    strange = [
        TxnOffsetCommitRequestTopic(
            topic_id=Uuid(each), partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
        )
        for each in (unknown, bytes(16))
    ]
    request.topics = [strange[0], own, strange[1]]
    answer = await producer.client.ask(request, 6)
    found = {
        bytes(topic.topic_id): {part.partition_index: part.error_code for part in topic.partitions}
        for topic in answer.topics
    }
    assert found == {
        unknown: {0: E.UNKNOWN_TOPIC_ID},
        topic_id: {0: 0, 9: E.UNKNOWN_TOPIC_OR_PARTITION},
        bytes(16): {0: E.UNKNOWN_TOPIC_ID},
    }
    assert await offset(node, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert await producer.end(commit=True) == 0
    with trio.fail_after(SHORT):
        while await offset(node, stable=True) != (0, 7):
            await trio.sleep(0.01)
    late = commit_request(producer, 8)
    late.generation_id_or_member_epoch, late.member_id, late.group_id = 3, "nobody", "another"
    late.topics[0].topic_id = Uuid(topic_id)
    [topic] = (await producer.client.ask(late, 6)).topics
    assert [part.error_code for part in topic.partitions] == [E.GROUP_ID_NOT_FOUND]


async def test_a_partition_that_is_deleted_does_not_hold_up_the_end(node: Node) -> None:
    await node.create_topic("t")
    await node.create_topic("gone")
    producer = await open_producer(node)
    assert await producer.send(b"a") == 0
    producer.sequence = 0
    assert await producer.send(b"a", topic="gone") == 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5_000)
    assert (await producer.client.ask(request, 6)).responses[0].error_code == 0
    assert await producer.end(commit=True) == 0
    assert (await state(node)).transaction_state == "CompleteCommit"
    assert contents(await read(node)) == [b"a"]


async def test_a_mistake_where_one_marker_is_written_ends_nothing_and_it_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other partitions of the transaction get theirs."""
    failed: list[Any] = []
    async with running_node(tmp_path) as node:
        for topic in ("bad", "t"):
            await node.create_topic(topic)
        producer = await open_producer(node)
        for topic in ("bad", "t"):
            producer.sequence = 0
            assert await producer.send(b"a", topic=topic) == 0
        append = Partition.append_as_coordinator

        def fail(partition: Partition, records: bytearray, now_ms: int, **options: Any) -> Any:
            if partition.topic_partition.topic == "bad":
                failed.append(partition)
                raise ValueError("a mistake")
            return append(partition, records, now_ms, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_as_coordinator", fail)
            assert await producer.end(commit=True) == 0
            assert failed
            assert contents(await read(node)) == [b"a"]
            assert contents(await read(node, topic="bad")) == []
        while (await state(node)).transaction_state != "CompleteCommit":
            await trio.lowlevel.checkpoint()
        assert contents(await read(node, topic="bad")) == [b"a"]


@pytest.mark.parametrize(
    ("transaction_version", "told"), [(-1, E.INVALID_REQUEST), (0, E.NONE), (2, E.NONE), (9, E.NONE)]
)
async def test_a_marker_of_no_transaction_version_is_refused(
    node: Node, client: Client, transaction_version: int, told: E
) -> None:
    await node.create_topic("t")
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        transaction_version=transaction_version,
    )
    (of_producer,) = (await client.ask(WriteTxnMarkersRequest(markers=[marker]), 2)).markers
    assert of_producer.topics[0].partitions[0].error_code == told
