"""The data plane's APIs on a running node, through the wire formats of old and new versions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.fetch import ForgottenTopic
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kbroker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, run, running_node, values
from tests.patience import SHORT, until

STAMPED = 1_600_000_000_000


def produced(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


async def list_offsets(client: Client, topic: str, timestamp: int, version: int = 11, **options: Any) -> Any:
    epoch = options.pop("epoch", -1)
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])], **options
    )
    return (await client.ask(request, version)).topics[0].partitions[0]


# --- Produce -------------------------------------------------------------------------------------------------------


def test_every_version_of_produce_and_fetch_moves_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t")
            client = await node.connect()
            for count, version in enumerate(range(3, 14)):
                request = produce_request(
                    "t", batch(b"%d" % version), topic_id=topic_id if version >= 13 else ZERO_UUID
                )
                answer = produced(await client.ask(request, version))
                assert (answer.error_code, answer.base_offset) == (0, count)
            for version in range(4, 19):
                got = await client.ask(fetch_request("t", topic_id=topic_id if version >= 13 else ZERO_UUID), version)
                assert [value for _, value in values(fetched(got).records)] == [b"%d" % v for v in range(3, 14)]
                assert fetched(got).high_watermark == 11

    run(test)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_compressed_batches_come_out_as_they_went_in(tmp_path: Path, codec: CompressionType) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            sent = batch(*[b"value" * 100] * 10, compression=codec)
            assert produced(await client.ask(produce_request("t", sent), 9)).error_code == 0
            got = fetched(await client.ask(fetch_request("t"), 12)).records
            assert len(got) == len(sent)
            assert values(got) == [(index, b"value" * 100) for index in range(10)]

    run(test)


def test_errors_are_told_per_partition(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", max_message_bytes="1000")
            client = await node.connect()

            async def code(records: bytes | None, topic: str = "t", version: int = 9, **options: Any) -> int:
                return int(produced(await client.ask(produce_request(topic, records, **options), version)).error_code)

            good = batch(b"x")
            broken = bytearray(good)
            broken[-1] ^= 1
            assert await code(bytes(broken)) == ErrorCode.CORRUPT_MESSAGE
            assert await code(good[:40]) == ErrorCode.INVALID_RECORD, "no whole batch, as in Kafka"
            assert await code(None) == ErrorCode.INVALID_RECORD
            assert await code(b"") == ErrorCode.INVALID_RECORD
            assert await code(good + good) == ErrorCode.INVALID_RECORD
            assert await code(batch(b"x" * 2000)) == ErrorCode.MESSAGE_TOO_LARGE
            assert await code(good, "nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await code(good, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await code(good, "", 13, topic_id=Uuid(b"\x09" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
            assert await code(good, acks=2) == ErrorCode.INVALID_REQUIRED_ACKS
            assert await code(batch(b"x", compression=CompressionType.ZSTD), version=6) == (
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            )
            transactional = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
            assert await code(transactional) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            request = produce_request("t", transactional)
            request.transactional_id = "tx"
            # Nobody can say whether it is in a transaction, as nobody coordinates one yet: clients try again.
            assert produced(await client.ask(request, 9)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            # One bad partition spoils nothing for the others.
            request = produce_request("t", good)
            request.topic_data += produce_request("nowhere", good).topic_data
            answer = await client.ask(request, 9)
            assert [topic.partition_responses[0].error_code for topic in answer.responses] == [0, 3]
            assert await code(good) == 0

    run(test)


def test_without_acks_there_is_no_answer_but_an_error_closes(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            await client.send(produce_request("t", batch(b"x"), acks=0), 9)
            got = fetched(await client.ask(fetch_request("t"), 12))
            assert values(got.records) == [(0, b"x")]
            await client.send(produce_request("nowhere", batch(b"x"), acks=0), 9)
            assert await client.closed()

    run(test)


def test_the_append_time_is_told_where_the_topic_stamps_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", message_timestamp_type="LogAppendTime")
            client = await node.connect()
            answer = produced(await client.ask(produce_request("t", batch(b"x")), 9))
            assert abs(answer.log_append_time_ms - node.broker.env.wall_clock_ms()) < 60_000
            latest = await list_offsets(client, "t", -3)
            assert latest.timestamp == answer.log_append_time_ms

    run(test)


def test_an_idempotent_batch_is_appended_once_also_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            answer = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            other = await client.ask(InitProducerIdRequest(transactional_id=None), 0)
            assert other.producer_id != answer.producer_id
            # Of now: a producer whose last record is older than producer.id.expiration.ms is forgotten.
            known = {"producer_id": answer.producer_id, "producer_epoch": 0, "timestamp": int(time.time() * 1000)}
            first = batch(b"a", b"b", base_sequence=0, **known)
            second = batch(b"c", base_sequence=2, **known)
            assert [
                (produced(await client.ask(produce_request("t", data), 9)).error_code)
                for data in (first, second, first)
            ] == [0, 0, 0]
            gap = batch(b"z", base_sequence=9, **known)
            assert produced(await client.ask(produce_request("t", gap), 9)).error_code == (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
        async with running_node(tmp_path) as node:
            client = await node.connect()
            again = produced(await client.ask(produce_request("t", second), 9))
            assert (again.error_code, again.base_offset) == (0, 2)
            got = fetched(await client.ask(fetch_request("t"), 12))
            assert [value for _, value in values(got.records)] == [b"a", b"b", b"c"]
            third = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
            assert third.producer_id not in (answer.producer_id, other.producer_id)

    run(test)


def test_ids_for_transactions_are_refused_clearly(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
            assert (await client.ask(request, 4)).error_code == ErrorCode.NOT_COORDINATOR
            request = InitProducerIdRequest(transactional_id=None, producer_id=5)
            assert (await client.ask(request, 4)).error_code == ErrorCode.INVALID_REQUEST

    run(test)


def test_flush_messages_makes_a_batch_durable_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", flush_messages="1")
            client = await node.connect()
            answer = produced(await client.ask(produce_request("t", batch(b"x", b"y")), 9))
            assert answer.error_code == 0
            assert node.broker.replica_manager.get_partition("t", 0).log.recovery_point == 2

    run(test)


def test_too_few_replicas_in_the_isr_refuse_acks_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", min_insync_replicas="2")
            client = await node.connect()
            # One replica: the bound is capped by the number of replicas.
            assert produced(await client.ask(produce_request("t", batch(b"x")), 9)).error_code == 0
            state = node.broker.replica_manager.get_partition("t", 0).state
            state.become_leader(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch + 1,
                replicas=(1, 2),
                isr=(1,),
                log_end_offset=1,
                now_ms=0,
            )
            assert produced(await client.ask(produce_request("t", batch(b"x")), 9)).error_code == (
                ErrorCode.NOT_ENOUGH_REPLICAS
            )
            assert produced(await client.ask(produce_request("t", batch(b"x"), acks=1), 9)).error_code == 0

    run(test)


def test_acks_all_waits_for_the_isr_and_times_out(tmp_path: Path) -> None:
    """Two-phase: the connection reads on while the reply waits in its slot."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            manager = node.broker.replica_manager
            partition = manager.get_partition("t", 0)
            partition.state.become_leader(
                leader_epoch=0, partition_epoch=9, replicas=[1, 2], isr=[1, 2], log_end_offset=0, now_ms=0
            )
            slow = await client.send(produce_request("t", batch(b"x"), timeout_ms=60_000), 9)
            late = await client.send(produce_request("t", batch(b"y"), timeout_ms=1), 9)
            await until(lambda: partition.log.log_end_offset >= 2)
            follower = await node.connect()
            await follower.send(fetch_request("t", [(0, 1)], replica_id=2), 12)
            answers = [await client.receive(), await client.receive()]
            assert [correlation_id for correlation_id, _ in answers] == [slow, late]
            assert [produced(answer).error_code for _, answer in answers] == [0, ErrorCode.REQUEST_TIMED_OUT]
            assert manager.purgatory.produce_watch_count == 0

    run(test)


# --- Fetch ---------------------------------------------------------------------------------------------------------


async def filled(node: Node, topic: str, count: int, size: int = 100) -> Client:
    await node.create_topic(topic)
    client = await node.connect()
    for index in range(count):
        data = batch(*[b"%03d" % index + b"x" * size] * 3, timestamp=STAMPED + index * 1000)
        assert produced(await client.ask(produce_request(topic, data), 9)).error_code == 0
    return client


def test_an_offset_within_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 3)
            got = fetched(await client.ask(fetch_request("t", [(0, 4)]), 12))
            assert [offset for offset, _ in values(got.records)] == [3, 4, 5, 6, 7, 8]

    run(test)


def test_sizes_bound_the_answer_but_never_the_first_batch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 5, size=1000)
            await node.create_topic("u", 2)
            for index in (0, 1):
                await client.ask(produce_request("u", batch(b"y" * 5000), partition=index), 9)
            got = fetched(await client.ask(fetch_request("t", partition_max_bytes=1), 12))
            assert {offset for offset, _ in values(got.records)} == {0, 1, 2}
            got = fetched(await client.ask(fetch_request("t", partition_max_bytes=7000), 12))
            assert {offset for offset, _ in values(got.records)} == {0, 1, 2, 3, 4, 5}
            answer = await client.ask(fetch_request("u", [(0, 0), (1, 0)], max_bytes=100), 12)
            first, second = answer.responses[0].partitions
            assert len(values(first.records)) == 1
            assert (len(second.records), second.high_watermark) == (0, 1)

    run(test)


def test_a_broker_bounds_the_answer_whatever_is_asked_for(tmp_path: Path) -> None:
    """``fetch.max.bytes`` of the broker (KIP-541)."""

    async def test() -> None:
        async with running_node(tmp_path, fetch_max_bytes="1024") as node:
            client = await node.connect()
            await node.create_topic("u", 2)
            for index in (0, 1):
                await client.ask(produce_request("u", batch(b"y" * 5000), partition=index), 9)
            answer = await client.ask(fetch_request("u", [(0, 0), (1, 0)], max_bytes=1 << 20), 12)
            first, second = answer.responses[0].partitions
            assert (len(values(first.records)), len(second.records)) == (1, 0)

    run(test)


def test_outside_of_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            for offset in (4, -1, 1 << 40):
                got = fetched(await client.ask(fetch_request("t", [(0, offset)]), 12))
                assert got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert (got.high_watermark, len(got.records)) == (-1, 0)
            got = fetched(await client.ask(fetch_request("t", [(0, 3)]), 12))
            assert (got.error_code, got.high_watermark, len(got.records)) == (0, 3, 0)
            got = fetched(await client.ask(fetch_request("t", [(7, 0)]), 12))
            assert got.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            got = fetched(await client.ask(fetch_request("", topic_id=Uuid(b"\x09" * 16)), 16))
            assert got.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_leader_epochs_fence(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t")
            client = await node.connect()
            node.broker.replica_manager.get_partition("t", 0).state.leader_epoch = 5
            for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (5, 0), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
                request = fetch_request("t", topic_id=topic_id)
                request.topics[0].partitions[0].current_leader_epoch = epoch
                answer = await client.ask(request, 16)
                assert fetched(answer).error_code == code
                if code == ErrorCode.FENCED_LEADER_EPOCH:
                    assert fetched(answer).current_leader.leader_id == 1
                    assert [endpoint.port for endpoint in answer.node_endpoints] == [node.broker.ports["PLAINTEXT"][1]]
                assert (await list_offsets(client, "t", -1, epoch=epoch)).error_code == code

    run(test)


def test_a_fetch_waits_for_enough_bytes_and_no_longer_than_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            other = await node.connect()
            waiting = fetch_request("t", [(0, 3)], max_wait_ms=30_000, min_bytes=300)
            await client.send(waiting, 12)
            purgatory = node.broker.replica_manager.purgatory
            await until(lambda: purgatory.fetch_watch_count)
            await other.ask(produce_request("t", batch(b"x" * 100)), 9)
            assert purgatory.fetch_watch_count == 1
            await other.ask(produce_request("t", batch(b"y" * 200)), 9)
            got = fetched((await client.receive())[1])
            assert [offset for offset, _ in values(got.records)] == [3, 4]
            assert purgatory.fetch_watch_count == 0
            before = trio.current_time()
            got = fetched(await client.ask(fetch_request("t", [(0, 5)], max_wait_ms=50), 12))
            assert len(got.records) == 0
            assert trio.current_time() - before >= 0.05

    run(test)


@pytest.mark.parametrize("records", [5, 200])
def test_a_fetch_that_its_limit_ends_is_not_kept_waiting_for_the_rest_of_a_batch(tmp_path: Path, records: int) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t")
            client = await node.connect()
            for _ in range(records):
                await client.ask(produce_request("t", batch(b"v" * 1_000)), 9)
            # Less than is there, and no number of whole batches.
            limit = 3_500
            asked = fetch_request("t", [(0, 0)], max_wait_ms=600_000, min_bytes=limit, partition_max_bytes=limit)
            with trio.fail_after(SHORT):
                answer = fetched(await client.ask(asked, 12))
            assert len(values(answer.records)) == 3
            # So it is with the limit of the whole request.
            asked = fetch_request("t", [(0, 0)], max_wait_ms=600_000, min_bytes=limit, max_bytes=limit)
            with trio.fail_after(SHORT):
                answer = fetched(await client.ask(asked, 12))
            assert len(values(answer.records)) == 3

    run(test)


def test_requests_behind_a_waiting_fetch_are_served_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            sent = [
                await client.send(fetch_request("t", [(0, 3)], max_wait_ms=20), 12),
                await client.send(produce_request("t", batch(b"z")), 9),
                await client.send(fetch_request("t", [(0, 3)]), 12),
            ]
            answers = [await client.receive() for _ in sent]
            assert [correlation_id for correlation_id, _ in answers] == sent
            assert values(fetched(answers[2][1]).records) == [(3, b"z")]

    run(test)


@pytest.mark.parametrize("together", [True, False])
def test_a_waiting_fetch_gives_way_to_another_request(tmp_path: Path, together: bool) -> None:
    """Spark's executors ask for offsets behind the Fetch that their consumer sends ahead."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            sent = [await client.send(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)]
            await until(lambda: together or node.broker.replica_manager.purgatory.fetch_watch_count)
            sent.append(await client.send(ListOffsetsRequest(replica_id=-1, topics=[]), 9))
            answers = [await client.receive() for _ in sent]
            assert [correlation_id for correlation_id, _ in answers] == sent
            assert values(fetched(answers[0][1]).records) == []
            assert not node.broker.replica_manager.purgatory.fetch_watch_count

    run(test)


def test_a_waiting_fetch_ends_with_the_session(tmp_path: Path) -> None:
    """A client whose session has ended gets nothing that is produced later (KIP-368)."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            other = await node.connect()
            (connection,) = [
                each
                for server in node.broker.listeners
                for each in server._connections
                if each.peer.endswith(f":{client.stream.socket.getsockname()[1]}")
            ]
            await client.send(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)
            await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
            connection.restrict((17, 36))
            produced(await other.ask(produce_request("t", batch(b"late")), 9))
            assert values(fetched((await client.receive())[1]).records) == []
            assert not node.broker.replica_manager.purgatory.fetch_watch_count
            connection.restrict(None)
            answer = await client.ask(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)
            assert values(fetched(answer).records) == [(3, b"late")]

    run(test)


def test_a_waiting_fetch_does_not_give_way_to_another_fetch(tmp_path: Path) -> None:
    """Or a client that keeps two under way would be kept busy by them."""

    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            other = await node.connect()
            await client.send(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)
            await client.send(fetch_request("t", [(0, 0)], max_wait_ms=0), 12)
            await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
            assert produced(await other.ask(produce_request("t", batch(b"z")), 9)).base_offset == 3
            assert values(fetched((await client.receive())[1]).records) == [(3, b"z")]
            assert values(fetched((await client.receive())[1]).records)[0][0] == 0

    run(test)


def test_sessions_tell_only_the_news(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            topic_id = await node.create_topic("t", 3)
            client = await node.connect()

            def request(session_id: int, epoch: int, offsets: Any = (), **options: Any) -> Any:
                result = fetch_request(
                    "t", offsets, topic_id=topic_id, session_id=session_id, session_epoch=epoch, **options
                )
                if not offsets:
                    result.topics = []
                return result

            first = await client.ask(request(0, 0, [(0, 0), (1, 0), (2, 0)]), 17)
            session = first.session_id
            assert session > 0
            assert len(first.responses[0].partitions) == 3
            assert (await client.ask(request(session, 1), 17)).responses == []
            await client.ask(produce_request("t", batch(b"x"), partition=1), 9)
            news = await client.ask(request(session, 2), 17)
            assert news.session_id == session
            assert [p.partition_index for p in news.responses[0].partitions] == [1]
            forget = request(session, 3, [(1, 1)])
            forget.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[0, 2])]
            assert (await client.ask(forget, 17)).responses == []
            await client.ask(produce_request("t", batch(b"y"), partition=0), 9)
            assert (await client.ask(request(session, 4), 17)).responses == []
            wrong = await client.ask(request(session, 4), 17)
            assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            wrong = await client.ask(request(session + 1, 1), 17)
            assert wrong.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            wrong = await client.ask(request(session, 5), 12)
            assert wrong.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            closed = await client.ask(request(session, -1, [(0, 0)]), 17)
            assert closed.session_id == 0
            assert len(node.broker.services.fetch_sessions) == 0

    run(test)


def test_a_deleted_topic_wakes_its_readers(tmp_path: Path) -> None:
    async def test() -> None:
        from kbroker.wire.messages.topics import DeleteTopicsRequest

        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 1)
            other = await node.connect()
            await client.send(fetch_request("t", [(0, 3)], max_wait_ms=30_000), 12)
            await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
            await other.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
            assert fetched((await client.receive())[1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert produced(await client.ask(produce_request("t", batch(b"x")), 9)).error_code == 3
            await node.create_topic("t")
            assert produced(await client.ask(produce_request("t", batch(b"x")), 9)).base_offset == 0

    run(test)


# --- Offsets -------------------------------------------------------------------------------------------------------


def test_offsets_by_name_and_by_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 4)
            for version in range(1, 12):
                assert (await list_offsets(client, "t", -1, version)).offset == 12
                assert (await list_offsets(client, "t", -2, version)).offset == 0
                found = await list_offsets(client, "t", STAMPED + 1500, version)
                assert (found.offset, found.timestamp) == (6, STAMPED + 2000)
            found = await list_offsets(client, "t", -3)
            assert (found.offset, found.timestamp) == (11, STAMPED + 3002)
            assert (await list_offsets(client, "t", STAMPED * 2)).offset == -1
            assert (await list_offsets(client, "t", -4)).offset == 0
            assert (await list_offsets(client, "t", -5)).offset == -1
            assert (await list_offsets(client, "t", -6)).offset == -1
            assert (await list_offsets(client, "t", -1)).leader_epoch == 0
            assert (await list_offsets(client, "t", -3, 6)).error_code == ErrorCode.UNSUPPORTED_VERSION
            assert (await list_offsets(client, "t", -99)).error_code == ErrorCode.UNSUPPORTED_VERSION
            assert (await list_offsets(client, "u", -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            twice = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)] * 2)
            answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[twice]))
            assert {p.error_code for p in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}

    run(test)


def test_where_epochs_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 2)

            async def ask(epoch: int, current: int = -1) -> Any:
                wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
                request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
                return (await client.ask(request)).topics[0].partitions[0]

            assert ((await ask(0)).leader_epoch, (await ask(0)).end_offset) == (0, 6)
            assert ((await ask(3)).leader_epoch, (await ask(3)).end_offset) == (-1, -1)
            assert (await ask(0, current=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(test)


def test_deleted_records_are_gone_also_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async def delete(client: Client, offset: int, topic: str = "t") -> Any:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
                    )
                ],
                timeout_ms=1000,
            )
            return (await client.ask(request)).topics[0].partitions[0]

        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 3)
            assert (await delete(client, 4)).low_watermark == 4
            assert (await delete(client, 2)).low_watermark == 4
            assert (await delete(client, 99)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await delete(client, 1, "u")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            got = fetched(await client.ask(fetch_request("t", [(0, 3)]), 12))
            assert got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await list_offsets(client, "t", -2)).offset == 4
            await node.create_topic("c", cleanup_policy="compact")
            assert (await delete(client, 0, "c")).error_code == ErrorCode.POLICY_VIOLATION
        async with running_node(tmp_path) as node:
            client = await node.connect()
            assert (await list_offsets(client, "t", -2)).offset == 4
            assert (await delete(client, -1)).low_watermark == 9
            assert fetched(await client.ask(fetch_request("t", [(0, 9)]), 12)).log_start_offset == 9

    run(test)


def test_log_dirs_are_described(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await filled(node, "t", 2)
            for version in range(1, 6):
                (found,) = (await client.ask(DescribeLogDirsRequest(topics=None), version)).results
                assert found.log_dir == str(tmp_path / "data")
                (topic,) = [topic for topic in found.topics if topic.name == "t"]
                log_file = tmp_path / "data" / "t-0" / f"{0:020}.log"
                assert topic.partitions[0].partition_size == log_file.stat().st_size
            assert found.total_bytes >= found.usable_bytes > 0
            only = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="u", partitions=[0])])
            assert (await client.ask(only)).results[0].topics == []

    run(test)


# --- Stop, restart, damage -------------------------------------------------------------------------------------------


def test_a_restart_brings_everything_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            await filled(node, "t", 3)
            topic_id = node.broker.replica_manager.topic_id("t")
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        async with running_node(tmp_path) as node:
            assert node.broker.replica_manager.topic_id("t") == topic_id
            client = await node.connect()
            got = fetched(await client.ask(fetch_request("t"), 12))
            assert (len(values(got.records)), got.high_watermark) == (9, 9)
            assert produced(await client.ask(produce_request("t", batch(b"x")), 9)).base_offset == 9

    run(test)


def test_a_disk_that_refuses_takes_the_log_dir_offline(tmp_path: Path) -> None:
    """The broker has two log dirs, and one for its metadata log: without any, or without that one, it would end."""

    async def test() -> None:
        dirs = {"log_dirs": f"{tmp_path}/data,{tmp_path}/other", "metadata_log_dir": f"{tmp_path}/metadata"}
        async with running_node(tmp_path, **dirs) as node:
            client = await filled(node, "t", 1)
            log = node.broker.replica_manager.get_partition("t", 0).log
            segment_append = type(log.active_segment).append

            def refuse(*args: object) -> None:
                raise OSError(5, "Input/output error")

            try:
                type(log.active_segment).append = refuse  # type: ignore[method-assign, assignment]
                answer = produced(await client.ask(produce_request("t", batch(b"x")), 9))
            finally:
                type(log.active_segment).append = segment_append  # type: ignore[method-assign]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetched(await client.ask(fetch_request("t"), 12)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(test)
