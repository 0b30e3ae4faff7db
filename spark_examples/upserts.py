"""A stream into a database: counts by carrier and day, and the last flight of each plane. Exact after any crash.

    python -m spark_examples.upserts --database out/flights.sqlite

`foreachBatch` gives each micro-batch to a function, at least once: when the job is killed between the database's
commit and Spark's own, the next run gives the same rows with the same batch number again. There are two remedies, and
both tables are written in one transaction of the database:

- `carrier_day` is added to, which must not happen twice. So the transaction also writes down the number of the batch,
  and a batch that has been applied is left out (the numbers are those of one checkpoint, which `--job` names).
- `plane` is set to the newest of what is known, by key and time. That may happen as often as it likes.

A record that is no flight stops the job, as the tables refuse it: `dead_letters` is what goes before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing.spark import using_spark
from spark_examples import flights
from spark_examples.batch_report import parsed
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import TOPIC
from spark_examples.streams import Summary, read_stream, run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = """
CREATE TABLE IF NOT EXISTS applied (
    job TEXT, batch INTEGER, flights INTEGER NOT NULL, PRIMARY KEY (job, batch));
CREATE TABLE IF NOT EXISTS carrier_day (
    carrier TEXT NOT NULL, day TEXT NOT NULL, flights INTEGER NOT NULL, departed INTEGER NOT NULL,
    delay_minutes INTEGER NOT NULL, PRIMARY KEY (carrier, day));
CREATE TABLE IF NOT EXISTS plane (
    tailnum TEXT PRIMARY KEY, departure_ms INTEGER NOT NULL, flight TEXT NOT NULL, origin TEXT NOT NULL,
    dest TEXT NOT NULL);
"""

ADD = """
INSERT INTO carrier_day VALUES (?, ?, ?, ?, ?) ON CONFLICT (carrier, day) DO UPDATE SET
    flights = flights + excluded.flights,
    departed = departed + excluded.departed,
    delay_minutes = delay_minutes + excluded.delay_minutes
"""

# The order of records among partitions is not defined, so "newest" is by time, and by flight where that is equal.
REPLACE = """
INSERT INTO plane VALUES (?, ?, ?, ?, ?) ON CONFLICT (tailnum) DO UPDATE SET
    departure_ms = excluded.departure_ms, flight = excluded.flight, origin = excluded.origin, dest = excluded.dest
    WHERE (excluded.departure_ms, excluded.flight) > (departure_ms, flight)
"""

CarrierDay = tuple[str, str, int, int, int]
"""Carrier, day, flights, of these departed, delay in minutes."""
Plane = tuple[str, int, str, str, str]
"""Tail number, scheduled departure in ms since 1970, flight, origin, destination."""


def connect(database: Path) -> sqlite3.Connection:
    """The database with its tables; transactions are begun by hand."""
    database.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(database, isolation_level=None, timeout=30)
    connection.executescript(TABLES)
    return connection


def apply_batch(
    connection: sqlite3.Connection, job: str, batch: int, days: Iterable[CarrierDay], planes: Iterable[Plane]
) -> bool:
    """Applies one micro-batch, whole or not at all; whether it was new."""
    days = list(days)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        row = (job, batch, sum(day[2] for day in days))
        if connection.execute("INSERT OR IGNORE INTO applied VALUES (?, ?, ?)", row).rowcount == 0:
            return False
        connection.executemany(ADD, days)
        connection.executemany(REPLACE, planes)
    return True


def carrier_days(rows: DataFrame) -> list[CarrierDay]:
    """One micro-batch's flights by carrier and day (UTC): small, as it does not grow with the batch."""
    from pyspark.sql import functions as F

    counted = rows.groupBy("carrier", F.date_format("timestamp", "yyyy-MM-dd").alias("day")).agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
    )
    return [tuple(row) for row in counted.collect()]


def newest_by_plane(rows: DataFrame) -> list[Plane]:
    """The last flight of each plane in one micro-batch; flights without a tail number are left out."""
    from pyspark.sql import functions as F

    last = F.struct(
        F.unix_millis("timestamp").alias("departure_ms"),
        F.concat("carrier", F.col("flight").cast("string")).alias("flight"),
        "origin",
        "dest",
    )
    found = rows.where("tailnum IS NOT NULL").groupBy("tailnum").agg(F.max(last).alias("last"))
    return [tuple(row) for row in found.select("tailnum", "last.*").collect()]


def upsert_new(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    database: Path,
    checkpoint: Path,
    job: str = "upserts",
    max_offsets_per_trigger: int = 50_000,
    follow: bool = False,
    applied: Callable[[int], None] = lambda batch: None,
) -> Summary:
    """Runs the query over what is new; `applied` is told each batch after the database's commit, before Spark's."""

    def write(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()  # it is read twice
        try:
            # The function may run in another thread than the last time, which is sqlite3's limit for a connection.
            with closing(connect(database)) as connection:
                apply_batch(connection, job, batch, carrier_days(rows), newest_by_plane(rows))
        finally:
            rows.unpersist()
        applied(batch)

    source = read_stream(spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger)
    writer = parsed(source).writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return run_query(writer, what="upserts", follow=follow)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Upsert flights into a database, exactly once.")
    arguments_of.add_argument("--topic", default=TOPIC, help="a missing one is created, with all flights of 2013")
    arguments_of.add_argument("--database", type=Path, default=OUT / "flights.sqlite", help="a file of SQLite")
    arguments_of.add_argument(
        "--checkpoint", type=Path, default=OUT / "upserts-checkpoint", help="where Spark notes how far it is"
    )
    arguments_of.add_argument("--job", default="upserts", help="a name for the checkpoint: each needs its own")
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, default=50_000, help="records in a micro-batch")
    arguments_of.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    arguments = arguments_of.parse_args(argv)
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        with using_spark("upserts") as spark:
            summary = upsert_new(
                spark,
                bootstrap,
                arguments.topic,
                database=arguments.database,
                checkpoint=arguments.checkpoint,
                job=arguments.job,
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
                follow=arguments.follow,
            )
    with closing(connect(arguments.database)) as connection:
        carriers = connection.execute(
            "SELECT carrier, sum(flights), sum(departed), sum(delay_minutes), count(*) FROM carrier_day "
            "GROUP BY carrier ORDER BY carrier"
        ).fetchall()
        planes = connection.execute("SELECT count(*) FROM plane").fetchone()[0]
    print(f"{summary.rows:,} new flights in {summary.batches} micro-batches; {planes:,} planes; the database now:")
    print(table(["carrier", "flights", "departed", "delay, min", "days"], carriers))


if __name__ == "__main__":
    main()
