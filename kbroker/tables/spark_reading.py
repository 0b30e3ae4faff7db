"""Gives Spark one DataFrame of a table and its topic: the rows that the table has, and the topic's records from there.

The version of the table and the offsets at which the topic goes on are read together, and both stay: nothing that the
table gets later is read from the table. Of a streaming query they are in a file of its checkpoint, so that a restart
goes on with the same ones. That file is a source of the query, too: its line, which comes once, brings the table's rows
with it. Needs PySpark, whose workers need kbroker for values that are not bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept, OffsetRange, Refused, plan

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_KAFKA: Final = "kafka."
_ISOLATION: Final = "kafka.isolation.level"
_OURS: Final = (
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    _ISOLATION,
)


@dataclass(frozen=True, slots=True)
class _Pin:
    """The point at which the table ends and the topic goes on."""

    table: str
    version: str
    """Delta's version, or the id of Iceberg's snapshot; empty without one."""
    topic: str
    topic_id: str
    value_format: str
    declared: str
    starts: dict[str, int]
    """Partition -> the first offset that the table does not have."""
    ends: dict[str, int]
    schema: str
    """The table's columns, as Spark writes them."""


def spark_union(
    spark: SparkSession,
    table: str,
    topic: str,
    bootstrap: str,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Returns the rows of a table, and the topic's records that are not in it yet as rows, none twice and none missing.

    ``table`` is ``delta:PATH``, or ``iceberg:CATALOG.NAMESPACE.TABLE`` with Spark's name of the catalog. Without a
    ``checkpoint`` it is a batch, to the topic's end at the moment of the call. With one it is a stream: give the query
    the same directory as ``checkpointLocation``. ``options`` are those of Spark's Kafka source; those that begin with
    ``kafka.`` are client properties. ``Refused`` and ``FatalError`` say in one line what is in the way.
    """
    given = {f"{_KAFKA}bootstrap.servers": bootstrap, **(options or {})}
    for name in _OURS:
        if name in given:
            raise FatalError(f"spark_union sets {name} itself: leave it out")
    if checkpoint is None:
        pin = _new_pin(spark, table, topic, given)
        return _rows(spark, pin).unionByName(_live(spark, pin, given, stream=False))
    directory = os.fspath(checkpoint)
    place, has_begun = f"{directory}/table", bool(_lines(spark, f"{directory}/commits"))
    pins = _lines(spark, place)
    if not pins:
        if has_begun:
            raise Refused(f"{directory} is the checkpoint of another query: give this one a directory of its own")
        pin = _new_pin(spark, table, topic, given)
        spark.createDataFrame([(json.dumps(asdict(pin)),)], "value string").coalesce(1).write.mode("append").text(place)
    else:
        pin = _Pin(**json.loads(pins[0]))
        if len(pins) > 1 or (pin.table, pin.topic) != (table, topic):
            raise Refused(f"{directory} is the checkpoint of {pin.topic} and {pin.table}, or two queries began there")
        _check_topic(pin, given)
    from pyspark.sql import functions as F

    # Once its first batch is done the table's rows are never read again, and its version may be gone.
    rows = spark.createDataFrame([], _schema(pin)) if has_begun else _rows(spark, pin)
    once = spark.readStream.text(place).select()
    return rows.crossJoin(F.broadcast(once)).unionByName(_live(spark, pin, given, stream=True))


# --- Where the table ends --------------------------------------------------------------------------------------------


def _new_pin(spark: SparkSession, table: str, topic: str, given: Mapping[str, str]) -> _Pin:
    kind, _, name = table.partition(":")
    with _client(given) as client:
        from kbroker.tables.sources import ClusterSource

        source = ClusterSource(client, topic)
        if kind == "delta":
            kept, version = _of_delta(name, source.ranges())
        elif kind == "iceberg":
            kept, version = _of_iceberg(spark, name)
        else:
            raise FatalError(f"{table!r} is not delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
        ranges = source.ranges()  # behind the table's version, or the topic would seem to end before the table
        starts = plan(kept, table, topic, source.topic_id, None, ranges).starts
        ends = _stable_ends(client, topic, ranges)
    rows = _rows_at(spark, table, version)
    return _Pin(
        table,
        version,
        topic,
        source.topic_id,
        kept.value_format,
        kept.declared,
        {str(partition): offset for partition, offset in starts.items()},
        {str(partition): max(ends[partition], offset) for partition, offset in starts.items()},
        rows.schema.json(),
    )


def _client(given: Mapping[str, str]) -> Any:
    from kbroker.client import Client
    from kbroker.client.properties import ClientProperties
    from kbroker.client.security import security_of

    told = {name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)}
    properties = ClientProperties(told, "options")
    return Client(told["bootstrap.servers"], client_id="kbroker-spark", security=security_of(properties))


def _check_topic(pin: _Pin, given: Mapping[str, str]) -> None:
    from kbroker.tables.sources import ClusterSource

    with _client(given) as client:
        if ClusterSource(client, pin.topic).topic_id != pin.topic_id:
            raise Refused(f"topic {pin.topic} was deleted and made anew since the query began: begin a new checkpoint")


def _stable_ends(client: Any, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The offsets behind the last records that a reader sees who waits for transactions."""
    from kbroker.client.errors import known
    from kbroker.client.topics import LATEST, list_offsets
    from kbroker.types import TopicPartition

    asked = {TopicPartition(topic, each): LATEST for each in partitions}
    return {
        name.partition: listed.offset
        for name, listed in known(list_offsets(client, asked, read_committed=True)).items()
    }


def _of_delta(path: str, partitions: Mapping[int, OffsetRange]) -> tuple[Kept, str]:
    from kbroker.tables.delta import DeltaTarget

    target = DeltaTarget(path)
    kept = target.load(partitions)
    if kept is None:
        raise FatalError(f"there is no table in {path}")
    return kept, str(target.facts().version)


def _of_iceberg(spark: SparkSession, name: str) -> tuple[Kept, str]:
    from kbroker.tables.iceberg import kept_of

    java: Any = spark
    found = java._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java._jsparkSession, name)
    found.refresh()  # a catalog keeps tables for a while
    metadata = found.operations().current()
    snapshot = metadata.currentSnapshot()
    return kept_of(dict(metadata.properties()), name), "" if snapshot is None else str(snapshot.snapshotId())


# --- Rows ------------------------------------------------------------------------------------------------------------


def _rows(spark: SparkSession, pin: _Pin) -> DataFrame:
    return _rows_at(spark, pin.table, pin.version)


def _rows_at(spark: SparkSession, table: str, version: str) -> DataFrame:
    kind, _, name = table.partition(":")
    if kind == "delta":
        path = name if "://" in name else os.path.abspath(name)
        return spark.read.format("delta").option("versionAsOf", version).load(path)
    if not version:
        return spark.createDataFrame([], spark.table(name).schema)
    return spark.sql(f"SELECT * FROM {name} VERSION AS OF {version}")


def _schema(pin: _Pin) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(pin.schema))


def _live(spark: SparkSession, pin: _Pin, given: Mapping[str, str], *, stream: bool) -> DataFrame:
    """The topic's records behind the table, as rows with the table's columns."""
    from pyspark.sql import functions as F

    from kbroker.tables.rows import LATEST_TIME, plain_schema
    from kbroker.wire.batch_header import NO_TIMESTAMP

    bounds = {"startingOffsets": json.dumps({pin.topic: pin.starts})}
    if not stream:
        bounds["endingOffsets"] = json.dumps({pin.topic: pin.ends})
    reader: Any = spark.readStream if stream else spark.read
    reader = reader.format("kafka").options(**given, **bounds, subscribe=pin.topic, includeHeaders="true")
    records = reader.option(_ISOLATION, "read_committed").load()
    time = F.unix_millis("timestamp")
    schema = _schema(pin)
    known = records.where(time.between(NO_TIMESTAMP, LATEST_TIME)).select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.when(time != NO_TIMESTAMP, F.col("timestamp")).alias("_timestamp"),
        F.col("key").alias("_key"),
        F.coalesce("headers", F.array().cast(schema["_headers"].dataType)).alias("_headers"),
        "value",
    )
    if pin.value_format == "bytes":
        return known.select(
            *[
                each.name if each.name in known.columns else F.lit(None).cast(each.dataType).alias(each.name)
                for each in schema
            ]
        )
    columns = plain_schema(spark.createDataFrame([], schema).toArrow().schema)
    return known.mapInArrow(_Decoder(pin.value_format, pin.declared, columns), schema)


@dataclass(frozen=True)
class _Decoder:
    """Makes rows of a table's values as its follower does, in Spark's workers; leaves out dead letters."""

    value_format: str
    declared: str
    schema: pyarrow.Schema

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        from kbroker.tables.follower import values_of

        values = values_of(self.value_format, self.declared, self.schema)
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            decoded, bad = values.columns(columns.pop("value").to_pylist())
            columns |= {each.name: column for each, column in zip(values.fields(), decoded, strict=True)}
            rows = pyarrow.RecordBatch.from_arrays(
                [
                    columns[each.name] if each.name in columns else pyarrow.nulls(batch.num_rows, each.type)
                    for each in self.schema
                ],
                self.schema.names,
            )
            yield rows.filter(pyarrow.array([index not in bad for index in range(batch.num_rows)])) if bad else rows


def _lines(spark: SparkSession, place: str) -> list[str]:
    """The lines of the text files in a directory of whatever file system; none without one."""
    from pyspark.errors import AnalysisException

    try:
        return [row.value for row in spark.read.text(place).collect()]
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        raise
