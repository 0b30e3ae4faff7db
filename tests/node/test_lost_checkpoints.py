"""A node is killed, or stopped, and checkpoint files are lost: a stock client reads all that a compacted topic had."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.log.checkpoint_files import CLEANER_OFFSETS, OFFSET_CHECKPOINTS, RECOVERY_POINTS
from kbroker.wire.batch_header import walk_headers
from tests.node.process_harness import TO_THE_END, CommandNode
from tests.patience import LONG, SHORT, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

TOPIC, KEYS, ROUNDS = "compacted", 15, 12
LOST = ((RECOVERY_POINTS, CLEANER_OFFSETS), (CLEANER_OFFSETS,), OFFSET_CHECKPOINTS)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CommandNode]:
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.initial.task.delay.ms": "100",
        "offsets.topic.num.partitions": "1",
    }
    node = CommandNode(tmp_path, settings)
    node.start()
    yield node
    node.stop(kill=True)


def holes(directory: Path) -> int:
    """The number of segments that end before the next one begins; 0 while their files are renamed."""
    paths = sorted(directory.glob("*.log"))
    try:
        ends = [max((header.next_offset for _, header in walk_headers(path.read_bytes())), default=0) for path in paths]
    except FileNotFoundError:
        return 0
    return sum(end < int(path.stem) for end, path in zip(ends, paths[1:], strict=False))


def read(bootstrap: str) -> tuple[int, dict[bytes, bytes]]:
    """The log start offset, and the last value of each key."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", **TO_THE_END, "enable.auto.commit": False}
    )
    tp = confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)
    consumer.assign([tp])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found[message.key()] = message.value()
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            low, _ = consumer.get_watermark_offsets(tp, timeout=SHORT)
            consumer.close()
            return low, found
    raise AssertionError(f"no end of {TOPIC} after {found}")


@pytest.mark.slow
@pytest.mark.parametrize("kill", [True, pytest.param(False, marks=pytest.mark.everything)], ids=["kill", "clean stop"])
def test_a_compacted_topic_keeps_all(node: CommandNode, tmp_path: Path, kill: bool) -> None:
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "4000"}
    asking = admin.AdminClient({"bootstrap.servers": node.bootstrap})
    for future in asking.create_topics([admin.NewTopic(TOPIC, 1, 1, config=config)]).values():
        future.result(LONG)
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    expected: dict[bytes, bytes] = {}
    for round_ in range(ROUNDS):
        for number in range(KEYS):
            if round_ and number % 3 == round_ % 3:
                continue
            key, value = b"key %d" % number, b"%d " % round_ + b"v" * 300
            producer.produce(TOPIC, value, key, partition=0)
            assert producer.flush(LONG) == 0
            expected[key] = value
    directory = tmp_path / "data" / f"{TOPIC}-0"
    for names, lost in itertools.product(LOST, ("emptied", "removed")):
        eventually(lambda: holes(directory), "something is compacted")
        node.stop(kill=kill)
        for name in names:
            path = tmp_path / "data" / name
            if lost == "removed":
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(b"")
        node.start()
        assert read(node.bootstrap) == (0, expected), (names, lost)
        assert not list(directory.glob("*.set-aside*"))
