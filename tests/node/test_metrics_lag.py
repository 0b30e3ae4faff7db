"""Lag in seconds, and who holds up read_committed, as a scrape tells it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from metrics_pages import LISTENER, found, port_of, ports_of, scrape, value

from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import running_cluster

SECONDS = "kafka_consumergroup_lag_seconds"
HELD = "kbroker_partition_last_stable_offset_held_seconds"
AGES = (500, 400, 300, 200)
"""Of the records that `write` writes, in seconds."""
LEEWAY = 60
"""For a slow machine."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(LISTENER) as it:
        yield it


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(120)


def write(bootstrap: str, topic: str, ages: tuple[int, ...] = AGES) -> None:
    """A batch for each record."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    now_ms = time.time() * 1000
    for age in ages:
        producer.produce(topic, b"x", partition=0, timestamp=int(now_ms - age * 1000))
        assert producer.flush(120) == 0


def commit(bootstrap: str, topic: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("offset", range(len(AGES)))
def test_it_is_the_age_of_the_first_record_that_is_not_committed(broker: RunningBroker, offset: int) -> None:
    bootstrap, group, topic = broker.bootstrap_servers, f"group-{offset}", f"ages-{offset}"
    create(bootstrap, topic)
    write(bootstrap, topic)
    commit(bootstrap, topic, group, offset)
    for _ in range(2):  # the second is answered from what the first has found
        age = value(scrape(port_of(broker)), SECONDS, consumergroup=group, topic=topic, partition="0")
        assert AGES[offset] <= age < AGES[offset] + LEEWAY
    commit(bootstrap, topic, group, len(AGES))
    assert value(scrape(port_of(broker)), SECONDS, consumergroup=group, topic=topic, partition="0") == 0
    write(bootstrap, topic, (100,))
    age = value(scrape(port_of(broker)), SECONDS, consumergroup=group, topic=topic, partition="0")
    assert 100 <= age < 100 + LEEWAY


def test_what_was_deleted_before_it_was_read_does_not_count(broker: RunningBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "deleted")
    write(bootstrap, "deleted")
    commit(bootstrap, "deleted", "late", 0)
    of_group = {"consumergroup": "late", "topic": "deleted", "partition": "0"}
    assert value(scrape(port_of(broker)), SECONDS, **of_group) >= AGES[0]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition("deleted", 0, 3)]).values():
        future.result(120)
    age = value(scrape(port_of(broker)), SECONDS, **of_group)
    assert AGES[3] <= age < AGES[3] + LEEWAY


def test_with_log_append_time_the_brokers_clock_counts(broker: RunningBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "appended", **{"message.timestamp.type": "LogAppendTime"})
    write(bootstrap, "appended")
    commit(bootstrap, "appended", "appenders", 1)
    age = value(scrape(port_of(broker)), SECONDS, consumergroup="appenders", topic="appended", partition="0")
    assert 0 < age < LEEWAY


def test_an_open_transaction_is_named(broker: RunningBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "held")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "the-holder"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce("held", b"x", partition=0, timestamp=int(time.time() * 1000 - 50_000))
    assert producer.flush(120) == 0
    page = scrape(port_of(broker))
    ((labels, age),) = found(page, HELD, topic="held").items()
    assert dict(labels)["transactional_id"] == "the-holder" and int(dict(labels)["producer_id"]) >= 0
    assert 50 <= age < 50 + LEEWAY
    assert value(page, "kafka_cluster_partition_laststableoffsetlag", topic="held", partition="0") == 1
    producer.commit_transaction(120)
    assert found(scrape(port_of(broker)), HELD, topic="held") == {}


def test_on_three_nodes_the_coordinator_tells() -> None:
    with running_cluster(3, LISTENER) as cluster:
        bootstrap = cluster.bootstrap_servers
        create(bootstrap, "spread")
        write(bootstrap, "spread")
        commit(bootstrap, "spread", "readers", 2)
        pages = [scrape(port) for port in ports_of(cluster)]
        ages = [age for page in pages for age in found(page, SECONDS, consumergroup="readers", topic="spread").values()]
    assert len(ages) == 1 and AGES[2] <= ages[0] < AGES[2] + LEEWAY
