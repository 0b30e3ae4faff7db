"""broker.faults with stock clients: what was asked for happens to the requests it was asked for, and ends."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from typing import Any

import pytest

from kbroker.client import Client, ConnectionFailed
from kbroker.client.topics import delete_topics, describe_topics
from kbroker.errors import ApiError, ErrorCode
from kbroker.testing import RunningBroker, broker_actions, running_broker
from kbroker.testing.intercepted import Intercepted
from kbroker.testing.seen import NotThere
from kbroker.tools.cli.port_claims import OWN, listening_ports
from kbroker.wire.compiler import encode
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kbroker.wire.record_batch import Record, build_batch
from tests.first_requests import EarlyClients
from tests.patience import LONG

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

QUICK = {"reconnect.backoff.ms": 10, "retry.backoff.ms": 20, "retry.backoff.max.ms": 40}
CONFIG: dict[str, Any] = {"log_level": 0, **QUICK}


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """Two partitions; partition 0 holds r0 to r4."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create(broker, name, 2)
    assert produce(broker, name, [f"r{n}" for n in range(5)]) == [None] * 5
    return name


def create(broker: RunningBroker, name: str, partitions: int, **config: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers, **CONFIG})
    new = admin.NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    client.create_topics([new])[name].result(LONG)


def produce(
    broker: RunningBroker,
    topic: str,
    values: list[str],
    *,
    partition: int = 0,
    keys: list[str] | None = None,
    **config: Any,
) -> list[str | None]:
    """The error of each record, or None."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, **CONFIG}
    producer = confluent_kafka.Producer(settings | {k.replace("_", "."): v for k, v in config.items()})
    errors: dict[int, str | None] = {}
    for number, value in enumerate(values):

        def delivered(error: Any, message: Any, number: int = number) -> None:
            errors[number] = error.name() if error is not None else None

        producer.produce(topic, value, keys[number] if keys else None, partition=partition, on_delivery=delivered)
    assert producer.flush(LONG) == 0
    return [errors[number] for number in range(len(values))]


def read(broker: RunningBroker, topic: str, partition: int = 0, first: int = 0) -> list[tuple[int, str]]:
    """Offset and value of all that is there, to the end."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "none",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.error.backoff.ms": 10,
        **CONFIG,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, first)])
    found = []
    try:
        while True:
            message = consumer.poll(LONG)
            assert message is not None
            if message.error() is None:
                found.append((message.offset(), message.value().decode()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise confluent_kafka.KafkaException(message.error())
    finally:
        consumer.close()


def latest(broker: RunningBroker, topic: str, *partitions: int) -> list[tuple[int, int]]:
    """(offset, error) of each partition's end."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in partitions]
    with Client(broker.bootstrap_servers) as client:
        response = client.ask_any(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        )
    answers = {answer.partition_index: answer for entry in response.topics for answer in entry.partitions}
    return [(answers[index].offset, answers[index].error_code) for index in partitions]


# --- requests


def test_a_reply_lost_after_the_effect_is_not_written_twice(broker: RunningBroker, topic: str) -> None:
    with broker.faults.drop("Produce", when="after", topic=topic, times=2) as fault:
        assert produce(broker, topic, ["x"]) == [None]
        assert fault.hits == 2
    assert [value for _, value in read(broker, topic)] == ["r0", "r1", "r2", "r3", "r4", "x"]


def test_without_idempotence_it_is(broker: RunningBroker, topic: str) -> None:
    with broker.faults.drop("Produce", when="after", topic=topic, times=1):
        assert produce(broker, topic, ["x"], enable_idempotence=False) == [None]
    assert [value for _, value in read(broker, topic)][5:] == ["x", "x"]


def test_a_connection_lost_before_the_effect(broker: RunningBroker, topic: str) -> None:
    with broker.faults.drop("Produce", when="before", topic=topic):
        errors = produce(broker, topic, ["x"], enable_idempotence=False, retries=0)
        assert errors != [None]
    assert latest(broker, topic, 0) == [(5, 0)]


def test_an_error_of_one_partition_leaves_the_others_alone(broker: RunningBroker, topic: str) -> None:
    with broker.faults.error("ListOffsets", "LEADER_NOT_AVAILABLE", topic=topic, partition=1):
        assert latest(broker, topic, 0, 1) == [(5, 0), (-1, ErrorCode.LEADER_NOT_AVAILABLE)]
    assert latest(broker, topic, 0, 1) == [(5, 0), (0, 0)]


def test_a_refused_batch_is_not_stored(broker: RunningBroker, topic: str) -> None:
    with broker.faults.error("Produce", ErrorCode.POLICY_VIOLATION, topic=topic):
        assert produce(broker, topic, ["x"]) == ["POLICY_VIOLATION"]
    assert latest(broker, topic, 0) == [(5, 0)]


def test_errors_of_fetches_in_a_session_and_out_of_it(broker: RunningBroker, topic: str) -> None:
    """confluent-kafka has no sessions, kafka-python has."""
    with broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=3) as fault:
        assert len(read(broker, topic)) == 5
        assert fault.hits == 3
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=10
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    try:
        values = [next(consumer).value for _ in range(5)]
        with broker.faults.error("Fetch", "UNKNOWN_TOPIC_OR_PARTITION", topic=topic, times=2) as fault:
            assert produce(broker, topic, ["x", "y"]) == [None, None]
            values += [next(consumer).value for _ in range(2)]
        assert values == [b"r0", b"r1", b"r2", b"r3", b"r4", b"x", b"y"]
        assert consumer.poll(0) == {}
    finally:
        consumer.close()


def test_metadata_of_all_topics_with_one_in_error(broker: RunningBroker, topic: str) -> None:
    with (
        broker.faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic=topic) as fault,
        Client(broker.bootstrap_servers) as client,
    ):
        response = client.ask_any(MetadataRequest(topics=None))
        errors = {entry.name: entry.error_code for entry in response.topics}
        assert errors.pop(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not any(errors.values()) and response.brokers
        assert fault.hits >= 1


def test_the_nth_by_chance_and_by_client(broker: RunningBroker, topic: str) -> None:
    with broker.faults.error("ListOffsets", "UNKNOWN_SERVER_ERROR", topic=topic, nth=2) as fault:
        assert [latest(broker, topic, 0)[0][1] for _ in range(4)] == [0, -1, 0, 0]
        assert fault.hits == 1

    def by_chance(seed: int) -> list[int]:
        with broker.faults.error("ListOffsets", 38, topic=topic, probability=0.5, seed=seed):
            return [latest(broker, topic, 0)[0][1] for _ in range(12)]

    assert by_chance(1) == by_chance(1) != by_chance(2)
    assert set(by_chance(1)) == {0, 38}
    with broker.faults.error("ListOffsets", 38, client_id="^someone-else$"):
        assert latest(broker, topic, 0) == [(5, 0)]


def test_a_delay_comes_before_the_effect_and_ends_when_undone(broker: RunningBroker, topic: str) -> None:
    begin = time.monotonic()
    with broker.faults.delay("ListOffsets", 0.2, topic=topic) as fault:
        assert latest(broker, topic, 0) == [(5, 0)]
    assert time.monotonic() - begin >= 0.2 and fault.hits == 1

    answers: list[Any] = []
    with broker.faults.hold("ListOffsets", topic=topic) as held:
        thread = threading.Thread(target=lambda: answers.append(latest(broker, topic, 0)))
        thread.start()
        held.wait(1)
        assert produce(broker, topic, ["late"]) == [None]
        assert answers == []
    thread.join(LONG)
    assert answers == [[(6, 0)]], "it was served when it was let go"
    with pytest.raises(TimeoutError, match="hold ListOffsets acted on 1 requests"):
        held.wait(2, timeout=0.01)


def test_faults_act_together_in_the_order_in_which_they_were_made(broker: RunningBroker, topic: str) -> None:
    with broker.faults as faults:
        before = len(faults.record)
        faults.delay("ListOffsets", 0, topic=topic)
        faults.error("ListOffsets", 38, topic=topic, times=1)
        faults.stale_latest(topic, behind=2, times=None)
        assert latest(broker, topic, 0) == [(-1, 38)]
        assert latest(broker, topic, 0) == [(3, 0)]
        done = faults.record[before:]
    assert [(injection.action, injection.partitions) for injection in done] == [
        ("delay", ((topic, 0),)),
        ("error", ((topic, 0),)),
        ("delay", ((topic, 0),)),
        ("stale latest", ((topic, 0),)),
    ]
    assert done[3].detail == f"{topic}-0: 3 instead of 5"
    assert str(done[1]).startswith(f"{done[1].number}: error ListOffsets v11 #")
    assert latest(broker, topic, 0) == [(5, 0)], "all is undone at the end of the block"


def test_a_lost_reply_is_told_once_the_effect_is_there(broker: RunningBroker, topic: str) -> None:
    with (
        broker.faults.drop("Produce", when="after", topic=topic, times=1) as lost,
        broker.faults.hold("Produce", topic=topic, times=1) as held,
    ):
        written: list[str | None] = []
        writer = threading.Thread(target=lambda: written.extend(produce(broker, topic, ["x"])))
        writer.start()
        held.wait(timeout=LONG)
        early = lost.hits
        held.undo()
        lost.wait(timeout=LONG)
        writer.join()
    assert (early, lost.hits, written) == (0, 1, [None])


def test_a_stale_end_is_told_once_and_never_lies_before_the_start(broker: RunningBroker, topic: str) -> None:
    fault = broker.faults.stale_latest(topic, 0, behind=100)
    assert latest(broker, topic, 1, 0) == [(0, 0), (0, 0)]
    assert latest(broker, topic, 0) == [(5, 0)]
    fault.undo()
    fault.undo()


def test_replies_before_a_dropped_request_still_come(broker: RunningBroker, topic: str) -> None:
    with broker.faults.drop("ListOffsets", topic=topic, nth=2), Client(broker.bootstrap_servers) as client:
        deadline = client.deadline()
        connection = client.any_broker(deadline)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        )
        connection.send(request)
        connection.send(request)
        assert connection.receive(deadline).topics[0].partitions[0].offset == 5
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            connection.receive(deadline)


def test_the_test_answers_a_fetch_with_records_of_its_own(broker: RunningBroker, topic: str) -> None:
    number = itertools.count()

    def answer(asked: Intercepted) -> None:
        request = asked.message
        if not request.topics or next(number):
            fault.intercepted.decide(asked.number, "pass")
            return
        [wanted] = request.topics
        made = build_batch([Record(4, 0, None, b"made up")], base_offset=4)
        data = PartitionData(
            partition_index=0, high_watermark=6, last_stable_offset=6, log_start_offset=0, records=made
        )
        found = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data])
        body = encode(FetchResponse(responses=[found]), asked.api_version)
        fault.intercepted.decide(asked.number, "answer", body)

    def decide() -> None:
        with contextlib.suppress(NotThere):  # once it is undone
            while True:
                for asked in fault.intercepted.take():
                    answer(asked)

    with broker.faults.intercept("Fetch") as fault:
        decider = threading.Thread(target=decide)
        decider.start()
        found = read(broker, topic, first=4)
    decider.join()
    assert found == [(4, "made up")]
    assert len(read(broker, topic)) == 5


def test_what_nobody_decides_about_in_time_is_passed_on() -> None:
    with running_broker() as own, own.faults.intercept("Produce", patience=3600) as fault:
        create(own, "late", 1)
        written: list[str | None] = []
        writer = threading.Thread(target=lambda: written.extend(produce(own, "late", ["a"])))
        writer.start()
        [asked] = fault.intercepted.take(LONG)
        assert [each.name for each in asked.message.topic_data] in (["late"], [""])
        own.advance(3601)
        writer.join()
        assert written == [None]
        assert [each.detail for each in fault.injections] == ["pass, as nobody has decided in time"]
        with pytest.raises(NotThere, match="waits no more"):
            fault.intercepted.decide(asked.number, "close")  # which comes too late
        assert own.is_running


def test_wrong_arguments_are_refused(broker: RunningBroker) -> None:
    faults = broker.faults
    with pytest.raises(ValueError, match="no API 'Fetsch'"):
        faults.delay("Fetsch", 1)
    with pytest.raises(ValueError, match="Vote is not served to clients"):
        faults.drop("Vote")
    with pytest.raises(ValueError, match="followers send Fetch, ListOffsets, OffsetForLeaderEpoch, and no Produce"):
        faults.drop("Produce", followers=True)
    with pytest.raises(ValueError, match="before"):
        faults.drop("Fetch", when="during")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a fault has no topics"):
        faults.drop("Fetch", topics="t")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="probability"):
        faults.drop("Fetch", probability=2)
    with pytest.raises(ValueError, match="negative"):
        faults.delay("Fetch", -1)
    with pytest.raises(ApiError, match="there is no topic nowhere"):
        faults.expire("nowhere")
    with pytest.raises(ValueError, match="Kafka has no error 'NO_SUCH_ERROR'"):
        faults.error("Fetch", "NO_SUCH_ERROR")


def test_without_faults_the_handlers_are_the_brokers_own(broker: RunningBroker, topic: str) -> None:
    def handlers(node: Any) -> list[Any]:
        return [listener.registration(key) for listener in node.listeners for key in range(80)]

    before = broker.in_broker(handlers)
    with broker.faults as faults:
        faults.delay("Fetch", 0)
        faults.drop("Fetch", times=0)
        assert broker.in_broker(handlers) != before
        assert len(read(broker, topic)) == 5
    assert broker.in_broker(handlers) == before


def test_a_group_reads_and_commits_all_the_same(broker: RunningBroker, topic: str) -> None:
    """Handlers that answer later (OffsetCommit, JoinGroup) and at once (Heartbeat), errors at the top and below."""
    group = f"group-{topic}"
    with broker.faults as faults:
        faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=1)
        faults.drop("JoinGroup", when="after", times=1)
        commits = faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", topic=topic, partition=0, times=1)
        faults.delay("Heartbeat", 0)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, **CONFIG})
        consumer.subscribe([topic])
        values = [consumer.poll(LONG).value().decode() for _ in range(5)]
        assert values == ["r0", "r1", "r2", "r3", "r4"]
        deadline = time.monotonic() + LONG
        while True:
            try:
                consumer.commit(asynchronous=False)
                break
            except confluent_kafka.KafkaException:
                assert time.monotonic() < deadline
        (committed,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=LONG)
        consumer.close()
        assert committed.offset == 5
        assert commits.hits == 1


def test_administration_that_is_refused(broker: RunningBroker) -> None:
    name = f"refused-{uuid.uuid4().hex[:8]}"
    with (
        broker.faults.error("CreateTopics", "POLICY_VIOLATION", topic=name),
        pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"),
    ):
        create(broker, name, 1)
    create(broker, name, 1)


REFUSED: list[tuple[str, int, Any]] = [
    ("AlterReplicaLogDirs", 2, AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name="any", partitions=[0])])])),
    ("DescribeLogDirs", 1, DescribeLogDirsRequest(topics=None)),
    ("DescribeLogDirs", 4, DescribeLogDirsRequest(topics=None)),
    ("ElectLeaders", 0, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="any", partitions=[0])])),
    ("ElectLeaders", 2, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="any", partitions=[0])])),
    ("OffsetFetch", 1, OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="any", partition_indexes=[0])])),
]  # fmt: skip


@pytest.mark.parametrize(("api", "version", "request_"), REFUSED, ids=lambda value: str(value)[:25])
def test_answers_in_other_shapes(broker: RunningBroker, api: str, version: int, request_: Any) -> None:
    """An API that asks by directory and answers by topic, and versions without an error for all."""

    def errors(value: Any) -> list[int]:
        if isinstance(value, list):
            return [code for entry in value for code in errors(entry)]
        names = getattr(value, "__slots__", ())
        inner = [code for name in names for code in errors(getattr(value, name))]
        return [value.error_code, *inner] if "error_code" in names else inner

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC  # which no broker answers to any of these
    with Client(broker.bootstrap_servers) as client:
        with broker.faults.error(api, code) as fault:
            assert code in errors(client.ask_any(request_, highest=version))
            assert fault.hits == 1 and fault.injections[0].api_version == version
        assert code not in errors(client.ask_any(request_, highest=version))


def test_a_topic_is_meant_also_where_errors_are_not_by_topic(broker: RunningBroker, topic: str) -> None:
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])])
    with Client(broker.bootstrap_servers) as client:
        for name in ("another", topic):
            with broker.faults.error("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", topic=name) as fault:
                [answer] = client.ask_any(request, highest=8).groups
                fails = answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
                assert (fails, fault.hits) == (name == topic, name == topic)


def test_a_topic_is_meant_by_each_share_fetch_of_a_session(broker: RunningBroker, topic: str) -> None:
    faults = broker.faults
    with faults.delay("ShareFetch", 0, topic=topic) as own, faults.delay("ShareFetch", 0, topic="another") as other:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"share-{topic}", **CONFIG}
        consumer = confluent_kafka.ShareConsumer(settings)
        consumer.subscribe([topic])
        deadline = time.monotonic() + LONG
        while own.hits < 3 and time.monotonic() < deadline:
            consumer.poll(0.1)
        consumer.close()
        assert own.hits >= 3
        assert {name for done in own.injections for name, _ in done.partitions} == {topic} and other.hits == 0


# --- records and topics


def test_deleted_records(broker: RunningBroker, topic: str) -> None:
    assert broker.faults.delete_records(topic, 0, before=2) == {0: 2}
    assert read(broker, topic, first=2) == [(2, "r2"), (3, "r3"), (4, "r4")]
    with pytest.raises(confluent_kafka.KafkaException, match="out of range"):
        read(broker, topic)
    assert broker.faults.delete_records(topic) == {0: 5, 1: 0}
    with pytest.raises(ApiError, match="ends at 5"):
        broker.faults.delete_records(topic, 0, before=6)


def test_expired_records_are_gone_whatever_their_age(broker: RunningBroker, topic: str) -> None:
    assert broker.faults.apply_retention(topic) == {0: 0, 1: 0}, "none is a week old"
    assert broker.faults.expire(topic) == {0: 5, 1: 0}
    assert produce(broker, topic, ["after"]) == [None]
    assert read(broker, topic, first=5) == [(5, "after")]
    assert broker.faults.record[-1].action == "expire"


def test_retention_by_the_topics_own_configs(broker: RunningBroker) -> None:
    name = f"short-{uuid.uuid4().hex[:8]}"
    create(broker, name, 1, segment_bytes="1048576", retention_bytes="0")
    produce(broker, name, ["a"])
    assert broker.faults.apply_retention(name) == {0: 1}


def test_a_gap_in_the_offsets(broker: RunningBroker, topic: str) -> None:
    assert broker.faults.offset_gap(topic, 0, size=3) == {0: 8}
    assert produce(broker, topic, ["after"]) == [None]
    assert read(broker, topic)[-2:] == [(4, "r4"), (8, "after")]
    with pytest.raises(ValueError, match="at least one"):
        broker.faults.offset_gap(topic, size=0)


def test_a_gap_that_is_done_again_goes_on_where_it_was(broker: RunningBroker, topic: str) -> None:
    def gap(size: int, producer_id: int) -> int:
        return broker.in_broker_async(lambda node: broker_actions.offset_gap(node, topic, [0], size, producer_id))[0]

    [one] = broker.in_broker_async(lambda node: broker_actions.next_producer_id(node, topic, None)).values()
    [other] = broker.in_broker_async(lambda node: broker_actions.next_producer_id(node, topic, None)).values()
    assert [gap(2, one), gap(2, one), gap(3, one), gap(3, other)] == [7, 7, 8, 11]
    produce(broker, topic, ["after"])
    assert read(broker, topic)[-1] == (11, "after")


def test_compaction_now(broker: RunningBroker, topic: str) -> None:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    create(broker, name, 1, cleanup_policy="compact", min_compaction_lag_ms="3600000")
    keys = ["a", "b", "a", "c", "b", "a"]
    produce(broker, name, [f"v{n}" for n in range(6)], keys=keys)
    broker.faults.compact(name)
    assert read(broker, name) == [(3, "v3"), (4, "v4"), (5, "v5")]
    produce(broker, name, ["v6"], keys=["c"])
    broker.faults.compact(name)
    assert read(broker, name) == [(4, "v4"), (5, "v5"), (6, "v6")]
    with pytest.raises(ApiError, match="is not compact"):
        broker.faults.compact(topic)


def test_a_topic_made_anew_is_another_with_the_same_configs(broker: RunningBroker) -> None:
    name = f"again-{uuid.uuid4().hex[:8]}"
    create(broker, name, 2, retention_ms="12345678")
    produce(broker, name, ["a"])
    with Client(broker.bootstrap_servers) as client:
        first = describe_topics(client, [name])[name]
        broker.faults.recreate_topic(name)
        again = describe_topics(client, [name])[name]
        assert first.topic_id != again.topic_id  # type: ignore[union-attr]
        assert len(again.partitions) == 2  # type: ignore[union-attr]
        assert broker.in_broker(lambda node: dict(node.metadata.image.configs.for_topic(name))) == {
            "retention.ms": "12345678"
        }
        assert read(broker, name) == []
        broker.faults.recreate_topic(name, partitions=3)
        assert len(describe_topics(client, [name])[name].partitions) == 3  # type: ignore[union-attr]
        broker.faults.delete_topic(name)
        assert delete_topics(client, [name])[name] is not None, "it is gone already"


# --- the broker


def test_a_restart_keeps_address_and_data() -> None:
    with running_broker() as broker:
        produce(broker, "kept", ["a"])
        faults = broker.faults
        kept = faults.stale_latest("kept", times=None)
        address, directory = broker.bootstrap_servers, broker.data_dir
        broker.restart()
        assert (broker.bootstrap_servers, broker.data_dir) == (address, directory)
        assert faults.active == [kept] and read(broker, "kept") == [(0, "a")]
        assert latest(broker, "kept", 0) == [(0, 0)]  # the same object, at work on the new node
        assert kept.hits == 1
        kept.undo()
        assert latest(broker, "kept", 0) == [(1, 0)]
        fault = faults.delay("Fetch", 1)
        assert broker.faults.active == [fault]
    assert not directory.exists()
    fault.undo()
    assert not broker.is_running
    with pytest.raises(RuntimeError, match="not running"):
        faults.delay("Fetch", 1)


def test_nobody_is_given_the_port_of_a_broker_that_is_down_over_a_restart() -> None:
    """A client that asks for it again and again least of all, which would then talk to itself."""
    with running_broker() as broker, running_broker() as other:
        ports = {
            port for each in (broker, other) for port in (each.port, int(each.address("CONTROLLER").split(":")[1]))
        }
        assert len(ports) == 4 and ports <= set(listening_ports())
        assert not any(OWN.claim(port) for port in ports)
    assert all(OWN.claim(port) for port in ports)
    for port in ports:
        OWN.release(port)


def test_no_request_is_served_before_a_restarted_broker_has_its_faults() -> None:
    with running_broker() as broker, broker.faults as faults:
        fault = faults.error("ListGroups", "GROUP_AUTHORIZATION_FAILED")
        with EarlyClients(broker.bootstrap_servers).asking() as codes:
            for _ in range(3):
                broker.restart()
        assert set(codes) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        assert fault.hits >= len(codes)
        fault.undo()
        with EarlyClients(broker.bootstrap_servers).asking() as codes:
            broker.restart()
        assert set(codes) == {0}


def test_a_fault_may_come_and_go_while_the_broker_starts() -> None:
    with running_broker() as broker, broker.faults as faults:
        first = faults.error("ListGroups", "GROUP_AUTHORIZATION_FAILED")
        restart = threading.Thread(target=broker.restart)
        restart.start()
        while broker.is_running and restart.is_alive():  # it stops, and then starts
            pass
        first.undo()
        restart.join()
        with Client(broker.bootstrap_servers) as client:
            assert client.ask_any(ListGroupsRequest()).error_code == 0
        assert faults.active == []
