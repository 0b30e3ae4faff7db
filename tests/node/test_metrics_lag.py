"""Lag in seconds, and who holds up read_committed, as a scrape tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import RunningCluster, running_cluster
from tests.every_node import await_topics
from tests.node.metrics_pages import LISTENER, Values, found, port_of, ports_of, scrape, total, value
from tests.patience import LONG

SECONDS = "kafka_consumergroup_lag_seconds"
HELD = "kbroker_partition_last_stable_offset_held_seconds"
AGES = (5000, 4000, 3000, 2000)
"""Of the records that `write` writes, in seconds."""
LEEWAY = 600
"""For a slow machine."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(LISTENER) as it:
        yield it


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(LONG)


def write(bootstrap: str, topic: str, ages: tuple[int, ...] = AGES, *, partition: int = 0, value: bytes = b"x") -> None:
    """A batch for each record."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    now_ms = time.time() * 1000
    for age in ages:
        producer.produce(topic, value, partition=partition, timestamp=int(now_ms - age * 1000))
        assert producer.flush(LONG) == 0


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
    write(bootstrap, topic, (1000,))
    age = value(scrape(port_of(broker)), SECONDS, consumergroup=group, topic=topic, partition="0")
    assert 1000 <= age < 1000 + LEEWAY


def test_what_was_deleted_before_it_was_read_does_not_count(broker: RunningBroker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "deleted")
    write(bootstrap, "deleted")
    commit(bootstrap, "deleted", "late", 0)
    of_group = {"consumergroup": "late", "topic": "deleted", "partition": "0"}
    assert value(scrape(port_of(broker)), SECONDS, **of_group) >= AGES[0]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition("deleted", 0, 3)]).values():
        future.result(LONG)
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
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce("held", b"x", partition=0, timestamp=int(time.time() * 1000 - 500_000))
    assert producer.flush(LONG) == 0
    page = scrape(port_of(broker))
    ((labels, age),) = found(page, HELD, topic="held").items()
    assert dict(labels)["transactional_id"] == "the-holder" and int(dict(labels)["producer_id"]) >= 0
    assert 500 <= age < 500 + LEEWAY
    assert value(page, "kafka_cluster_partition_laststableoffsetlag", topic="held", partition="0") == 1
    producer.commit_transaction(LONG)
    deadline = time.monotonic() + LONG
    while found(scrape(port_of(broker)), HELD, topic="held"):  # its marker may be on its way
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(3, LISTENER) as it:
        yield it


def scrape_until(cluster: RunningCluster, told: Callable[[list[Values]], bool]) -> list[Values]:
    """The pages of all nodes, once they tell something."""
    deadline = time.monotonic() + LONG
    while True:
        pages = [scrape(port) for port in ports_of(cluster)]
        if told(pages):
            return pages
        assert time.monotonic() < deadline


def test_on_three_nodes_the_coordinator_tells(cluster: RunningCluster) -> None:
    bootstrap = cluster.bootstrap_servers
    create(bootstrap, "spread")
    await_topics(cluster, "spread")
    write(bootstrap, "spread")
    commit(bootstrap, "spread", "readers", 2)

    def ages_of(pages: list[Values]) -> list[float]:
        of_group = {"consumergroup": "readers", "topic": "spread"}
        return [age for page in pages for age in found(page, SECONDS, **of_group).values()]

    # The coordinator's replica may be behind, or its leader too busy to answer a scrape in time.
    ages = ages_of(scrape_until(cluster, lambda pages: any(ages_of(pages))))
    assert len(ages) == 1 and AGES[2] <= ages[0] < AGES[2] + LEEWAY


def test_lag_of_partitions_that_have_one_replica_each(cluster: RunningCluster) -> None:
    """Two of three are on other nodes than the group's coordinator, which asks for their ends; not since when."""
    bootstrap, group = cluster.bootstrap_servers, "asking"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("alone", 3, 1)])["alone"].result(LONG)
    await_topics(cluster, "alone")
    leaders = {entry.leader for entry in admin.list_topics("alone", LONG).topics["alone"].partitions.values()}
    assert len(leaders) == 3
    for partition in range(3):
        write(bootstrap, "alone", partition=partition)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("alone", index, 1 + index) for index in range(3)], asynchronous=False)
    of_topic = {"consumergroup": group, "topic": "alone"}

    def by_partition(pages: list[Values], name: str) -> dict[str, float]:
        of_group = [found(page, name, **of_topic) for page in pages]
        assert sum(map(bool, of_group)) <= 1
        return {dict(labels)["partition"]: number for each in of_group for labels, number in each.items()}

    def are_told(pages: list[Values]) -> bool:  # a leader may be too busy to answer a scrape in time
        return len(by_partition(pages, "kafka_consumergroup_lag")) == 3

    pages = scrape_until(cluster, are_told)
    assert by_partition(pages, "kafka_consumergroup_lag") == {"0": 3, "1": 2, "2": 1}
    assert total(pages, "kafka_consumergroup_lag_sum", **of_topic) == 6
    assert total(pages, "kafka_consumergroup_current_offset_sum", **of_topic) == 6
    assert [value(page, "kafka_brokers") for page in pages] == [3, 3, 3]
    assert total(pages, "kbroker_record_disk_reads_total") >= 0
    ((number, age),) = by_partition(pages, SECONDS).items()
    assert AGES[1 + int(number)] <= age < AGES[1 + int(number)] + LEEWAY
    consumer.commit(offsets=[TopicPartition("alone", index, 4) for index in range(3)], asynchronous=False)
    pages = scrape_until(cluster, are_told)
    assert by_partition(pages, "kafka_consumergroup_lag") == {"0": 0, "1": 0, "2": 0}
    assert total(pages, "kafka_consumergroup_lag_sum", **of_topic) == 0
    assert by_partition(pages, SECONDS) == {"0": 0, "1": 0, "2": 0}
    consumer.close()


def test_on_three_nodes_the_leader_names_an_open_transaction(cluster: RunningCluster) -> None:
    """Its coordinator may be another node: then it is named by its producer's id alone."""
    bootstrap = cluster.bootstrap_servers
    create(bootstrap, "held-there")
    await_topics(cluster, "held-there")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "holds-there"})
    producer.init_transactions(LONG)
    producer.begin_transaction()
    producer.produce("held-there", b"x", partition=0, timestamp=int(time.time() * 1000 - 500_000))
    assert producer.flush(LONG) == 0
    pages = [scrape(port) for port in ports_of(cluster)]
    ((labels, age),) = [held for page in pages for held in found(page, HELD, topic="held-there").items()]
    assert 500 <= age < 500 + LEEWAY and int(dict(labels)["producer_id"]) >= 0
    assert dict(labels).get("transactional_id", "holds-there") == "holds-there"
    leading = [bool(found(page, "kafka_topic_partition_leader", topic="held-there")) for page in pages]
    assert leading == [bool(found(page, HELD, topic="held-there")) for page in pages]
    producer.commit_transaction(LONG)
    scrape_until(cluster, lambda pages: not total(pages, HELD, topic="held-there"))  # its marker may be on its way
