"""``kill -9`` of a node under an idempotent producer: all that was acknowledged is read, once, in order.

KBROKER_KILLS sets how often (3 by default).
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

KILLS = int(os.environ.get("KBROKER_KILLS", "3"))
ROOT = Path(__file__).parent.parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """The command, on a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = free_port(), free_port()
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Seconds until it served."""
        began = time.monotonic()
        listeners = f"PLAINTEXT://127.0.0.1:{self.ports[0]},CONTROLLER://127.0.0.1:{self.ports[1]}"
        settings = {
            "listeners": listeners,
            "log.dirs": str(self.directory / "data"),
            "node.id": "1",
            "log.segment.bytes": str(1 << 20),
            "replica.high.watermark.checkpoint.interval.ms": "200",
            "log.cleaner.backoff.ms": "100",
        }
        command = [sys.executable, "-m", "kbroker", "start"]
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        assert self.process.stdout is not None
        watchdog = threading.Timer(60, self.process.kill)
        watchdog.start()
        for line in self.process.stdout:
            if line.startswith("kbroker ready:"):
                watchdog.cancel()
                return time.monotonic() - began
        raise AssertionError((self.directory / "log").read_text()[-3000:])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    node.start()
    yield node
    node.kill()


@pytest.mark.slow
def test_acknowledged_records_survive(node: Node) -> None:
    rng = random.Random(7)
    bootstrap = f"127.0.0.1:{node.ports[0]}"
    new = admin.NewTopic
    asking = admin.AdminClient({"bootstrap.servers": bootstrap})
    for future in asking.create_topics(
        [new("plain", 2, 1), new("compacted", 1, 1, config={"cleanup.policy": "compact", "segment.ms": "200"})]
    ).values():
        future.result()
    acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
    failed: list[str] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            where = acknowledged.setdefault((message.topic(), message.partition()), {})
            where[message.offset()] = message.value()
        else:
            failed.append(str(error))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "message.timeout.ms": 120_000,
        }
    )
    stop = threading.Event()
    sent = 0

    def write() -> None:
        nonlocal sent
        while not stop.is_set():
            if len(producer) > 20_000:
                producer.poll(0.05)
                continue
            value = b"%d-" % sent + b"x" * rng.randrange(300)
            if sent % 3 == 2:
                producer.produce("compacted", key=b"k%d" % (sent % 50), value=value, on_delivery=on_delivery)
            else:
                producer.produce("plain", value=value, partition=sent % 2, on_delivery=on_delivery)
            sent += 1
            producer.poll(0 if sent % 100 else 0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.3, 1.5))  # the load that is to be interrupted
            node.kill()
            assert node.start() < 15
    finally:
        stop.set()
        thread.join()
    assert producer.flush(60) == 0
    assert not failed
    assert sum(map(len, acknowledged.values())) == sent
    read: dict[tuple[str, int], dict[int, tuple[bytes | None, bytes]]] = {}
    for (topic, partition), expected in acknowledged.items():
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True, "check.crcs": True}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        found = read.setdefault((topic, partition), {})
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                break
            found[message.offset()] = message.key(), message.value()
        consumer.close()
        for offset, (_, value) in found.items():
            assert expected[offset] == value
        numbers = [int(value.split(b"-")[0]) for _, (_, value) in sorted(found.items())]
        assert numbers == sorted(set(numbers)), "in order, and none twice"
        if topic == "plain":
            assert found.keys() == expected.keys()
        else:
            last = {b"k%d" % (int(value.split(b"-")[0]) % 50): offset for offset, value in sorted(expected.items())}
            assert set(last.values()) <= found.keys()
