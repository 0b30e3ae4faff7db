"""Good records to one topic, bad ones to a dead-letter topic with headers that say why and from where.

    python -m spark_examples.dead_letters --spoil 100

A bad record goes on as it came, key, value and headers, and gets headers besides: `dlq.reason`, and
`dlq.source.topic`, `.partition`, `.offset` and `.timestamp` (ms since 1970) of the record that it was. Thus it can be
mended and sent again, and a record that Spark's sink wrote twice after a crash is known by its source.

One query writes both topics: the sink takes the topic of each row from a column. `--spoil` first puts so many bad
records into the topic, of each kind in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.testing.spark import using_spark
from spark_examples import flights
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import ORIGINS, scheduled_departure_ms
from spark_examples.streams import Summary, read_batch, read_stream, run_query
from spark_examples.topics import Record, create_topic, json_lines, produce_records, topic_exists

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASON = "dlq.reason"
SOURCE = "dlq.source."
TOPIC = "flights-raw"
"""Not the topic of the other scripts: a job that does not look for bad records stops at one."""
GOOD, DEAD = "good", "dead-letters"

NO_VALUE = "no value"
NOT_JSON = "not a JSON object"
MISFIT = "does not fit the schema"
INCOMPLETE = "no carrier, flight, origin or time"
UNKNOWN_ORIGIN = "origin is none of " + ", ".join(ORIGINS)
WRONG_KEY = "key is not carrier and flight"


def judged(rows: DataFrame) -> DataFrame:
    """The source's rows with one column more, `reason`: why the record is bad, null for a good one."""
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    # Where a field does not fit, Spark makes it null and keeps the whole text in the column named here.
    schema = f"{flights.SCHEMA}, _misfit STRING"
    parsed = F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_misfit"})
    incomplete = F.lit(False)
    for name in ("carrier", "flight", "origin", "time_hour"):
        incomplete = incomplete | F.col(f"v.{name}").isNull()
    flight_key = F.concat("v.carrier", F.col("v.flight").cast("string"))
    reason = (
        F.when(F.col("value").isNull(), NO_VALUE)
        .when(~F.coalesce(F.schema_of_variant(F.try_parse_json(text)).startswith("OBJECT"), F.lit(False)), NOT_JSON)
        .when(F.col("v._misfit").isNotNull(), MISFIT)
        .when(incomplete, INCOMPLETE)
        .when(~F.col("v.origin").isin(*ORIGINS), UNKNOWN_ORIGIN)
        .when(~F.col("key").cast("string").eqNullSafe(flight_key), WRONG_KEY)
    )
    return rows.withColumn("v", parsed).withColumn("reason", reason).drop("v")


def routed(rows: DataFrame, good_topic: str, dead_topic: str) -> DataFrame:
    """Judged rows as the sink takes them: topic, key, value, headers."""
    from pyspark.sql import functions as F

    def header(name: str, value: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

    why = F.array(
        header(REASON, F.col("reason")),
        header(f"{SOURCE}topic", F.col("topic")),
        header(f"{SOURCE}partition", F.col("partition")),
        header(f"{SOURCE}offset", F.col("offset")),
        header(f"{SOURCE}timestamp", F.unix_millis("timestamp")),
    )
    bad = F.col("reason").isNotNull()
    # A record without headers has null for them, not an empty array.
    headers = F.when(~bad, F.col("headers")).when(F.col("headers").isNull(), why).otherwise(F.concat("headers", why))
    return rows.select(
        F.when(bad, dead_topic).otherwise(good_topic).alias("topic"), "key", "value", headers.alias("headers")
    )


def load_routed(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    good_topic: str,
    dead_topic: str,
    checkpoint: Path,
    max_offsets_per_trigger: int = 100_000,
    follow: bool = False,
) -> Summary:
    """Runs the query over what is new. Both topics must exist."""
    source = read_stream(
        spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger, includeHeaders="true"
    )
    writer = (
        routed(judged(source), good_topic, dead_topic)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(checkpoint))
    )
    return run_query(writer, what="route", follow=follow)


def spoilt(frame: Any) -> list[Record]:
    """Each row of a frame of flights as a bad record; the kinds take turns, and the header `spoilt` says which."""
    made = []
    lines = zip(json_lines(frame), frame.itertuples(), scheduled_departure_ms(frame).tolist(), strict=True)
    for number, (line, flight, timestamp_ms) in enumerate(lines):
        key = f"{flight.carrier}{flight.flight}".encode()
        kinds: list[tuple[str, bytes | None, bytes | None]] = [
            (NO_VALUE, key, None),
            (NOT_JSON, key, line[: len(line) // 2].encode()),
            (MISFIT, key, line.replace(f'"flight":{flight.flight}', '"flight":"none"').encode()),
            (INCOMPLETE, key, line.replace(f'"carrier":"{flight.carrier}",', "").encode()),
            (UNKNOWN_ORIGIN, key, line.replace(f'"origin":"{flight.origin}"', '"origin":"BOS"').encode()),
            (WRONG_KEY, None, line.encode()),
        ]
        kind, spoilt_key, value = kinds[number % len(kinds)]
        made.append(Record(spoilt_key, value, timestamp_ms, (("spoilt", kind.encode()),)))
    return made


def by_reason(dead: DataFrame) -> list[tuple[str, int]]:
    """A dead-letter topic's rows, read with headers, counted by reason."""
    from pyspark.sql import functions as F

    reason = F.expr(f"filter(headers, h -> h.key = '{REASON}')[0].value").cast("string")
    found = dead.groupBy(reason.alias("reason")).count().orderBy("reason").collect()
    return [(row["reason"], row["count"]) for row in found]


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Good records to one topic, bad ones to a dead-letter topic.")
    arguments_of.add_argument("--topic", default=TOPIC, help="a missing one is created, with all flights of 2013")
    arguments_of.add_argument("--good-topic", help="created, unless it exists (TOPIC-good)")
    arguments_of.add_argument("--dead-letter-topic", help="created, unless it exists (TOPIC-dead-letters)")
    arguments_of.add_argument(
        "--checkpoint", type=Path, default=OUT / "dead-letters-checkpoint", help="where Spark notes how far it is"
    )
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, default=100_000, help="records in a micro-batch")
    arguments_of.add_argument("--spoil", type=int, default=0, help="first put so many bad records into the topic")
    arguments_of.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    arguments = arguments_of.parse_args(argv)
    good_topic = arguments.good_topic or f"{arguments.topic}-{GOOD}"
    dead_topic = arguments.dead_letter_topic or f"{arguments.topic}-{DEAD}"
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        for name in (good_topic, dead_topic):
            if not topic_exists(bootstrap, name):
                create_topic(bootstrap, name)
        if arguments.spoil:
            bad = spoilt(flights.load(arguments.spoil))
            produce_records(bootstrap, arguments.topic, bad, total=len(bad), what="bad records")
        with using_spark("dead letters") as spark:
            summary = load_routed(
                spark,
                bootstrap,
                arguments.topic,
                good_topic=good_topic,
                dead_topic=dead_topic,
                checkpoint=arguments.checkpoint,
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
                follow=arguments.follow,
            )
            reasons = by_reason(read_batch(spark, bootstrap, dead_topic, includeHeaders="true"))
    print(f"{summary.rows:,} new records in {summary.batches} micro-batches; {dead_topic} now:")
    print(table(["reason", "records"], reasons))


if __name__ == "__main__":
    main()
