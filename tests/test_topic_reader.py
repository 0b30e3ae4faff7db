"""``kbroker.read_topic``: the same table from a broker and from its files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kbroker
from kbroker.client import ClientError
from kbroker.errors import FatalError
from kbroker.log import opening
from kbroker.log.disk import OsDisk
from kbroker.log.log_config import LogConfig
from kbroker.testing import RunningBroker, running_broker
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch

pyarrow: Any = pytest.importorskip("pyarrow")

TIME = 1_700_000_000_000


def write(path: Path, partition: int, records: list[Record]) -> None:
    tp = TopicPartition("t", partition)
    log = opening.open_log(path / str(tp), tp, None, LogConfig(segment_bytes=2000), OsDisk(), now_ms=TIME)
    log.ensure_on_disk()
    for record in records:
        log.append_as_leader(bytearray(build_batch([record])), 0, now_ms=TIME)
    log.close()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    headers = (("h", b"1"), ("n", None))
    write(tmp_path, 0, [Record(0, TIME + i, b"k%d" % i if i % 2 else None, b"v%d" % i, headers) for i in range(100)])
    write(tmp_path, 1, [Record(0, TIME, b"key", None), Record(0, TIME, b"", b"")])
    return tmp_path


def test_a_directory_as_a_table(log_dir: Path) -> None:
    table = kbroker.read_topic(log_dir, "t")
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert table.num_rows == 102
    rows = table.to_pylist()
    assert rows[1] == {
        "partition": 0,
        "offset": 1,
        "timestamp": datetime.fromtimestamp((TIME + 1) / 1000, UTC),
        "key": b"k1",
        "value": b"v1",
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
    }
    assert rows[0]["key"] is None
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows[100:]] == [
        (1, 0, b"key", None),
        (1, 1, b"", b""),
    ]


def test_a_part_of_it(log_dir: Path) -> None:
    assert kbroker.read_topic(log_dir, "t", partitions=[1]).num_rows == 2
    assert kbroker.read_topic(log_dir, "t", start=90, partitions=[0])["offset"].to_pylist() == list(range(90, 100))
    assert kbroker.read_topic(log_dir, "t", end={0: 3})["offset"].to_pylist() == [0, 1, 2, 0, 1]
    batches = list(kbroker.read_topic_batches(log_dir, "t", batch_records=30))
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10, 2]


def test_an_empty_topic_has_columns(tmp_path: Path) -> None:
    write(tmp_path, 0, [])
    table = kbroker.read_topic(tmp_path, "t")
    assert table.num_rows == 0
    assert table.column_names[0] == "partition"


def test_what_is_not_there(log_dir: Path) -> None:
    with pytest.raises(FatalError, match="there is no topic other"):
        kbroker.read_topic(log_dir, "other")
    with pytest.raises(FatalError, match="has no partition 5, 7"):
        kbroker.read_topic(log_dir, "t", partitions=[7, 1, 5])
    with pytest.raises(FatalError, match="is no directory"):
        kbroker.read_topic(log_dir / "none", "t")
    with pytest.raises(ValueError, match="arrow"):
        kbroker.read_topic(log_dir, "t", frame="polars")  # type: ignore[call-overload]


def test_pandas(log_dir: Path) -> None:
    pytest.importorskip("pandas")
    frame = kbroker.read_topic(log_dir, "t", frame="pandas", partitions=[0])
    assert list(frame.columns) == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert frame["value"].iloc[99] == b"v99"


def test_a_broker_gives_the_same(broker: RunningBroker) -> None:
    from kbroker.client.cluster import Client
    from kbroker.client.producer import Producer
    from kbroker.client.topics import NewTopic, create_topics

    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [NewTopic("table", 2)])
        producer = Producer(client, "table", [0, 1], on_refused=lambda refused: pytest.fail(str(refused)))
        for number in range(500):
            record = Record(0, TIME + number, b"%d" % number, b"v%d" % number)
            producer.send(record, number, partition=number % 2)
        producer.flush()
    table = kbroker.read_topic(broker.bootstrap_servers, "table")
    assert table.num_rows == 500
    assert sorted(int(key) for key in table["key"].to_pylist()) == list(range(500))
    assert kbroker.read_topic(broker.bootstrap_servers, "table", start=240, partitions=[1]).num_rows == 10
    assert kbroker.read_topic(broker.data_dir, "table").equals(table), "beside the broker that writes it"
    with pytest.raises(FatalError, match="there is no topic nothing"):
        kbroker.read_topic(broker.bootstrap_servers, "nothing")


def test_a_secured_broker(tmp_path: Path) -> None:
    with running_broker(security="sasl_plaintext") as secured:
        given = secured.client_properties("alice")
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        for properties in (given, file):
            with pytest.raises(FatalError, match="there is no topic t"):
                kbroker.read_topic(secured.bootstrap_servers, "t", client_properties=properties)
        wrong = {**given, "sasl.jaas.config": given["sasl.jaas.config"].replace("alice-secret", "another")}
        with pytest.raises(ClientError, match="SASL_AUTHENTICATION_FAILED"):
            kbroker.read_topic(secured.bootstrap_servers, "t", client_properties=wrong)
