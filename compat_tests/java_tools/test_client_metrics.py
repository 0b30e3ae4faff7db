"""The Java client pushes its metrics (KIP-714), asked to by Kafka's own tool, and `kbroker client list` shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from compat_tests.apache_kafka import tool
from compat_tests.clients import skip_without
from kbroker.testing import running_broker


def test_java_clients_push_and_the_command_shows_it(tmp_path: Path) -> None:
    skip_without("java")
    wanted = {f"org.apache.kafka.producer.{each}" for each in ("record.send.total", "request.latency.avg")}
    # Metrics are pushed ten times a second; on a slow machine a run of two seconds may end before the first that tell.
    for records in (200, 1_000, 5_000):
        names = _pushed(tmp_path / f"metrics-{records}.jsonl", records)
        if wanted <= names:
            break
    assert wanted <= names


def _pushed(path: Path, records: int) -> set[str]:
    """The names of the metrics that one of two producers, the one that is asked, has pushed while it sent records."""
    with running_broker({"metric.reporters": f"file:{path}"}) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        wanted = ("--metrics", "org.apache.kafka.producer.", "--interval", "100", "--match", "client_id=java-one")
        tool("kafka-client-metrics", *server, "--alter", "--name", "java", *wanted, check=True)
        described = tool("kafka-client-metrics", *server, "--describe", "--name", "java", check=True).stdout
        assert "client_id=java-one" in described and "interval.ms=100" in described
        load = ("--topic", "measured", "--num-records", str(records), "--record-size", "10", "--throughput", "100")
        for client_id in ("java-one", "java-two"):
            properties = f"bootstrap.servers={broker.bootstrap_servers}", f"client.id={client_id}"
            tool("kafka-producer-perf-test", *load, "--producer-props", *properties, check=True)
    command = [sys.executable, "-m", "kbroker", "client", "list", "--json", str(path)]
    shown = json.loads(subprocess.check_output(command))
    assert {(each["client_id"], each["software_name"]) for each in shown} <= {("java-one", "apache-kafka-java")}
    return {point["name"] for each in shown for point in each["points"]}
