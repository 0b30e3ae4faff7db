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
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept, OffsetRange, Refused, plan

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from kbroker.client.schemas.wire_format import Headers
    from kbroker.tables.target import Traits

_KAFKA: Final = "kafka."
_BOOTSTRAP: Final = "bootstrap.servers"
_OURS: Final = {"subscribe", "assign", "subscribePattern", "startingOffsets", "endingOffsets", "includeHeaders"}
_ISOLATION: Final = "kafka.isolation.level"
_REGISTRY_URL: Final = "schema.registry.url"
_REGISTRYS: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")


@dataclass(frozen=True, slots=True)
class _Pin:
    """The point at which the table ends and the topic goes on: ``kept.positions``, of each partition that there is."""

    table: str
    version: str
    """Delta's version, or the id of Iceberg's snapshot; empty without one."""
    kept: Kept
    ends: Mapping[int, int]
    columns: Any
    """The table's, as Spark writes them in JSON."""

    @classmethod
    def read(cls, line: str) -> _Pin:
        """A pin from its line."""
        told = json.loads(line)
        kept = {**told.pop("kept")}
        positions = {int(partition): offset for partition, offset in kept.pop("positions").items()}
        return cls(**told, kept=Kept(**kept, positions=positions))


def spark_union(
    spark: SparkSession,
    table: str,
    topic: str,
    bootstrap: str,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
    registry: str | None = None,
) -> DataFrame:
    """Returns the rows of a table, and the topic's records that are not in it yet as rows, none twice and none missing.

    ``table`` is ``delta:PATH``, or ``iceberg:CATALOG.NAMESPACE.TABLE`` with Spark's name of the catalog. Without a
    ``checkpoint`` it is a batch, to the topic's end at the moment of the call. With one it is a stream: give the query
    the same directory as ``checkpointLocation``. ``options`` are those of Spark's Kafka source; those that begin with
    ``kafka.`` are client properties. ``registry`` is the address of the schemas' registry, whose password, token or TLS
    are options, too (``basic.auth.user.info``, ``bearer.auth.token``, ``schema.registry.ssl.*``). ``Refused``,
    ``FatalError`` and ``ClientError`` say in one line what is in the way.
    """
    given = {_KAFKA + _BOOTSTRAP: bootstrap, **(options or {})}
    schemas = {name: given.pop(name) for name in list(given) if name.startswith(_REGISTRYS)}
    if registry:
        schemas[_REGISTRY_URL] = registry
    if ours := given.keys() & {*_OURS, _ISOLATION}:
        raise FatalError(f"spark_union sets {', '.join(sorted(ours))} itself: leave it out")
    if checkpoint is None:
        pin = _new_pin(spark, table, topic, given)
        live = _live(spark, pin, given, schemas, stream=False)
        rows = _rows_at(spark, table, pin.version)
        return _latest(rows, live) if pin.kept.way else rows.unionByName(live)
    directory = os.fspath(checkpoint)
    place, has_begun = f"{directory}/table", bool(_lines(spark, f"{directory}/commits"))
    pins = _lines(spark, place)
    if not pins:
        if has_begun:
            raise Refused(f"{directory} is the checkpoint of another query: give this one a directory of its own")
        pin = _new_pin(spark, table, topic, given)
        if pin.kept.way:
            raise Refused(f"{table} is kept by key, and a stream takes no row back: read it as a batch")
        spark.createDataFrame([(json.dumps(asdict(pin)),)], "value string").coalesce(1).write.mode("append").text(place)
    else:
        pin = _Pin.read(pins[0])
        if len(pins) > 1 or (pin.table, pin.kept.topic) != (table, topic):
            raise Refused(f"{directory} is the checkpoint of another query, of {pin.kept.topic} and {pin.table}")
        _check_topic(pin.kept, given)
    from pyspark.sql import functions as F

    # Once the first batch is done, the table's rows are not read again, and their version may be gone.
    rows = spark.createDataFrame([], _columns(pin)) if has_begun else _rows_at(spark, table, pin.version)
    once = spark.readStream.text(place).select()
    return rows.crossJoin(F.broadcast(once)).unionByName(_live(spark, pin, given, schemas, stream=True))


# --- Where the table ends --------------------------------------------------------------------------------------------


def _new_pin(spark: SparkSession, table: str, topic: str, given: Mapping[str, str]) -> _Pin:
    from kbroker.tables.sources import ClusterSource

    kind, _, name = table.partition(":")
    with _client(given) as client:
        source = ClusterSource(client, topic)
        if kind == "delta":
            kept, version = _of_delta(name, source.ranges())
        elif kind == "iceberg":
            kept, version = _of_iceberg(spark, name)
        else:
            raise FatalError(f"{table!r} is not delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE")
        ranges = source.ranges()  # behind the table's version, or the topic would seem to end before the table
        starts = plan(kept, table, topic, source.topic_id, None, ranges, way=kept.way).starts
        ends = {each: max(end, starts[each]) for each, end in _stable_ends(client, topic, ranges).items()}
    columns = json.loads(_rows_at(spark, table, version).schema.json())
    return _Pin(table, version, replace(kept, positions=starts), ends, columns)


def _client(given: Mapping[str, str]) -> Any:
    from kbroker.client import Client
    from kbroker.client.properties import ClientProperties
    from kbroker.client.security import security_of

    told = {name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)}
    return Client(told[_BOOTSTRAP], client_id="kbroker-spark", security=security_of(ClientProperties(told, "options")))


def _check_topic(kept: Kept, given: Mapping[str, str]) -> None:
    from kbroker.tables.sources import ClusterSource

    with _client(given) as client:
        if ClusterSource(client, kept.topic).topic_id != kept.topic_id:
            raise Refused(f"topic {kept.topic} was deleted and made anew since the query began: begin a new checkpoint")


def _stable_ends(client: Any, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The offsets behind the last records that a reader sees who waits for transactions."""
    from kbroker.client.errors import known
    from kbroker.client.topics import LATEST, list_offsets
    from kbroker.types import TopicPartition

    asked = {TopicPartition(topic, each): LATEST for each in partitions}
    listed = known(list_offsets(client, asked, read_committed=True))
    return {name.partition: each.offset for name, each in listed.items()}


def _of_delta(path: str, partitions: Mapping[int, OffsetRange]) -> tuple[Kept, str]:
    from kbroker.tables.delta import DeltaTarget

    target = DeltaTarget(path)
    kept = target.load(partitions)
    if kept is None:
        raise FatalError(f"there is no table in {target.where}")
    return kept, str(target.facts().version)


def _of_iceberg(spark: SparkSession, name: str) -> tuple[Kept, str]:
    from kbroker.tables.iceberg_files import positions_in
    from kbroker.tables.layout import kept_of
    from kbroker.tables.spark_maintenance import quoted

    java: Any = spark
    found = java._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java._jsparkSession, quoted(name))
    found.refresh()  # a catalog keeps tables for a while
    metadata = found.operations().current()
    snapshot = metadata.currentSnapshot()
    told = dict(metadata.properties())
    return kept_of(told, positions_in(told), name), "" if snapshot is None else str(snapshot.snapshotId())


# --- Rows ------------------------------------------------------------------------------------------------------------


def _rows_at(spark: SparkSession, table: str, version: str) -> DataFrame:
    kind, _, name = table.partition(":")
    if kind == "delta":
        path = name if "://" in name else os.path.abspath(name)
        return spark.read.format("delta").option("versionAsOf", version).load(path)
    from kbroker.tables.iceberg_files import NAMES
    from kbroker.tables.spark_maintenance import quoted

    if version:
        rows = spark.sql(f"SELECT * FROM {quoted(name)} VERSION AS OF {version}")
    else:
        rows = spark.createDataFrame([], spark.table(quoted(name)).schema)
    return rows.withColumnsRenamed({theirs: ours for ours, theirs in NAMES.items()})


def _columns(pin: _Pin) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(pin.columns)


def _live(
    spark: SparkSession, pin: _Pin, given: Mapping[str, str], schemas: Mapping[str, str], *, stream: bool
) -> DataFrame:
    """The topic's records behind the table, with the table's columns; of a table by key with the change that they are.

    Dead letters are none of them.
    """
    from pyspark.sql import functions as F

    from kbroker.tables.rows import CHANGE, LATEST_TIME, plain_schema
    from kbroker.wire.batch_header import NO_TIMESTAMP

    topic, columns = pin.kept.topic, _columns(pin)
    bounds = {"startingOffsets": json.dumps({topic: pin.kept.positions})}
    if not stream:
        bounds["endingOffsets"] = json.dumps({topic: pin.ends})
    reader: Any = spark.readStream if stream else spark.read
    reader = reader.format("kafka").options(**given, **bounds, subscribe=topic, includeHeaders="true")
    records: DataFrame = reader.option(_ISOLATION, "read_committed").load()
    time = F.unix_millis("timestamp")
    known = records.where(time.between(NO_TIMESTAMP, LATEST_TIME)).select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.when(time != NO_TIMESTAMP, F.col("timestamp")).alias("_timestamp"),
        F.col("key").alias("_key"),
        F.coalesce("headers", F.array().cast(columns["_headers"].dataType)).alias("_headers"),
        "value",
    )
    if pin.kept.value_format == "bytes" and not pin.kept.way and not pin.kept.layout:
        return known.select(*(F.col(each.name) if each.name in known.columns else _null(each) for each in columns))
    arrow = plain_schema(spark.createDataFrame([], columns).toArrow().schema)
    if pin.kept.way:
        columns = columns.add(CHANGE.name, "byte")
    return known.mapInArrow(_Decoder(pin.kept, arrow, _traits(pin.table), schemas), columns)


def _traits(table: str) -> Traits:
    if table.startswith("delta:"):
        from kbroker.tables.delta import DeltaTarget

        return DeltaTarget.traits
    from kbroker.tables.iceberg import IcebergTarget

    return IcebergTarget.traits


def _null(field: Any) -> Any:
    from pyspark.sql import functions as F

    return F.lit(None).cast(field.dataType).alias(field.name)


@dataclass(frozen=True)
class _Decoder:
    """Makes rows of a table's values as its follower does, in Spark's workers."""

    kept: Kept
    schema: pyarrow.Schema
    traits: Traits
    registry: Mapping[str, str]
    """Properties by which the schemas' registry is found."""

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        from kbroker.client.properties import ClientProperties
        from kbroker.client.schemas.registry import SchemaRegistry
        from kbroker.client.schemas.settings import registry_settings
        from kbroker.tables.formats import values_of
        from kbroker.tables.layout import Layout
        from kbroker.tables.rows import CHANGE, keyless

        settings = registry_settings(None, ClientProperties(self.registry, "options"))
        like_table: Any = self  # the format's traits are all that is asked of a table
        parts = [part for part in Layout.of(self.kept.layout).parts if part.unit]
        own = pyarrow.schema([each for each in self.schema if each.name not in {part.name for part in parts}])
        values = values_of(self.kept, own, like_table, settings and SchemaRegistry(settings))
        schema = self.schema.append(CHANGE) if self.kept.way else self.schema
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            headers = [_record_headers(each) for each in columns["_headers"].to_pylist()] if settings else ()
            decoded, found = values.columns(columns.pop("value").to_pylist(), headers)
            bad = {*found}
            names = [each.name for each in values.fields()]
            if self.kept.way:
                names.append(CHANGE.name)
                bad.update(keyless(columns["_key"].to_pylist(), decoded[-1]))
            columns |= dict(zip(names, decoded, strict=True))
            columns |= {
                part.name: part.of(pyarrow.chunked_array([columns[part.column]])).combine_chunks() for part in parts
            }
            # Of an object whose fields are more by now those that the table had are left.
            rows = pyarrow.RecordBatch.from_arrays(
                [
                    columns[each.name].cast(each.type)
                    if each.name in columns
                    else pyarrow.nulls(batch.num_rows, each.type)
                    for each in schema
                ],
                schema=schema,
            )
            yield rows.filter(pyarrow.array([index not in bad for index in range(batch.num_rows)])) if bad else rows


def _record_headers(told: Iterable[Mapping[str, Any]] | None) -> Headers:
    return tuple((each["key"], each["value"]) for each in told or ())


def _latest(rows: DataFrame, changes: DataFrame) -> DataFrame:
    """The latest row of each key, by the rules of `kbroker.tables.upserts`."""
    from pyspark.sql import functions as F

    from kbroker.tables.rows import CHANGE, DELETE, TRUNCATE, WRITE

    live = "_key live"
    change, time = F.col(CHANGE.name), F.coalesce("_timestamp", F.timestamp_micros(F.lit(0)))
    # What the table has is earlier, also where its offsets are those of a topic that was made anew.
    has = rows.withColumns({CHANGE.name: F.lit(WRITE), live: F.lit(0)})
    both = has.unionByName(changes.where(change != TRUNCATE).withColumn(live, F.lit(1)))
    whole = F.struct(*both.columns)
    newest = F.max_by(whole, F.struct(live, "_offset")).alias("row")
    by_partition = both.groupBy("_key", "_partition").agg(newest).select("row.*")
    by_key = by_partition.groupBy("_key").agg(F.max_by(whole, F.struct(time, "_partition")).alias("row"))
    cuts = changes.where(change == TRUNCATE).select(
        F.col("_partition").alias("cut"), F.col("_offset").alias("before"), time.alias("until")
    )
    here = F.col("_partition") == F.col("cut")
    is_before = (F.col(live) == 0) | (F.col("_offset") < F.col("before"))
    is_cut = (here & is_before) | (~here & (time <= F.col("until")))
    latest = by_key.select("row.*").join(F.broadcast(cuts), is_cut, "left_anti")
    return latest.where(change != DELETE).select(*rows.columns)


def _lines(spark: SparkSession, place: str) -> list[str]:
    """The lines of the text files in a directory of whatever file system; none without one."""
    from pyspark.errors import AnalysisException

    try:
        return [row.value for row in spark.read.text(place).collect()]
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        raise
