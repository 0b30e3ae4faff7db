"""The short way of a Produce that repeats the last one: its answers are those of the long way, whatever comes."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.partition_log import PartitionLog
from kbroker.log.validated_batches import ValidatedBatches
from kbroker.node.shortcuts.produce import MOST_FORMS, ProduceShortcut
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.wire.framing import request_parts
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.produce import TopicProduceData
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.handlers.test_transactions import ID, Producer, contents, open_producer, read
from tests.node.node_harness import (
    PATIENT,
    Client,
    Node,
    batch,
    fetch_request,
    produce_request,
    run,
    running_node,
    values,
)
from tests.shortcuts import short_way


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that the short way was tried, whether it was taken."""
    return short_way.watch(monkeypatch, ProduceShortcut)


def _transactional(records: bytes) -> bytes:
    changed = bytearray(records)
    changed[22] |= 0x10
    return bytes(changed)


def _damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


SIZES = (1, 1, 1, 50, 63, 64, 130, 20_000, 1)
"""Of records: lengths of one, two and three bytes."""

ODD: list[dict[str, Any]] = [
    {"records": _damaged(batch(b"damaged"))},
    {"records": _transactional(batch(b"in a transaction"))},
    {"records": batch(b"two") + batch(b"batches")},
    {"records": b""},
    {"records": b"\0\0\0\0\0\0\0\1" + batch(b"at offset 1")[8:]},
    {"records": batch(b"idempotent", producer_id=7, producer_epoch=0, base_sequence=0)},
    {"records": batch(b"idempotent", producer_id=7, producer_epoch=0, base_sequence=0)},
    {"records": batch(b"after a gap", producer_id=7, producer_epoch=0, base_sequence=9)},
    {"records": batch(b"cut short")[:40]},
    {"records": batch(b"elsewhere"), "partition": 1},
    {"records": batch(b"nowhere"), "partition": 9},
    {"records": batch(b"leader only"), "acks": 1},
    {"records": batch(b"how many?"), "acks": 2},
    {"records": batch(b"other patience"), "timeout_ms": 5},
]


@pytest.mark.parametrize("crowd", [1, 1000])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_answers_as_the_long_way_does(tmp_path: Path, timestamp_type: str, crowd: int, taken: list[bool]) -> None:
    """Whether its batches are gathered with those of others (a crowd of one) or written each by itself."""

    async def both_ways(node: Node, version: int) -> None:
        names = f"repeats{version}", f"fresh{version}"
        ids = {name: await node.create_topic(name, 2, message_timestamp_type=timestamp_type) for name in names}
        repeats = await node.connect()
        del taken[:]

        async def both(**fields: Any) -> None:
            fresh = await node.connect()
            answers = []
            for client, name in zip((repeats, fresh), names, strict=True):
                request = produce_request(name, topic_id=ids[name], **fields)
                answer = (await client.ask(request, version)).responses[0]
                answer.name = answer.topic_id = None
                for partition in answer.partition_responses:
                    partition.log_append_time_ms = min(partition.log_append_time_ms, 0)  # now, or none
                answers.append(repr(answer).replace(f"{name}-", "t-"))
            assert answers[0] == answers[1]
            await fresh.stream.aclose()

        for size in SIZES:
            await both(records=batch(b"x" * size))
        assert taken == [True] * (len(SIZES) - 2), "all but the first two"
        for fields in ODD:
            await both(**fields)
            del taken[:]
            await both(records=batch(b"as before"))
            assert taken == [True]

        repeats_log, fresh_log = [
            values((await repeats.ask(fetch_request(name, topic_id=ids[name]), 12)).responses[0].partitions[0].records)
            for name in names
        ]
        assert repeats_log == fresh_log
        assert len(repeats_log) >= len(SIZES) + len(ODD)

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(crowd)) as node:
            for version in range(7, 14):
                await both_ways(node, version)

    run(test)


async def _told(producer: Producer, topic: str, value: bytes, **changed: Any) -> str:
    """The answer to a producer of an open transaction for one more record, or for one that is ``changed``."""
    is_transactional = changed.pop("is_transactional", True)
    transactional_id = changed.pop("transactional_id", ID)
    options = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "base_sequence": producer.sequence,
    }
    now_ms = int(time.time() * 1000)
    request = produce_request(
        topic, batch(value, timestamp=now_ms, is_transactional=is_transactional, **{**options, **changed})
    )
    request.transactional_id = transactional_id
    answer = (await producer.client.ask(request, 12 if producer.version == 2 else 11)).responses[0]
    answer.name = answer.topic_id = None
    (partition,) = answer.partition_responses
    if partition.error_code == 0 and not changed:
        producer.sequence += 1
    return repr(answer).replace(f"{topic}-", "t-")


ODD_IN_A_TRANSACTION: list[dict[str, Any]] = [
    {"base_sequence": 99},
    {"producer_epoch": 9},
    {"producer_id": 77},
    {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
    {"is_transactional": False},
    {"transactional_id": None},
    {"transactional_id": "another"},
]


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_verified_as_on_the_long_way(tmp_path: Path, version: int, taken: list[bool]) -> None:
    """Two nodes with the same producer; of one its requests repeat, to the other each comes on a new connection."""

    async def test() -> None:
        async with running_node(tmp_path / "short") as short, running_node(tmp_path / "long") as long:
            nodes = (short, long)
            producers = [await open_producer(node, version) for node in nodes]
            for node in nodes:
                await node.create_topic("t")

            async def both(value: bytes, **changed: Any) -> str:
                connected, producers[1].client = producers[1].client, await long.connect()
                answers = [await _told(each, "t", value, **changed) for each in producers]
                await producers[1].client.stream.aclose()
                producers[1].client = connected
                assert answers[0] == answers[1]
                return answers[0]

            for number in range(4):
                if version == 1:
                    assert "error_code=0" not in await both(b"not added")
                    for each in producers:
                        await each.add()
                for index in range(3):
                    del taken[:]
                    assert "error_code=0" in await both(b"%d %d" % (number, index))
                    # The coordinator is asked to add the partition of version 2, which is not for the short way.
                    assert taken == [version == 1 or index > 0] or (number == 0 and index < 2)
                for changed in ODD_IN_A_TRANSACTION:
                    await both(b"odd", **changed)
                last = {"base_sequence": producers[0].sequence - 1}
                assert "error_code=0" in await both(b"once more", **last)
                for each in producers:
                    assert await each.end(number % 2 == 0) == 0
                if version == 1:
                    assert "error_code=0" not in await both(b"too late")
            found = [await read(node, max_bytes=1 << 20) for node in nodes]
            assert contents(found[0]) == contents(found[1])
            values = [b"%d %d" % (number, index) for number in range(4) for index in range(3)]
            assert [each for each in contents(found[0]) if each != b"odd"] == values
            aborted = [[each.first_offset for each in of_one.aborted_transactions] for of_one in found]
            assert aborted[0] == aborted[1]
            assert len(aborted[0]) == 2

    run(test)


def test_a_topic_of_the_same_name_is_another_topic(tmp_path: Path, taken: list[bool]) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("again")
            client = await node.connect()
            request = produce_request("again", batch(b"x"))
            for _ in range(3):
                assert (await client.ask(request, 12)).responses[0].partition_responses[0].error_code == 0
            assert taken == [True]
            topic = DeleteTopicState(name="again")
            deleted = await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000))
            assert deleted.responses[0].error_code == 0
            answer = (await client.ask(request, 12)).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await node.create_topic("again")
            answer = (await client.ask(request, 12)).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert taken == [True, False, False]

    run(test)


def test_what_must_be_flushed_or_replicated_first_is_not_for_the_short_way(tmp_path: Path, taken: list[bool]) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("flushed", flush_messages="1")
            client = await node.connect()
            for _ in range(4):
                answer = await client.ask(produce_request("flushed", batch(b"x")), 12)
                assert answer.responses[0].partition_responses[0].error_code == 0
            assert not any(taken)

    run(test)


def test_the_log_s_own_time_is_told(tmp_path: Path, taken: list[bool]) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("timed", message_timestamp_type="LogAppendTime")
            client = await node.connect()
            times = [
                (await client.ask(produce_request("timed", batch(b"x")), 9)).responses[0].partition_responses[0]
                for _ in range(4)
            ]
            assert taken == [True, True]
            assert [answer.base_offset for answer in times] == [0, 1, 2, 3]
            assert 0 < times[0].log_append_time_ms <= times[2].log_append_time_ms <= times[3].log_append_time_ms

    run(test)


@pytest.mark.parametrize("crowd", [1, 1000])
def test_replies_keep_the_order_of_requests(tmp_path: Path, taken: list[bool], crowd: int) -> None:

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(crowd)) as node:
            await node.create_topic("quick")
            await node.create_topic("slow", flush_messages="1")
            client = await node.connect()
            for _ in range(2):
                await client.ask(produce_request("quick", batch(b"x")), 12)
            sent = [
                await client.send(produce_request(topic, batch(b"x")), 12)
                for topic in ("slow", "quick", "quick", "slow", "quick")
            ]
            assert [(await client.receive())[0] for _ in sent] == sent
            assert taken.count(True) == 3

    run(test)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each write of gathered batches, how many they were."""
    counts: list[int] = []
    append = PartitionLog.append_together

    def counted(self: PartitionLog, judged: Sequence[ValidatedBatches], now_ms: int) -> None:
        counts.append(len(judged))
        append(self, judged, now_ms)

    monkeypatch.setattr(PartitionLog, "append_together", counted)
    return counts


def with_crowd(crowd: int, recognised: bool = True) -> RealEnv:
    """A machine with that crowd, whose nodes have no shortcuts unless requests are to be `recognised`."""
    return RealEnv(seed=1, budgets=PATIENT._replace(crowd=crowd, remembers=recognised))


RECOGNISED = pytest.mark.parametrize("recognised", [True, False])


@RECOGNISED
def test_many_clients_at_once(tmp_path: Path, written: list[int], recognised: bool) -> None:
    """Each is told the offsets at which its records stand, in its order; repetitions of a batch are told the same."""
    told: dict[int, bytes] = {}

    async def produce(node: Node, number: int) -> None:
        client = await node.connect()
        last = -1
        for first in range(0, 64, 8):
            sent: dict[int, bytes] = {}
            for index in range(first, first + 8):
                value = b"%d %d" % (number, index)
                producer = number if number % 2 else -1
                records = batch(value, producer_id=producer, producer_epoch=0, base_sequence=index)
                for _ in range(2 if number % 4 == 1 and index % 5 == 0 else 1):
                    sent[await client.send(produce_request("t", records), 12)] = value
            for asked, value in sent.items():
                correlation_id, answer = await client.receive()
                partition = answer.responses[0].partition_responses[0]
                assert (correlation_id, partition.error_code) == (asked, 0)
                assert told.setdefault(partition.base_offset, value) == value
                assert partition.base_offset >= last
                last = partition.base_offset
        await client.stream.aclose()

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1, recognised)) as node:
            await node.create_topic("t")
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(produce, node, number)
            reader = await node.connect()
            fetched = (await reader.ask(fetch_request("t", max_bytes=1 << 20), 12)).responses[0].partitions[0]
            assert dict(values(fetched.records)) == told
            assert len(told) == 20 * 64

    run(test)
    assert max(written) > 8, "several connections' batches went into one write"


async def _known(node: Node) -> Client:
    """Returns a client whose first request, which is served alone, has been answered."""
    client = await node.connect()
    await client.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    return client


@RECOGNISED
def test_batches_of_connections_that_are_readable_together_are_in_one_write(
    tmp_path: Path, written: list[int], recognised: bool
) -> None:
    """Recognised or not: the first request of a connection never is."""

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(DEFAULTS.crowd, recognised)) as node:
            await node.create_topic("t")
            clients = [await _known(node) for _ in range(2 * DEFAULTS.crowd)]
            for _ in range(4):
                del written[:]
                await trio.testing.wait_all_tasks_blocked()
                # All are in their sockets before the node has its turn.
                for client in clients:
                    parts = request_parts(0, 12, 7, "test", produce_request("t", batch(b"x")))
                    frame = b"".join(map(bytes, parts))
                    client.raw.send(frame)
                node.arrived(clients)
                for client in clients:
                    assert (await client.frame())[:4] == (7).to_bytes(4, "big")
                assert written == [len(clients)]

    run(test)


@RECOGNISED
def test_batches_of_a_connection_are_in_the_order_of_its_requests(tmp_path: Path, recognised: bool) -> None:
    """Whether gathered, too large for that, or in a request for several partitions."""

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1, recognised)) as node:
            await node.create_topic("t", 2)
            client = await node.connect()
            rng = random.Random(5)
            sent = []
            for number in range(60):
                value = (b"%d " % number).ljust(rng.choice((10, 10, 10, 20_000)))
                request = produce_request("t", batch(value))
                if rng.random() < 0.3:
                    (data,) = request.topic_data[0].partition_data
                    records = memoryview(bytearray(batch(b"other")))
                    request.topic_data[0].partition_data.insert(0, replace(data, index=1, records=records))
                sent.append((await client.send(request, 12), number))
            for asked, number in sent:
                correlation_id, answer = await client.receive()
                told = answer.responses[0].partition_responses[-1]
                assert (correlation_id, told.error_code, told.base_offset) == (asked, 0, number)
            fetched = (await client.ask(fetch_request("t", max_bytes=1 << 22), 12)).responses[0].partitions[0]
            assert [int(value) for _, value in values(fetched.records)] == list(range(60))

    run(test)


@RECOGNISED
def test_a_client_that_ends_its_side_is_answered_what_it_has_asked(tmp_path: Path, recognised: bool) -> None:

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1, recognised)) as node:
            await node.create_topic("t")
            for _ in range(5):
                client = await node.connect()
                await trio.testing.wait_all_tasks_blocked()
                parts = request_parts(0, 12, 7, "test", produce_request("t", batch(b"x" * 200)))
                frame = b"".join(map(bytes, parts))
                # Bytes that fill what the node reads at once: it goes on, and finds the end.
                await client.stream.send_all(frame * 30)
                await client.stream.send_eof()
                for _ in range(30):
                    assert (await client.frame())[:4] == (7).to_bytes(4, "big")

    run(test)


def test_a_request_of_several_partitions_is_gathered_for_each(tmp_path: Path, written: list[int]) -> None:

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1)) as node:
            await node.create_topic("t", 3)
            client = await _known(node)
            for number in range(3):
                request = produce_request("t", batch(b"%d" % number))
                data = request.topic_data[0].partition_data
                for records in (batch(b"other"), _damaged(batch(b"damaged"))):
                    data.append(replace(data[0], index=len(data), records=memoryview(bytearray(records))))
                answers = (await client.ask(request, 12)).responses[0].partition_responses
                assert [(each.error_code, each.base_offset) for each in answers] == [
                    (0, number),
                    (0, number),
                    (ErrorCode.CORRUPT_MESSAGE, -1),
                ]
            assert written == [1] * 6

    run(test)


def test_a_producer_that_waits_for_no_answer_loses_its_connection_when_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[int]
) -> None:
    """As Apache Kafka does: there is no other way to tell it."""

    def refuse(self: PartitionLog, *arguments: Any, **more: Any) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1)) as node:
            await node.create_topic("t")
            client = await _known(node)
            await client.send(produce_request("t", batch(b"x"), acks=0), 12)
            assert (await client.ask(produce_request("t", batch(b"x")), 12)).responses[0].partition_responses[0]
            assert written == [1], "the one with acks=0 was written at once"
            monkeypatch.setattr(PartitionLog, "append_as_leader", refuse)
            await client.send(produce_request("t", batch(b"x"), acks=0), 12)
            assert await client.closed()

    run(test)


@RECOGNISED
def test_a_failing_disk_is_told_to_all_whose_batches_were_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recognised: bool
) -> None:

    def refuse(self: PartitionLog, judged: Sequence[ValidatedBatches], now_ms: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def test() -> None:
        dirs = [tmp_path / "data", tmp_path / "other"]
        async with running_node(tmp_path, with_crowd(1, recognised), log_dirs=",".join(map(str, dirs))) as node:
            await node.create_topic("t", 2)
            for partition in (0, 1):
                client = await node.connect()
                request = produce_request("t", batch(b"x"), partition=partition)
                for _ in range(3):
                    assert (await client.ask(request, 12)).responses[0].partition_responses[0].error_code == 0
                if (dirs[1] / f"t-{partition}").exists():
                    break  # not where the metadata log is, without which the node could not go on
            monkeypatch.setattr(PartitionLog, "append_together", refuse)
            for _ in range(3):
                await client.send(request, 12)
            for _ in range(3):
                _, answer = await client.receive()
                told = answer.responses[0].partition_responses[0]
                assert (told.error_code, told.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    run(test)


def test_a_batch_behind_those_that_the_disk_has_refused_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the second of a producer that the log does not know would be its first, and the first never in order."""

    def refuse(self: PartitionLog, judged: Sequence[ValidatedBatches], now_ms: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def test() -> None:
        async with running_node(tmp_path, with_crowd(1)) as node:
            await node.create_topic("t")
            client = await _known(node)
            monkeypatch.setattr(PartitionLog, "append_together", refuse)
            batches = [batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)]
            await client.send_together([produce_request("t", each) for each in batches], 12)
            for _ in batches:
                _, answer = await client.receive()
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(test)


def test_each_partition_that_a_producer_writes_to_is_known(tmp_path: Path, taken: list[bool]) -> None:
    """Of two topics, in turns and in no order, by two ways to acknowledge; what is told is what stands in the log."""
    partitions = 5

    async def test() -> None:
        async with running_node(tmp_path) as node:
            for topic in ("one", "two"):
                await node.create_topic(topic, partitions)
            client = await node.connect()
            told: dict[tuple[str, int], dict[int, bytes]] = {}
            rng = random.Random(7)
            for number in range(150):
                topic, index, acks = rng.choice(("one", "two")), rng.randrange(partitions), rng.choice((-1, 1))
                value = b"%d" % number
                request = produce_request(topic, batch(value), partition=index, acks=acks)
                answer = (await client.ask(request, 12)).responses[0]
                (partition,) = answer.partition_responses
                assert (answer.name, partition.index, partition.error_code) == (topic, index, ErrorCode.NONE)
                assert partition.base_offset not in told.setdefault((topic, index), {})
                told[topic, index][partition.base_offset] = value
            for (topic, index), expected in told.items():
                fetched = await client.ask(fetch_request(topic, [(index, 0)], max_bytes=1 << 20), 12)
                assert dict(values(fetched.responses[0].partitions[0].records)) == expected
            assert taken.count(True) >= 150 - 2 - 2 * 2 * partitions, "all but the first of each kind"

    run(test)


def test_where_there_are_too_many_to_know_those_that_come_are_known(tmp_path: Path, taken: list[bool]) -> None:
    others = range(1, MOST_FORMS)

    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", MOST_FORMS + 1)
            client = await node.connect()
            repeated = [index for index in others for _ in range(3)]
            for index in (0, 0, 0, *repeated, MOST_FORMS, MOST_FORMS, MOST_FORMS, 0):
                answer = await client.ask(produce_request("t", batch(b"x"), partition=index), 12)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert taken == [True, *[False, True, True] * len(others), False, True, True, False]

    run(test)


def test_what_is_named_without_partitions_and_what_is_too_long_is_not_for_the_short_way(
    tmp_path: Path, taken: list[bool]
) -> None:
    """An empty topic has no answer; a client's id, and tagged fields that nobody knows, may be as long as they like."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            for _ in range(3):
                request = produce_request("t", batch(b"x"))
                request.topic_data.insert(0, TopicProduceData(name="empty", partition_data=[]))
                (answer,) = (await client.ask(request, 12)).responses
                assert answer.partition_responses[0].error_code == ErrorCode.NONE
            assert taken == []
            long = await node.connect()
            for _ in range(3):
                answer = await long.ask(produce_request("t", batch(b"x")), 12, client_id="c" * 30_000)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert taken == []

    run(test)
