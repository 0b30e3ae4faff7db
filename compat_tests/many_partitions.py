"""Cases of requests as stock clients make them under load: many partitions in one, five in flight, known partitions
and new ones together, and a transaction's coordinator on another node than the partitions' leaders.

They say most on several nodes (``--nodes 3``); on one node the coordinator is always near.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest

from compat_tests.case import Context, case
from compat_tests.client import Record, Step
from kbroker.client import Client as BrokerClient
from kbroker.client import ResponseError
from kbroker.client.topics import LATEST, NewTopic, create_topics, list_offsets
from kbroker.types import TopicPartition
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.patience import SHORT, Late, eventually

PARTITIONS = 60

BATCH_BYTES = 500
"""Some ten small records: a partition has many batches under way."""

GROWTH = (5, 20, 80, 400)
"""The numbers of different keys that a growing producer goes through: at first few partitions, in the end all."""

_SAFE_DOWNGRADE, _UPGRADE = 2, 1


def keyed(first: int, count: int, keys: int | None = None) -> list[Record]:
    """Records whose values are numbers, with a key for each, or with so many different `keys`."""
    return [
        Record(value=str(number).encode(), key=f"key-{number % (keys or first + count)}".encode())
        for number in range(first, first + count)
    ]


def check(read: list[Record], wanted: list[int]) -> None:
    """Each of the numbers was read once; within a partition, in the order in which they were sent."""
    partitions: dict[int, list[Record]] = {}
    for record in read:
        partitions.setdefault(record.partition, []).append(record)
    for partition, records in partitions.items():
        assert all(one.offset < next.offset for one, next in pairwise(records)), f"offsets of partition {partition}"
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(set(numbers)), f"order in partition {partition}"
    found = {int(record.value or b"") for record in read}
    lost, added = sorted({*wanted} - found), sorted(found - {*wanted})
    assert not lost and not added, f"{len(lost)} lost, first {lost[:5]}; {len(added)} too many, first {added[:5]}"
    assert len(read) == len(wanted), "a record is there twice"


def read_back(context: Context, topic: str, wanted: list[int], isolation: str = "read_committed") -> None:
    """All that is in `topic` is what is wanted, for the client under test or the peer where that sees no end.

    A commit is answered before its markers are everywhere: what is there may still become more.
    """
    reader = context.client if "read_to_end" in context.client.features else context.peer
    read: list[Record] = []

    def all_there() -> bool:
        read[:] = reader.read_to_end(topic, isolation=isolation)
        return len(read) >= len(wanted)

    with suppress(Late):  # then `check` says what is lost
        eventually(all_there, f"{len(wanted)} records in {topic}", seconds=SHORT)
    check(read, wanted)


def topic_of(context: Context, partitions: int, replication_factor: int = -1) -> str:
    """A topic whose leaders all serve: where one does not yet, a batch is sent again and may come behind its next."""
    name = context.topic(partitions=partitions, replication_factor=replication_factor)
    context.passing.append(name)
    await_leaders(context, name, partitions)
    return name


def await_leaders(context: Context, topic: str, partitions: int) -> None:
    """Until every partition's leader tells its offsets."""
    with BrokerClient(context.broker.bootstrap) as client:
        told = list_offsets(client, {TopicPartition(topic, each): LATEST for each in range(partitions)})
    refused = [each for each in told.values() if isinstance(each, ResponseError)]
    assert not refused, refused[0]


def topic_of_one_leader(context: Context, partitions: int) -> tuple[str, int]:
    """A topic whose partitions are all led by one node, and that node."""
    name = context.name("one-leader")
    with BrokerClient(context.broker.bootstrap) as client:
        nodes = client.all_nodes()
        told = create_topics(client, [NewTopic(name, assignment=[nodes] * partitions)])
        assert not isinstance(told[name], Exception), told
    context.passing.append(name)
    context.await_topic(name)
    await_leaders(context, name, partitions)
    return name, nodes[0]


def transactional_id(context: Context, leader: int | None = None) -> str:
    """A new transactional id; its coordinator is another node than `leader` where there is another."""
    with BrokerClient(context.broker.bootstrap) as client:
        others = len(client.all_nodes()) > 1
        for _ in range(100):
            name = context.name("id")
            if leader is None or not others or client.coordinator(name, key_type=1) != leader:
                return name
    raise AssertionError(f"node {leader} coordinates 100 transactional ids of 100")


def growing(topic: str, first: int, count: int = 200) -> list[Step]:
    """Steps that send at once, each into partitions of those before it and into new ones."""
    return [Step(topic, keyed(first + index * count, count, keys)) for index, keys in enumerate(GROWTH)]


# Producing


def _produce(context: Context, idempotent: bool) -> None:
    topic = topic_of(context, PARTITIONS)
    steps = [*growing(topic, 0), Step(topic, keyed(800, 5200))]
    context.client.produce_steps(steps, idempotent=idempotent, batch_bytes=BATCH_BYTES)
    read_back(context, topic, list(range(6000)))


@case("Many partitions", "60 of them, five requests in flight")
def produce_to_many(context: Context) -> None:
    _produce(context, idempotent=False)


@case("Many partitions", "the same, idempotent producer", {"idempotent_producer"})
def produce_to_many_idempotent(context: Context) -> None:
    _produce(context, idempotent=True)


# Transactions


def _aborted_then_committed(context: Context) -> None:
    replicated, single = topic_of(context, 10), topic_of(context, 10, replication_factor=1)
    steps = [
        Step(replicated, keyed(0, 5000), "flush"),
        Step(single, keyed(0, 5000), "flush"),
        Step(then="abort"),
        Step(replicated, keyed(5000, 1000), "commit"),
    ]
    context.client.produce_steps(steps, transactional_id=transactional_id(context), batch_bytes=BATCH_BYTES)
    read_back(context, replicated, list(range(5000, 6000)))
    read_back(context, replicated, list(range(6000)), "read_uncommitted")
    read_back(context, single, [])
    read_back(context, single, list(range(5000)), "read_uncommitted")


@case("Many partitions", "a transaction of 10,000 records aborted, the next committed", {"aborted_transactions"})
def aborted_then_committed(context: Context) -> None:
    _aborted_then_committed(context)


def _growing_transactions(context: Context) -> None:
    topic = topic_of(context, PARTITIONS)
    steps = []
    for number in range(3):
        steps += [*growing(topic, number * 1000), Step(topic, keyed(number * 1000 + 800, 200), "commit")]
    context.client.produce_steps(steps, transactional_id=transactional_id(context), batch_bytes=BATCH_BYTES)
    read_back(context, topic, list(range(3000)))


@case("Many partitions", "transactions over 60, known and new ones in one request", {"transactions"})
def growing_transactions(context: Context) -> None:
    _growing_transactions(context)


def _coordinator_elsewhere(context: Context) -> None:
    topic, leader = topic_of_one_leader(context, 30)
    steps: list[Step] = []
    wanted: list[int] = []
    for number in range(6):
        then = "abort" if number % 3 == 1 else "commit"
        steps += [
            *growing(topic, number * 1000),
            Step(topic, keyed(number * 1000 + 800, 200), "flush"),
            Step(then=then),
        ]
        wanted += range(number * 1000, number * 1000 + 1000) if then == "commit" else []
    name = transactional_id(context, leader)
    context.client.produce_steps(steps, transactional_id=name, batch_bytes=BATCH_BYTES)
    read_back(context, topic, wanted)


@case("Many partitions", "transactions with the coordinator on another node", {"aborted_transactions"})
def coordinator_elsewhere(context: Context) -> None:
    _coordinator_elsewhere(context)


@case("Many partitions", "the same three with transaction.version 1", {"transaction_version_2"})
def transaction_version_1(context: Context) -> None:
    if not context.broker.can_restart:
        pytest.skip("this broker was not started by the tests")
    if _version_at(context.broker.bootstrap) != 2:
        pytest.skip("this cluster's transaction.version is another already")
    with transaction_version(context, 1):
        _aborted_then_committed(context)
        _growing_transactions(context)
        _coordinator_elsewhere(context)


@contextmanager
def transaction_version(context: Context, level: int) -> Iterator[None]:
    """The cluster's finalized `transaction.version` is `level`, and 2 afterwards: clients do as it says."""

    def change(level: int, kind: int) -> None:
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
        with BrokerClient(context.broker.bootstrap) as client:
            told = client.ask_controller(UpdateFeaturesRequest(feature_updates=[update]), lambda response: None)
            assert not told.error_code, told.error_message
        for address in context.broker.bootstrap.split(","):
            eventually(lambda address=address: _version_at(address) == level, f"level {level} at {address}")  # type: ignore[misc]

    change(level, _SAFE_DOWNGRADE)
    try:
        yield
    finally:
        change(2, _UPGRADE)


def _version_at(address: str) -> int | None:
    with BrokerClient(address, timeout=SHORT) as client:
        told = client.any_broker(client.deadline()).api_versions
    return next(
        (each.max_version_level for each in told.finalized_features if each.name == "transaction.version"), None
    )


# Reading


@case("Many partitions", "read 60 of them, whole and in small fetches", {"read_to_end", "fetch_limits"})
def read_many(context: Context) -> None:
    topic = topic_of(context, PARTITIONS)
    context.peer.produce_steps([Step(topic, keyed(0, 6000))], batch_bytes=BATCH_BYTES)
    check(context.client.read_to_end(topic), list(range(6000)))
    check(context.client.read_to_end(topic, fetch_bytes=20_000), list(range(6000)))


@case("Many partitions", "a group's offsets of 60", {"groups"})
def group_offsets(context: Context) -> None:
    topic, group = topic_of(context, PARTITIONS), context.name("group")
    context.peer.produce_steps([Step(topic, keyed(0, 3000))], batch_bytes=BATCH_BYTES)
    first = context.client.consume(topic, group, 2000)
    rest = context.client.consume(topic, group, 1000)
    check(first + rest, list(range(3000)))
