"""A consumer's fetch session of many partitions: the broker looks only at partitions that have changed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.fetch import READ_COMMITTED
from kbroker.log.partition_log import PartitionLog
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, batch, produce_request, running_node, values
from tests.patience import SHORT

MANY = 24


class Session:
    """A consumer that reads all partitions of a topic."""

    def __init__(self, client: Client, topic_id: Any, *, max_wait_ms: int = 300) -> None:
        self.client = client
        self.topic_id = topic_id
        self.max_wait_ms = max_wait_ms
        self.session_id = 0
        self.epoch = 0
        self.offsets = dict.fromkeys(range(MANY), 0)
        self.changed = set(self.offsets)
        self.forgotten: list[int] = []
        self.read: dict[int, list[bytes]] = {index: [] for index in self.offsets}
        self.isolation = 0

    def request(self) -> FetchRequest:
        asked = [
            FetchPartition(
                partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1 << 20, current_leader_epoch=-1
            )
            for index in sorted(self.changed)
        ]
        gone = [ForgottenTopic(topic_id=self.topic_id, partitions=self.forgotten)] if self.forgotten else []
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=gone,
        )
        self.changed, self.forgotten = set(), []
        return request

    def take(self, response: Any) -> dict[int, int]:
        """Note a response's records; the error codes by partition."""
        assert response.error_code == 0
        self.session_id = response.session_id
        self.epoch += 1
        told = {}
        for topic in response.responses:
            for data in topic.partitions:
                told[data.partition_index] = data.error_code
                for offset, value in values(data.records) if data.records else []:
                    if offset >= self.offsets[data.partition_index]:
                        assert offset == self.offsets[data.partition_index]
                        self.read[data.partition_index].append(value)
                        self.offsets[data.partition_index] = offset + 1
                        self.changed.add(data.partition_index)
        return told

    async def poll(self) -> dict[int, int]:
        return self.take(await self.client.ask(self.request()))


@asynccontextmanager
async def session_of_many(path: Path) -> AsyncIterator[tuple[Node, Session, Client]]:
    async with running_node(path) as node:
        topic_id = await node.create_topic("t", MANY)
        session = Session(await node.connect(), topic_id)
        yield node, session, await node.connect()


async def write(client: Client, index: int, *data: bytes) -> None:
    answer = await client.ask(produce_request("t", batch(*data), partition=index), 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_a_wake_reads_the_partition_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with session_of_many(tmp_path) as (_, session, producer):
        for _ in range(3):
            await session.poll()
        reads = 0
        read = PartitionLog.read

        def counted(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
            nonlocal reads
            reads += 1
            return read(self, *args, **kwargs)

        monkeypatch.setattr(PartitionLog, "read", counted)
        for number in range(20):
            index = number % MANY
            await session.client.send(session.request())
            await write(producer, index, b"%d" % number)
            told = session.take((await session.client.receive())[1])
            assert told == {index: 0}
            assert session.read[index][-1] == b"%d" % number
        assert reads <= 20 * 3, "not all partitions for each of the records"


async def test_what_happens_besides_is_told(tmp_path: Path) -> None:
    async with session_of_many(tmp_path) as (_, session, other):
        await write(other, 3, b"a", b"b", b"c")
        for _ in range(3):
            await session.poll()
        assert session.offsets[3] == 3
        # The log starts later.
        deleted = DeleteRecordsPartition(partition_index=3, offset=2)
        await other.ask(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[deleted])], timeout_ms=1000)
        )
        assert await session.poll() == {3: 0}
        assert await session.poll() == {}
        # The consumer goes back, or away.
        session.offsets[3], session.changed = 2, {3}
        session.read[3].clear()
        assert await session.poll() == {3: 0} and session.read[3] == [b"c"]
        session.forgotten = [5]
        await session.poll()
        await write(other, 5, b"unheard")
        assert await session.poll() == {}
        # The topic goes.
        await session.client.send(session.request())
        await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
        told = session.take((await session.client.receive())[1])
        while len(told) < MANY - 1:
            told |= await session.poll()
        assert set(told.values()) <= {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_another_isolation_level_looks_at_all_of_it_again(tmp_path: Path) -> None:
    async with session_of_many(tmp_path) as (node, session, _):
        session.isolation = READ_COMMITTED
        for _ in range(3):
            await session.poll()
        partition = node.broker.replica_manager.partitions["t", 2]
        # A transaction stays open: appended behind the handler's back, which would ask for its coordinator.
        partition.log.producers.transaction_verification = False
        records = batch(b"open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        partition.append_as_coordinator(bytearray(records), 1000)
        await session.poll()
        assert session.read[2] == []
        for _ in range(2):
            await session.poll()
        session.isolation = 0
        assert 2 in await session.poll()
        assert session.read[2] == [b"open"]


async def test_the_end_of_a_transaction_that_began_between_two_requests_wakes_the_second(tmp_path: Path) -> None:
    async with session_of_many(tmp_path) as (node, session, _):
        session.isolation = READ_COMMITTED
        for _ in range(3):
            await session.poll()
        partition = node.broker.replica_manager.partitions["t", 2]
        partition.log.producers.transaction_verification = False
        producer = {"producer_id": 7, "producer_epoch": 0}
        records = batch(b"late", base_sequence=0, is_transactional=True, **producer)
        partition.append_as_coordinator(bytearray(records), 1000)
        session.max_wait_ms = 3_600_000
        await session.client.send(session.request())
        await session.client.stream.wait_send_all_might_not_block()
        while len(node.broker.replica_manager.purgatory.views) < MANY:
            await trio.lowlevel.checkpoint()
        marker = build_end_txn_marker(commit=True, coordinator_epoch=0, timestamp_ms=1000, **producer)
        partition.append_as_coordinator(bytearray(marker), 1000, transaction_version=1)
        with trio.fail_after(SHORT):
            session.take((await session.client.receive())[1])
        assert session.read[2][0] == b"late"  # the marker comes after it


async def test_nothing_is_left_of_a_session_that_is_over(tmp_path: Path) -> None:
    async with session_of_many(tmp_path) as (node, session, _):
        for _ in range(3):
            await session.poll()
        purgatory = node.broker.replica_manager.purgatory
        assert len(purgatory.views) == MANY
        session.epoch = -1
        session.changed = set()
        response = await session.client.ask(session.request())
        assert response.error_code == 0
        assert not purgatory.views


async def test_a_consumer_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    async with session_of_many(tmp_path) as (node, session, producer):
        for _ in range(3):
            await session.poll()
        purgatory = node.broker.replica_manager.purgatory
        await session.client.stream.aclose()
        await write(producer, 3, b"a")
        assert len(purgatory.views) == MANY - 1, "it is told once, and not with every record"
        # It was only slow: it goes on where it was.
        session.client = await node.connect()
        await write(producer, 3, b"b")
        while len(session.read[3]) < 2:
            await session.poll()
        for _ in range(2):
            assert await session.poll() == {}
        assert len(purgatory.views) == MANY


@pytest.mark.parametrize("seed", range(3))
async def test_all_is_read_in_order_whatever_comes_between(tmp_path: Path, seed: int) -> None:
    async with session_of_many(tmp_path) as (_, session, producer):
        rng = random.Random(seed)
        session.max_wait_ms = 50
        written: dict[int, list[bytes]] = {index: [] for index in range(MANY)}

        async def produce_some() -> None:
            for number in range(150):
                index = rng.randrange(MANY)
                written[index].append(b"%d" % number)
                await write(producer, index, b"%d" % number)
                if rng.random() < 0.1:
                    await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce_some)
            with trio.fail_after(SHORT):
                while sum(map(len, session.read.values())) < 150:
                    session.isolation = int(rng.random() < 0.5)
                    await session.poll()
        assert session.read == written
