"""Requests that take long take turns: with one another, and with all else that the node does."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.cores.replication.partition_state import PartitionState
from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import CloseConnection
from kbroker.log.record_validation import examine
from kbroker.node.replicas import produce_writer
from kbroker.node.replicas.partition import Partition
from kbroker.node.serving.work_queue import REQUEST_BYTES, WorkQueue
from kbroker.runtime.env import RealEnv
from kbroker.runtime.later import Later
from kbroker.types import Uuid
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import InitProducerIdRequest
from kbroker.wire.record_batch import Record, build_batch
from tests.node.node_harness import Client, Meanwhile, batch, fetch_request, produce_request, run, running_node, values
from tests.patience import SHORT


class Env:
    """Every look at the clock costs a second, so that each step is a slice."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds

    async def run_blocking(self, function: Any, *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)


def connection(peer: str) -> Any:
    ends: list[None] = []
    return SimpleNamespace(closed=False, peer=peer, ends=ends, end=lambda: ends.append(None))


def noting(done: list[Any], work: Generator[Any, Any, Any]) -> Generator[Any, Any, None]:
    """The work, which notes its value when it is over."""
    done.append((yield from work))


async def served(work: WorkQueue) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def test_connections_take_turns_and_each_ones_requests_keep_their_order() -> None:
    work = WorkQueue(Env())  # type: ignore[arg-type]
    done: list[str] = []

    def steps(name: str, count: int) -> Generator[None, None, str]:
        for index in range(count):
            done.append(f"{name}{index}")
            yield
        return name

    one, other = connection("one"), connection("other")
    for who, name, count in ((one, "a", 2), (one, "b", 1), (other, "c", 3)):
        assert work.add(who, noting(done, steps(name, count)), None, 10)
    assert list(work.waiting) == ["one", "other"]
    trio.run(served, work)
    assert done == ["a0", "c0", "a1", "c1", "a", "c2", "b0", "c", "b"]
    assert not work.waiting


def test_what_is_to_run_elsewhere_does_and_its_errors_come_back() -> None:
    work = WorkQueue(Env())  # type: ignore[arg-type]
    done: list[Any] = []

    def steps() -> Generator[Any, Any, list[Any]]:
        found = [(yield lambda: 2), (yield)]
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            found.append("no")
        return found

    assert work.add(connection("a"), noting(done, steps()), lambda: None, 10)
    trio.run(served, work)
    assert done == [[2, None, "no"]]


def test_who_is_gone_is_served_only_if_no_answer_was_wanted(caplog: pytest.LogCaptureFixture) -> None:
    work = WorkQueue(Env())  # type: ignore[arg-type]
    done: list[str] = []

    def steps(name: str, failure: Exception | None = None) -> Generator[None, None, str]:
        yield
        if failure is not None:
            raise failure
        return name

    gone = connection("gone")
    gone.closed = True
    failing = [connection("closes"), connection("fails")]
    assert work.add(gone, noting(done, steps("answered")), None, 1)
    assert work.add(gone, noting(done, steps("unanswered")), None, 1, needs_answer=False)
    assert work.add(failing[0], noting(done, steps("", CloseConnection("so"))), None, 1, needs_answer=False)
    assert work.add(failing[1], noting(done, steps("", ValueError("a bug"))), None, 1)
    trio.run(served, work)
    assert done == ["unanswered"]
    assert all(each.ends for each in failing)
    assert "a bug" in caplog.text


def test_no_more_waits_than_there_is_room_for() -> None:
    work = WorkQueue(Env(), most_bytes=10_000)  # type: ignore[arg-type]

    def steps() -> Generator[None, None, None]:
        yield

    def add(size: int) -> bool:
        return work.add(connection("a"), steps(), None, size)

    assert add(20_000), "whatever is alone is served"
    assert not add(1)
    trio.run(served, work)
    assert add(1000)
    assert not add(1000)


def test_who_waits_for_a_value_holds_back_its_own_connection_and_no_other() -> None:
    queue = WorkQueue(Env())  # type: ignore[arg-type]
    done: list[Any] = []
    first, third = Later[str](), Later[str]()

    def waits(value: Later[str]) -> Generator[Any, Any, str]:
        found: str = yield value
        return found

    def passes(name: str) -> Generator[Any, Any, str]:
        yield
        return name

    one, other = connection("one"), connection("other")
    works = [waits(first), passes("second"), waits(third), passes("fourth")]
    assert queue.add(one, noting(done, works[0]), None, 10)
    for work in works[1:]:
        assert queue.add(one, noting(done, work), None, 10)
    assert queue.add(other, noting(done, passes("other")), None, 10)
    trio.run(served, queue)
    assert done == ["other"]
    third.set("third")
    assert done == ["other"], "the first comes first"
    first.set("first")
    assert done == ["other", "first"], "at once; the others when the task has its turn, by this clock"
    trio.run(served, queue)
    assert done == ["other", "first", "second", "third", "fourth"]
    assert not queue.waiting


def test_who_waits_for_a_value_takes_no_place_of_those_under_way() -> None:
    queue = WorkQueue(Env(), most_begun=2)  # type: ignore[arg-type]
    done: list[str] = []
    never = Later[None]()

    def steps(name: str, *values: Later[None]) -> Generator[Any, Any, str]:
        yield
        yield from values
        return name

    for number in range(4):
        assert queue.add(connection(str(number)), noting(done, steps("waits", never)), None, 10)
    assert queue.add(connection("last"), noting(done, steps("last")), None, 10)
    trio.run(served, queue)
    assert done == ["last"]
    assert len(queue.waiting) == 4


def test_whose_connection_ends_while_it_waits_is_not_served() -> None:
    queue = WorkQueue(Env())  # type: ignore[arg-type]
    done: list[str] = []
    value = Later[str]()

    def waits() -> Generator[Any, Any, str]:
        found: str = yield value
        return found

    gone = connection("gone")
    for _ in range(2):
        work = waits()
        assert queue.add(gone, noting(done, work), None, 10)
    trio.run(served, queue)
    gone.closed = True
    value.set("too late")
    trio.run(served, queue)
    assert not done
    assert not queue.waiting


def records(count: int) -> bytes:
    return build_batch([Record(0, 1000, b"k", b"v")] * count, compression=CompressionType.ZSTD)


def to_one_partition(batches: list[bytes], topic_id: Uuid, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=memoryview(bytearray(each))) for each in batches]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
    )


def test_others_are_served_while_a_long_batch_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(*args: Any) -> Generator[Any, Any, Any]:
        nonlocal looks
        steps, result = examine(*args), None
        while True:
            looks += 1
            if looks == 1:
                others[0].come(*asked)
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value
            result = yield step

    monkeypatch.setattr(produce_writer, "examine", counted)
    others: list[Meanwhile] = []
    asked: list[tuple[Any, int | None]] = []

    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.broker.services.produce_queue.slice_seconds = 0.0
            topic_id = await node.create_topic("t", cleanup_policy="compact")
            slow, other = await node.connect(), await node.connect()
            others.append(Meanwhile(node, other, lambda: looks, monkeypatch))
            asked.append((ApiVersionsRequest(client_software_name="test", client_software_version="1"), None))
            asked.append((produce_request("", records(5), topic_id=topic_id), None))
            for count in (60_000, 3, 30_000):
                await slow.send(produce_request("", records(count), topic_id=topic_id))
            await other.receive()
            assert others[0].answered_at is not None and 0 < others[0].answered_at < 50
            answer = (await other.receive())[1]
            stored_at = answer.responses[0].partition_responses[0].base_offset
            assert stored_at == 0, "nothing of the first batch is stored yet"
            offsets = []
            for _ in range(3):
                told = (await slow.receive())[1].responses[0].partition_responses[0]
                assert told.error_code == 0
                offsets.append(told.base_offset)
            assert offsets == [5, 60_005, 60_008]
            assert looks > 90_000 // 1024

    run(test)


def test_a_request_of_many_batches_gives_way_and_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Partition.append
    others: list[Meanwhile] = []
    appended = 0

    def noted(partition: Partition, *args: Any) -> Any:
        nonlocal appended
        appended += 1
        if appended == 4:  # the first one of this client, and two of the long request
            others[0].come((ApiVersionsRequest(client_software_name="test", client_software_version="1"), None))
        return append(partition, *args)

    monkeypatch.setattr(Partition, "append", noted)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t")
            slow, other = await node.connect(), await node.connect()
            queue = node.broker.services.produce_queue
            queue.slice_seconds = 0.0
            others.append(Meanwhile(node, other, lambda: len(queue.waiting), monkeypatch))
            await slow.ask(produce_request("", batch(b"first"), topic_id=topic_id))
            many = [batch(b"%d" % index) for index in range(21)]
            many[7] = many[7][:-1] + b"?"
            await slow.send(to_one_partition(many, topic_id))
            await slow.send(produce_request("", batch(b"last"), topic_id=topic_id))  # the short way, but for the others
            answers = (await slow.receive())[1].responses[0].partition_responses
            await other.receive()
            assert others[0].answered_at, "what is long still waits"
            codes = [answer.error_code for answer in answers]
            assert codes == [0] * 7 + [ErrorCode.CORRUPT_MESSAGE] + [0] * 13
            last = (await slow.receive())[1].responses[0].partition_responses[0]
            assert (last.error_code, last.base_offset) == (0, 21)
            await slow.send(to_one_partition(many[:5], topic_id, acks=0))
            await slow.send(produce_request("", batch(b"after"), topic_id=topic_id))
            assert (await slow.receive())[1].responses[0].partition_responses[0].base_offset == 27
            await slow.send(to_one_partition(many, topic_id, acks=0))
            assert await slow.closed(), "acks=0 has no other way to say that a batch was refused"
            fetched = (await other.ask(fetch_request("t", topic_id=topic_id))).responses[0].partitions[0].records
            stored = [value for _, value in values(fetched)]
            assert stored[:3] == [b"first", b"0", b"1"]
            assert stored[20:28] == [b"20", b"last", b"0", b"1", b"2", b"3", b"4", b"after"]

    run(test)


@pytest.mark.parametrize("long", ["batch", "request"])
def test_a_topic_that_takes_the_name_of_another_meanwhile_gets_nothing_of_it(tmp_path: Path, long: str) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.broker.services.produce_queue.slice_seconds = 0.0
            topic_id = await node.create_topic("t", cleanup_policy="compact" if long == "batch" else "delete")
            slow, other = await node.connect(), await node.connect()
            asked = to_one_partition([batch(b"%d" % index) for index in range(5)], topic_id)
            if long == "batch":
                asked = produce_request("", records(60_000), topic_id=topic_id)
            gate = Gate(node)
            await slow.send(asked)
            await gate.until_waiting()
            deleted = await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
            assert deleted.responses[0].error_code == 0
            namesake = await node.create_topic("t")
            gate.open()
            told = (await slow.receive())[1].responses[0].partition_responses
            assert told[-1].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            fetched = (await other.ask(fetch_request("t", topic_id=namesake))).responses[0].partitions[0]
            assert (fetched.error_code, fetched.high_watermark) == (0, 0)

    run(test)


@pytest.mark.parametrize(("acks", "linux"), [(0, False), (1, True)])
def test_a_connection_is_not_read_from_while_too_much_waits_and_some_of_it_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int, linux: bool
) -> None:
    """Many producers that send much at a time wait, and are not turned away."""
    batch_ = long_batch()

    async def test() -> None:
        async with running_node(tmp_path, RealEnv(use_epoll=linux)) as node:
            topic_id = await node.create_topic("t", cleanup_policy="compact")
            work, gate = node.broker.services.produce_queue, Gate(node)
            assert isinstance(work, WorkQueue)
            work.room_bytes, work.most_bytes = 0, 3 * (len(batch_) + REQUEST_BYTES + 1000) + REQUEST_BYTES
            producers, other = [await node.connect() for _ in range(2)], await node.connect()

            async def send(producer: Client, count: int) -> None:
                for _ in range(count):
                    await producer.send(produce_request("", batch_, topic_id=topic_id, acks=acks))

            async with trio.open_nursery() as nursery:
                for producer in producers:
                    await send(producer, 1)
                await gate.until_waiting(2)
                for producer in producers:
                    nursery.start_soon(send, producer, 5)
                for _ in range(3):
                    await other.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
                assert [len(requests) for requests in work.waiting.values()] == [1, 1, 1]
                gate.open()
            if acks:
                for producer in producers:
                    told = [(await producer.receive())[1].responses[0].partition_responses[0] for _ in range(6)]
                    assert [each.error_code for each in told] == [0] * 6
            for producer in producers:  # none was closed, and everything before is done
                await producer.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            partition = node.broker.replica_manager.partitions["t", 0]
            while partition.log.log_end_offset < 2 * 6 * 60_000:
                await trio.lowlevel.checkpoint()

    run(test)


def test_a_connection_whose_requests_would_hold_too_much_is_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            node.broker.services.produce_queue.most_bytes = 0
            node.broker.services.produce_queue.slice_seconds = 0.0
            topic_id = await node.create_topic("t", cleanup_policy="compact")
            greedy, other = await node.connect(), await node.connect()
            for _ in range(2):
                await greedy.send(produce_request("", records(100_000), topic_id=topic_id))
            assert await greedy.closed()
            answer = await other.ask(produce_request("", records(5), topic_id=topic_id))
            assert answer.responses[0].partition_responses[0].error_code == 0

    run(test)


def test_only_some_are_under_way_at_the_same_time() -> None:
    """Each may hold the records of a batch, decompressed."""
    work = WorkQueue(Env(), most_begun=3)  # type: ignore[arg-type]
    begun: set[int] = set()
    most = 0
    done: list[int] = []

    def steps(number: int) -> Generator[None, None, int]:
        nonlocal most
        begun.add(number)
        most = max(most, len(begun))
        yield
        yield
        begun.remove(number)
        return number

    for number in range(9):
        assert work.add(connection(str(number)), noting(done, steps(number)), None, 10)
    trio.run(served, work)
    assert most == 3
    assert sorted(done) == list(range(9))


def test_a_request_counts_for_all_that_it_keeps_in_memory() -> None:
    frame = memoryview(bytearray(1 << 20))
    topic = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=frame[100:200])])
    assert produce_writer.held_bytes(ProduceRequest(topic_data=[topic])) == 1 << 20, "what follows the records, too"
    shared = memoryview(bytearray(1000))
    parts = [PartitionProduceData(index=index, records=shared[:10]) for index in range(50)]
    held = produce_writer.held_bytes(ProduceRequest(topic_data=[TopicProduceData(partition_data=parts)]))
    assert 50 * 100 < held < 50 * 1000, "its parts, not a buffer that it shares"


class Gate:
    """Holds all Produce requests that take long until it is opened, by one that does."""

    def __init__(self, node: Any) -> None:
        self._queue = node.broker.services.produce_queue
        opened = threading.Event()
        self.open = opened.set

        def nothing() -> Generator[Any, Any, None]:
            yield

        def hold() -> None:
            opened.wait()

        assert self._queue.add(connection("gate"), nothing(), hold, 0)

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until so many clients have one that is held."""
        while len(self._queue.waiting) <= count:
            await trio.lowlevel.checkpoint()


def data(index: int, records: bytes) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=memoryview(bytearray(records)))


def long_batch() -> bytes:
    return build_batch([Record(0, 1000, b"k", b"v")] * 60_000, compression=CompressionType.ZSTD)


def test_a_topic_that_is_deleted_while_a_long_request_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With followers that have nothing yet (their place is taken by a high watermark that stands)."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            gone = await node.create_topic("gone")
            kept = await node.create_topic("kept", cleanup_policy="compact")
            monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", lambda self, end: False)
            client, other = await node.connect(), await node.connect()
            gate = Gate(node)
            request = ProduceRequest(
                acks=-1,
                timeout_ms=100,
                topic_data=[
                    TopicProduceData(topic_id=gone, partition_data=[data(0, batch(b"x"))]),
                    TopicProduceData(topic_id=kept, partition_data=[data(0, long_batch())]),
                ],
            )
            await client.send(request)
            await gate.until_waiting()
            deleted = await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000))
            assert deleted.responses[0].error_code == 0
            gate.open()
            with trio.fail_after(SHORT):
                answer = (await client.receive())[1]
            codes = [topic.partition_responses[0].error_code for topic in answer.responses]
            assert codes[1] == ErrorCode.REQUEST_TIMED_OUT
            assert codes[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_a_namesake_gets_nothing_of_the_partitions_behind_a_long_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is deleted, and another of its name made, while the first of two batches is judged."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 2, cleanup_policy="compact")
            slow, other = await node.connect(), await node.connect()
            keyed = build_batch([Record(0, 1000, b"k", b"v")])
            gate = Gate(node)
            request = ProduceRequest(
                acks=1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(topic_id=topic_id, partition_data=[data(0, long_batch()), data(1, keyed)])
                ],
            )
            await slow.send(request)
            await gate.until_waiting()
            deleted = await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
            assert deleted.responses[0].error_code == 0
            namesake = await node.create_topic("t", 2)
            gate.open()
            told = (await slow.receive())[1].responses[0].partition_responses
            fetched = await other.ask(fetch_request("t", ((0, 0), (1, 0)), topic_id=namesake))
            marks = [each.high_watermark for each in fetched.responses[0].partitions]
            assert [each.error_code for each in told] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
            assert marks == [0, 0]

    run(test)


class Unreplicated:
    """A partition whose followers have nothing of what is appended, until it is led again with what they have."""

    def __init__(self, node: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._manager = node.broker.replica_manager
        self.partition = self._manager.partitions[topic, 0]
        self._stands = True
        advance = PartitionState.maybe_advance_high_watermark

        def maybe_advance(state: PartitionState, end: int) -> bool:
            return not (self._stands and state is self.partition.state) and advance(state, end)

        monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", maybe_advance)

    def cut_and_lead_again(self) -> None:
        """Another leads, this log is cut and has other records, and this node leads again."""
        partition, state = self.partition, self.partition.state
        epoch, version = state.leader_epoch, state.partition_epoch
        state.become_follower(leader=2, leader_epoch=epoch + 1, partition_epoch=version + 1, replicas=[1, 2], isr=[2])
        self._manager.purgatory.partition_changed(partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.log.truncate_to(0, now_ms=0)
        partition.log.append_as_leader(bytearray(batch(b"theirs")), epoch + 1, now_ms=0)
        self._stands = False
        state.become_leader(
            leader_epoch=epoch + 2, partition_epoch=version + 2, replicas=[1], isr=[1], log_end_offset=1, now_ms=0
        )
        partition.on_leadership(partition.log)


def test_records_that_were_cut_off_while_others_were_judged_are_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            first = await node.create_topic("first")
            other = await node.create_topic("other", cleanup_policy="compact")
            unreplicated = Unreplicated(node, "first", monkeypatch)
            client = await node.connect()
            gate = Gate(node)
            await client.send(
                ProduceRequest(
                    acks=-1,
                    timeout_ms=1000,
                    topic_data=[
                        TopicProduceData(topic_id=first, partition_data=[data(0, batch(b"mine"))]),
                        TopicProduceData(topic_id=other, partition_data=[data(0, long_batch())]),
                    ],
                )
            )
            await gate.until_waiting()
            assert unreplicated.partition.log.log_end_offset == 1
            unreplicated.cut_and_lead_again()
            gate.open()
            answer = (await client.receive())[1].responses[0].partition_responses[0]
            assert values(unreplicated.partition.log.read_bytes(0, 1 << 20)) == [(0, b"theirs")]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_records_that_were_cut_off_while_they_were_flushed_are_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", flush_messages="1")
            unreplicated = Unreplicated(node, "t", monkeypatch)
            manager = node.broker.replica_manager
            flush = manager.log_dirs.flush

            async def flush_and_more(partition: Any) -> None:
                await flush(partition)
                unreplicated.cut_and_lead_again()

            monkeypatch.setattr(manager.log_dirs, "flush", flush_and_more)
            client = await node.connect()
            response = await client.ask(produce_request("", batch(b"mine"), topic_id=topic_id))
            assert values(unreplicated.partition.log.read_bytes(0, 1 << 20)) == [(0, b"theirs")]
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_a_transactional_request_that_there_is_no_room_for_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client waits for an answer that nobody is left to give."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 3)
            node.broker.services.produce_queue.most_bytes = 0
            gate = Gate(node)
            client = await node.connect()
            await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]))
            while True:
                opened = await client.ask(
                    InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 4
                )
                if not opened.error_code:
                    break
            driver = node.broker.services.transactions
            real = driver.add_or_verify

            def later(*args: Any) -> Later[Any]:  # as where the coordinator is another broker
                answer: Later[Any] = Later()

                async def ask() -> None:
                    await trio.lowlevel.checkpoint()
                    found = real(*args)
                    found.on_done(lambda: answer.set(found.value))

                node.broker.replica_manager.start_soon(ask)
                return answer

            monkeypatch.setattr(driver, "add_or_verify", later)
            batches = [
                data(
                    index,
                    batch(
                        b"x",
                        producer_id=opened.producer_id,
                        producer_epoch=opened.producer_epoch,
                        base_sequence=0,
                        is_transactional=True,
                    ),
                )
                for index in range(3)
            ]
            await client.send(
                ProduceRequest(
                    transactional_id="id",
                    acks=-1,
                    timeout_ms=1000,
                    topic_data=[TopicProduceData(topic_id=topic_id, partition_data=batches)],
                )
            )
            assert await client.closed()
            gate.open()

    run(test)
