"""A topic as a table of Delta Lake: a report over history and live data together, and the table before a correction.

    python -m spark_examples.table_report
    python -m spark_examples.table_report --live-from 2013-12-24

The flights of the first months arrive, and `kbroker table follow` keeps a table of them, in a process of its own. Then
the last month arrives, which is in the topic alone: `spark_union` reads the table, and the topic from where the table
ends. At last Frontier finds that its clocks were ten minutes fast, and sends its flights again. The newest record of a
flight counts, so the report is another now, and with `versionAsOf` the table still tells what it told before.

Each count and mean is compared with pandas, to the last bit: exit code 1 if one differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.testing.spark import SetupError, delta_session, using_spark
from spark_examples import flights
from spark_examples.batch_report import carrier_delays
from spark_examples.command import broker, moment_ms, parser, readable_errors
from spark_examples.console import Progress, table
from spark_examples.flights import CarrierDelay
from spark_examples.processes import process
from spark_examples.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIVE_FROM = "2013-12-01"
CORRECTED, MINUTES = "F9", 10
"""Frontier, and by how much its delays were too long."""
FLIGHT = ("carrier", "flight", "origin", "time_hour", "minute")
"""The columns that tell which flight it is."""
LOOK_SECONDS, FOLLOW_SECONDS = 0.2, 300.0


@dataclass(frozen=True, slots=True)
class Reported:
    """A report, and the one that pandas makes of the source data. ``table_rows``: of these so many are in the table."""

    what: str
    table_rows: int
    live_rows: int
    answer: list[CarrierDelay]
    truth: list[CarrierDelay]


def newest(rows: DataFrame) -> DataFrame:
    """Returns a row for each flight: that of its last record. A flight's records are in one partition, in order."""
    from pyspark.sql import functions as F

    last = F.max_by(F.struct("dep_delay"), F.col("_offset"))
    return rows.groupBy(*FLIGHT).agg(last.alias("last")).select(*FLIGHT, "last.*")


def corrected(frame: Any) -> Any:
    """The flights as they really were."""
    return frame.assign(dep_delay=frame["dep_delay"].where(frame["carrier"] != CORRECTED, frame["dep_delay"] - MINUTES))


@contextmanager
def following(bootstrap: str, topic: str, path: Path, work: Path) -> Iterator[subprocess.Popen[str]]:
    """Keep a table in step with the topic, by the command that does it."""
    words = ["table", "follow", topic, "--to", f"delta:{path}", "--value", "json", "--every", "1s", "-b", bootstrap]
    with process(*words, log=work / "follow.log") as running:
        yield running


def await_rows(path: Path, rows: int, running: subprocess.Popen[str], work: Path) -> None:
    """Wait until the table has so many rows. ``SetupError`` with what its follower said if it does not get there."""
    from deltalake import DeltaTable

    progress, deadline = Progress("rows of the table", rows), time.monotonic() + FOLLOW_SECONDS
    while (found := DeltaTable(path).count() if DeltaTable.is_deltatable(str(path)) else 0) < rows:
        progress.update(found)
        if running.poll() is not None or time.monotonic() > deadline:
            raise SetupError(f"the table got {found:,} rows of {rows:,}:\n{(work / 'follow.log').read_text()[-2000:]}")
        time.sleep(LOOK_SECONDS)
    progress.finish(found)


def run(
    spark: SparkSession, bootstrap: str, work: Path, *, topic: str, frame: Any, live_from_ms: int
) -> list[Reported]:
    """The three reports, on a new topic; ``work`` takes the table. Times are of the scheduled departure."""
    from deltalake import DeltaTable

    from kbroker.tables import spark_union

    times = flights.scheduled_departure_ms(frame)
    history, live = flights.between(frame, times, None, live_from_ms), flights.between(frame, times, live_from_ms, None)
    path = work / topic
    create_topic(bootstrap, topic)
    with following(bootstrap, topic, path, work) as running:
        flights.produce(bootstrap, topic, history)
        await_rows(path, len(history), running, work)
    flights.produce(bootstrap, topic, live)

    def report(what: str, rows: DataFrame, in_table: int, truth: Any) -> Reported:
        answer = carrier_delays(newest(rows))
        return Reported(what, in_table, rows.count() - in_table, answer, flights.mean_delay_by_carrier(truth))

    union = spark_union(spark, f"delta:{path}", topic, bootstrap)
    together = report("history and live", union, len(history), frame)
    again = corrected(frame)
    sent_again = again[again["carrier"] == CORRECTED]
    with following(bootstrap, topic, path, work) as running:
        await_rows(path, len(frame), running, work)
        before = DeltaTable(path).version()
        flights.produce(bootstrap, topic, sent_again)
        await_rows(path, len(frame) + len(sent_again), running, work)
    union = spark_union(spark, f"delta:{path}", topic, bootstrap)
    after = report("after the correction", union, len(frame) + len(sent_again), again)
    old = spark.read.format("delta").option("versionAsOf", before).load(str(path))
    return [together, after, report("before it, by versionAsOf", old, len(frame), frame)]


def report_table(reports: list[Reported]) -> str:
    """The reports for a person: where the rows came from, and the corrected carrier's mean."""
    rows = []
    for each in reports:
        [mean] = [delay.mean_delay_minutes for delay in each.answer if delay.carrier == CORRECTED] or [float("nan")]
        verdict = "equal" if each.answer == each.truth else "DIFFERENT"
        count = sum(delay.flights for delay in each.answer)
        rows.append((each.what, each.table_rows, each.live_rows, count, f"{mean:.4f}", verdict))
    return table(["report", "from the table", "from the topic", "flights", f"{CORRECTED}, min", "to pandas"], rows)


def differences(reports: list[Reported]) -> list[str]:
    """The reports that are not as pandas has them, a line each."""
    return [f"{each.what}: differs from pandas" for each in reports if each.answer != each.truth]


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("A topic as a table: history and live data together, and time travel.")
    arguments_of.add_argument(
        "--topic", default=f"flights-table-{os.getpid()}", help="is created, so it must not exist (a new name)"
    )
    arguments_of.add_argument("--from", dest="start", type=moment_ms, help="first departure, e.g. 2013-06-01 (UTC)")
    arguments_of.add_argument(
        "--live-from",
        type=moment_ms,
        default=moment_ms(LIVE_FROM),
        help=f"flights from then on are not in the table at first ({LIVE_FROM})",
    )
    arguments = arguments_of.parse_args(argv)
    frame = flights.load(start_ms=arguments.start)
    with (
        broker(arguments.bootstrap) as bootstrap,
        tempfile.TemporaryDirectory(prefix="kbroker-table-") as work,
        using_spark("table report", delta_session) as spark,
    ):
        live_from_ms = arguments.live_from
        reports = run(spark, bootstrap, Path(work), topic=arguments.topic, frame=frame, live_from_ms=live_from_ms)
    print(report_table(reports))
    if wrong := differences(reports):
        sys.exit("NOT as in the source data:\n  " + "\n  ".join(wrong))


if __name__ == "__main__":
    main()
