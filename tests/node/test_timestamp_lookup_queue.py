"""Look-ups that may be long take turns: with one another, and with all else that the node does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.partition_log import PartitionLog
from kbroker.node.serving import timestamp_lookup_queue
from kbroker.node.serving.timestamp_lookup_queue import MOST_BEGUN, TimestampLookupQueue
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.node.node_harness import Meanwhile, batch, produce_request, run, running_node


def by_time(partitions: int, topic: str = "t", timestamp: int = 1000) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


class Clock:
    """Every look at it costs a second, so that each step is a slice."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds


def connection() -> Any:
    return SimpleNamespace(closed=False, peer="test")


async def served(work: TimestampLookupQueue) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def test_requests_take_turns_and_each_is_told_when_it_is_done() -> None:
    work = TimestampLookupQueue(Clock())  # type: ignore[arg-type]
    done: list[str] = []

    def steps(name: str, count: int) -> Iterator[None]:
        for index in range(count):
            done.append(f"{name}{index}")
            yield

    for name, count in (("a", 3), ("b", 1), ("c", 2)):
        assert work.add(connection(), steps(name, count), count, lambda name=name: done.append(name))  # type: ignore[misc]
    trio.run(served, work)
    assert done == ["a0", "b0", "c0", "a1", "b", "c1", "a2", "c", "a"]


def test_few_requests_are_under_way_at_the_same_time() -> None:
    """Each may hold a decompressed part of a batch, and more."""
    work = TimestampLookupQueue(Clock())  # type: ignore[arg-type]
    begun: set[int] = set()
    most: list[int] = []
    done: list[int] = []

    def steps(number: int) -> Iterator[None]:
        for _ in range(5):
            begun.add(number)
            most.append(len(begun))
            yield
        begun.remove(number)

    for number in range(3 * MOST_BEGUN):
        assert work.add(connection(), steps(number), 5, lambda number=number: done.append(number))  # type: ignore[misc]
    trio.run(served, work)
    assert max(most) == MOST_BEGUN
    assert done == list(range(3 * MOST_BEGUN))


def test_work_for_a_connection_that_has_ended_is_dropped() -> None:
    work = TimestampLookupQueue(Clock())  # type: ignore[arg-type]
    done: list[str] = []
    gone, there = connection(), connection()

    def steps(name: str) -> Iterator[None]:
        for _ in range(3):
            done.append(name)
            gone.closed = True
            yield

    assert work.add(gone, steps("gone"), 3, lambda: done.append("told"))
    assert work.add(there, steps("there"), 3, lambda: done.append("done"))
    trio.run(served, work)
    assert done == ["gone", "there", "there", "there", "done"]


def test_no_more_waits_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_lookup_queue, "MOST_STEPS", 100)
    work = TimestampLookupQueue(Clock())  # type: ignore[arg-type]
    told: list[int] = []

    def add(count: int) -> bool:
        return work.add(connection(), iter([None] * count), count, lambda: told.append(count))

    assert add(1000), "whatever is alone is served"
    assert not add(1)
    trio.run(served, work)
    assert add(50)
    assert not add(50)
    assert add(10)
    trio.run(served, work)
    assert told == [1000, 10, 50]


def test_a_step_that_fails_leaves_the_others_theirs(caplog: pytest.LogCaptureFixture) -> None:
    work = TimestampLookupQueue(Clock())  # type: ignore[arg-type]
    told: list[str] = []

    def failing() -> Iterator[None]:
        yield
        raise ValueError("a bug")

    assert work.add(connection(), failing(), 2, lambda: told.append("failed"))
    assert work.add(connection(), iter([None]), 1, lambda: told.append("served"))
    trio.run(served, work)
    assert told == ["served"]
    assert "a bug" in caplog.text


def test_others_are_served_between_the_look_ups_of_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_lookup_queue, "SLICE_SECONDS", 0.0)
    looked_up = 0
    real = PartitionLog.offset_for_timestamp

    def counted(log: PartitionLog, timestamp: int) -> Any:
        nonlocal looked_up
        looked_up += 1
        if looked_up == 1:
            others[0].come((ApiVersionsRequest(client_software_name="test", client_software_version="1"), None))
        return real(log, timestamp)

    others: list[Meanwhile] = []

    monkeypatch.setattr(PartitionLog, "offset_for_timestamp", counted)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 200)
            slow, other = await node.connect(), await node.connect()
            await slow.ask(produce_request("t", batch(b"x"), partition=199, topic_id=topic_id))
            others.append(Meanwhile(node, other, lambda: looked_up, monkeypatch))
            for _ in range(10):  # as many as the client likes, one behind the other
                await slow.send(by_time(200))
            await other.receive()
            assert others[0].answered_at is not None and others[0].answered_at < 1000
            for _ in range(10):
                offsets = [p.offset for p in (await slow.receive())[1].topics[0].partitions]
                assert offsets == [-1] * 199 + [0]
            assert looked_up == 2000

    run(test)


def test_what_needs_no_reading_is_told_while_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            monkeypatch.setattr(node.broker.services.timestamp_lookups, "add", lambda *args: False)
            request = by_time(2)
            request.topics[0].partitions[1].timestamp = -1
            for version, busy in ((11, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
                refused, told = (await client.ask(request, version)).topics[0].partitions
                assert (refused.error_code, refused.offset) == (busy, -1)
                assert (told.error_code, told.offset) == (0, 0)

    run(test)


def test_errors_of_look_ups_are_told_by_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", 3)
            client = await node.connect()

            def corrupt(log: PartitionLog, timestamp: int) -> Any:
                if log.topic_partition.partition == 0:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE)
                if log.topic_partition.partition == 1:
                    raise ValueError("a bug")
                return iter(())

            monkeypatch.setattr(PartitionLog, "offset_for_timestamp", corrupt)
            answers = (await client.ask(by_time(4))).topics[0].partitions
            assert [answer.error_code for answer in answers] == [
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.UNKNOWN_SERVER_ERROR,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]

    run(test)
