"""``kill -9`` of a node under an idempotent producer: all that was acknowledged is read, once, in order.

KBROKER_KILLS sets how often (3 by default).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.process_harness import TO_THE_END, CommandNode
from tests.patience import LONG

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

KILLS = int(os.environ.get("KBROKER_KILLS", "3"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CommandNode]:
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "log.segment.bytes": str(1 << 20),
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.cleaner.backoff.ms": "100",
    }
    node = CommandNode(tmp_path, settings)
    node.start()
    yield node
    node.stop(kill=True)


@pytest.mark.slow
def test_acknowledged_records_survive(node: CommandNode) -> None:
    rng = random.Random(7)
    bootstrap = node.bootstrap
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
            "message.timeout.ms": 300_000,
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
            node.stop(kill=True)
            node.start()
    finally:
        stop.set()
        thread.join()
    assert producer.flush(LONG) == 0
    assert not failed
    assert sum(map(len, acknowledged.values())) == sent
    read: dict[tuple[str, int], dict[int, tuple[bytes | None, bytes]]] = {}
    for (topic, partition), expected in acknowledged.items():
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "r", "check.crcs": True, **TO_THE_END}
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        found = read.setdefault((topic, partition), {})
        while True:
            message = consumer.poll(LONG)
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
