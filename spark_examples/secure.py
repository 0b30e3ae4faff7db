"""Spark over TLS, each job with a user of its own that may do no more than it must.

    python -m spark_examples.secure
    python -m spark_examples.secure --admin admin.properties

The first starts a secure kbroker for as long as it runs. The second works on a cluster that is there, kbroker or Apache
Kafka: the file has Kafka's client properties of a user who may make users, topics and ACLs, by SASL_SSL and SCRAM.

Spark takes Kafka's client properties as options, each with `kafka.` before its name; nothing else is different from an
open cluster. A job that reads a topic needs READ on it, and one that writes WRITE: Spark needs no right on a group, as
it keeps offsets in its checkpoint. `loader` may write the flights, `analyst` may read them and write its result.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.config.properties_file import format_properties, read_properties_file
from kbroker.testing.spark import SetupError, using_spark
from spark_examples import ROOT, flights
from spark_examples.command import bare_parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import SCHEMA
from spark_examples.streams import json_rows, read_batch, read_stream, run_query
from spark_examples.topics import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights-secure"
LOADER, ANALYST = "loader", "analyst"


@contextlib.contextmanager
def secure_kbroker() -> Iterator[Path]:
    """A secure kbroker that lives as long as the block; yields the client properties of its administrator."""
    from kbroker.testing import running_cluster

    with tempfile.TemporaryDirectory(prefix="kbroker-example-") as scratch, running_cluster(1, secure=True) as cluster:
        file = Path(scratch) / "admin.properties"
        properties = {"bootstrap.servers": cluster.bootstrap_servers, **cluster.client_properties("admin")}
        file.touch(mode=0o600)
        file.write_text(format_properties(properties, "The administrator"))
        print(f"secure kbroker ready on {cluster.bootstrap_servers}", file=sys.stderr)
        yield file


class Administrator:
    """The command `kbroker` with the rights of the administrator; Apache Kafka's cluster understands it, too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        properties = read_properties_file(file)
        try:
            self.bootstrap = properties.pop("bootstrap.servers")
            self._mechanism = properties["sasl.mechanism"]
        except KeyError as missing:
            raise SetupError(f"{file}: {missing.args[0]} is not set") from None
        self._properties = properties

    def run(self, *words: str, given: str = "") -> None:
        """A command. Raises SetupError with what it said."""
        command = [sys.executable, "-m", "kbroker", *words, "--command-config", str(self._file)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            raise SetupError(f"kbroker {' '.join(words)}: {done.stderr.strip()}")

    def user(self, name: str) -> dict[str, str]:
        """Makes a user, or gives it a new password; returns its client properties as Spark's options."""
        password = secrets.token_urlsafe(24)
        self.run("user", "add", name, "--mechanism", self._mechanism, given=f"{password}\n")
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'{module} required username="{name}" password="{password}";'
        return spark_options({**self._properties, "sasl.jaas.config": login})

    def allow(self, user: str, topic: str, *operations: str) -> None:
        """Gives a user rights on a topic."""
        wanted = [word for operation in operations for word in ("--operation", operation)]
        self.run("acl", "add", "--allow", f"User:{user}", *wanted, "--topic", topic)


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Kafka's client properties as Spark's source and sink take them."""
    return {f"kafka.{name}": value for name, value in properties.items()}


def load_flights(spark: SparkSession, bootstrap: str, options: Mapping[str, Any], topic: str, frame: Any) -> int:
    """Writes a frame of flights into the topic, as a batch; returns how many rows."""
    rows = [(record.key, record.value) for record in flights.records(frame)]
    write(spark.createDataFrame(rows, "key BINARY, value BINARY"), bootstrap, options, topic)
    return len(rows)


def write(frame: DataFrame, bootstrap: str, options: Mapping[str, Any], topic: str) -> None:
    """A batch into a topic."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.options(**options).save()


def count_by_carrier(
    spark: SparkSession, bootstrap: str, options: Mapping[str, Any], topic: str, result: str, checkpoint: Path
) -> None:
    """Streams the flights, as far as they are there, and writes each carrier's count into the result topic."""
    counts = json_rows(read_stream(spark, bootstrap, topic, **options), SCHEMA).groupBy("carrier").count()
    writer = (
        counts.selectExpr("CAST(carrier AS BINARY) AS key", "CAST(CAST(count AS STRING) AS BINARY) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**options)
        .option("topic", result)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    run_query(writer, what="count")


def counts_of(spark: SparkSession, bootstrap: str, options: Mapping[str, Any], result: str) -> list[tuple[str, int]]:
    """The last count of each carrier in the result topic, which is its highest; by carrier."""
    rows = read_batch(spark, bootstrap, result, **options).selectExpr(
        "CAST(key AS STRING) AS carrier", "CAST(CAST(value AS STRING) AS INT) AS flights"
    )
    highest = rows.groupBy("carrier").agg({"flights": "max"}).orderBy("carrier").collect()
    return [(row[0], row[1]) for row in highest]


def refusal(spark: SparkSession, bootstrap: str, options: Mapping[str, Any], topic: str) -> str:
    """The name of the error with which the brokers refuse a write; "" if they take it. Other errors are raised."""
    name = "TopicAuthorizationException"
    try:
        write(spark.sql("SELECT 'not mine to write' AS value"), bootstrap, options, topic)
    except Exception as error:
        if name not in str(error):
            raise
        return name
    return ""


def run(admin: Administrator, topic: str, frame: Any) -> tuple[int, list[tuple[str, int]], str]:
    """All of it: flights that were loaded, counts by carrier, and how the analyst's write was refused."""
    result = f"{topic}-by-carrier"
    for name, partitions in ((topic, PARTITIONS), (result, 1)):
        keep = ("--config", "retention.ms=-1")
        admin.run("topic", "create", name, "--partitions", str(partitions), "--if-not-exists", *keep)
    loader, analyst = admin.user(LOADER), admin.user(ANALYST)
    admin.allow(LOADER, topic, "write")
    admin.allow(ANALYST, topic, "read")
    admin.allow(ANALYST, result, "read", "write")
    with using_spark("secure") as spark, tempfile.TemporaryDirectory(prefix="kbroker-example-") as scratch:
        loaded = load_flights(spark, admin.bootstrap, loader, topic, frame)
        count_by_carrier(spark, admin.bootstrap, analyst, topic, result, Path(scratch) / "checkpoint")
        counts = counts_of(spark, admin.bootstrap, analyst, result)
        return loaded, counts, refusal(spark, admin.bootstrap, analyst, topic)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = bare_parser("Spark over TLS, each job with a user of its own.")
    arguments_of.add_argument(
        "--admin", type=Path, metavar="FILE", help="client properties; without them, a secure kbroker is started"
    )
    arguments_of.add_argument("--topic", default=TOPIC, help="created, unless it exists; so is TOPIC-by-carrier")
    arguments_of.add_argument("--limit", type=int, default=50_000, help="how many flights are loaded")
    arguments = arguments_of.parse_args(argv)
    with contextlib.ExitStack() as stack:
        file = arguments.admin or stack.enter_context(secure_kbroker())
        loaded, counts, refused = run(Administrator(file), arguments.topic, flights.load(arguments.limit))
    print(f"{loaded:,} flights, written by {LOADER}; counted by {ANALYST}:")
    print(table(["carrier", "flights"], counts))
    print(f"{ANALYST} may not write flights: {refused or 'BUT IT COULD'}")
    if not refused:
        sys.exit(1)


if __name__ == "__main__":
    main()
