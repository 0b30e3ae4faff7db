"""kafka-producer-perf-test in transactions: many partitions in each request, five requests in flight."""

from __future__ import annotations

import uuid

import pytest

from compat_tests.apache_kafka import tool
from compat_tests.clients import Clients, unavailable
from compat_tests.java_tools import feature
from tests.patience import eventually

PARTITIONS, RECORDS = 60, 100_000


@feature("kafka-producer-perf-test --transactional-id")
@pytest.mark.nodes(1, 3)
@pytest.mark.parametrize("replication_factor", [-1, 1])
def test_transactions_of_many_partitions(replication_factor: int, bootstrap: str, clients: Clients) -> None:
    reason = unavailable("java") or unavailable("confluent-kafka")
    if reason:
        pytest.skip(reason)
    topic, client = f"perf-{uuid.uuid4().hex[:10]}", clients["confluent-kafka"]
    client.create_topic(topic, PARTITIONS, replication_factor=replication_factor)
    records = ("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    transactions = ("--transactional-id", topic, "--transaction-duration-ms", "200")
    servers = ("--command-property", f"bootstrap.servers={bootstrap}")
    told = tool("kafka-producer-perf-test", *records, *transactions, *servers)
    # On standard error it warns of what it sends again: Apache Kafka lets it, while the transaction before is ended.
    assert told.returncode == 0, told.stderr
    assert f"{RECORDS} records sent, " in told.stdout, told.stdout + told.stderr

    def committed() -> int:
        return len(client.read_to_end(topic, isolation="read_committed"))

    # The last commit is answered before its markers are everywhere.
    eventually(lambda: committed() >= RECORDS, f"{RECORDS} records in {topic}")
    assert committed() == RECORDS
    client.delete_topic(topic)  # of many partitions, which a broker writes out one by one as it stops
