"""A replica whose log cannot be opened: another one leads, and groups and records are there within seconds. If nothing
says of which topic the log is, it is fetched again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningCluster, running_cluster
from tests.patience import LONG, SHORT, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.slow, pytest.mark.everything]

RECORDS = 60
PARTITIONS = 3


def emptied(log: Path) -> None:
    (log / "partition.metadata").write_bytes(b"")
    (log / "topic-id").unlink()


def flipped(log: Path) -> None:
    path = log / "partition.metadata"
    data = bytearray(path.read_bytes())
    data[-5] ^= 0x80
    path.write_bytes(data)
    (log / "topic-id").unlink()


def removed(log: Path) -> None:
    (log / "partition.metadata").unlink()
    (log / "topic-id").unlink()


def not_a_file(log: Path) -> None:
    """Stands for a file that may not be opened, where the test may open all."""
    path = log / "00000000000000000000.log"
    path.rename(log / "kept")
    path.mkdir()


def write(cluster: RunningCluster) -> None:
    asking = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = admin.NewTopic("t", PARTITIONS, 3)
    for future in asking.create_topics([topic]).values():
        future.result()
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(LONG) == 0


def consumer(cluster: RunningCluster, group: str) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
        }
    )


def read_and_commit(cluster: RunningCluster, group: str) -> list[int]:
    """All that a new group reads, committed."""
    reader = consumer(cluster, group)
    found: list[int] = []
    try:
        reader.subscribe(["t"])
        while len(found) < RECORDS:
            message = reader.poll(SHORT)
            assert message is not None, f"{len(found)} of {RECORDS} records"
            assert message.error() is None
            found.append(int(message.value()))
        committed = reader.commit(asynchronous=False)
        assert sum(position.offset for position in committed) == RECORDS
    finally:
        reader.close()
    return sorted(found)


def test_another_replica_leads(tmp_path: Path) -> None:
    with running_cluster(3, {"offsets.topic.num.partitions": 1}, data_dir=tmp_path) as cluster:
        write(cluster)
        assert read_and_commit(cluster, "g") == list(range(RECORDS))
        cluster.await_in_sync()
        for node in cluster.nodes:
            node.stop()
        last = cluster.nodes[-1]  # which leads all by then, alone in sync
        for name, way in {"t-0": not_a_file, "t-1": emptied, "t-2": flipped, "__consumer_offsets-0": removed}.items():
            way(last.data_dir / name)
        cluster.start()
        assert read_and_commit(cluster, "h") == list(range(RECORDS))
        reader = consumer(cluster, "g")
        positions = [confluent_kafka.TopicPartition("t", number) for number in range(PARTITIONS)]
        assert {p.offset for p in reader.committed(positions, timeout=SHORT)} == {RECORDS // PARTITIONS}
        reader.close()
        assert last.is_running
        assert cluster.leader_of("t", 0) is not last and last.id not in cluster.isr_of("t", 0)
        assert "cannot be opened" in last.log
        # Nothing says of which topic the other logs are.
        eventually(lambda: all(last.id in cluster.isr_of("t", number) for number in range(1, PARTITIONS)), "in sync")
        eventually(lambda: last.log.count("is set aside, and fetched again") == PARTITIONS, last.log)
        assert len(list(last.data_dir.glob("*-stray"))) == PARTITIONS
