"""A table and its topic as one DataFrame, in batch and as a stream, while a follower moves the table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.spark.processes import kill_with_java, python
from compat_tests.spark.records import create, delete, delete_records
from compat_tests.spark.test_transactions import Writer
from kbroker.client import Client
from kbroker.errors import FatalError
from kbroker.tables import spark_union
from kbroker.tables.delta import DeltaTarget
from kbroker.tables.follower import Follower, Settings
from kbroker.tables.layout import Layout
from kbroker.tables.plan import Refused
from kbroker.tables.sources import ClusterSource
from tests.patience import LONG, eventually

PARTITIONS = 3
BAD = 10
"""Each so many-th value is none of the format."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session that knows tables of Delta, too."""
    from kbroker.testing.spark import delta_session

    session = delta_session("tables")
    yield session
    session.stop()


def produce_values(bootstrap: str, topic: str, numbers: range) -> None:
    """Record n is in partition n % PARTITIONS at offset n // PARTITIONS."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in numbers:
        value = "no JSON" if n % BAD == 0 else json.dumps({"id": n, "in": {"half": n / 2}, "tags": [str(n)]})
        producer.produce(topic, value, f"k{n % 7}", partition=n % PARTITIONS)
        producer.poll(0)
    assert producer.flush(LONG) == 0


def good(count: int) -> list[int]:
    """The ids of so many records, without those of dead letters."""
    return [n for n in range(count) if n % BAD]


def follow(bootstrap: str, topic: str, path: Path, stop: Callable[[], bool] | None = None, **settings: Any) -> None:
    """Bring the table up to the topic's end; with ``stop``, follow until then."""
    with Client(bootstrap) as client:
        follower = Follower(ClusterSource(client, topic), DeltaTarget(str(path)), Settings(**settings))
        follower.run(once=stop is None, stop=stop or (lambda: False))


@contextmanager
def following(bootstrap: str, topic: str, path: Path) -> Iterator[None]:
    """A follower that commits all the time, in a thread."""
    stop = threading.Event()
    settings = {"value_format": "json", "interval": 0.2}
    thread = threading.Thread(target=follow, args=(bootstrap, topic, path, stop.is_set), kwargs=settings)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LONG)


def ids(rows: Any) -> list[int]:
    """The ids in a DataFrame, sorted."""
    return sorted(row.id for row in rows.select("id").collect())


def run_available(rows: Any, place: Path) -> list[int]:
    """The query over what there is, into Parquet; the ids that are there now."""
    writer = rows.writeStream.format("parquet").option("path", str(place / "rows"))
    query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(LONG)
    return ids(rows.sparkSession.read.parquet(str(place / "rows")))


# --- Rows


VALUES: tuple[bytes | None, ...] = (
    b'{"id": 1, "name": "a", "number": 1.5, "in": {"x": 1}, "list": [1, 2]}',
    b'{"id": 2}',
    b'{"id": "3"}',
    b'{"id": 4.0}',
    b'{"id": 5, "name": 7}',
    b'{"id": 6, "number": 3}',
    b'{"id": 7, "number": 9007199254740993}',
    b'{"id": 92233720368547758070}',
    b'{"id": 8} trailing',
    b"{'id': 9}",
    b'[{"id": 10}]',
    b'{"id": 11, "in": {"x": "no"}}',
    b'{"id": 12, "list": []}',
    b'{"id": 13, "name": "\xff"}',
    b'{"id": 14, "name": "\\ud800"}',
    b'{"id": 15, "a b": 1}',
    b'{"id": true}',
    b"null",
    b"",
    None,
    b'{"id": 16, "in": null, "name": "\\u00e9"}',
    b'{"ID": 17}',
    b'{"id": 18, "new": "field"}',
)
DECLARED = '{"id": "int", "name": "string", "number": "double", "in": {"x": "long"}, "list": ["long"]}'
ENVELOPES: tuple[bytes | None, ...] = (
    b'{"op": "c", "after": {"id": 1, "name": "a"}}',
    b'{"op": "c", "after": {"id": 2, "name": "b"}}',
    b'{"op": "u", "after": {"id": 1, "name": "c"}}',
    b'{"op": "d"}',
    b'{"op": "x"}',
    b'{"op": "t"}',
    b'{"payload": {"op": "r", "after": {"id": 3}}, "schema": null}',
)


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"value_format": "json"}, VALUES),
        ({"value_format": "json", "declared": DECLARED}, VALUES),
        ({"value_format": "json", "layout": Layout(flatten=True, partition_by="day(_timestamp)")}, VALUES),
        ({"value_format": "text"}, VALUES),
        ({"value_format": "bytes"}, VALUES),
        ({"value_format": "json", "upsert": True}, VALUES),
        ({"changes": "debezium"}, ENVELOPES),
    ],
    ids=["json", "declared", "layout", "text", "bytes", "upsert", "debezium"],
)
def test_the_union_is_what_the_table_will_be(
    spark: Any,
    bootstrap: str,
    new_name: Callable[[], str],
    tmp_path: Path,
    settings: dict[str, Any],
    values: Sequence[bytes | None],
) -> None:
    """Of half the records in the table and the other half in the topic, dead letters and deleted rows aside."""
    topic = create(bootstrap, new_name(), PARTITIONS)

    def produce_all(first: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for index, value in enumerate(values, first):
            key = None if index % 11 == 10 else b"k%d" % (index % 8)
            headers: Any = [("h", b"1"), ("none", None)] if index % 3 == 0 else None
            where: dict[str, Any] = {"partition": index % 8 % PARTITIONS, "timestamp": 1_000_000 + index}
            producer.produce(topic, value, key, headers=headers, **where)
        assert producer.flush(LONG) == 0

    produce_all(0)
    follow(bootstrap, topic, tmp_path / "table", **settings)
    produce_all(len(values))
    union = spark_union(spark, f"delta:{tmp_path}/table", topic, bootstrap)
    found = rows_of(union)
    follow(bootstrap, topic, tmp_path / "table")
    assert found == rows_of(spark.read.format("delta").load(f"{tmp_path}/table").select(union.columns))
    assert len({(row["_partition"], row["_offset"]) for row in found}) == len(found) > 0


def test_by_key_of_a_topic_that_was_made_anew(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """Its offsets begin again: a row that the old topic gave is earlier than each record of the new one."""
    topic, table = create(bootstrap, new_name(), 1), f"delta:{tmp_path}/table"
    producer = Producer({"bootstrap.servers": bootstrap})

    def put(*values: str) -> None:
        for value in values:
            producer.produce(topic, value, "k", partition=0)
        assert producer.flush(LONG) == 0

    put(*"abcde")
    follow(bootstrap, topic, tmp_path / "table", value_format="text", upsert=True)
    delete(bootstrap, topic)
    create(bootstrap, topic, 1)
    follow(bootstrap, topic, tmp_path / "table", new_topic=True)
    put("new")
    assert [row.value for row in spark_union(spark, table, topic, bootstrap).collect()] == ["new"]


def rows_of(frame: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_records_of_transactions_that_are_open_or_were_aborted_are_no_rows(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(bootstrap, new_name(), 2)
    writer, other = Writer(bootstrap, topic, topic), Writer(bootstrap, topic, f"{topic}-other")
    writer.transact(range(10), commit=True)
    follow(bootstrap, topic, tmp_path / "table", value_format="text")
    writer.transact(range(10, 20), commit=False)
    writer.transact(range(20, 30), commit=True)
    other.begin(range(30, 40))
    union = spark_union(spark, f"delta:{tmp_path}/table", topic, bootstrap)
    texts = {row.value for row in union.collect()}
    assert len(texts) == union.count() == 20
    follow(bootstrap, topic, tmp_path / "table")
    assert texts == {row.value for row in spark.read.format("delta").load(f"{tmp_path}/table").collect()}
    other.commit()


# --- While the table moves


def test_a_batch_while_records_come_and_a_follower_commits(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """Each of several reads has every record that was there before it, once, and none twice."""
    topic, path = create(bootstrap, new_name(), PARTITIONS), tmp_path / "table"
    produce_values(bootstrap, topic, range(300))
    follow(bootstrap, topic, path, value_format="json")
    done = threading.Event()

    def produce_more() -> None:
        for first in range(600, 30_000, 300):
            if not done.is_set():
                produce_values(bootstrap, topic, range(first, first + 300))

    produce_values(bootstrap, topic, range(300, 600))
    thread = threading.Thread(target=produce_more)
    thread.start()
    try:
        with following(bootstrap, topic, path):
            for _ in range(4):
                union = spark_union(spark, f"delta:{path}", topic, bootstrap).select("_partition", "_offset", "id")
                found = union.collect()
                assert len(found) == union.count()  # it has an end, which stays
                last = dict.fromkeys(range(PARTITIONS), -1)
                for row in found:
                    assert row.id == row._offset * PARTITIONS + row._partition
                    last[row._partition] = max(last[row._partition], row._offset)
                assert min(last.values()) >= 198
                there = [n for n in range(60_000) if n // PARTITIONS <= last[n % PARTITIONS]]
                assert sorted(row.id for row in found) == [n for n in there if n % BAD]
    finally:
        done.set()
        thread.join(LONG)


def test_a_stream_goes_on_from_its_checkpoint_however_the_table_has_moved(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, path = create(bootstrap, new_name(), PARTITIONS), tmp_path / "table"
    produce_values(bootstrap, topic, range(300))
    follow(bootstrap, topic, path, value_format="json")
    produce_values(bootstrap, topic, range(300, 450))

    def stream() -> Any:
        return spark_union(spark, f"delta:{path}", topic, bootstrap, checkpoint=tmp_path / "checkpoint")

    assert run_available(stream(), tmp_path) == good(450)
    follow(bootstrap, topic, path)
    assert run_available(stream(), tmp_path) == good(450)
    produce_values(bootstrap, topic, range(450, 600))
    follow(bootstrap, topic, path)
    DeltaTarget(str(path)).maintain(0)  # the version that the query began with is gone
    produce_values(bootstrap, topic, range(600, 700))
    assert run_available(stream(), tmp_path) == good(700)
    # Before its first batch a query has the version that it was made with, whatever comes between.
    first = spark_union(spark, f"delta:{path}", topic, bootstrap, checkpoint=tmp_path / "other" / "checkpoint")
    follow(bootstrap, topic, path)
    assert run_available(first, tmp_path / "other") == good(700)


@pytest.mark.slow
def test_a_stream_that_is_killed(bootstrap: str, new_name: Callable[[], str], tmp_path: Path, spark: Any) -> None:
    """First among the table's rows, then among the topic's; the table moves between, and no row is there twice."""
    topic, path = create(bootstrap, new_name(), PARTITIONS), tmp_path / "table"
    produce_values(bootstrap, topic, range(300))
    follow(bootstrap, topic, path, value_format="json")
    produce_values(bootstrap, topic, range(300, 600))
    words = ["-m", "compat_tests.spark.killed_union", bootstrap, topic, f"delta:{path}", str(tmp_path)]
    end = 600
    for stops_at in ("151", "701"):
        with python(*words, stops_at) as process:
            reached = tmp_path / f"reached-{stops_at}"
            eventually(lambda: reached.exists() or process.poll() is not None)  # noqa: B023
            assert process.poll() is None, process.communicate()
            kill_with_java(process)
        follow(bootstrap, topic, path)
        produce_values(bootstrap, topic, range(end, end + 300))
        end += 300
        follow(bootstrap, topic, path)
    with python(*words, "-1") as process:
        assert process.wait(2 * LONG) == 0
    assert ids(spark.read.parquet(str(tmp_path / "rows"))) == good(end)


# --- What is refused, in one line


def test_what_is_refused(spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    topic, table = create(bootstrap, new_name(), PARTITIONS), f"delta:{tmp_path}/table"
    produce_values(bootstrap, topic, range(90))
    with pytest.raises(FatalError, match="there is no table in "):
        spark_union(spark, table, topic, bootstrap)
    follow(bootstrap, topic, tmp_path / "table", value_format="json")
    produce_values(bootstrap, topic, range(90, 180))
    other = create(bootstrap, new_name(), 1)
    with pytest.raises(Refused, match=f"is the table of topic {topic}: "):
        spark_union(spark, table, other, bootstrap)
    with pytest.raises(FatalError, match=r"'table' is not delta:PATH or iceberg:"):
        spark_union(spark, "table", topic, bootstrap)
    with pytest.raises(FatalError, match="sets startingOffsets itself: leave it out"):
        spark_union(spark, table, topic, bootstrap, options={"startingOffsets": "earliest"})
    place = tmp_path / "checkpoint"
    assert run_available(spark_union(spark, table, topic, bootstrap, checkpoint=place), tmp_path) == good(180)
    with pytest.raises(Refused, match=f"checkpoint of another query, of {topic} and delta:"):
        spark_union(spark, table, other, bootstrap, checkpoint=place)
    plain = tmp_path / "plain"
    (plain / "commits").mkdir(parents=True)
    (plain / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(Refused, match="checkpoint of another query: give this one a directory of its own"):
        spark_union(spark, table, topic, bootstrap, checkpoint=plain)
    delete_records(bootstrap, topic, {0: 40})
    with pytest.raises(Refused, match="partition 0: offsets 30 to 39 were gone before the table had them; "):
        spark_union(spark, table, topic, bootstrap)
    delete(bootstrap, topic)
    create(bootstrap, topic, PARTITIONS)
    with pytest.raises(Refused, match="was deleted and made anew since "):
        spark_union(spark, table, topic, bootstrap)
    with pytest.raises(Refused, match="was deleted and made anew since the query began: begin a new checkpoint"):
        spark_union(spark, table, topic, bootstrap, checkpoint=place)
    by_key = create(bootstrap, new_name(), 1)
    follow(bootstrap, by_key, tmp_path / "by-key", value_format="text", upsert=True)
    with pytest.raises(Refused, match="is kept by key, and a stream takes no row back: read it as a batch"):
        spark_union(spark, f"delta:{tmp_path}/by-key", by_key, bootstrap, checkpoint=tmp_path / "by-key-checkpoint")


# --- The example


def test_the_report_of_a_table(spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    from spark_examples import flights, table_report
    from spark_examples.command import moment_ms

    week = flights.load(start_ms=moment_ms("2013-01-01"), end_ms=moment_ms("2013-01-08"))
    live_from_ms = moment_ms("2013-01-06")
    live = len(flights.between(week, flights.scheduled_departure_ms(week), live_from_ms, None))
    sent_again = int((week["carrier"] == table_report.CORRECTED).sum())
    assert live > 0 and sent_again > 0
    reports = table_report.run(spark, bootstrap, tmp_path, topic=new_name(), frame=week, live_from_ms=live_from_ms)
    assert table_report.differences(reports) == []
    assert [(each.table_rows, each.live_rows) for each in reports] == [
        (len(week) - live, live), (len(week) + sent_again, 0), (len(week), 0),
    ]  # fmt: skip
    assert reports[1].answer != reports[0].answer == reports[2].answer
    assert table_report.report_table(reports).count("equal") == 3
