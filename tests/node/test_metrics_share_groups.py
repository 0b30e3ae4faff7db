"""The page of metrics tells of share groups while a stock share consumer works."""

from __future__ import annotations

import time

from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from metrics_pages import LISTENER, found, port_of, scrape, value

from kbroker.testing import running_broker

RECORDS = 6
SECONDS = 60


def test_records_in_flight_and_lag() -> None:
    with running_broker(LISTENER) as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("jobs", 1)])["jobs"].result(20)
        begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[begin])
        admin.incremental_alter_configs([group])[group].result(20)
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(RECORDS):
            producer.produce("jobs", b"x", partition=0)
        assert producer.flush(20) == 0
        worker = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        worker.subscribe(["jobs"])
        held: list[object] = []
        deadline = time.monotonic() + SECONDS
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
