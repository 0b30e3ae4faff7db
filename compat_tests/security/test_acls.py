"""Rights that a client lacks: the error of each, and rights that come and go while it is connected."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from compat_tests.client import Client, ClientError, ReadTimeout, Record, Step
from compat_tests.clients import client_class, unavailable
from compat_tests.security.conftest import FULL
from compat_tests.security.kept import WITH_KEPT_CONSUMER, KeptConsumer, kept_consumer, kept_producer
from compat_tests.security.world import CLIENTS, SENDS_NONCE_TWICE, World, feature, refused
from tests.patience import eventually

_WITH_KEPT = tuple(name for name in CLIENTS if name != "kcat")
"""kcat is a run of a program a time: nothing of it stays."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=feature(name, "rights that come and go while connected")) for name in _WITH_KEPT]
)
def test_rights_change_while_connected(world: World, name: str) -> None:
    user, password = world.user()
    topic = world.topic()
    security = world.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256", user, password)
    producer = kept_producer(world, name, "SASL_PLAINTEXT", security)

    def is_told() -> bool:
        """Whether it is told why; on a slow machine its time may be over before. It must never be let through."""
        told = refused(lambda: producer.send(topic))
        assert told, "nobody has given it the right"
        return told in _NO_TOPIC

    try:
        eventually(is_told)
        world.allow(user, "topic", topic, "write")
        eventually(lambda: refused(lambda: producer.send(topic)) == "")
        world.deny(user, "topic", topic, "write")
        eventually(lambda: refused(lambda: producer.send(topic)) in _NO_TOPIC)
        assert world.forget(user) == 2
        world.allow(user, "topic", topic[:-3], "write", prefixed=True)
        eventually(lambda: refused(lambda: producer.send(topic)) == "")
        world.forget(user)
        eventually(lambda: refused(lambda: producer.send(topic)) in _NO_TOPIC)
    finally:
        producer.close()
        world.forget(user)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=feature(name, "the right to read, given and taken while connected"))
        for name in WITH_KEPT_CONSUMER
    ],
)
def test_the_right_to_read_changes_while_connected(world: World, name: str) -> None:
    user, password = world.user()
    topic, later = world.topic(), world.topic()
    security = world.servers.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256", user, password)
    world.peer.produce(topic, [Record(b"first")])
    consumer = kept_consumer(world, name, "SASL_PLAINTEXT", security, topic)
    try:
        _reads_nothing(consumer, tells=name == "java")
        world.allow(user, "topic", topic, "read")
        assert eventually(lambda: _told(consumer)[0]) == b"first"
        world.deny(user, "topic", topic, "read")
        world.allow(user, "topic", later, "describe")  # nodes know what was changed before once they know this
        eventually(lambda: world.sees(world.servers.bootstrap("SASL_PLAINTEXT"), security, later))
        if "apache" in world.servers.kinds:
            # Its Fetch that waits since before the denial would still bring the record. kbroker's asks again.
            _reads_nothing(consumer, tells=False, seconds=1)
        world.peer.produce(topic, [Record(b"second")])
        _reads_nothing(consumer, tells=name == "java")
        assert world.forget(user) == 3
        world.allow(user, "topic", topic[:-3], "read", prefixed=True)
        assert eventually(lambda: _told(consumer)[0]) == b"second"
    finally:
        consumer.close()
        world.forget(user)


def _reads_nothing(consumer: KeptConsumer, *, tells: bool, seconds: float = 0) -> None:
    """At least so long, and until it is told why: others than Java's wait, and tell it once or in their log alone."""
    begin, told = time.monotonic(), False
    while True:
        value, refused = _told(consumer)
        assert value is None, "it reads what it may not"
        told = told or refused
        spent = time.monotonic() - begin
        if spent >= seconds and (told or not tells):
            return
        assert spent < 120, "it is not told why it reads nothing"


def _told(consumer: KeptConsumer) -> tuple[bytes | None, bool]:
    """The next record, and whether the consumer is told that it may not read."""
    try:
        return consumer.read(), False
    except ClientError as error:
        assert error.name in _NO_TOPIC, error
        return None, True


_NO_TOPIC = {"TOPIC_AUTHORIZATION_FAILED"}
_NO_GROUP = {"GROUP_AUTHORIZATION_FAILED"}
_NO_TRANSACTION = {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}

Act = Callable[[Client, str, str, World, int], object]
"""The last argument: how many times longer than usual the client may take."""
PATIENCE = (1, 12)
"""Some clients try until their time is over, and on a slow machine that must not be before they are told."""


def _produce(client: Client, topic: str, group: str, world: World, patience: int) -> object:
    return client.produce(topic, [Record(b"value")], timeout=6 * patience)


def _consume(client: Client, topic: str, group: str, world: World, patience: int) -> object:
    return client.consume(topic, group, 1, timeout=8 * patience)


def _transaction(client: Client, topic: str, group: str, world: World, patience: int) -> None:
    steps = [Step(topic, [Record(b"value", key=b"key")], "commit")]
    client.produce_steps(steps, transactional_id=world.name("transaction"), timeout=8 * patience)


def _create(client: Client, topic: str, group: str, world: World, patience: int) -> None:
    client.create_topic(world.name("new"))


ACTS: dict[str, tuple[Act, tuple[tuple[str, str], ...], set[str], str]] = {
    # What is done; the rights that it has; the error; the client's features that it needs.
    "produce, no right": (_produce, (), _NO_TOPIC, ""),
    "produce, describe alone": (_produce, (("topic", "describe"),), _NO_TOPIC, ""),
    "consume, no right to the topic": (_consume, (("group", "read"),), _NO_TOPIC, ""),
    "consume, no right to the group": (_consume, (("topic", "read"),), _NO_GROUP, ""),
    "transaction, no right to its id": (_transaction, (("topic", "write"),), _NO_TRANSACTION, "transactions"),
    "create a topic": (_create, (("topic", "all"),), _NO_TOPIC, "create_topic"),
    "delete a topic": (
        lambda client, topic, group, world, patience: client.delete_topic(topic),
        (("topic", "describe"),),
        _NO_TOPIC,
        "delete_topic",
    ),
    "alter a topic": (
        lambda client, topic, group, world, patience: client.alter_configs(topic, {"retention.ms": "1000"}),
        (("topic", "describe_configs"),),
        _NO_TOPIC,
        "alter_configs",
    ),
    "describe a topic's configs": (
        lambda client, topic, group, world, patience: client.describe_configs(topic),
        (("topic", "describe"),),
        _NO_TOPIC,
        "describe_configs",
    ),
    "delete records": (
        lambda client, topic, group, world, patience: client.delete_records(topic, 0, 1),
        (("topic", "describe"), ("topic", "read")),
        _NO_TOPIC,
        "delete_records",
    ),
    "look for a topic's offsets": (
        lambda client, topic, group, world, patience: client.list_offset(topic, 0, "latest"),
        (),
        _NO_TOPIC,
        "list_offsets",
    ),
}

_OTHERWISE = {
    # Clients that do not tell the broker's error, or have a name of their own for it.
    ("consume, no right to the topic", "kafka-python"): {"READ_TIMEOUT"},
    ("consume, no right to the group", "kafkajs"): {"KafkaJSGroupCoordinatorNotFound"},
    ("describe a topic's configs", "kafka-python"): {"UNKNOWN_TOPIC_OR_PARTITION"},
    ("look for a topic's offsets", "confluent-kafka"): {"_NOENT"},
    ("look for a topic's offsets", "kcat"): {"KCAT_FAILED"},
    ("transaction, no right to its id", "kafkajs"): {"KafkaJSGroupCoordinatorNotFound"},
}

_NEVER_TELLS = {
    # Tries again until its time is over: 40 s.
    ("look for a topic's offsets", "aiokafka")
}


def _can(name: str, needed: str) -> bool:
    """Whether the client can do it at all; one that is not here is skipped later."""
    return not needed or unavailable(name) is not None or needed in client_class(name).features


_ACT_PAIRS = [
    pytest.param(act, name, id=f"{act.replace(' ', '-')}-{name}", marks=feature(name, "the error of a missing right"))
    for row, act in enumerate(ACTS)
    for column, name in enumerate(CLIENTS)
    if (FULL or (column + row) % 3 == 0) and (act, name) not in _NEVER_TELLS and _can(name, ACTS[act][3])
]


@pytest.mark.parametrize(("act", "name"), _ACT_PAIRS)
def test_client_may_not(world: World, act: str, name: str) -> None:
    do, rights, errors, _ = ACTS[act]
    user, password = world.user()
    topic, group = world.topic(), world.name("group")
    security = world.servers.sasl("SASL_SSL", "SCRAM-SHA-256", user, password)
    if name in SENDS_NONCE_TWICE:
        user, security = "bob", world.servers.plain("bob", "SASL_SSL")
    client = world.client(name, "SASL_SSL", security)
    for kind, operation in rights:
        world.allow(user, kind, topic if kind == "topic" else group, operation)
    wanted = errors | _OTHERWISE.get((act, name), set())
    try:
        for patience in PATIENCE:
            told = _told_of(partial(do, client, topic, group, world, patience))
            if told in wanted:
                break
    finally:
        world.done_with(client)
        world.forget(user)
    assert told in wanted


def _told_of(call: Callable[[], object]) -> str:
    try:
        return refused(call)
    except ReadTimeout:
        return "READ_TIMEOUT"
