"""Transactions of every client: commit, abort, fencing, time-out, consume-transform-produce."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.case import await_everywhere
from compat_tests.clients import skip_without
from compat_tests.transactions.participants import (
    Participant,
    ParticipantError,
    Producer,
    committed_offsets,
    participant_of,
)
from tests.patience import LONG

pytestmark = pytest.mark.nodes(3)

CLIENTS = ("java", "confluent-kafka", "kafka-python", "aiokafka", "kafkajs")


@pytest.fixture(scope="module")
def participants(bootstrap: str) -> Iterator[Callable[[str], Participant]]:
    """The process of a client, started when it is first asked for."""
    made: dict[str, Participant] = {}

    def get(client: str) -> Participant:
        if client not in made:
            skip_without(client)
            made[client] = participant_of(client, bootstrap)
        return made[client]

    yield get
    for each in made.values():
        each.close()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def one(client: str, participants: Callable[[str], Participant]) -> Participant:
    """The client under test."""
    return participants(client)


@pytest.fixture
def judge(participants: Callable[[str], Participant]) -> Participant:
    """The participant that reads where the client under test cannot."""
    return participants("confluent-kafka")


@pytest.fixture
def reader(client: str, one: Participant, judge: Participant) -> Participant:
    """The client itself; kafkajs reads through groups only."""
    return judge if client == "kafkajs" else one


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, bootstrap: str) -> str:
    return new_topic(admin, bootstrap)


def new_topic(admin: AdminClient, bootstrap: str) -> str:
    """A topic of two partitions."""
    name = f"transactions-{uuid.uuid4().hex[:10]}"
    for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
        future.result(LONG)
    await_everywhere(bootstrap, name)
    return name


def test_committed_is_read_and_aborted_is_not(one: Participant, reader: Participant, topic: str) -> None:
    producer = one.open()
    for number, ends in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin()
        for partition in (0, 1):
            producer.send(topic, partition, [f"{number}-{each}" for each in range(3)])
        producer.call(ends)
    for partition in (0, 1):
        committed = [f"{number}-{each}" for number in (0, 2) for each in range(3)]
        reader.await_committed(topic, partition, committed)
        everything = [f"{number}-{each}" for number in range(4) for each in range(3)]
        assert reader.read(topic, partition, "read_uncommitted") == everything
    producer.close()


def test_what_is_open_holds_back_all_that_follows(one: Participant, reader: Participant, topic: str) -> None:
    first, second = one.open(), one.open()
    first.begin()
    first.send(topic, 0, ["first"])
    second.begin()
    second.send(topic, 0, ["second"])
    second.call("commit")
    assert reader.read(topic, 0, "read_committed") == []
    assert reader.read(topic, 0, "read_uncommitted") == ["first", "second"]
    first.call("commit")
    reader.await_committed(topic, 0, ["first", "second"])
    first.close()
    second.close()


def test_a_second_producer_of_an_id_fences_the_first(one: Participant, reader: Participant, topic: str) -> None:
    name = f"fenced-{uuid.uuid4().hex[:8]}"
    first = one.open(name)
    first.begin()
    first.send(topic, 0, ["of the first"])
    second = one.open(name)
    second.begin()
    second.send(topic, 0, ["of the second"])
    second.call("commit")
    # Only then: kafka-python, where it is refused, soon asks for a new epoch by itself, and fences the second.
    with pytest.raises(ParticipantError):
        first.send(topic, 0, ["too late"])
        first.call("commit")
    reader.await_committed(topic, 0, ["of the second"])
    second.close()


def begun_in_time(one: Participant, topic: str, value: str) -> Producer:
    """A producer whose transaction is going to be out of time soon, but not before its first record is acknowledged.

    A machine may be so slow that the shortest of these times is over sooner.
    """
    for timeout_ms in (1_500, 6_000, 24_000, 96_000):
        producer = one.open(timeout_ms=timeout_ms)
        producer.begin()
        try:
            producer.send(topic, 0, [value])
        except ParticipantError as problem:
            late = problem
        else:
            return producer
    raise late


def test_a_transaction_out_of_time_is_aborted(one: Participant, reader: Participant, topic: str) -> None:
    producer = begun_in_time(one, topic, "too slow")
    assert "too slow" in reader.read(topic, 0, "read_uncommitted")
    # Another's record behind it becomes readable as soon as the broker has aborted it.
    other = one.open()
    other.begin()
    other.send(topic, 0, ["in time"])
    other.call("commit")
    reader.await_committed(topic, 0, ["in time"])
    with pytest.raises(ParticipantError):
        producer.send(topic, 0, ["much too late"])
        producer.call("commit")
    assert reader.read(topic, 0, "read_committed") == ["in time"]
    other.close()


def test_offsets_count_when_their_transaction_is_committed(one: Participant, bootstrap: str, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    producer = one.open()
    producer.begin()
    producer.send(topic, 0, ["a"])
    producer.call("send_offsets", group=group, offsets=[[topic, 0, 7], [topic, 1, 9]])
    producer.call("commit")
    assert committed_offsets(bootstrap, group, topic) == [7, 9]
    producer.begin()
    producer.send(topic, 0, ["b"])
    producer.call("send_offsets", group=group, offsets=[[topic, 0, 17]])
    producer.call("abort")
    assert committed_offsets(bootstrap, group, topic) == [7, 9]
    producer.close()


def test_consume_transform_produce(
    one: Participant, judge: Participant, bootstrap: str, admin: AdminClient, topic: str
) -> None:
    target = new_topic(admin, bootstrap)
    group = f"group-{uuid.uuid4().hex[:8]}"
    source = judge.open()
    for number, ends in enumerate(["commit", "abort"] * 5):
        source.begin()
        for partition in (0, 1):
            source.send(topic, partition, [f"{number}-{each}" for each in range(20)])
        source.call(ends)
    producer = one.open()
    copied = producer.call("copy", group=group, source=topic, target=target, count=200, batch=30)
    assert copied == 200
    for partition in (0, 1):
        wanted = [f"{number}-{each}" for number in range(0, 10, 2) for each in range(20)]
        judge.await_committed(target, partition, wanted)
    # Each transaction ends with a marker: 5 committed in front of the last record, and 4 or 5 aborted of 20 records.
    assert all(184 <= offset <= 210 for offset in committed_offsets(bootstrap, group, topic))
    producer.close()
    source.close()


def test_consume_transform_produce_as_a_member_of_the_consumer_protocol(
    participants: Callable[[str], Participant], judge: Participant, bootstrap: str, admin: AdminClient, topic: str
) -> None:
    java = participants("java")
    target = new_topic(admin, bootstrap)
    source = judge.open()
    source.begin()
    source.send(topic, 0, [str(each) for each in range(100)])
    source.call("commit")
    producer = java.open()
    group = f"group-{uuid.uuid4().hex[:8]}"
    copied = producer.call("copy", group=group, source=topic, target=target, count=100, batch=30, protocol="consumer")
    assert copied == 100
    judge.await_committed(target, 0, [str(each) for each in range(100)])
    producer.close()
