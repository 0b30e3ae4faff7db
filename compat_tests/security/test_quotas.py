"""Clients of users with a quota: throttled by both brokers, told so where the client tells, and free again afterwards.

A rate counts over ten seconds and those that have passed, so of B bytes at a rate the last go no sooner than
B / rate - 10 seconds after the first, however slow or quick the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from compat_tests.client import Client, Record, Step
from compat_tests.client_security import Security
from compat_tests.kcat.client import KcatClient
from compat_tests.security.conftest import FULL
from compat_tests.security.kept import kept_producer
from compat_tests.security.world import CLIENTS, SENDS_NONCE_TWICE, World, feature, own_client
from kbroker.client import Client as OwnClient
from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kbroker.wire.record_batch import Record as BatchRecord
from kbroker.wire.record_batch import build_batch
from tests.patience import eventually

RATE = 10_000.0
"""Bytes a second."""
_WINDOW = 10.0
"""Seconds for which the rate may be used at once."""
_THROTTLED = 0.5
"""Seconds that a client of these tests is to wait."""
_LARGE = b"x" * int(RATE * (_WINDOW + _THROTTLED))
_PIECES = [b"x" * 5_000] * (len(_LARGE) // 5_000)
_NAMES_UP_TO = 12
"""Produce and Fetch name topics up to this version."""


@contextmanager
def _limited(world: World, name: str, quota: str) -> Iterator[Security]:
    """A user with a quota, for the client `name`."""
    if name in SENDS_NONCE_TWICE:
        user, security = "bob", world.servers.plain("bob", "SASL_PLAINTEXT")
    else:
        user, password = world.user("limited")
        security = world.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256", user, password)
    world.limit(user, **{quota: RATE})
    try:
        yield security
    finally:
        world.limit(user, **{quota: None})
        assert world.limits(user) == {}


_TELLING = ("kafka-python", "confluent-kafka", "java")
"""Clients that tell of throttle times."""


def _by(names: Sequence[str]) -> pytest.MarkDecorator:
    """Each of these clients; with FULL each client."""
    marked = [pytest.param(name, marks=feature(name, "throttled by a quota")) for name in (CLIENTS if FULL else names)]
    return pytest.mark.parametrize("name", marked)


@_by(_TELLING)
def test_a_producer_is_throttled(world: World, name: str) -> None:
    topic = world.topic(world.open_name())
    with _limited(world, name, "producer_byte_rate") as security:
        begin = time.monotonic()
        told_ms = _send_two(world, name, security, topic)
        assert time.monotonic() - begin >= _THROTTLED
        assert told_ms is None if name not in _TELLING else (told_ms or 0) >= _THROTTLED * 1000
    assert [len(record.value or b"") for record in world.peer.read(topic, count=2)] == [len(_LARGE), 4]


def _send_two(world: World, name: str, security: Security, topic: str) -> float | None:
    """Send the large record and another by one connection; the throttle time that the client tells, in milliseconds."""
    if name == "kcat":
        client = world.client(name, "SASL_PLAINTEXT", security)
        assert isinstance(client, KcatClient)
        client.produce_one_by_one(topic, [_LARGE, b"kept"])
        return None
    producer = kept_producer(world, name, "SASL_PLAINTEXT", security)
    try:
        producer.send(topic, _LARGE)
        producer.send(topic)
        return producer.throttled_ms()
    finally:
        producer.close()


@_by([name for name in CLIENTS if name not in _TELLING])
def test_a_consumer_is_throttled(world: World, name: str) -> None:
    topic = world.topic(world.open_name())
    steps = [Step(topic, [Record(piece, key=b"key") for piece in _PIECES], "flush")]
    world.peer.produce_steps(steps, batch_bytes=len(_PIECES[0]) + 100)
    with _limited(world, name, "consumer_byte_rate") as security:
        client = world.client(name, "SASL_PLAINTEXT", security)
        begin = time.monotonic()
        records = _all_of(client, world, topic)
        assert time.monotonic() - begin >= _THROTTLED
        world.done_with(client)
    assert [record.value for record in records] == _PIECES


def _all_of(client: Client, world: World, topic: str) -> list[Record]:
    if client.name in ("confluent-kafka", "kafkajs"):  # they read by a group, whose name is their own
        return client.consume(topic, world.open_name("group"), len(_PIECES))
    return client.read(topic, count=len(_PIECES))


def test_answers_tell_the_throttle_time(world: World) -> None:
    """On the wire: no records come with it, and the next request waits as long. Without the quota it is 0 at once."""
    topic = world.topic(world.open_name())
    user, password = world.user("limited")
    security = world.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256", user, password)
    quotas = ("producer_byte_rate", "consumer_byte_rate")
    world.limit(user, **dict.fromkeys(quotas, RATE))
    with own_client(world.servers.bootstrap("SASL_PLAINTEXT"), security) as client:
        for ask in (_produce, _fetch):
            begin = time.monotonic()
            throttle_ms, size = ask(client, topic)
            assert throttle_ms >= _THROTTLED * 1000
            assert ask is _produce or size == 0, "records in an answer that is throttled"
            assert client.ask_any(ListGroupsRequest()).error_code == 0
            assert time.monotonic() - begin >= throttle_ms / 1000
        assert eventually(lambda: _fetch(client, topic)[1]) > len(_LARGE)
        world.limit(user, **dict.fromkeys(quotas))
        for ask in (_produce, _fetch):
            assert ask(client, topic)[0] == 0


def _produce(client: OwnClient, topic: str) -> tuple[int, int]:
    """Produce the large record; the throttle time in milliseconds, and the bytes of records in the answer."""
    records = memoryview(bytearray(build_batch([BatchRecord(0, int(time.time() * 1000), None, _LARGE)])))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    answer: ProduceResponse = client.ask_any(request, highest=_NAMES_UP_TO)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms, 0


def _fetch(client: OwnClient, topic: str) -> tuple[int, int]:
    """Fetch one record; the same."""
    request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1)])])
    answer: FetchResponse = client.ask_any(request, highest=_NAMES_UP_TO)
    records = [part.records for each in answer.responses for part in each.partitions if part.records is not None]
    return answer.throttle_time_ms, sum(len(each) for each in records)
