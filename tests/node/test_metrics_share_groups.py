"""The page of metrics tells of share groups while a stock share consumer works."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kbroker.testing import running_broker
from tests.node.metrics_pages import LISTENER, found, port_of, scrape, value
from tests.patience import LONG

RECORDS = 6


def test_records_in_flight_and_lag() -> None:
    with running_broker(LISTENER) as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("jobs", 1)])["jobs"].result(LONG)
        begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[begin])
        admin.incremental_alter_configs([group])[group].result(LONG)
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(RECORDS):
            producer.produce("jobs", b"x", partition=0)
        assert producer.flush(LONG) == 0
        worker = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        worker.subscribe(["jobs"])
        held: list[Any] = []
        deadline = time.monotonic() + LONG
        while not held:
            assert time.monotonic() < deadline
            held = list(worker.poll(0.5))
        page = scrape(port_of(broker))
        of_group = {"group": "workers", "topic": "jobs", "partition": "0"}
        assert value(page, "kafka_server_sharepartitionmetrics_inflightmessagecount", **of_group) >= len(held)
        assert value(page, "kbroker_share_partition_lag", **of_group) == RECORDS
        assert value(page, "kbroker_share_partition_start_offset", **of_group) == 0
        assert value(page, "kafka_server_sharesessioncache_sharesessionscount") == 1
        assert value(page, "kafka_server_sharesessioncache_sharepartitionscount") == 1
        assert value(page, "kafka_server_group_coordinator_metrics_share_group_count", state="Stable") == 1
        assert value(page, "kafka_server_group_coordinator_metrics_share_group_rebalance_count") >= 1
        assert sum(found(page, "kafka_network_requestmetrics_requests_total", request="ShareFetch").values()) >= 1
        for message in held:
            worker.acknowledge(message)
        worker.commit_sync()
        page = scrape(port_of(broker))
        assert value(page, "kbroker_share_partition_lag", **of_group) == RECORDS - len(held)
        traffic = "kafka_server_brokertopicmetrics"
        assert value(page, f"{traffic}_totalsharefetchrequests_total", topic="jobs") >= 1
        assert value(page, f"{traffic}_totalshareacknowledgementrequests_total", topic="jobs") >= 1
        assert value(page, f"{traffic}_failedshareacknowledgementrequests_total", topic="jobs") == 0
        assert value(page, f"{traffic}_bytesout_total", topic="jobs") > 0
        worker.close()


def test_words_dead_letters_locks_and_states_are_counted() -> None:
    with running_broker({**LISTENER, "errors.deadletterqueue.auto.create.topics.enable": "true"}) as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("jobs", 1)])["jobs"].result(LONG)
        settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.jobs"}
        entries = [
            ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in settings.items()
        ]
        group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=entries)
        admin.incremental_alter_configs([group])[group].result(LONG)
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(3):
            producer.produce("jobs", b"x", partition=0)
        assert producer.flush(LONG) == 0
        worker = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        worker.subscribe(["jobs"])
        port = port_of(broker)
        deadline = time.monotonic() + LONG

        def records(count: int) -> list[Message]:
            got: list[Message] = []
            while len(got) < count:
                assert time.monotonic() < deadline
                got += worker.poll(0.5)
            return got

        first, second, third = records(3)
        worker.acknowledge(first)
        worker.acknowledge(second, AcknowledgeType.REJECT)
        worker.acknowledge(third, AcknowledgeType.RELEASE)
        worker.commit_sync()
        (again,) = records(1)
        assert again.offset() == 2
        broker.advance(31)
        of_group = {"group": "workers"}
        of_partition = {**of_group, "topic": "jobs", "partition": "0"}
        while True:
            page = scrape(port)
            if value(page, "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", **of_partition) == 1:
                if found(page, "kafka_server_sharegroupmetrics_deadletterqueuerecordcount"):
                    break
            assert time.monotonic() < deadline
        metrics = "kafka_server_sharegroupmetrics"
        assert value(page, f"{metrics}_deadletterqueuerecordcount", **of_group) == 1
        assert value(page, f"{metrics}_deadletterqueuetotalproducerequests_total", **of_group) >= 1
        for kind, count in (("Accept", 1), ("Reject", 1), ("Release", 1), ("Renew", 0)):
            assert value(page, f"{metrics}_recordacknowledgements_total", ackType=kind) == count
        assert value(page, f"{metrics}_partitionloadtimems_count") == 1
        assert value(page, f"{metrics}_requesttopicpartitionsfetchratio_count", **of_group) >= 2
        assert value(page, "kafka_server_sharepartitionmetrics_inflightbatchmessagecount_count", **of_partition) >= 1
        assert value(page, "kafka_server_share_coordinator_metrics_write_total") >= 3
        worker.close()
