"""The data plane's APIs on a running node, through the wire formats of old and new versions."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kbroker.wire.messages.fetch import ForgottenTopic
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node, values
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


async def test_errors_are_told_per_partition(node: Node, client: Client) -> None:
    await node.create_topic("t", max_message_bytes="1000")

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


async def test_without_acks_there_is_no_answer_but_an_error_closes(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await client.send(produce_request("t", batch(b"x"), acks=0), 9)
    got = fetched(await client.ask(fetch_request("t"), 12))
    assert values(got.records) == [(0, b"x")]
    await client.send(produce_request("nowhere", batch(b"x"), acks=0), 9)
    assert await client.closed()


async def test_a_client_fills_no_log_with_what_it_names(
    node: Node, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kbroker")
    request = produce_request("nowhere\n", batch(b"x"), acks=0)
    request.topic_data *= 1000
    await client.send(request, 9)
    assert await client.closed()
    [told] = [line for record in caplog.records if "acks=0" in (line := record.getMessage())]
    assert len(told) < 700 and told.isprintable()


async def test_an_idempotent_batch_is_appended_once_also_after_a_restart(tmp_path: Path) -> None:
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
            (produced(await client.ask(produce_request("t", data), 9)).error_code) for data in (first, second, first)
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


async def test_ids_for_transactions_are_refused_clearly(client: Client) -> None:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    assert (await client.ask(request, 4)).error_code == ErrorCode.NOT_COORDINATOR
    request = InitProducerIdRequest(transactional_id=None, producer_id=5)
    assert (await client.ask(request, 4)).error_code == ErrorCode.INVALID_REQUEST


async def test_flush_messages_makes_a_batch_durable_before_it_is_acknowledged(node: Node, client: Client) -> None:
    await node.create_topic("t", flush_messages="1")
    answer = produced(await client.ask(produce_request("t", batch(b"x", b"y")), 9))
    assert answer.error_code == 0
    assert node.broker.replica_manager.get_partition("t", 0).log.recovery_point == 2


async def test_too_few_replicas_in_the_isr_refuse_acks_all(node: Node, client: Client) -> None:
    await node.create_topic("t", min_insync_replicas="2")
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


async def test_acks_all_waits_for_the_isr_and_times_out(node: Node, client: Client) -> None:
    """Two-phase: the connection reads on while the reply waits in its slot."""
    await node.create_topic("t")
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


# --- Fetch ---------------------------------------------------------------------------------------------------------


async def filled(node: Node, topic: str, count: int, size: int = 100) -> Client:
    await node.create_topic(topic)
    client = await node.connect()
    for index in range(count):
        data = batch(*[b"%03d" % index + b"x" * size] * 3, timestamp=STAMPED + index * 1000)
        assert produced(await client.ask(produce_request(topic, data), 9)).error_code == 0
    return client


async def test_a_broker_bounds_the_answer_whatever_is_asked_for(tmp_path: Path) -> None:
    """``fetch.max.bytes`` of the broker (KIP-541)."""
    async with running_node(tmp_path, fetch_max_bytes="1024") as node:
        client = await node.connect()
        await node.create_topic("u", 2)
        for index in (0, 1):
            await client.ask(produce_request("u", batch(b"y" * 5000), partition=index), 9)
        answer = await client.ask(fetch_request("u", [(0, 0), (1, 0)], max_bytes=1 << 20), 12)
        first, second = answer.responses[0].partitions
        assert (len(values(first.records)), len(second.records)) == (1, 0)


async def test_leader_epochs_fence(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
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


async def test_a_fetch_waits_for_enough_bytes_and_no_longer_than_told(node: Node) -> None:
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


@pytest.mark.parametrize("records", [5, 200])
async def test_a_fetch_that_its_limit_ends_is_not_kept_waiting_for_the_rest_of_a_batch(
    node: Node, client: Client, records: int
) -> None:
    await node.create_topic("t")
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


async def test_requests_behind_a_waiting_fetch_are_served_after_it(node: Node) -> None:
    client = await filled(node, "t", 1)
    sent = [
        await client.send(fetch_request("t", [(0, 3)], max_wait_ms=20), 12),
        await client.send(produce_request("t", batch(b"z")), 9),
        await client.send(fetch_request("t", [(0, 3)]), 12),
    ]
    answers = [await client.receive() for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    assert values(fetched(answers[2][1]).records) == [(3, b"z")]


@pytest.mark.parametrize("together", [True, False])
async def test_a_waiting_fetch_gives_way_to_another_request(node: Node, together: bool) -> None:
    """Spark's executors ask for offsets behind the Fetch that their consumer sends ahead."""
    client = await filled(node, "t", 1)
    sent = [await client.send(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)]
    await until(lambda: together or node.broker.replica_manager.purgatory.fetch_watch_count)
    sent.append(await client.send(ListOffsetsRequest(replica_id=-1, topics=[]), 9))
    answers = [await client.receive() for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    assert values(fetched(answers[0][1]).records) == []
    assert not node.broker.replica_manager.purgatory.fetch_watch_count


async def test_a_waiting_fetch_ends_with_the_session(node: Node) -> None:
    """A client whose session has ended gets nothing that is produced later (KIP-368)."""
    client = await filled(node, "t", 1)
    other = await node.connect()
    (connection,) = [
        each
        for server in node.broker.listeners
        for each in server.connections
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


async def test_a_waiting_fetch_does_not_give_way_to_another_fetch(node: Node) -> None:
    """Or a client that keeps two under way would be kept busy by them."""
    client = await filled(node, "t", 1)
    other = await node.connect()
    await client.send(fetch_request("t", [(0, 3)], max_wait_ms=3_600_000), 12)
    await client.send(fetch_request("t", [(0, 0)], max_wait_ms=0), 12)
    await until(lambda: node.broker.replica_manager.purgatory.fetch_watch_count)
    assert produced(await other.ask(produce_request("t", batch(b"z")), 9)).base_offset == 3
    assert values(fetched((await client.receive())[1]).records) == [(3, b"z")]
    assert values(fetched((await client.receive())[1]).records)[0][0] == 0


async def test_sessions_tell_only_the_news(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t", 3)

    def request(session_id: int, epoch: int, offsets: Any = (), **options: Any) -> Any:
        result = fetch_request("t", offsets, topic_id=topic_id, session_id=session_id, session_epoch=epoch, **options)
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


async def test_a_deleted_topic_wakes_its_readers(tmp_path: Path) -> None:
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


# --- Offsets -------------------------------------------------------------------------------------------------------


async def test_deleted_records_are_gone_also_after_a_restart(tmp_path: Path) -> None:
    async def delete(client: Client, offset: int, topic: str = "t") -> Any:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
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


async def test_log_dirs_are_described(node: Node, tmp_path: Path) -> None:
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


# --- Stop, restart, damage -------------------------------------------------------------------------------------------


async def test_a_disk_that_refuses_takes_the_log_dir_offline(tmp_path: Path) -> None:
    """The broker has two log dirs, and one for its metadata log: without any, or without that one, it would end."""
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
